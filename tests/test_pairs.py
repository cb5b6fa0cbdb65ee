import numpy as np
import pytest

from kfs import pairs as kp
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


def records(speedups, error=0.01):
    kernels = [
        Kernel(language="python", source=f"k{i}", task="t", family="reference" if i == 0 else "f") for i in range(len(speedups))
    ]
    measurements = [
        Measurement(
            task="t", preset="host", kernel_id=k.kernel_id, reference_id=kernels[0].kernel_id, hardware="h", harness="x",
            status="ok", speedup=s, speedup_low=s * 0.97, speedup_high=s * 1.03, confidence=0.95, log2_std_error=error,
            n_child_pairs=3, blocks=[Block(case="c", child_pair=0, reference_ns=[1], candidate_ns=[1])],
        )
        for k, s in zip(kernels, speedups, strict=True)
    ]  # fmt: skip
    return measurements, kernels


def test_every_ordered_pair_is_there_with_the_ratio_of_its_speedups():
    pairs = kp.from_measurements(*records([1.0, 2.0, 6.0]))
    found = {(p.anchor_code, p.candidate_code): p.aggregated_speedup for p in pairs}
    assert len(found) == 6
    assert found["k1", "k2"] == pytest.approx(3.0) and found["k2", "k1"] == pytest.approx(1 / 3)
    assert found["k0", "k2"] == pytest.approx(6.0) and found["k2", "k0"] == pytest.approx(1 / 6)


def test_a_pair_with_the_reference_keeps_the_kernels_own_interval_both_ways():
    pairs = {(p.anchor_code, p.candidate_code): p for p in kp.from_measurements(*records([1.0, 2.0]))}
    assert pairs["k0", "k1"].speedup_low == pytest.approx(1.94)
    assert pairs["k1", "k0"].speedup_high == pytest.approx(1 / 1.94)


def test_a_pair_whose_interval_crosses_an_edge_is_uncertain():
    pairs = {(p.anchor_code, p.candidate_code): p for p in kp.from_measurements(*records([1.0, 1.6, 3.1], error=0.05))}
    assert not pairs["k1", "k2"].certain  # 1.94, an edge at 2
    assert pairs["k0", "k2"].certain


def test_failed_kernels_make_no_pairs():
    measurements, kernels = records([1.0, 2.0])
    failed = Measurement(
        **{**measurements[1].model_dump(exclude={"measurement_id"}), "status": "crash", "reason": "r", "speedup": None,
           "speedup_low": None, "speedup_high": None, "blocks": []}
    )  # fmt: skip
    assert kp.from_measurements([measurements[0], failed], kernels) == []


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


def test_balance_takes_preferred_pairs_first(rng):
    pairs = make_pairs()
    odd = lambda p: int(p.comparison_id) % 3 == 0
    kept = kp.balance(pairs, 2, rng, keep=odd)
    for pack, b in {(p.pack, p.true_bin) for p in pairs}:
        available = sum(odd(p) for p in pairs if (p.pack, p.true_bin) == (pack, b))
        assert sum(odd(p) for p in kept if (p.pack, p.true_bin) == (pack, b)) == min(2, available)


def test_a_sample_is_even_over_packs_and_bins_and_fixed_by_its_seed():
    pairs = make_pairs(2000)
    one, same = (kp.stratified_sample(pairs, 64, np.random.default_rng(5)) for _ in range(2))
    assert one == same and len(one) == 64
    counts = np.array([kp.bin_counts([p for p in one if p.pack == f"task{k}"]) for k in range(4)])
    assert counts.min() == counts.max() == 2


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
