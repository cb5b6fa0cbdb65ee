"""CUDA-L1: rows, pairs and the fixed split, on an excerpt of 12 problems on two GPUs."""

import json
import os
from collections import Counter

import pytest

from kfs.data import cuda_l1
from kfs.errors import DataError, SchemaError, UnknownNameError

WHOLE_MIRROR = os.environ.get("KFS_MIRROR")


@pytest.fixture(scope="module")
def rows():
    from pathlib import Path

    folder = Path(__file__).resolve().parents[2] / "data/excerpts/cuda_l1"
    return cuda_l1.load_rows(paths=[folder / "a100.json", folder / "h100.json"])


@pytest.fixture(scope="module")
def found(rows):
    return cuda_l1.pairs(rows, suspect="include")


def row_of(rows, gpu, pack):
    return next(r for r in rows if (r.gpu, r.pack) == (gpu, pack))


def test_an_excerpt_has_one_row_for_each_problem_and_gpu(rows):
    assert Counter(r.gpu for r in rows) == {"a100": 12, "h100": 12}
    assert len({r.pack for r in rows}) == 12


def test_the_text_none_is_no_source(rows):
    row = row_of(rows, "a100", "level1_problem30")
    assert "custom" not in row.sources and row.times["custom"] == 1.0


def test_a_pair_s_speedup_is_the_ratio_of_the_two_scores(excerpts, found):
    lines = (excerpts / "cuda_l1/a100.json").read_text().rstrip("\n").split("\n")
    raw = next(r for r in map(json.loads, lines) if (r["level_id"], r["task_id"]) == (1, 17))
    speedup = {p.subset: p.aggregated_speedup for p in found if (p.hardware, p.pack) == ("a100", "level1_problem17")}
    assert speedup["eager_to_custom"] == pytest.approx(raw["score_default"])
    assert speedup["graph_to_custom"] == pytest.approx(raw["score_cuda_graph"])
    assert speedup["eager_to_graph"] == pytest.approx(raw["score_default"] / raw["score_cuda_graph"])
    assert speedup["cudnn_to_eager"] == pytest.approx(raw["score_cudnn"] / raw["score_default"])


def test_every_pair_has_its_reverse_with_the_inverse_speedup(found):
    by_key = {(p.hardware, p.pack, p.anchor_variant, p.candidate_variant): p for p in found}
    for (gpu, pack, a, b), p in by_key.items():
        other = by_key[gpu, pack, b, a]
        assert other.aggregated_speedup == pytest.approx(1 / p.aggregated_speedup)
        assert (other.anchor_code, other.candidate_code) == (p.candidate_code, p.anchor_code)


def test_comparison_ids_are_unique_and_the_same_on_every_reading(rows, found):
    ids = [p.comparison_id for p in found]
    assert len(set(ids)) == len(ids)
    assert [p.comparison_id for p in cuda_l1.pairs(rows, suspect="include")] == ids


def test_suspect_ratios_are_left_out_unless_asked_for(rows, found):
    kept, suspect = cuda_l1.pairs(rows), cuda_l1.pairs(rows, suspect="only")
    assert suspect and all(p.aggregated_speedup > 20 or p.aggregated_speedup < 1 / 20 for p in suspect)
    assert all(1 / 20 <= p.aggregated_speedup <= 20 for p in kept)
    assert len(kept) + len(suspect) == len(found)
    assert cuda_l1.left_out(rows)["suspect_pairs"] == len(suspect)


def test_a_source_that_is_absent_or_cut_off_enters_no_pair(rows, found):
    for pack in ("level1_problem30", "level3_problem26"):
        assert {p.subset for p in found if p.pack == pack and p.hardware == "a100"} == {
            f"{a}_to_{b}" for a in ("eager", "graph", "cudnn") for b in ("eager", "graph", "cudnn") if a != b
        }
    assert cuda_l1.left_out(rows)["sources_cut"] == 2
    assert cuda_l1.left_out(rows)["sources_missing"] == 2


def test_no_variant_name_or_marker_reaches_a_pair_s_code(found):
    for p in found:
        for code in (p.anchor_code, p.candidate_code):
            assert "ModelNew" not in code and '"""\n    Optimized' not in code and "\n# " not in code


