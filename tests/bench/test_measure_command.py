"""``kfs measure`` on real processes."""

import json

import pytest

from kfs import cli
from kfs.bench.measure_command import parse_options
from kfs.errors import TaskError, UnknownNameError
from kfs.records import Measurement, Status
from kfs.tasks import load_task

GPU_MODE = """from task import input_t, output_t
import torch


def custom_kernel(data: input_t) -> output_t:
    for _ in range(40):
        out = torch.softmax(data, dim=-1)
    return out
"""
KERNELBENCH = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return torch.softmax(x, dim=self.dim)


def get_init_inputs():
    return [-1]
"""


@pytest.fixture
def candidate(tmp_path):
    def write(text, name="candidate.py"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def measure(*words):
    return cli.main(["measure", "task=softmax", "preset=tiny", *words])


def test_a_gpu_mode_candidate_is_measured_and_told_in_words(candidate, capsys):
    assert measure(f"candidate={candidate(GPU_MODE)}") == 0
    out = capsys.readouterr().out
    rows = dict(line.split(maxsplit=1) for line in out.splitlines()[1:])
    assert rows["status"] == "ok" and "95% interval" in rows["speedup"] and rows["bin"] == "1, severe slowdown"
    assert {"stop", "flags", "seconds"} <= rows.keys()


def test_a_kernelbench_candidate_is_measured_and_json_is_the_record_alone(candidate, capsys):
    assert measure(f"candidate={candidate(KERNELBENCH)}", "--json") == 0
    found = Measurement.model_validate(json.loads(capsys.readouterr().out))
    assert found.status == Status.OK and found.reference_id == load_task("softmax").reference.kernel_id


def test_a_reference_file_is_the_other_side_of_the_timing(candidate, capsys):
    slow = candidate(GPU_MODE, "slow.py")
    assert measure(f"candidate={candidate(KERNELBENCH)}", f"reference={slow}", "--json") == 0
    found = Measurement.model_validate(json.loads(capsys.readouterr().out))
    assert found.speedup > 2 and found.reference_id != load_task("softmax").reference.kernel_id


def test_a_wrong_kernel_is_status_one_with_stage_and_reason(candidate, capsys):
    assert measure(f"candidate={candidate('def kernel(x):' + chr(10) + '    return x * 0')}") == 1
    out = capsys.readouterr().out
    assert "wrong_output" in out and "stage" in out and "elements wrong" in out


@pytest.mark.parametrize(
    ("words", "error", "match"),
    [
        (["softmax"], TaskError, "expected KEY=VALUE; keys: task, candidate"),
        (["task=softmax"], TaskError, "candidate= missing"),
        (["task=softmax", "task=trimul", "candidate=x.py"], TaskError, "given twice"),
        (["tsk=softmax"], UnknownNameError, "did you mean 'task'"),
        (["task=softmax", "candidate=x.py", "device=tpu"], UnknownNameError, "known: cuda, host"),
    ],
)
def test_options_that_do_not_parse_name_what_is_allowed(words, error, match):
    with pytest.raises(error, match=match):
        parse_options(words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["task=sofmax", "candidate=x.py"], "known: cross_entropy"),
        (["task=softmax", "candidate=x.py", "preset=huge"], "known: host, paper, tiny"),
        (["task=softmax", "candidate=absent.py"], "cannot be read"),
    ],
)
def test_unknown_tasks_presets_and_files_are_one_line_before_anything_starts(words, said, capsys):
    assert cli.main(["measure", *words]) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_help_says_what_is_trusted(capsys):
    with pytest.raises(SystemExit):
        cli.main(["measure", "--help"])
    out = capsys.readouterr().out
    assert "never trusted" in out and "reference=FILE" in out and "KernelBench" in out
