"""The label audit and discovery: hand-made speedups whose bins by both rules are known."""

import numpy as np
import pandas as pd
import pytest

from kfs.errors import SchemaError
from kfs.pairs import relabelled
from kfs.report import audit, discovery, tables
from kfs.report.tables import PROBABILITIES, Intervals, tidy
from kfs.speedup import RELEASED_LABELS, STUDY_BINS

INTERVALS = Intervals(50, 0.95, 0)


@pytest.fixture
def pairs(kit, rng):
    return kit.make_pairs(rng)


@pytest.fixture
def frame(kit, pairs, rng):
    good, poor = kit.make_forecasts("good", pairs, rng, noise=0.2), kit.make_forecasts("poor", pairs, rng, noise=2.0, failed=3)
    return tidy(pairs, {"good": good, "poor": poor})


def of_speedups(kit, pairs, rng, speedups):
    """A tidy frame of one forecaster with these speedups, whose labels nobody knows to be uncertain."""
    rows = tidy(pairs[: len(speedups)], {"any": kit.make_forecasts("any", pairs[: len(speedups)], rng)})
    told = STUDY_BINS.index(np.array(speedups))
    unknown = {"speedup_low": np.nan, "speedup_high": np.nan, "certain": pd.array([None] * len(rows), dtype="boolean")}
    return rows.assign(speedup=speedups, true_bin=told, **unknown)


def row(table, name, reading):
    return table[(table["forecaster"] == name) & (table["reading"] == reading)].iloc[0]


def test_a_perfect_forecaster_that_believes_its_prompt_is_never_exact_between_a_quarter_and_2_83_and_always_within_one(
    kit, pairs, rng
):
    inside = np.exp2(np.linspace(-1.99, 1.49, 60))
    table = audit.audit(of_speedups(kit, pairs, rng, inside), INTERVALS)
    assert row(table, audit.PERFECT, "told")["accuracy"] == 1
    found = row(table, audit.PERFECT, "released")
    assert (found["accuracy"], found["within_one"], found["half_brier"]) == (0, 1, 1)
    assert (found["accuracy_low"], found["accuracy_high"]) == (0, 0)
    translated = row(table, audit.PERFECT, "translated")
    assert (translated["accuracy"], translated["within_one"]) == (1, 1)


@pytest.mark.parametrize("speedup", [0.1, 0.25, 0.5, 1.0, 2.0, 2.9, 3.99, 5.0])
def test_outside_and_on_three_edges_both_rules_agree(kit, pairs, rng, speedup):
    table = audit.audit(of_speedups(kit, pairs, rng, np.full(20, speedup)), INTERVALS)
    assert row(table, audit.PERFECT, "released")["accuracy"] == 1


def test_the_examples_of_the_study_move_as_it_says():
    moved = [(STUDY_BINS.index(s), RELEASED_LABELS.index(s)) for s in (1.2, 0.6, 2.5)]
    assert moved == [(5, 4), (3, 2), (7, 6)]


def test_translation_keeps_probability_and_sends_bins_where_they_lie():
    shares = audit.translation()
    assert shares.sum(axis=1) == pytest.approx(1)
    assert [np.flatnonzero(line).tolist() for line in shares] == [[0], [0], [1], [2], [3], [4], [5, 6], [7]]


def test_all_readings_count_the_same_forecasts(frame):
    table = audit.audit(frame, INTERVALS)
    assert list(table["forecaster"].unique()) == [audit.PERFECT, "good", "poor"]
    for _, rows in table.groupby("forecaster"):
        assert list(rows["reading"]) == list(audit.READINGS)
        assert rows[["n", "n_accuracy", "n_parse_failed"]].nunique().tolist() == [1, 1, 1]
    assert row(table, "poor", "released")["n_parse_failed"] == 3


def test_a_label_that_is_unsure_by_either_rule_counts_in_no_exact_accuracy(frame):
    rows = audit.read(frame, "told")
    low, high = frame["speedup_low"].to_numpy(), frame["speedup_high"].to_numpy()
    sure = [rule.index(low) == rule.index(high) for rule in (STUDY_BINS, RELEASED_LABELS)]
    assert rows["certain"].tolist() == (sure[0] & sure[1]).tolist()
    assert 0 < rows["certain"].sum() < sure[0].sum()


def test_the_reading_as_told_is_the_headline_but_for_labels_unsure_by_the_other_rule(frame):
    told, headline = audit.audit(frame, INTERVALS), tables.headline(frame, INTERVALS, {"all": frame["speedup"] > 0})
    for name in ("good", "poor"):
        mine = headline[headline["forecaster"] == name].iloc[0]
        for metric in ("within_one", "half_brier", "crps"):
            ends = [metric, f"{metric}_low", f"{metric}_high"]
            assert row(told, name, "told")[ends].tolist() == pytest.approx(mine[ends].tolist())


