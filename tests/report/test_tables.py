import numpy as np
import pytest

from kfs import score
from kfs.errors import SchemaError
from kfs.report import measured, tables

INTERVALS = tables.Intervals(n_resamples=40, level=0.9, seed=0)
METRICS = ("accuracy", "within_one", "half_brier", "crps", "ece", "spearman")


@pytest.fixture
def pairs(kit, rng):
    return kit.make_pairs(rng)


@pytest.fixture
def frame(kit, pairs, rng):
    forecasts = {
        "sharp": kit.make_forecasts("sharp", pairs, rng, noise=0.2),
        "vague": kit.make_forecasts("vague", pairs, rng, noise=2.0, failed=3),
    }
    return tables.tidy(pairs, forecasts, [p.comparison_id for p in pairs[:30]])


def test_the_headline_has_every_metric_with_an_interval_and_counts(frame):
    table = tables.headline(frame, INTERVALS)
    expected = [
        "forecaster",
        "subset",
        *(f"{m}{end}" for m in METRICS for end in ("", "_low", "_high")),
        "n",
        "n_accuracy",
        "n_parse_failed",
    ]
    assert list(table.columns) == expected
    overall = table[table["subset"] == "all"].set_index("forecaster")
    assert overall.loc["vague", "n_parse_failed"] == 3
    assert (overall["half_brier_low"] <= overall["half_brier"]).all()
    assert overall.loc["sharp", "half_brier"] < overall.loc["vague", "half_brier"]


def test_exact_accuracy_leaves_out_uncertain_pairs_which_are_reported_apart(frame):
    table = tables.headline(frame, INTERVALS).set_index(["forecaster", "subset"])
    rows = frame[(frame["forecaster"] == "sharp") & frame["certain"].astype(bool)]
    assert table.loc[("sharp", "all"), "accuracy"] == pytest.approx((rows["predicted_bin"] == rows["true_bin"]).mean())
    assert table.loc[("sharp", "all"), "n_accuracy"] == len(rows) < table.loc[("sharp", "all"), "n"]
    apart = tables.headline(frame, INTERVALS, {"uncertain": ~frame["certain"].astype(bool)}).iloc[0]
    assert apart["n"] == apart["n_accuracy"] == (~frame.loc[frame["forecaster"] == "sharp", "certain"].astype(bool)).sum()


def test_accuracy_and_ece_have_one_definition_in_every_table(frame):
    headline = tables.headline(frame, INTERVALS).set_index(["forecaster", "subset"])
    calibration = tables.calibration(frame, INTERVALS).set_index("forecaster")
    paired = tables.paired(frame, "sharp", INTERVALS, metrics=("accuracy", "ece"), only=("all",)).set_index("metric")
    counts = {}
    for name in ("sharp", "vague"):
        cells = tables.confusion(frame, name)
        diagonal = cells[cells["true_bin"] == cells["predicted_bin"]]["n"].sum()
        counts[name] = cells.groupby("true_bin")["n_true"].first().sum()
        line = headline.loc[name, "all"]
        assert counts[name] == line["n_accuracy"] == calibration.loc[name, "n"]
        assert diagonal / counts[name] == pytest.approx(line["accuracy"]) == pytest.approx(calibration.loc[name, "accuracy"])
        assert line["ece"] == calibration.loc[name, "ece"]
    for metric in ("accuracy", "ece"):
        assert paired.loc[metric, "n"] == counts["sharp"]
        difference = headline.loc[("sharp", "all"), metric] - headline.loc[("vague", "all"), metric]
        assert paired.loc[metric, "estimate"] == pytest.approx(difference)


