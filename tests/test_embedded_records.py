"""The records that come with kfs: every kernel of every family, measured right on real processes."""

from collections import defaultdict

import pytest

from kfs import pairs as kp
from kfs.bench.campaign import task_kernels
from kfs.bench.replay import ReplayDevice
from kfs.bench.timing import estimate
from kfs.records import Status
from kfs.tasks import load_task, task_names


@pytest.fixture(scope="module")
def embedded():
    return kp.embedded_records()


@pytest.fixture(scope="module")
def pairs(embedded):
    measurements, kernels, _ = embedded
    return kp.from_measurements(measurements, kernels)


def test_every_kernel_of_every_family_was_measured_and_is_right(embedded):
    measurements, kernels, hardware = embedded
    found = {(m.task, m.kernel_id): m.status for m in measurements}
    wanted = {(t, k.kernel_id) for t in task_names() for k in task_kernels(load_task(t))}
    assert set(found) == wanted == {(k.task, k.kernel_id) for k in kernels}
    assert set(found.values()) == {Status.OK}
    assert {m.hardware for m in measurements} == {hardware.name}


def test_every_measurement_can_be_computed_again_from_its_raw_samples(embedded):
    for m in embedded[0]:
        again = estimate(m.blocks, level=m.confidence)
        assert (again.speedup, again.low, again.high) == pytest.approx((m.speedup, m.speedup_low, m.speedup_high))


def test_a_reference_measured_against_itself_is_about_as_fast(embedded):
    for m in embedded[0]:
        if m.kernel_id == m.reference_id:
            assert 0.8 < m.speedup < 1.25, m.task


def test_pairs_of_each_task_cover_all_eight_bins_and_at_least_four_against_the_reference(pairs):
    every, reference = defaultdict(set), defaultdict(set)
    for p in pairs:
        every[p.pack].add(p.true_bin)
        if p.subset == "reference_to_candidate":
            reference[p.pack].add(p.true_bin)
    assert {t: len(bins) for t, bins in every.items()} == dict.fromkeys(task_names(), 8)
    assert all(len(bins) >= 4 for bins in reference.values()), reference


def test_the_replay_device_answers_for_every_embedded_kernel(embedded):
    measurements, _, hardware = embedded
    task = load_task("softmax")
    with ReplayDevice(measurements, hardware) as device:
        assert all(m.status == Status.OK for m in device.measure(task, task_kernels(task)))


def test_sources_do_not_tell_how_fast_they_are(embedded):
    words = ("slow", "fast path", "fastest", "naive", "optimis", "optimized", "inefficient", "baseline", "bad idea")
    told = {(k.task, k.name, w) for k in embedded[1] for w in words if w in k.source.lower()}
    assert not told
