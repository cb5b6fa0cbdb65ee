"""Kernel Tuner caches: tables of configurations, their traps, and files that end too early."""

import gzip
import json
import math
import os

import numpy as np
import pytest

from kfs.data.kernel_tuner import SPACES, devices, load_space, read_space
from kfs.errors import DataError, SchemaError, UnknownNameError

WHOLE_MIRROR = os.environ.get("KFS_MIRROR")


@pytest.fixture
def rtx_3090(excerpts):
    return excerpts / "kernel_tuner/convolution_RTX_3090.json.gz"


@pytest.fixture
def w7800(excerpts):
    return excerpts / "kernel_tuner/convolution_milo_W7800.json"


def write(tmp_path, entries, **head):
    content = {
        "device_name": "D",
        "kernel_name": "k",
        "problem_size": [8],
        "tune_params_keys": ["a"],
        "tune_params": {"a": [1, 2]},
    }
    path = tmp_path / "D.json"
    path.write_text(json.dumps({**content, **head, "cache": entries}))
    return path


def test_a_space_has_a_row_for_every_configuration_and_a_status_for_every_failure(rtx_3090):
    space = read_space(rtx_3090)
    assert (space.kernel, space.device, space.problem_size) == ("convolution_kernel", "NVIDIA GeForce RTX 3090", (4096, 4096))
    assert len(space.configurations) == 200 and len(space.measured) == 155
    assert space.failures == {"compile_error": 41, "runtime_error": 4}
    assert space.cut == ""


def test_failed_configurations_have_no_time_and_measured_ones_every_sample(rtx_3090):
    table = read_space(rtx_3090).configurations
    failed = table["status"] != "ok"
    assert table.loc[failed, "time_ms"].isna().all() and (table.loc[failed, "times_ms"].map(len) == 0).all()
    assert (table.loc[~failed, "times_ms"].map(len) == 10).all()
    assert np.allclose(table.loc[~failed, "times_ms"].map(np.mean), table.loc[~failed, "time_ms"])


def test_keys_are_the_parameters_values_joined_by_commas(rtx_3090):
    space = read_space(rtx_3090)
    for key, row in space.configurations.head(20).iterrows():
        assert key == ",".join(str(row[p]) for p in space.parameters)


def test_twins_that_differ_in_an_ignored_parameter_alone_are_flagged(w7800):
    space = read_space(w7800)
    twins = space.measured[space.measured["twin_of"] != ""]
    assert len(twins) == 3
    for key, row in twins.iterrows():
        first = space.configurations.loc[row["twin_of"]]
        differing = [p for p in space.parameters if first[p] != row[p]]
        assert differing == ["use_shmem"] and row["twin_of"] != key and first["twin_of"] == ""


def test_samples_stored_as_pairs_count_by_their_second_element(tmp_path):
    path = write(tmp_path, {"1": {"a": 1, "time": 2.0, "times": [[0, 3.0], [0, 5.0]]}})
    row = read_space(path).configurations.loc["1"]
    assert row["time_ms"] == 4.0 and row["times_ms"] == (3.0, 5.0)


def test_failure_names_become_statuses_and_an_unknown_one_is_an_error(tmp_path):
    path = write(tmp_path, {"1": {"a": 1, "time": "InvalidConfig"}, "2": {"a": 2, "time": 1e20}})
    table = read_space(path).configurations
    assert list(table["status"]) == ["rejected", "rejected"] and all(math.isnan(t) for t in table["time_ms"])
    with pytest.raises(SchemaError, match=r"configuration '1'.*unknown failure 'Meteor'.*CompilationFailedConfig"):
        read_space(write(tmp_path, {"1": {"a": 1, "time": "Meteor"}}))


@pytest.mark.parametrize("time", [None, 0, -1.0, float("nan")])
def test_a_time_that_is_none_is_an_error_that_names_the_configuration(tmp_path, time):
    with pytest.raises(SchemaError, match=r"configuration '1'.*is not a time"):
        read_space(write(tmp_path, {"1": {"a": 1, "time": time, "times": []}}))


