from collections import Counter

import numpy as np
import pytest

from kfs import pairs as kp
from kfs.bench.timing import estimate
from kfs.records import Block, Kernel, Measurement, Pair
from kfs.speedup import STUDY_BINS


def make_pairs(n=200, packs=4, seed=0):
    rng = np.random.default_rng(seed)
    speedups = 2 ** rng.normal(0, 1.5, n)
    return [
        Pair(
            comparison_id=str(i), pack=f"task{i % packs}", anchor_code="a", candidate_code="b", hardware="h",
            aggregated_speedup=s, true_bin=STUDY_BINS.index(s),
        )
        for i, s in enumerate(speedups)
    ]  # fmt: skip


def records(speedups, spread=0.0):
    """Measurements whose raw samples give ``speedups``, with child pairs ``spread`` octaves apart."""
    kernels = [
        Kernel(language="python", source=f"k{i}", task="t", family="reference" if i == 0 else "f") for i in range(len(speedups))
    ]
    measurements = []
    for k, s in zip(kernels, speedups, strict=True):
        blocks = [
            Block(case="c", child_pair=p, reference_ns=[10**9], candidate_ns=[round(10**9 / s * 2 ** (spread * (p - 1)))])
            for p in range(3)
        ]
        e = estimate(blocks)
        measurements.append(
            Measurement(
                task="t", preset="host", kernel_id=k.kernel_id, reference_id=kernels[0].kernel_id, hardware="h", harness="x",
                status="ok", speedup=e.speedup, speedup_low=e.low, speedup_high=e.high, confidence=e.level,
                log2_std_error=e.log2_std_error, n_child_pairs=e.n_child_pairs, blocks=blocks,
            )
        )  # fmt: skip
    return measurements, kernels


def test_every_ordered_pair_is_there_with_the_ratio_of_its_speedups():
    pairs = kp.from_measurements(*records([1.0, 2.0, 6.0]))
    found = {(p.anchor_code, p.candidate_code): p.aggregated_speedup for p in pairs}
    assert len(found) == 6
    assert found["k1", "k2"] == pytest.approx(3.0) and found["k2", "k1"] == pytest.approx(1 / 3)
    assert found["k0", "k2"] == pytest.approx(6.0) and found["k2", "k0"] == pytest.approx(1 / 6)


def test_a_pair_with_the_reference_keeps_the_kernels_own_interval_both_ways():
    measurements, kernels = records([1.0, 2.0], spread=0.05)
    pairs = {(p.anchor_code, p.candidate_code): p for p in kp.from_measurements(measurements, kernels)}
    assert pairs["k0", "k1"].speedup_low == pytest.approx(measurements[1].speedup_low)
    assert pairs["k1", "k0"].speedup_high == pytest.approx(1 / measurements[1].speedup_low)
    assert [pairs[k].subset for k in (("k0", "k1"), ("k1", "k0"))] == ["reference_to_candidate", "candidate_to_reference"]


def test_a_higher_level_widens_every_pair():
    narrow, wide = (kp.from_measurements(*records([1.0, 2.0, 3.0], spread=0.05), level=level) for level in (0.9, 0.99))
    assert all(w.speedup_low < n.speedup_low and w.speedup_high > n.speedup_high for n, w in zip(narrow, wide, strict=True))


def test_a_pair_whose_interval_crosses_an_edge_is_uncertain():
    pairs = {(p.anchor_code, p.candidate_code): p for p in kp.from_measurements(*records([1.0, 1.6, 3.1], spread=0.05))}
    assert not pairs["k1", "k2"].certain  # 1.94, an edge at 2
    assert pairs["k0", "k2"].certain


def test_failed_kernels_make_no_pairs():
    measurements, kernels = records([1.0, 2.0])
    failed = Measurement(
        **{**measurements[1].model_dump(exclude={"measurement_id"}), "status": "crash", "reason": "r", "speedup": None,
           "speedup_low": None, "speedup_high": None, "blocks": []}
    )  # fmt: skip
    assert kp.from_measurements([measurements[0], failed], kernels) == []


def test_comparisons_sifted_first_give_the_pairs_sifted_afterwards():
    measurements, kernels = records([1.0, 1.6, 3.1, 2.9, 0.7, 1.1], spread=0.05)
    pairs, light = kp.from_measurements(measurements, kernels), kp.comparisons(measurements, kernels)
    kept = kp.balance(pairs, 1, np.random.default_rng(0))
    assert kept == [c.pair() for c in kp.balance(light, 1, np.random.default_rng(0))]
    assert 0 < len(kept) < len(pairs)


def test_balance_keeps_at_most_so_many_a_bin_and_pack(rng):
    pairs = make_pairs()
    kept = kp.balance(pairs, 3, rng)
    cells = {}
    for p in kept:
        cells[p.pack, p.true_bin] = cells.get((p.pack, p.true_bin), 0) + 1
    full = {}
    for p in pairs:
        full[p.pack, p.true_bin] = full.get((p.pack, p.true_bin), 0) + 1
    assert cells == {cell: min(n, 3) for cell, n in full.items()}


def test_a_sample_is_even_over_packs_and_subsets_and_fixed_by_its_seed():
    pairs = [p.model_copy(update={"subset": f"s{int(p.comparison_id) // 4 % 2}"}) for p in make_pairs(2000)]
    one, same = (kp.stratified_sample(pairs, 64, np.random.default_rng(5)) for _ in range(2))
    assert one == same and len(one) == 64
    assert set(Counter((p.pack, p.subset) for p in one).values()) == {8}


def test_a_sample_looks_at_no_label(rng):
    pairs = make_pairs(400)
    mirrored = [p.model_copy(update={"true_bin": 9 - p.true_bin}) for p in pairs]
    ids = [[p.comparison_id for p in kp.stratified_sample(x, 50, np.random.default_rng(1))] for x in (pairs, mirrored)]
    assert ids[0] == ids[1]


def test_a_sample_of_more_than_there_are_is_everything(rng):
    pairs = make_pairs(20)
    assert kp.stratified_sample(pairs, 50, rng) == pairs


def test_leaving_one_task_out_tests_every_pair_once_and_never_trains_on_its_task():
    pairs = make_pairs()
    folds = kp.leave_one_task_out(pairs)
    assert sorted(p.comparison_id for f in folds for p in f.test) == sorted(p.comparison_id for p in pairs)
    for fold in folds:
        assert {p.pack for p in fold.test} == {fold.name}
        assert len({p.pack for p in fold.calibration}) == 1
        assert len({p.pack for p in fold.train}) == 2


def test_a_fold_in_which_a_pack_stands_in_two_splits_cannot_be_built():
    pairs = make_pairs()
    with pytest.raises(ValueError, match="stand in two splits"):
        kp.Fold("leak", train=pairs, calibration=[], test=pairs[:1])


def test_too_few_tasks_to_leave_one_out_are_named():
    with pytest.raises(ValueError, match="at least three tasks, found 2: task0, task1"):
        kp.leave_one_task_out(make_pairs(packs=2))


def test_the_fixed_split_refuses_a_pair_without_one():
    with pytest.raises(ValueError, match="allowed: train, calibration, test"):
        kp.fixed_split(make_pairs())
