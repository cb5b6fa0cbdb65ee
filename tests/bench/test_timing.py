import math

import numpy as np
import pytest

from kfs.bench.timing import (
    Estimate,
    Staging,
    block_log2_ratio,
    clock_fault,
    estimate,
    inside_one_bin,
    ratio_interval,
    typical_ns,
)
from kfs.records import Block


def block(ratio, case="c", pair=0, reference=1000):
    return Block(case=case, child_pair=pair, reference_ns=[reference] * 3, candidate_ns=[round(reference / ratio)] * 3)


def test_a_block_is_the_ratio_of_medians():
    made = Block(case="c", child_pair=0, reference_ns=[50, 8, 9, 100], candidate_ns=[3, 3, 1, 4])
    assert block_log2_ratio(made) == pytest.approx(math.log2(9 / 3))


def test_a_block_leaves_the_first_of_three_calls_out_and_keeps_both_of_two():
    assert typical_ns([90, 10, 12]) == 11
    assert typical_ns([20, 10]) == 15 and typical_ns([7]) == 7


def test_speedup_is_the_geometric_mean_over_cases():
    blocks = [block(r, case=c, pair=p) for p in range(3) for c, r in (("a", 4.0), ("b", 1.0))]
    assert estimate(blocks).speedup == pytest.approx(2.0)


def test_a_single_slow_block_does_not_move_the_speedup():
    blocks = [block(2.0, pair=p) for p in range(3) for _ in range(5)] + [block(0.01, pair=0)]
    assert estimate(blocks).speedup == pytest.approx(2.0)


def interval(result):
    return math.log2(result.low), math.log2(result.high)


def test_the_interval_is_students_t_over_child_pairs():
    logs = [0.9, 1.0, 1.1]
    result = estimate([block(2**v, pair=p, reference=10**9) for p, v in enumerate(logs)])
    half = 4.302653 * np.std(logs, ddof=1) / math.sqrt(3)  # 2 degrees of freedom
    assert interval(result) == pytest.approx((1 - half, 1 + half), abs=1e-4)


def test_the_scatter_of_medians_is_estimated_without_bias_from_their_blocks(rng):
    found = [
        estimate([block(2**v, pair=p, reference=10**9) for p in range(2) for v in rng.normal(0, 0.1, 6)]).log2_std_error ** 2
        for _ in range(2000)
    ]
    pairs = [np.var([np.median(rng.normal(0, 0.1, 6)) for _ in range(2)], ddof=1) / 2 for _ in range(2000)]
    assert 1.0 < np.mean(found) / np.mean(pairs) < 1.8  # the larger of two unbiased estimates


def test_agreeing_pairs_with_scattered_blocks_are_not_called_sure():
    steady = [block(2.0, pair=p) for p in range(3) for _ in range(5)]
    scattered = [block(r, pair=p) for p in range(3) for r in (1.0, 1.5, 2.0, 2.7, 4.0)]
    assert estimate(steady).log2_std_error < 0.02
    assert estimate(scattered).log2_std_error > 0.1


@pytest.mark.parametrize("pair_sd", [0.01, 0.03, 0.1, 0.2])
def test_interval_covers_the_truth_as_often_as_it_says(rng, pair_sd):
    truth, hits, n = 0.3, 0, 1000
    for _ in range(n):
        blocks = []
        for pair in range(4):
            offset = rng.normal(0, pair_sd)
            for _ in range(6):
                ratio = 2 ** (truth + offset + rng.normal(0, 0.05))
                blocks.append(block(ratio, pair=pair, reference=10**8))
        result = estimate(blocks)
        hits += math.log2(result.low) <= truth <= math.log2(result.high)
    assert hits / n > 0.92


def test_a_pair_that_lacks_a_case_is_an_error():
    with pytest.raises(ValueError, match="child pair 1 ran cases"):
        estimate([block(1, case="a"), block(1, case="b"), block(1, case="a", pair=1)])


def test_one_child_pair_has_no_interval():
    with pytest.raises(ValueError, match="at least two child pairs"):
        estimate([block(1)])


def test_a_ratio_of_two_measurements_is_wider_than_either():
    a, c = (Estimate(s, s, s, 0.95, 0.1, 3) for s in (2.0, 3.0))
    speedup, low, high = ratio_interval(a, c)
    assert speedup == pytest.approx(1.5)
    assert math.log2(high / low) / 2 == pytest.approx(2.776 * math.sqrt(0.02), rel=1e-3)  # Welch: 4 degrees of freedom


def test_inside_one_bin_respects_the_closed_side():
    assert inside_one_bin(1.01, 1.4)
    assert not inside_one_bin(1.0, 1.4)


def test_pauses_of_the_machine_inside_the_references_calls_do_not_shrink_what_staging_may_cost():
    staging = {"c": Staging(request_ns=900_000, call_ns=10_000)}
    candidate = {"candidate_ns": [2_000_000] * 3, "candidate_cpu_ns": 6_000_000 + 930_000 + 1_000_000}
    blocks = [
        Block(case="c", child_pair=p, reference_ns=[9_000_000] * 3, reference_cpu_ns=cpu, **candidate)
        for p, cpu in enumerate([27_930_000, 22_000_000, 20_000_000])  # stolen time is in the stamps, not in the CPU time
    ]
    assert clock_fault(blocks, staging) is None
