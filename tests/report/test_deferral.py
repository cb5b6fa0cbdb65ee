import numpy as np
import pandas as pd
import pytest

from kfs.report import deferral, figures, tables
from kfs.report.tables import PROBABILITIES, Intervals
from kfs.speedup import STUDY_BINS

INTERVALS = Intervals(50, 0.95, 0)


def made_up(rng, n_tasks=60, n=12, name="f", spread=1.0):
    """Tidy rows of a forecaster that is twice too sure of itself, some tasks harder than others."""
    probabilities, true = [], []
    for _ in range(n_tasks):
        logits = rng.normal(0, 2.0 * spread, (n, 8)) * rng.uniform(0.3, 1.5)
        p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        true.append(np.array([rng.choice(8, p=row) for row in p]) + 1)
        probabilities.append(p**2 / (p**2).sum(1, keepdims=True))
    sure, true = np.concatenate(probabilities), np.concatenate(true)
    task = np.repeat([f"task{t}" for t in range(n_tasks)], n)
    ids = [f"{t}-{i}" for t in range(n_tasks) for i in range(n)]
    rows = pd.DataFrame({"forecaster": name, "comparison_id": ids, "cluster": task, "anchor_id": "a", "candidate_id": "c"})
    rows = rows.assign(speedup=2.0, pack=task, hardware="h", subset="all", within_variant=False, certain=True)
    rows = rows.assign(parse_failed=False, in_sample=True, true_bin=true)
    rows[PROBABILITIES] = sure
    rows["predicted_bin"], rows["confidence"] = sure.argmax(1) + 1, sure.max(1)
    return rows.assign(expected_log2=STUDY_BINS.expected_log2_speedup(sure))


def half_brier(rows):
    return tables.METRICS["half_brier"](**tables.arrays("half_brier", rows))


@pytest.mark.parametrize("fixed", [True, False])
def test_every_map_mends_a_forecaster_that_is_too_sure_and_keeps_every_row(rng, fixed):
    test, calibration = made_up(rng), made_up(rng) if fixed else None
    mapped = deferral.recalibrate(test, calibration)
    assert sorted(mapped["forecaster"].unique()) == ["f + isotonic", "f + temperature", "f + vector"]
    for _, rows in mapped.groupby("forecaster"):
        assert sorted(rows["comparison_id"]) == sorted(test["comparison_id"])
        assert half_brier(rows) < half_brier(test) - 0.01
        assert rows[PROBABILITIES].sum(axis=1).to_numpy() == pytest.approx(1)


def test_a_map_never_learns_from_the_task_it_is_applied_to(rng):
    test = made_up(rng, n_tasks=4)
    changed = test.copy()
    changed.loc[changed["cluster"] == "task2", "true_bin"] = 1
    a, b = (deferral.recalibrate(frame, None, ["temperature"]).set_index("comparison_id") for frame in (test, changed))
    mine = test.loc[test["cluster"] == "task2", "comparison_id"]
    assert (a.loc[mine, PROBABILITIES].to_numpy() == b.loc[mine, PROBABILITIES].to_numpy()).all()
    assert (a[PROBABILITIES] != b.loc[a.index, PROBABILITIES]).to_numpy().any()


def test_replies_that_could_not_be_parsed_stay_as_they_are_and_teach_nothing(rng):
    test = made_up(rng, n_tasks=6)
    test.loc[::3, "parse_failed"] = True
    mapped = deferral.recalibrate(test, None, ["vector"]).set_index("comparison_id").loc[test["comparison_id"]]
    failed = test["parse_failed"].to_numpy()
    assert (mapped[PROBABILITIES].to_numpy()[failed] == test[PROBABILITIES].to_numpy()[failed]).all()
    assert deferral.recalibrate(test.assign(parse_failed=True), None).empty


def test_the_promise_is_kept_on_average_and_something_is_trusted_for_it(rng):
    shares = []
    for _ in range(12):
        table = deferral.deferral(made_up(rng, 40), made_up(rng, 40), INTERVALS, risks=(0.1,))
        line = table[table["rule"] == deferral.RULES[0]].iloc[0]
        shares.append((line["wrong_and_trusted"], line["coverage"]))
    wrong, covered = np.mean(shares, axis=0)
    assert wrong < 0.1 + 0.015 and covered > 0.1


def test_few_tasks_can_promise_little_and_then_nothing_is_trusted(rng):
    table = deferral.deferral(made_up(rng, 8), None, INTERVALS, risks=(0.05, 0.3)).set_index(["rule", "risk"])
    assert table.loc[(deferral.RULES[0], 0.05), ["coverage", "wrong_and_trusted"]].tolist() == [0, 0]
    assert np.isinf(table.loc[(deferral.RULES[1], 0.05), "threshold"])
    assert (table["n_calibration"] == 7).all() and (table["n_tasks"] == 8).all()


def test_figures_show_what_the_tables_say(rng):
    test = pd.concat([made_up(rng, 6), made_up(rng, 6, name="boosted", spread=0.3)])
    both = tables.headline(pd.concat([test, deferral.recalibrate(test, None)]), INTERVALS)
    assert "n = 72 forecasts" in figures.recalibrated(both, "95% bootstrap intervals over tasks").get_label()
    assert (
        "promise was kept" in figures.deferral(deferral.deferral(test, None, INTERVALS), "95% intervals over tasks").get_label()
    )


def test_a_run_adds_its_readers_recalibrated_and_knows_who_forecast_every_pair(rng, tmp_path, monkeypatch):
    from kfs.report.config import compose
    from kfs.report.run import Run
    from kfs.report.style import colour

    run = Run(compose(), tmp_path)
    monkeypatch.setattr(Run, "calibration_frame", lambda self, names=None: None)
    both = pd.concat([made_up(rng, 5, name=name) for name in ("prior", "boosted", "local")], ignore_index=True)
    found = run.recalibrated(both)
    assert list(dict.fromkeys(found["forecaster"])) == ["prior", "boosted", "local", "boosted + vector", "local + vector"]
    assert set(run.on_every_pair(found)["forecaster"]) == {"prior", "boosted", "boosted + vector"}
    assert len(run.recalibrated(both[both["forecaster"] == "prior"])) == len(both) // 3
    assert colour("boosted + vector") != colour("boosted") and colour("boosted + vector").startswith("#")