def test_near_duplicates_share_a_group_and_a_split(rows):
    splits = cuda_l1.problem_splits(rows)
    for a, b in (("level3_problem39", "level3_problem40"), ("level1_problem19", "level1_problem23")):
        assert splits[a] == splits[b]
    assert splits["level1_problem12"][0] != splits["level2_problem21"][0]


def test_the_split_of_an_excerpt_keeps_the_proportion(rows):
    assert Counter(s for _, s in cuda_l1.problem_splits(rows).values()) == {"train": 7, "calibration": 2, "test": 3}


def test_the_split_does_not_depend_on_the_order_of_rows_nor_on_the_gpu(rows):
    expected = cuda_l1.problem_splits(rows)
    assert cuda_l1.problem_splits(rows[::-1]) == expected
    assert cuda_l1.problem_splits([r for r in rows if r.gpu == "h100"]) == expected


def test_compile_pairs_have_one_source_on_both_sides_and_are_not_among_the_others(rows, found):
    compiled = cuda_l1.compile_pairs(rows)
    assert compiled and all(p.anchor_code == p.candidate_code for p in compiled)
    assert not {p.subset for p in compiled} & {p.subset for p in found}
    assert all(p.anchor_code != p.candidate_code for p in found)


def test_subsets_can_be_chosen_and_unknown_ones_are_listed(rows):
    assert {p.subset for p in cuda_l1.pairs(rows, subsets=["eager_to_custom"])} == {"eager_to_custom"}
    with pytest.raises(UnknownNameError, match=r"unknown subset of CUDA-L1 'eager_to_compile'.*eager_to_custom"):
        cuda_l1.pairs(rows, subsets=["eager_to_compile"])


def test_unknown_gpus_are_listed_and_an_absent_dataset_names_its_command():
    with pytest.raises(UnknownNameError, match=r"'b200'.*known: 3090, a100, h100, h20, l40"):
        cuda_l1.load_rows(["b200"])
    with pytest.raises(DataError, match="kfs data pull cuda_l1"):
        cuda_l1.load_rows(["a100"])


def test_a_truncated_or_wrong_line_is_named(tmp_path, excerpts):
    text = (excerpts / "cuda_l1/a100.json").read_text()
    (tmp_path / "a100.json").write_text(text[:20000])
    with pytest.raises(SchemaError, match=r"a100\.json, line \d+: not JSON.*truncated"):
        cuda_l1.read_rows(tmp_path / "a100.json")
    row = json.loads(text.split("\n")[0]) | {"score_default": "fast"}
    (tmp_path / "h20.json").write_text(json.dumps(row) + "\n")
    with pytest.raises(SchemaError, match=r"h20\.json, line 1, column 'score_default': found 'fast'"):
        cuda_l1.read_rows(tmp_path / "h20.json")
    del row["ref_code"]
    (tmp_path / "l40.json").write_text(json.dumps(row) + "\n")
    with pytest.raises(SchemaError, match="column 'ref_code' is missing"):
        cuda_l1.read_rows(tmp_path / "l40.json")


def test_line_separators_of_unicode_inside_a_source_do_not_end_a_row(tmp_path, excerpts):
    row = json.loads((excerpts / "cuda_l1/a100.json").read_text().split("\n")[0])
    row["ref_code"] += "s = 'a\u2028b\u0085c\x1e'\n"
    text = json.dumps(row, ensure_ascii=False)
    assert "\u2028" in text
    (tmp_path / "a100.json").write_text(f"{text}\n{text}\n", encoding="utf-8")
    assert [r.sources["eager"] for r in cuda_l1.read_rows(tmp_path / "a100.json")] == [row["ref_code"]] * 2
    (tmp_path / "h20.json").write_text("")
    with pytest.raises(SchemaError, match=r"h20\.json: no rows"):
        cuda_l1.read_rows(tmp_path / "h20.json")


@pytest.mark.skipif(not WHOLE_MIRROR, reason="KFS_MIRROR is not set; set it to a folder with the whole files")
def test_the_whole_is_split_150_40_60_without_a_group_in_two_splits(monkeypatch):
    monkeypatch.setenv("KFS_MIRROR", WHOLE_MIRROR)
    splits = cuda_l1.problem_splits(cuda_l1.load_rows(["a100"]))
    assert Counter(s for _, s in splits.values()) == {"train": 150, "calibration": 40, "test": 60}
    assert len(set(splits.values())) == len({g for g, _ in splits.values()})
