import json

import numpy as np
import pytest

from kfs.errors import DataError, KfsError
from kfs.report import live, sources
from kfs.report.config import compose
from kfs.report.schemas import LiveData
from kfs.tasks import load_task

TASKS = ["softmax", "rmsnorm", "cumsum"]


@pytest.fixture
def data(tmp_path):
    found = compose(
        "live",
        [
            f"data.tasks=[{','.join(TASKS)}]",
            "data.device=host",
            "data.kernels=3",
            "data.child_pairs=3",
            f"data.folder={tmp_path}",
        ],
    )
    assert isinstance(found.data, LiveData)
    return found


def test_a_live_study_measures_this_machine_once_and_reads_what_it_measured(data, monkeypatch):
    with pytest.raises(DataError, match="measure with `kfs study live`"):
        sources.data_digests(data)
    every = live.task_kernels  # without Numba's, which take seconds each to compile
    monkeypatch.setitem(live.PRESETS, "host", "tiny")
    monkeypatch.setattr(live, "task_kernels", lambda *a: [k for k in every(*a) if "numba" not in k.source])
    said = []
    folder = live.measure(data.data, said.append)
    assert "measuring 9 kernels of 3 tasks" in said[0]
    assert sources.records_folder(data.data) == folder
    measurements, kernels, hardware = sources.embedded_records(data)
    assert len(measurements) == len(kernels) == 9 and hardware.kind == "cpu"
    pairs = sources.load_pairs(data, np.random.default_rng(0))
    assert {p.pack for p in pairs} == set(TASKS) and all(p.hardware == hardware.name for p in pairs)
    again = live.record
    monkeypatch.setattr(live, "record", lambda *a, **k: pytest.fail("measured again"))
    assert live.measure(data.data, said.append) == folder and len(said) == 1
    for unreadable in (b"{", b"[]", b"\xff"):
        (folder / "complete.json").write_bytes(unreadable)
        monkeypatch.setattr(live, "record", lambda *a, **k: (again(*a, **k), said.append("looked into the log")))
        assert live.measure(data.data, said.append) == folder and said[-1] == "looked into the log"


def test_unfinished_records_and_those_of_two_machines_are_refused(data, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "softmax.parquet").write_bytes(b"")
    with pytest.raises(DataError, match="found none"):
        sources.records_folder(data.data)
    for name in ("one", "two"):
        (tmp_path / name / "complete.json").write_text(json.dumps({"key": ""}))
    with pytest.raises(DataError, match="found one, two"):
        sources.records_folder(data.data)


def test_the_first_variant_of_every_family_is_measured_first():
    task = load_task("softmax")
    kernels = live.chosen(task, "cuda", None)
    families = [k.family for k in kernels[1:]]
    assert kernels[0].kernel_id == task.reference.kernel_id
    assert len(set(families[: len(set(families))])) == len(set(families)) < len(families)
    assert live.chosen(task, "cuda", 5) == kernels[:5]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("data.device=tpu", "known: cuda, host"),
        ("data.tasks=[softmax]", "name three or more"),
        ("data.tasks=[softmax,rmsnorm,nothing]", "unknown task 'nothing'"),
        ("data.kernels=2", "at least 3"),
    ],
)
def test_a_live_configuration_is_checked(override, said):
    with pytest.raises(KfsError, match=said):
        compose("live", override)


def test_pairs_of_gpu_kernels_know_the_language_of_each_source():
    from kfs.forecast.query import Query, languages
    from kfs.pairs import Comparison

    task = load_task("softmax")
    cuda = next(k for k in task.kernels("cuda") if k.language == "cuda")
    pair = Comparison(
        task.reference, cuda, "r", "paper", "h100", 2.5, 2.4, 2.6, 7, True, "reference_to_candidate", "study"
    ).pair()
    assert languages(pair) == languages(Query.from_pair(pair)) == {"anchor_code": "python", "candidate_code": "cuda"}
    assert pair.candidate_variant == "cuda"
