"""The released sets, read from invented files that have their form (tests/released.py): never the study's own rows."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kfs.data import published
from kfs.data.published import Source, discovery_pairs, eval_pairs, predictions, training_pool
from kfs.errors import DataError, MissingDependencyError, SchemaError, UnknownNameError
from kfs.records import Forecast
from kfs.speedup import RELEASED_LABELS

sys.path.append(str(Path(__file__).parents[2]))  # tests is a folder of scripts, too

from tests import released

EVAL, PREDICTIONS = "gpu-forecasters-eval-set", "gpu-forecasters-eval-set-predictions"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module", params=["parquet", "jsonl"])
def clones(request, tmp_path_factory):
    return released.write_all(tmp_path_factory.mktemp(request.param), np.random.default_rng(0), request.param)


@pytest.fixture(scope="module")
def pairs(clones):
    return eval_pairs(Source(clones))


@pytest.fixture(scope="module")
def answers(clones, pairs):
    return predictions(Source(clones), pairs)


def test_each_pair_is_read_once_though_configurations_by_pack_repeat_them(pairs):
    assert len(pairs) == len({p.comparison_id for p in pairs}) == 48
    assert {p.pack for p in pairs} == set(released.PACKS)


def test_labels_are_those_of_the_release_by_its_own_rule(pairs):
    assert {p.bin_rule for p in pairs} == {"released"}
    assert all(p.true_bin == RELEASED_LABELS.index(p.aggregated_speedup) for p in pairs)
    assert all(p.certain is None and p.split == "test" and p.internal_experiment == "" for p in pairs)


def test_pairs_that_share_a_kernel_share_its_id(pairs):
    anchors = [p for p in pairs if p.pack == "trimul"]
    assert len({p.anchor_id for p in anchors}) == len({p.anchor_code for p in anchors}) == 3


def test_both_formats_give_the_same_records(tmp_path):
    found = []
    for suffix in ("parquet", "jsonl"):
        source = Source(released.write_all(tmp_path / suffix, np.random.default_rng(3), suffix))
        pairs = eval_pairs(source)
        found.append((pairs, predictions(source, pairs), training_pool(source), discovery_pairs(source)))
    assert found[0] == found[1]


def test_forecasts_are_in_the_study_s_bins_with_the_argmax_beside_the_stated_bin(clones, answers):
    rows = [row for _, row in Source(clones).rows("predictions")]
    assert len(answers) == len(rows) == 48 * 3 * 7
    assert {f.bin_rule for f in answers} == {"study"}
    assert {f.surrogate_label for f in answers} == set(released.LABELS)
    for row, f in zip(rows, answers, strict=True):
        assert (f.comparison_id, f.repeat) == (row["comparison_id"], row["repeat"])
        if f.parse_failed:
            continue
        stated = np.array([x["p"] for x in row["bin_probabilities"]])
        assert f.probabilities == pytest.approx(stated / stated.sum())
        assert f.raw_probability_sum == row["raw_probability_sum"]
        assert (f.predicted_bin, f.stated_bin) == (stated.argmax() + 1, row["predicted_bin"])


def test_unparsed_rows_are_kept_with_their_error(answers):
    failed = [f for f in answers if f.parse_failed]
    assert len(failed) == 2 * 7
    assert all(f.parse_error.startswith("no JSON") and f.stated_bin is None and f.output_tokens is None for f in failed)


def test_the_training_pool_is_for_training_and_its_pair_type_is_the_subset(clones):
    pool = training_pool(Source(clones))
    assert {(p.split, p.subset, p.bin_rule) for p in pool} == {("train", "synthetic", "released")}
    assert pool[3].comparison_id == "3"
    with pytest.raises(SchemaError, match="the 'study' rule gives"):
        training_pool(Source(clones), rule="study")


def test_a_discovery_pair_has_its_parent_as_the_anchor(clones):
    rows = [row for _, row in Source(clones).rows("discovery_pairs")]
    found = discovery_pairs(Source(clones))
    assert len(found) == len(rows) == 20
    for row, p in zip(rows, found, strict=True):
        assert (p.anchor_code, p.candidate_code) == (row["parent_code"], row["child_code"])
        assert (p.aggregated_speedup, p.true_bin) == (row["g_speedup"], row["true_bin"])
        assert (p.pack, p.source_search, p.subset) == (row["problem_id"], row["benchmark_family"], "parent_to_child")
        assert p.internal_experiment == f"{row['parent_node_id']} -> {row['child_node_id']}"
    assert found[0].candidate_id == found[1].anchor_id


def test_files_by_split_alone_are_joined(tmp_path):
    rows = released.eval_rows(np.random.default_rng(0))
    for i, part in enumerate((rows[:20], rows[20:])):
        released.write(tmp_path / EVAL / "data" / f"eval-0000{i}-of-00002.parquet", part)
    released.write(tmp_path / EVAL / ".cache" / "eval-00000.parquet", rows)
    released.write(tmp_path / EVAL / "data" / "other.parquet", rows)
    assert [p.comparison_id for p in eval_pairs(Source(tmp_path))] == [r["comparison_id"] for r in rows]


def broken(tmp_path, change, *, key="eval_set", suffix="jsonl"):
    """Read one set whose third row ``change`` has altered."""
    rng = np.random.default_rng(0)
    pairs = released.eval_rows(rng, per_pack=1)
    rows = pairs if key == "eval_set" else released.prediction_rows(pairs, rng, failed=0)
    change(rows[2])
    for folder, split, members in ((EVAL, "eval", pairs), (PREDICTIONS, "predictions", rows)):
        released.write(tmp_path / folder / "combined" / f"{split}.{suffix}", members)
    source = Source(tmp_path)
    return eval_pairs(source) if key == "eval_set" else predictions(source, eval_pairs(source))


def probabilities(*p):
    return [{"bin": b, "p": v} for b, v in enumerate(p, start=1)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(true_bin=r.pop("true_bin") % 8 + 1), r"'gdn_chunk_fwd_h-0'\): .*the 'released' rule gives"),
        (lambda r: r.update(true_bin=9), r"column 'true_bin': .*less than or equal to 8, found '9'"),
        (lambda r: r.update(aggregated_speedup=0.0), r"column 'aggregated_speedup': .*greater than 0"),
        (lambda r: r.update(aggregated_speedup=None), r"column 'aggregated_speedup'"),
        (lambda r: r.update(speedup=r.pop("aggregated_speedup")), r"column 'aggregated_speedup' is missing; found columns comp"),
        (lambda r: r.update(anchor_code=None), r"column 'anchor_code': found 'None', expected text"),
        (lambda r: r.update(candidate_code=" "), r"column 'candidate_code': is empty"),
        (lambda r: r.update(comparison_id="trimul-0"), r"id 'trimul-0' stands in .*row 0 already"),
        (lambda r: r.update(comparison_id=["trimul-0"]), r"column 'comparison_id': found .* expected text"),
        (lambda r: r.update(hardware=3), r"column 'hardware': found '3', expected text"),
        (lambda r: r.update(aggregated_speedup=True), r"column 'aggregated_speedup': found 'True', expected a number"),
        (lambda r: r.update(aggregated_speedup=10**400), r"column 'aggregated_speedup': found '1000.*expected a number"),
        (lambda r: r.update(true_bin="4"), r"column 'true_bin': found '4', expected a number"),
    ],
)
def test_a_wrong_row_of_the_evaluation_set_is_named_with_what_was_found(tmp_path, change, message):
    with pytest.raises(SchemaError, match=rf"combined/eval\.jsonl, row 2.*{message}"):
        broken(tmp_path, change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(comparison_id="nobody"), "comparison_id 'nobody' is none of the 6 pairs of gpu-forecasters-eval-set"),
        (lambda r: r.update(pack="fp8_quant"), "column 'pack': found 'fp8_quant', but the pair's is 'trimul'"),
        (lambda r: r.update(repeat=0), "repeat 0 of 'synthetic-1' stands in .*row 0 already"),
        (lambda r: r.update(repeat="first"), "column 'repeat'"),
        (lambda r: r.update(surrogate_label=""), "column 'surrogate_label': is empty"),
        (lambda r: r.update(predicted_bin=0), "column 'predicted_bin': .*found '0'"),
        (lambda r: r.update(parse_failed="no"), "column 'parse_failed': found 'no', expected true or false"),
        (lambda r: r.update(bin_probabilities=None), "column 'bin_probabilities': found None"),
        (lambda r: r.update(bin_probabilities=[0.5, 0.5]), "column 'bin_probabilities': found .*expected a list of {bin, p}"),
        (lambda r: r.update(bin_probabilities=[{"bin": 9, "p": 1.0}]), "found bin 9, allowed are 1 to 8"),
        (lambda r: r.update(bin_probabilities=[{"bin": 1, "p": 0.5}] * 2), "bin 1 is listed twice"),
        (lambda r: r.update(bin_probabilities=probabilities(-0.1, 1.1)), r"bin 1 has p = -0\.1, allowed is a finite number"),
        (lambda r: r.update(bin_probabilities=probabilities(float("nan"))), "bin 1 has p = nan"),
        (lambda r: r.update(bin_probabilities=probabilities(10**400)), "bin 1 has p = 1000"),
        (lambda r: r.update(repeat=True), "column 'repeat': found 'True', expected a number"),
        (lambda r: r.update(repeat=-1), "column 'repeat': found -1, expected 0 or more"),
        (lambda r: r.update(input_tokens=-5), "column 'input_tokens': found -5, expected 0 or more"),
        (lambda r: r.update(elapsed_s="2 s"), "column 'elapsed_s': found '2 s', expected a number"),
        (lambda r: r.update(raw_probability_sum=10**400), "column 'raw_probability_sum': found '1000"),
        (lambda r: r.pop("reasoning"), "column 'reasoning' is missing"),
    ],
)
def test_a_wrong_row_of_the_predictions_is_named_with_what_was_found(tmp_path, change, message):
    with pytest.raises(SchemaError, match=rf"combined/predictions\.jsonl, row 2.*{message}"):
        broken(tmp_path, change, key="predictions")


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ([], "the probabilities sum to 0, allowed are 0.5 to 1.5"),
        (probabilities(0.1, 0.1, 0.1), "the probabilities sum to 0.3"),
        (probabilities(*[0.3] * 8), "the probabilities sum to 2.4"),
        (probabilities(0.5, 0.4), "6 of 8 bins have no probability and the others sum to 0.9"),
    ],
)
def test_what_a_model_may_have_said_and_nobody_can_use_is_a_counted_failure(tmp_path, stated, reason):
    found = broken(tmp_path, lambda r: r.update(bin_probabilities=stated), key="predictions")
    assert [f.parse_failed for f in found].count(True) == 1
    assert found[2].parse_error.startswith(reason)
    assert found[2].stated_bin is not None


def test_bins_left_out_have_probability_zero_and_one_bin_may_state_more_than_one(tmp_path):
    found = broken(tmp_path, lambda r: r.update(bin_probabilities=probabilities(0.25, 0.75)), key="predictions")
    assert found[2].probabilities.tolist() == [0.25, 0.75, 0, 0, 0, 0, 0, 0]
    sure = probabilities(1.05, 0, 0, 0, 0, 0, 0, 0)
    found = broken(tmp_path, lambda r: r.update(bin_probabilities=sure, raw_probability_sum=None), key="predictions")
    assert (found[2].predicted_bin, found[2].probabilities[0], found[2].raw_probability_sum) == (1, 1.0, 1.05)


def test_what_is_not_a_number_is_absent_where_a_reply_may_give_none(tmp_path):
    absent = dict.fromkeys(("input_tokens", "output_tokens", "elapsed_s", "raw_probability_sum", "predicted_bin"), float("nan"))
    found = broken(tmp_path, lambda r: r.update(absent), key="predictions")[2]
    assert (found.input_tokens, found.output_tokens, found.elapsed_s, found.stated_bin) == (None,) * 4
    assert 0.8 < found.raw_probability_sum < 1.2


@pytest.mark.parametrize(("rows", "said"), [(slice(1, None), "1 times"), (slice(3, None), "answers 5 of 6 pairs")])
def test_a_forecaster_that_does_not_answer_every_pair_as_often_is_named(tmp_path, rows, said):
    rng = np.random.default_rng(0)
    pairs = released.eval_rows(rng, per_pack=1)
    released.write(tmp_path / EVAL / "combined" / "eval.jsonl", pairs)
    released.write(tmp_path / PREDICTIONS / "combined" / "p.jsonl", released.prediction_rows(pairs, rng)[rows])
    with pytest.raises(SchemaError, match=rf"'synthetic-1'.*{said if 'pairs' in said else '2 times'}.*every pair as often"):
        predictions(Source(tmp_path), eval_pairs(Source(tmp_path)))


@pytest.mark.parametrize("gone", ["eval-00001-of-00002", "eval-00000-of-00002"])
def test_a_set_of_which_a_file_is_missing_is_refused(tmp_path, gone):
    rows = released.eval_rows(np.random.default_rng(0))
    for i in range(2):
        released.write(tmp_path / EVAL / "data" / f"eval-0000{i}-of-00002.parquet", rows[i::2])
    (tmp_path / EVAL / "data" / f"{gone}.parquet").unlink()
    with pytest.raises(DataError, match=r"data/eval.parquet is not whole, found 1 of 2 files"):
        eval_pairs(Source(tmp_path))


def test_a_failed_row_without_a_released_reason_still_has_one(tmp_path):
    change = lambda r: r.update(parse_failed=True, parse_error=None, predicted_bin=-1, bin_probabilities=None)
    assert broken(tmp_path, change, key="predictions", suffix="parquet")[2].parse_error == "no reason was released"


def test_a_set_that_is_not_there_names_the_command_that_brings_it(tmp_path):
    with pytest.raises(DataError, match=r"git clone https://huggingface\.co/datasets/codezakh/gpu-forecasters-eval-set"):
        eval_pairs(Source(tmp_path))
    (tmp_path / EVAL).mkdir()
    (tmp_path / EVAL / "notes.jsonl").write_text("{}\n")
    with pytest.raises(DataError, match=r"name begins with combined or eval; found notes\.jsonl"):
        eval_pairs(Source(tmp_path))


def test_a_file_that_is_no_table_says_so(tmp_path):
    path = tmp_path / EVAL / "combined" / "eval.parquet"
    path.parent.mkdir(parents=True)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(SchemaError, match="it is a git-lfs pointer: run `git lfs pull`"):
        eval_pairs(Source(tmp_path))
    path.unlink()
    lines = path.with_suffix(".jsonl")
    lines.write_text('{"comparison_id": "a"')
    with pytest.raises(SchemaError, match=r"eval\.jsonl, row 0: not JSON"):
        eval_pairs(Source(tmp_path))
    lines.write_text("[1]\n")
    with pytest.raises(SchemaError, match=r"row 0: column 'comparison_id' is missing; found list"):
        eval_pairs(Source(tmp_path))
    for text in ("[" * 100_000, '{"comparison_id": ' + "1" * 5000 + "}"):
        lines.write_text(text)
        with pytest.raises(SchemaError, match=r"eval\.jsonl, row 0: not JSON"):
            eval_pairs(Source(tmp_path))
    lines.write_bytes(b"\xff\xfe")
    with pytest.raises(SchemaError, match="not UTF-8"):
        eval_pairs(Source(tmp_path))
    lines.write_text("")
    with pytest.raises(SchemaError, match="no rows"):
        eval_pairs(Source(tmp_path))


def test_digests_are_of_the_files_that_are_read(clones):
    found = Source(clones).digests("eval_set")
    assert [Path(name).parent.name for name in found] == ["combined"]
    assert all(len(digest) == 64 for digest in found.values())


def test_an_unknown_set_lists_those_there_are(clones):
    with pytest.raises(UnknownNameError, match="known: discovery_pairs, eval_set, predictions, training_pool"):
        list(Source(clones).rows("test_set"))


def test_a_commit_has_no_default_and_its_absence_says_how_to_find_one():
    address = "https://huggingface.co/datasets/codezakh/gpu-forecasters-eval-set"
    with pytest.raises(DataError, match=rf"data\.eval_set=COMMIT, which `git ls-remote {address} HEAD` tells"):
        eval_pairs(Source())
    with pytest.raises(DataError, match="revision 'main' is no commit of 40 hex digits"):
        eval_pairs(Source(revisions={"eval_set": "main"}))
    assert Source(revisions={"eval_set": COMMIT}).digests("eval_set") == {f"codezakh/{EVAL}": COMMIT}


def test_huggingface_is_asked_by_name_configuration_split_and_commit(monkeypatch):
    asked, rows = [], released.eval_rows(np.random.default_rng(0))
    load = lambda *args, **options: asked.append((args, options)) or rows
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    assert len(eval_pairs(Source(revisions={"eval_set": COMMIT}))) == len(rows)
    assert asked == [((f"codezakh/{EVAL}", "combined"), {"split": "eval", "revision": COMMIT})]


def test_huggingface_s_own_failure_names_set_and_commit(monkeypatch):
    def load(*args, **options):
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    with pytest.raises(DataError, match=r"codezakh/gpu-forecasters-eval-set at 0123456789ab: .*\(no route\); check the commit"):
        eval_pairs(Source(revisions={"eval_set": COMMIT}))


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependencyError, match="pip install datasets"):
        eval_pairs(Source(revisions={"eval_set": COMMIT}))


def test_the_datasets_package_reads_what_the_folder_reader_reads(clones, pairs, answers, monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets", reason="the package `datasets` is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(published, "OWNER", str(clones))  # a local clone has the form of a repository
    source = Source(revisions={"eval_set": COMMIT, "predictions": COMMIT, "discovery_pairs": COMMIT, "training_pool": COMMIT})
    assert eval_pairs(source) == pairs
    assert predictions(source, pairs) == answers
    assert discovery_pairs(source) == discovery_pairs(Source(clones))
    assert training_pool(source) == training_pool(Source(clones))


def test_invented_files_say_what_they_are(clones):
    for key in ("eval_set", "predictions", "training_pool", "discovery_pairs"):
        assert all("synthetic" in json.dumps(row) for _, row in Source(clones).rows(key)), key


def test_a_forecast_keeps_the_columns_of_the_release():
    columns = {ours or theirs for theirs, ours in published.SETS["predictions"].columns.items()}
    assert columns <= set(Forecast.model_fields)
