"""The study ``published`` on invented files in the form of the released sets (tests/released.py): its figures mean nothing."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kfs.errors import DataError, SchemaError, UnknownNameError
from kfs.report import deferral, sources, tables
from kfs.report.config import compose
from kfs.report.run import Run
from kfs.report.study import run_study
from kfs.speedup import STUDY_BINS

sys.path.append(str(Path(__file__).parents[2]))  # tests is a folder of scripts, too

from tests import released

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def clones(tmp_path_factory):
    return released.write_all(tmp_path_factory.mktemp("clones"), np.random.default_rng(0))


def configured(clones, *overrides):
    return compose("published", [f"data.folder={clones}", *overrides], root=REPOSITORY)


def test_a_study_of_the_released_files_runs_and_says_what_it_read(clones, tmp_path):
    given = ["debug=tiny", "forecaster=none", "data.per_bin=2", "bootstrap.n_resamples=20", f"data.folder={clones}"]
    given.append("notebooks=[10_label_audit,11_discovery]")
    outcome = run_study("published", given, root=REPOSITORY, runs=tmp_path / "runs", say=lambda *args, **options: None)
    assert outcome.ran == ["10_label_audit", "11_discovery"]
    read = lambda name: pd.read_csv(outcome.out_dir / "tables" / f"{name}.csv")
    assert set(read("discovery")["forecaster"]) == set(released.LABELS)
    assert read("discovery_pairs")["n"].sum() == 20
    audit = read("label_audit")
    assert set(audit["forecaster"]) == {"perfect", *released.LABELS}
    assert audit.loc[audit["forecaster"] != "perfect", "n"].nunique() == 1
    inputs = json.loads((outcome.out_dir / "manifest.json").read_text())["data"]
    assert {name.split("/")[0] for name in inputs} == {
        "gpu-forecasters-eval-set",
        "gpu-forecasters-eval-set-predictions",
        "gpu-forecasters-discovery-pairs",
    }


def test_the_tables_of_the_study_are_those_of_the_released_forecasters(clones, tmp_path):
    run = Run(configured(clones, "bootstrap.n_resamples=20"), tmp_path)
    frame = run.frame()
    assert frame["in_sample"].all() and run.everywhere == list(released.LABELS)
    for table in (tables.headline, tables.calibration, tables.selective):
        found = table(frame, run.intervals)
        assert list(found["forecaster"]) == list(released.LABELS)
        assert set(found["n"]) == {3 * len(run.test_pairs())}
    deferred = deferral.deferral(frame, run.calibration_frame(), run.intervals, risks=(0.2,))
    assert set(deferred["n_tasks"]) == {6}
    answers = tables.answers({name: run.forecasts(name) for name in run.forecasters})
    assert set(answers["n_parse_failed"]) == {2}


def test_pairs_are_labelled_in_the_bins_the_forecasters_were_told(clones, tmp_path):
    run = Run(configured(clones), tmp_path)
    assert run.forecasters == list(released.LABELS)
    assert all(p.bin_rule == "study" and p.true_bin == STUDY_BINS.index(p.aggregated_speedup) for p in run.test_pairs())
    frame = run.frame()
    assert len(frame) == 7 * 3 * len(run.test_pairs())
    assert frame.groupby(["forecaster", "comparison_id"])["repeat"].apply(list).map(lambda r: r == [0, 1, 2]).all()


def test_forecasters_of_ours_can_be_set_beside_the_released_ones(clones, tmp_path, monkeypatch):
    monkeypatch.setenv("KFS_CACHE", str(tmp_path / "cache"))
    run = Run(configured(clones, "forecaster=prior"), tmp_path)
    assert run.forecasters == [*released.LABELS, "prior"]
    assert [f.comparison_id for f in run.forecasts("prior")] == [p.comparison_id for p in run.test_pairs()]
    with pytest.raises(UnknownNameError, match=r"'synthetic-1'.*known: prior.*forecaster="):
        run.ask("synthetic-1", run.test_pairs())


def test_pairs_of_a_search_that_the_evaluation_set_holds_are_a_subset(clones, tmp_path):
    folder = tmp_path / "gpu-forecasters-discovery-pairs"
    rows = released.discovery_rows(np.random.default_rng(0))
    pairs = released.eval_rows(np.random.default_rng(0))
    rows[0] |= {"parent_code": pairs[0]["anchor_code"], "child_code": pairs[0]["candidate_code"]}
    released.write(folder / "pairs.jsonl", rows)
    for name in ("gpu-forecasters-eval-set", "gpu-forecasters-eval-set-predictions"):
        (tmp_path / name).symlink_to(clones / name)
    found = sources.load_pairs(configured(tmp_path), np.random.default_rng(0))
    assert [p.comparison_id for p in found if p.subset == "parent_to_child"] == [pairs[0]["comparison_id"]]


def test_without_data_the_study_says_how_to_bring_or_pin_it(tmp_path):
    with pytest.raises(DataError, match=r"git clone .*data\.folder=FOLDER; or pin its commit, data\.eval_set=COMMIT"):
        run_study("published", root=REPOSITORY, runs=tmp_path)
    with pytest.raises(DataError, match="no folder gpu-forecasters-eval-set; clone it there"):
        run_study("published", [f"data.folder={tmp_path}"], root=REPOSITORY, runs=tmp_path)


def test_discovery_pairs_are_optional_and_commits_are_the_identity_of_what_is_read():
    commits = {"eval_set": "a" * 40, "predictions": "b" * 40}
    config = compose("published", [f"data.{key}={commit}" for key, commit in commits.items()], root=REPOSITORY)
    assert set(sources.data_digests(config).values()) == set(commits.values())
    assert sources.discovery_pairs(config) == []


def test_a_released_forecaster_with_the_name_of_one_of_ours_is_refused(clones, tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "gpu-forecasters-eval-set").symlink_to(clones / "gpu-forecasters-eval-set")
    rows = [r | {"surrogate_label": "prior"} for r in released.prediction_rows(released.eval_rows(rng), rng)[: 48 * 3]]
    released.write(tmp_path / "gpu-forecasters-eval-set-predictions" / "predictions.jsonl", rows)
    with pytest.raises(SchemaError, match="'prior' is a released forecaster and one of ours"):
        sources.released_forecasts(configured(tmp_path, "forecaster=prior"))
