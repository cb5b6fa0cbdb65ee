"""Publishing records as a folder with a dataset card."""

import pytest
import yaml

from kfs.cli import main
from kfs.data import cuda_l1
from kfs.data.export import COLUMNS, export
from kfs.errors import DataError, SchemaError
from kfs.records import Forecast, Pair, read_records, write_records
from kfs.speedup import RELEASED_LABELS


@pytest.fixture
def pairs(excerpts):
    return cuda_l1.load_pairs(paths=[excerpts / "cuda_l1/a100.json"], subsets=["eager_to_custom", "custom_to_eager"])


@pytest.fixture
def forecasts(pairs):
    return [Forecast.from_probabilities(p.comparison_id, p.pack, "prior", [1, 1, 1, 1, 2, 1, 1, 1]) for p in pairs]


def test_an_exported_folder_reads_back_as_the_same_records(tmp_path, pairs, forecasts, capsys):
    inputs = [write_records(pairs, tmp_path / "p.parquet"), write_records(forecasts, tmp_path / "f.jsonl")]
    status = main(["data", "export", *map(str, inputs), "--out", str(tmp_path / "out"), "--licence", "MIT"])
    assert status == 0 and "README.md" in capsys.readouterr().out
    splits = sorted((tmp_path / "out/pairs").glob("*.parquet"))
    assert [p.stem for p in splits] == sorted({p.split for p in pairs})
    back = [r for path in splits for r in read_records(Pair, path)]
    assert sorted(back, key=lambda r: r.comparison_id) == sorted(pairs, key=lambda r: r.comparison_id)
    assert read_records(Forecast, tmp_path / "out/forecasts/predictions.parquet") == forecasts


def test_the_card_states_licence_counts_columns_bins_and_provenance(tmp_path, pairs):
    write_records(pairs, tmp_path / "p.parquet")
    folder = export([tmp_path / "p.parquet"], tmp_path / "out", licence="MIT", title="T", provenance="From a test.")
    card = (folder / "README.md").read_text()
    front = yaml.safe_load(card.split("---")[1])
    assert front["license"] == "mit"
    assert {f["path"] for f in front["configs"][0]["data_files"]} == {f"pairs/{s}.parquet" for s in {p.split for p in pairs}}
    assert "| `candidate_code` |" in card and "| 5 | minor speedup |" in card
    assert "From a test." in card and "CUDA-L1" in card and "Rule `study`, right-closed" in card
    assert f"| eager_to_custom | {sum(p.subset == 'eager_to_custom' for p in pairs)} |" in card


def test_every_column_of_a_record_is_explained():
    assert {*Pair.model_fields, *Forecast.model_fields} == set(COLUMNS)


def test_a_folder_that_holds_something_is_not_touched(tmp_path, pairs):
    write_records(pairs, tmp_path / "p.parquet")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("keep")
    with pytest.raises(DataError, match="is not empty"):
        export([tmp_path / "p.parquet"], tmp_path / "out", licence="MIT")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_two_bin_rules_are_not_mixed_and_nothing_is_left_behind(tmp_path, pairs):
    p = pairs[0]
    other = p.model_copy(update={"bin_rule": "released", "true_bin": RELEASED_LABELS.index(p.aggregated_speedup)})
    inputs = [write_records([p], tmp_path / "a.jsonl"), write_records([other], tmp_path / "b.jsonl")]
    with pytest.raises(SchemaError, match="several bin rules"):
        export(inputs, tmp_path / "out", licence="MIT")
    assert sorted(x.name for x in tmp_path.iterdir() if x.name != "cache") == ["a.jsonl", "b.jsonl"]


def test_files_that_hold_no_such_records_are_named(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(SchemaError, match=r"x\.jsonl: holds neither Pair nor Forecast records; found columns a"):
        export([tmp_path / "x.jsonl"], tmp_path / "out", licence="MIT")
    (tmp_path / "x.csv").write_text("a\n")
    with pytest.raises(SchemaError, match=r"unknown record format '.csv'"):
        export([tmp_path / "x.csv"], tmp_path / "out", licence="MIT")
    with pytest.raises(DataError, match="no such file"):
        export([tmp_path / "none.parquet"], tmp_path / "out", licence="MIT")