def test_other_json_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[1, 2]")
    with pytest.raises(SchemaError, match="'kernel_name' is missing; not a Kernel Tuner cache"):
        read_space(path)
    with pytest.raises(SchemaError, match=r"configuration '1': parameter 'a' is missing"):
        read_space(write(tmp_path, {"1": {"time": 1.0}}))


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("name", ["convolution_RTX_3090.json.gz", "convolution_milo_W7800.json"])
def test_a_truncated_file_is_refused_by_name_and_its_whole_configurations_kept_on_request(excerpts, tmp_path, name, share):
    data = (excerpts / "kernel_tuner" / name).read_bytes()
    path = tmp_path / name
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(DataError, match=rf"{name}: truncated: .*keep_whole_lines=True keeps its \d+ whole"):
        read_space(path)
    kept, whole = read_space(path, keep_whole_lines=True), read_space(excerpts / "kernel_tuner" / name)
    n = len(kept.configurations)
    assert 0 < n <= len(whole.configurations) and f"kept {n} whole configurations" in kept.cut
    assert kept.configurations.equals(whole.configurations.iloc[:n])


def test_a_text_cut_at_any_byte_is_called_truncated_and_never_gives_a_half_configuration(tmp_path, rtx_3090):
    text = gzip.decompress(rtx_3090.read_bytes()).decode()
    whole = read_space(rtx_3090).configurations
    path = tmp_path / "cut.json"
    for end in range(3000, 4200, 23):
        path.write_text(text[:end])
        with pytest.raises(DataError, match=r"cut\.json: truncated"):
            read_space(path)
        kept = read_space(path, keep_whole_lines=True).configurations
        assert kept.equals(whole.iloc[: len(kept)])


def test_a_file_without_one_whole_configuration_is_refused_even_on_request(tmp_path, rtx_3090):
    path = tmp_path / "cut.json"
    path.write_bytes(gzip.decompress(rtx_3090.read_bytes())[:200])
    with pytest.raises(DataError, match="no configuration in it is whole"):
        read_space(path, keep_whole_lines=True)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="the file is empty"):
        read_space(path)


def test_a_damaged_file_is_refused_even_where_whole_lines_would_do(tmp_path, rtx_3090):
    data = bytearray(rtx_3090.read_bytes())
    data[len(data) // 2] ^= 1
    path = tmp_path / "bad.json.gz"
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"bad\.json\.gz: damaged"):
        read_space(path, keep_whole_lines=True)
    text = gzip.decompress(rtx_3090.read_bytes()).decode()
    path = tmp_path / "bad.json"
    path.write_text(text[:5000] + "}" + text[5001:])
    with pytest.raises(DataError, match=r"bad\.json: not JSON at line \d+.*damaged"):
        read_space(path, keep_whole_lines=True)


def test_unknown_spaces_and_devices_are_listed_and_an_absent_file_names_its_command(tmp_path):
    with pytest.raises(UnknownNameError, match="known: kt_convolution, kt_convolution_milo, kt_dedispersion, kt_gemm"):
        load_space("gemm", "RTX_3090")
    with pytest.raises(UnknownNameError, match="known: A100, A4000, MI250X, W7800"):
        load_space("kt_dedispersion", "H100")
    with pytest.raises(DataError, match="kfs data pull kt_gemm"):
        load_space("kt_gemm", "RTX_3090")
    with pytest.raises(DataError, match="no such file"):
        read_space(tmp_path / "none.json")


@pytest.mark.skipif(not WHOLE_MIRROR, reason="KFS_MIRROR is not set; set it to a folder with the whole files")
@pytest.mark.parametrize(("name", "n"), zip(SPACES, (11130, 4362, 6768, 17956), strict=True))
def test_the_whole_spaces_have_their_known_sizes(monkeypatch, name, n):
    monkeypatch.setenv("KFS_MIRROR", WHOLE_MIRROR)
    assert len(load_space(name, list(devices(name))[-1]).configurations) == n