def test_an_unparsed_reply_is_wrong_in_every_accuracy_and_no_part_of_ece(kit, pairs, rng):
    certain = [p for p in pairs if p.certain]
    frame = tables.tidy(certain, {"a": kit.make_forecasts("a", certain, rng, noise=0, failed=len(certain) // 2)})
    line = tables.calibration(frame, INTERVALS).iloc[0]
    right = frame[~frame["parse_failed"]].eval("predicted_bin == true_bin").sum()
    assert line["accuracy"] == pytest.approx(right / len(certain)) == tables.headline(frame, INTERVALS)["accuracy"].iloc[0]
    assert line["share_right"] == pytest.approx(right / (len(certain) - len(certain) // 2))
    assert line["overconfidence"] == pytest.approx(line["confidence"] - line["share_right"])
    cells = tables.confusion(frame, "a")
    assert cells["n"].sum() == len(certain) - line["n_parse_failed"] < cells.groupby("true_bin")["n_true"].first().sum()


def test_the_interval_of_ece_holds_its_estimate(frame):
    for table in (tables.headline(frame, INTERVALS), tables.calibration(frame, INTERVALS)):
        assert ((table["ece_low"] <= table["ece"]) & (table["ece"] <= table["ece_high"])).all()


def test_answers_say_how_many_prompts_were_cut_and_by_how_much(kit, pairs, rng):
    plain = kit.make_forecasts("boosted", pairs[:4], rng)
    notes = (
        "",
        "reference cut by 30 characters; candidate cut by 12 characters",
        "candidate cut by 8 characters",
        "cut by 5 of mine",
    )
    read = [f.model_copy(update={"reasoning": note, "input_tokens": 600}) for f, note in zip(plain, notes, strict=True)]
    table = tables.answers({"boosted": plain, "local": read, "whole": read[:1]}).set_index("forecaster")
    assert table.loc["local", ["n", "median_tokens", "share_cut", "median_characters_cut"]].tolist() == [4, 600, 0.5, 25]
    assert table.loc["whole", ["share_cut", "median_characters_cut"]].tolist() == [0, 0]
    assert table.loc["boosted", ["median_tokens", "share_cut", "median_characters_cut"]].isna().all()


def test_the_notes_of_a_prompt_that_was_cut_are_understood():
    from kfs.forecast.prompt import build
    from kfs.forecast.query import Query

    prompt = build(Query("id", "pack", "host", "", "", "a" * 5000, "b" * 6000), room=4000, count=len)
    assert tables.characters_cut(prompt.notes) > 7000


def test_clear_differences_are_named_among_all_that_were_made(frame):
    table = tables.paired(frame, "sharp", INTERVALS)
    text = tables.clear_differences(table)
    assert "of 2 comparisons" in text
    assert "sharp − vague in half brier -" in text
    assert tables.clear_differences(table.iloc[:0]).endswith("0 of 0 comparisons, each at its own level: none")


def test_a_pair_of_unknown_certainty_counts_in_accuracy(kit, pairs, rng):
    unknown = [p.model_copy(update={"certain": None}) for p in pairs]
    frame = tables.tidy(unknown, {"a": kit.make_forecasts("a", unknown, rng)})
    assert len(tables.counted("accuracy", frame)) == len(unknown)
    assert "uncertain" not in tables.subsets(frame)


def test_the_sample_marks_its_rows(frame):
    assert frame[frame["in_sample"]].groupby("forecaster").size().tolist() == [30, 30]


def test_a_forecast_that_answers_no_pair_is_refused(kit, pairs, rng):
    with pytest.raises(SchemaError, match="answers none"):
        tables.tidy(pairs[1:], {"a": kit.make_forecasts("a", pairs[:1], rng)})


def test_a_paired_difference_says_which_is_better_and_whether_it_is_sure(frame):
    table = tables.paired(frame, "sharp", INTERVALS)
    assert list(table.columns) == [
        "first",
        "second",
        "subset",
        "metric",
        "estimate",
        "low",
        "high",
        "excludes_zero",
        "better",
        "n",
    ]
    row = table[(table["subset"] == "all") & (table["metric"] == "half_brier")].iloc[0]
    assert row["estimate"] < 0
    assert row["excludes_zero"]
    assert row["better"] == "sharp"


def test_paired_with_one_forecaster_is_an_empty_table(frame):
    assert tables.paired(frame[frame["forecaster"] == "sharp"], "sharp", INTERVALS).empty


def test_reliability_weights_add_up_to_the_certain_parsed_rows(frame):
    table = tables.reliability(frame)
    rows = tables.counted("ece", frame)
    assert table["n"].sum() == (~rows["parse_failed"]).sum()


def test_selective_lies_between_the_oracle_and_the_whole_for_a_useful_confidence(frame):
    table = tables.selective(frame, INTERVALS).set_index("forecaster")
    assert (table["aurc_oracle"] <= table["aurc"] + 1e-12).all()
    curve = tables.risk_coverage(frame)
    last = curve.groupby("forecaster").last()
    assert last["coverage"].tolist() == [1.0, 1.0]
    assert last["risk"].tolist() == pytest.approx(table.loc[last.index, "risk_all"].tolist())


def test_recovery_pools_are_the_kernels_of_a_task_against_its_reference(frame):
    rows, _ = tables.pools(frame)
    assert rows["pool"].nunique() == 3
    curve = tables.recovery(frame, shares=np.array([0.2, 1.0]))
    assert curve[curve["share"] == 1.0]["found"].tolist() == pytest.approx([1.0, 1.0])
    at = tables.recovery_at(frame, 0.2, INTERVALS).set_index("forecaster")
    assert at.loc["sharp", "found"] >= at.loc["vague", "found"]
    assert at["random"].nunique() == 1
    assert (at["found_low"] <= at["found"]).all()


def test_pools_that_hold_the_same_tasks_get_no_interval(kit, pairs, rng):
    moved = [
        p.model_copy(update={"subset": "eager_to_custom", "hardware": gpu, "comparison_id": f"{p.comparison_id}{gpu}"})
        for gpu in ("a100", "h100")
        for p in pairs
    ]
    at = tables.recovery_at(tables.tidy(moved, {"a": kit.make_forecasts("a", moved, rng)}), 0.2, INTERVALS)
    assert at["n_pools"].tolist() == [2]
    assert at[["found", "gain", "random"]].notna().all(axis=None)
    assert at[["found_low", "found_high", "gain_low", "gain_high"]].isna().all(axis=None)


def test_every_table_of_no_rows_keeps_its_columns(frame):
    none = frame.iloc[:0]
    for table in (tables.headline, tables.calibration, tables.selective):
        assert list(table(none, INTERVALS)) == list(table(frame, INTERVALS))
    for table in (tables.reliability, tables.risk_coverage, tables.recovery):
        assert list(table(none)) == list(table(frame))
    assert list(tables.recovery_at(none, 0.1, INTERVALS)) == list(tables.recovery_at(frame, 0.1, INTERVALS))
    assert tables.readable(tables.recovery_at(none, 0.1, INTERVALS)).empty


def test_where_problems_have_few_kernels_a_pool_is_one_gpu(kit, pairs, rng):
    moved = [p.model_copy(update={"subset": "eager_to_custom", "hardware": "h100"}) for p in pairs]
    rows, text = tables.pools(tables.tidy(moved, {"a": kit.make_forecasts("a", moved, rng)}))
    assert set(rows["pool"]) == {"h100"}
    assert "GPU" in text


def test_readable_puts_an_estimate_and_its_interval_in_one_column(frame):
    table = tables.readable(tables.headline(frame, INTERVALS))
    assert "accuracy_low" not in table
    assert table["accuracy"].str.fullmatch(r"\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\]").all()


def test_bin_counts_add_up_and_cover_the_eight_bins(pairs):
    table = measured.bin_counts(pairs)
    assert table["n"].sum() == len(pairs)
    assert table.groupby("subset").size().tolist() == [8, 8, 8]


def test_label_noise_is_unknown_without_intervals_but_edges_still_tell(pairs):
    bare = [p.model_copy(update={"certain": None, "speedup_low": None, "speedup_high": None}) for p in pairs]
    known, unknown = measured.label_noise(pairs, "pack"), measured.label_noise(bare, "pack")
    assert known["share_certain"].between(0, 1).all()
    assert unknown["share_certain"].isna().all()
    assert unknown["share_near_edge"].tolist() == known["share_near_edge"].tolist()


def test_distance_to_edge_is_zero_on_an_edge():
    assert measured.distance_to_edge(np.array([0.5, 1.05])).tolist() == pytest.approx([0.0, 0.05])


def test_every_metric_of_the_headline_is_the_score_of_that_name():
    assert {name: getattr(score, name) for name in METRICS} == tables.METRICS


def test_one_answer_stands_beside_each_of_several(kit, pairs, rng):
    several = [
        f.model_copy(update={"repeat": r}) for r in (1, 2, 3) for f in kit.make_forecasts("several", pairs, rng, noise=1.0)
    ]
    once = kit.make_forecasts("once", pairs, rng, noise=0.2)
    frame = tables.tidy(pairs, {"several": several, "once": once})
    for first, sign in (("several", 1), ("once", -1)):
        row = tables.paired(frame, first, INTERVALS, metrics=("half_brier",), only=("all",)).iloc[0]
        whole = tables.headline(frame, INTERVALS).query("subset == 'all'").set_index("forecaster")["half_brier"]
        assert row["n"] == 3 * len(pairs) and row["estimate"] == pytest.approx(sign * (whole["several"] - whole["once"]))


def test_answers_are_numbered_before_they_are_paired(kit, pairs, rng):
    made = [kit.make_forecasts("a", pairs, rng, noise=1.0) for _ in range(2)]
    numbered = lambda start: [f.model_copy(update={"repeat": start + i}) for i, part in enumerate(made) for f in part]
    frame = tables.tidy(pairs, {"zero": numbered(0), "one": numbered(1)[::-1]})
    row = tables.paired(frame, "zero", INTERVALS, metrics=("half_brier",), only=("all",)).iloc[0]
    assert row["n"] == 2 * len(pairs) and row["estimate"] == row["low"] == row["high"] == 0