def test_a_change_is_the_difference_of_two_readings_with_a_paired_interval(frame):
    scores, changes = audit.audit(frame, INTERVALS), audit.changes(frame, INTERVALS)
    assert set(changes["forecaster"]) == {audit.PERFECT, "good", "poor"}
    for line in changes.itertuples():
        difference = row(scores, line.forecaster, "released")[line.metric] - row(scores, line.forecaster, "told")[line.metric]
        assert line.estimate == pytest.approx(difference)
        assert line.low <= line.estimate <= line.high


def test_moved_pairs_are_counted_by_told_bin(pairs):
    table = audit.moved(pairs)
    assert table["n"].sum() == len(pairs)
    differ = [p.true_bin != RELEASED_LABELS.index(p.aggregated_speedup) for p in pairs]
    assert table["n_moved"].sum() == sum(differ) > 0
    assert table.loc[table["told_bin"] == 8, "n_moved"].item() == 0
    assert table.loc[table["told_bin"] == 5, "released_bins"].item() == "4"


def test_figures_of_the_audit_carry_counts_and_the_kind_of_interval(frame):
    figure = audit.audit_figure(audit.audit(frame, INTERVALS), INTERVALS.describe())
    assert all(words in figure.get_label() for words in ("95% bootstrap", f"n = {len(frame) // 2} forecasts"))
    assert "upper bin as released" in audit.rules_figure(audit.rules()).get_label()


def test_a_table_never_mixes_the_rule_of_its_labels_with_another_rule_of_its_forecasts(kit, pairs, rng):
    forecasts = kit.make_forecasts("any", pairs, rng)
    released = relabelled(pairs, RELEASED_LABELS)
    with pytest.raises(SchemaError, match="forecasts bins of rule 'study', the pairs are labelled by another"):
        tidy(released, {"any": forecasts})
    assert relabelled(released) == pairs
    assert [p.certain for p in released] != [p.certain for p in pairs]


def test_repeats_are_rows_of_their_own_and_are_compared_repeat_by_repeat(kit, pairs, rng):
    repeats = lambda name, noise: [
        f.model_copy(update={"repeat": r}) for r in range(3) for f in kit.make_forecasts(name, pairs, rng, noise=noise)
    ]
    a, b = repeats("a", 0.3), repeats("b", 1.5)[::-1]
    frame = tidy(pairs, {"a": a, "b": b})
    found = tables.paired(frame, "a", INTERVALS, only=("all",)).set_index("metric").loc["half_brier"]
    alone = tables.headline(frame, INTERVALS, {"all": frame["speedup"] > 0}).set_index("forecaster")["half_brier"]
    assert found["estimate"] == pytest.approx(alone["a"] - alone["b"])
    assert found["n"] == 3 * len(pairs)
    # The mean over rows is the mean of the three repeats' own scores, and three copies make no interval narrower.
    each = [tables.headline(frame[frame["repeat"] == r].reset_index(drop=True), INTERVALS) for r in range(3)]
    each = [t[t["subset"] == "all"] for t in each]
    assert alone["a"] == pytest.approx(np.mean([t.set_index("forecaster")["half_brier"]["a"] for t in each]))
    copies = tidy(pairs, {"a": [f.model_copy(update={"repeat": r}) for r in range(3) for f in a[: len(pairs)]]})
    ends = ["half_brier_low", "half_brier_high"]
    once = tables.headline(frame[(frame["forecaster"] == "a") & (frame["repeat"] == 0)], INTERVALS)[ends].iloc[0].tolist()
    assert tables.headline(copies, INTERVALS)[ends].iloc[0].tolist() == pytest.approx(once)


def test_discovery_counts_what_is_called_faster_and_is(kit, pairs, rng):
    frame = of_speedups(kit, pairs, rng, np.array([2.0, 1.05, 0.8, 0.5]))
    frame[PROBABILITIES] = STUDY_BINS.one_hot([7, 4, 6, 1])
    frame["expected_log2"] = STUDY_BINS.expected_log2_speedup(frame[PROBABILITIES])
    table = discovery.discovery(frame, INTERVALS).set_index("threshold")
    assert table.loc[1.0, ["precision", "recall", "prevalence", "called"]].tolist() == [0.5, 0.5, 0.5, 0.5]
    assert table.loc[1.1, ["precision", "recall", "prevalence"]].tolist() == [0.5, 1.0, 0.25]
    assert table.loc[1.0, "average_precision"] == pytest.approx((1 + 2 / 3) / 2)
    failed = discovery.discovery(frame.assign(parse_failed=True), INTERVALS).iloc[0]
    assert (failed["called"], failed["n_parse_failed"], failed["recall"]) == (0, 4, 0)
    assert "n = 4 forecasts" in discovery.discovery_figure(table.reset_index(), INTERVALS.describe()).get_label()


def test_searched_pairs_are_counted_by_family_and_none_are_an_empty_table(pairs):
    found = [p.model_copy(update={"source_search": f"family{i % 2}"}) for i, p in enumerate(pairs)]
    table = discovery.searched(found)
    assert table["n"].sum() == len(pairs)
    first = [p.aggregated_speedup > 1.1 for p in found if p.source_search == "family0"]
    assert table.loc[0, "share_above_1_1"] == np.mean(first)
    assert discovery.searched([]).empty
