import math

import numpy as np
import pytest

from kfs.speedup import N_BINS, RELEASED_LABELS, STUDY_BINS, bin_rule


def test_study_edges_belong_to_the_lower_bin():
    edges = [0.25, 0.5, 1 / math.sqrt(2), 1.0, math.sqrt(2), 2.0, 4.0]
    assert STUDY_BINS.index(edges).tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert STUDY_BINS.index(np.nextafter(edges, np.inf)).tolist() == [2, 3, 4, 5, 6, 7, 8]


def test_released_rule_is_the_formula_of_the_release():
    speedups = np.exp2(np.linspace(-4, 4, 4001) + 1e-4)
    formula = np.clip(np.floor(2 * np.log2(speedups)) + 4, 1, 8)
    assert (RELEASED_LABELS.index(speedups) == formula).all()


@pytest.mark.parametrize(
    ("speedup", "told", "labelled"), [(1.2, 5, 4), (0.6, 3, 2), (2.5, 7, 6), (0.5, 2, 2), (1, 4, 4), (2, 6, 6)]
)
def test_the_two_rules_disagree_as_the_study_page_says(speedup, told, labelled):
    assert (STUDY_BINS.index(speedup), RELEASED_LABELS.index(speedup)) == (told, labelled)


@pytest.mark.parametrize("bins", [STUDY_BINS, RELEASED_LABELS])
def test_representatives_lie_in_their_bins(bins):
    assert bins.index(bins.representative).tolist() == list(range(1, N_BINS + 1))


def test_representatives_are_geometric_midpoints_and_half_an_octave_past_open_edges():
    expected = [0.25 / math.sqrt(2), math.sqrt(0.125), 2**-0.75, 2**-0.25, 2**0.25, 2**0.75, 2**1.5, 4 * math.sqrt(2)]
    assert STUDY_BINS.representative == pytest.approx(expected)


def test_expected_speedup_of_certainty_is_the_representative():
    assert STUDY_BINS.expected_speedup(np.eye(N_BINS)) == pytest.approx(STUDY_BINS.representative)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, [1.0, 0.0]])
def test_a_speedup_that_is_not_positive_and_finite_has_no_bin(bad):
    with pytest.raises(ValueError, match="positive and finite"):
        STUDY_BINS.index(bad)


def test_the_table_covers_every_bin_and_says_which_side_is_closed():
    rows = STUDY_BINS.table()
    assert [r["bin"] for r in rows] == list(range(1, 9))
    assert rows[0]["interval"] == "S <= 0.25" and rows[4]["interval"] == "1 < S <= 1.414"
    assert RELEASED_LABELS.table()[-1]["interval"] == "S >= 4"


def test_an_unknown_rule_lists_the_known_ones():
    with pytest.raises(KeyError, match="released, study"):
        bin_rule("studdy")
