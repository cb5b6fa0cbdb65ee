import json

import numpy as np
import pytest

from kfs.errors import SchemaError
from kfs.records import (
    Block,
    Forecast,
    Hardware,
    Kernel,
    Measurement,
    Pair,
    atomic_write,
    parse_rows,
    probability_matrix,
    read_records,
    write_records,
)


def measurement(**changes):
    fields = {
        "task": "softmax",
        "preset": "tiny",
        "kernel_id": "a" * 16,
        "reference_id": "b" * 16,
        "hardware": "host-x",
        "harness": "host-1",
        "status": "ok",
        "blocks": [Block(case="c", child_pair=0, reference_ns=[2, 3], candidate_ns=[1, 2])],
        "speedup": 2.0,
        "speedup_low": 1.9,
        "speedup_high": 2.1,
        "confidence": 0.95,
        "log2_std_error": 0.02,
        "n_child_pairs": 3,
        "environment": {"torch": "2.13.0"},
    }
    return Measurement(**{**fields, **changes})


def pair(**changes):
    fields = {
        "comparison_id": "x",
        "pack": "softmax",
        "anchor_code": "def kernel(x): return x",
        "candidate_code": "def kernel(x): return 1 * x",
        "hardware": "h100",
        "aggregated_speedup": 1.2,
        "true_bin": 5,
    }
    return Pair(**{**fields, **changes})


EXAMPLES = [
    Hardware(name="h100", vendor="NVIDIA", architecture="sm_90", kind="gpu", peak_tflops={"fp32": 67.0}),
    Hardware(name="cpu", vendor="AMD", architecture="x86-64-v3", kind="cpu"),
    Kernel(language="python", source="def kernel(x): return x\n# é \u2028 \x85\n"),
    measurement(),
    measurement(status="crash", stage="timing", reason="killed", blocks=[], speedup=None, speedup_low=None, speedup_high=None),
    pair(),
    pair(bin_rule="released", true_bin=4),
    Forecast.from_probabilities("x", "softmax", "prior", np.arange(8)),
    Forecast(comparison_id="x", pack="p", surrogate_label="m", parse_failed=True, parse_error="no distribution"),
]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
@pytest.mark.parametrize("record", EXAMPLES, ids=lambda r: type(r).__name__)
def test_records_come_back_from_disk_equal(tmp_path, suffix, record):
    path = write_records([record], tmp_path / f"records{suffix}")
    assert read_records(type(record), path) == [record]


def test_a_kernel_id_is_the_content_and_nothing_else():
    one = Kernel(language="python", source="x", name="a", task="t")
    assert one.kernel_id == Kernel(language="python", source="x", name="b").kernel_id
    assert one.kernel_id != Kernel(language="triton", source="x").kernel_id
    assert len(one.kernel_id) == 16


def test_ok_cannot_be_built_without_samples():
    with pytest.raises(ValueError, match="needs samples"):
        measurement(blocks=[])


@pytest.mark.parametrize("missing", ["confidence", "log2_std_error", "speedup_low"])
def test_ok_cannot_be_built_without_an_interval(missing):
    with pytest.raises(ValueError, match="needs a speedup with its interval"):
        measurement(**{missing: None})


@pytest.mark.parametrize("durations", [[], [0], [-5]])
def test_a_block_holds_positive_durations_on_both_sides(durations):
    with pytest.raises(ValueError, match="candidate_ns"):
        Block(case="c", child_pair=0, reference_ns=[1], candidate_ns=durations)


def test_a_failed_measurement_cannot_carry_a_speedup():
    with pytest.raises(ValueError, match="cannot carry a speedup"):
        measurement(status="wrong_output", reason="wrong")


def test_a_failed_measurement_needs_a_reason():
    with pytest.raises(ValueError, match="needs a reason"):
        measurement(status="timeout", speedup=None, speedup_low=None, speedup_high=None)


def test_a_speedup_outside_its_interval_is_refused():
    with pytest.raises(ValueError, match="outside its interval"):
        measurement(speedup=3.0)


def test_a_label_that_contradicts_its_speedup_is_refused():
    with pytest.raises(ValueError, match="'study' rule gives 5"):
        pair(true_bin=4)


def test_mixing_bin_rules_in_one_table_is_an_error(tmp_path):
    with pytest.raises(SchemaError, match="released, study"):
        write_records([pair(), pair(bin_rule="released", true_bin=4)], tmp_path / "pairs.parquet")


def test_a_schema_error_names_row_and_column():
    rows = [pair().model_dump(), {**pair().model_dump(), "aggregated_speedup": -1}]
    with pytest.raises(SchemaError, match=r"pairs.csv, row 1, column 'aggregated_speedup'.*'-1'"):
        parse_rows(Pair, [*rows[:1], {**rows[1], "aggregated_speedup": "-1"}], "pairs.csv")


def test_an_unknown_column_is_named_with_those_allowed():
    with pytest.raises(SchemaError, match=r"column 'speed'.*columns of Pair: .*aggregated_speedup"):
        parse_rows(Pair, [{**pair().model_dump(), "speed": 2}])


def test_a_truncated_jsonl_file_is_named(tmp_path):
    path = write_records([pair(), pair(comparison_id="y")], tmp_path / "p.jsonl")
    path.write_text(path.read_text()[:-40])
    with pytest.raises(SchemaError, match=r"p\.jsonl, row 1: not JSON"):
        read_records(Pair, path)


def test_a_damaged_parquet_file_is_named(tmp_path):
    path = write_records([pair()], tmp_path / "p.parquet")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SchemaError, match=r"p\.parquet: not a readable parquet file"):
        read_records(Pair, path)


def test_reading_a_file_of_another_record_says_what_it_holds(tmp_path):
    path = write_records([pair()], tmp_path / "p.parquet")
    with pytest.raises(SchemaError, match="holds Pair records, not Forecast"):
        read_records(Forecast, path)


def test_probabilities_are_renormalised_and_the_raw_sum_kept():
    forecast = Forecast.from_probabilities("x", "p", "m", [0, 0, 0, 0.4, 0.4, 0.1, 0, 0])
    assert forecast.raw_probability_sum == pytest.approx(0.9)
    assert forecast.probabilities.sum() == pytest.approx(1)
    assert forecast.predicted_bin == 4  # the lower bin on a tie


@pytest.mark.parametrize("bad", [[1] * 7, [-1, *[1] * 7], [0] * 8, [np.nan] * 8])
def test_numbers_that_are_no_distribution_are_refused(bad):
    with pytest.raises(ValueError, match="need 8 non-negative finite"):
        Forecast.from_probabilities("x", "p", "m", bad)


def test_a_parse_failure_counts_as_uniform_and_carries_no_distribution():
    failed = EXAMPLES[-1]
    assert probability_matrix([failed]) == pytest.approx(np.full((1, 8), 1 / 8))
    with pytest.raises(ValueError, match="carries no distribution"):
        Forecast(**{**failed.model_dump(), "predicted_bin": 1})


def test_derived_columns_in_a_file_are_computed_again_never_trusted(tmp_path):
    path = tmp_path / "k.jsonl"
    path.write_text(json.dumps({"language": "python", "source": "x", "kernel_id": "forged"}) + "\n")
    assert read_records(Kernel, path)[0].kernel_id != "forged"


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    atomic_write(path, b"old")
    with pytest.raises(TypeError):
        atomic_write(path, "not bytes")
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["file"]
