"""Sources of other benchmarks become kernels by reading them; nothing of a candidate runs here."""

import numpy as np
import pytest
import torch

from kfs.bench.adapters import ENTRY, MAX_BYTES, load_kernel, load_problem, load_task
from kfs.bench.launch import LaunchError
from kfs.errors import TaskError, UnknownNameError
from kfs.records import Kernel
from kfs.tasks import load_task as load_own_task
from kfs.tasks import reference_function

GPU_MODE = """#!POPCORN leaderboard softmax
from __future__ import annotations

from task import input_t, output_t
import torch


def kernel(x):
    return x


def custom_kernel(data: input_t) -> output_t:
    return torch.softmax(data, dim=-1)
"""
PROBLEM = """import torch
import torch.nn as nn

N = 64


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.rand(16, N)]


def get_init_inputs():
    return [N, 48]
"""
CANDIDATE = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return self.linear(x).clamp_min_(0)
"""


def run(kernel: Kernel, *inputs):
    """What the sandbox does with a kernel, for sources this file trusts."""
    names = {}
    exec(compile(kernel.source, "<test>", "exec"), names)
    with torch.inference_mode():
        return names[kernel.entry](*inputs)


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "relu_linear.py"
    path.write_text(PROBLEM)
    return load_problem(path)


def test_a_plain_kernel_is_taken_unchanged():
    source = "import torch\n\n\ndef kernel(x):\n    return torch.softmax(x, -1)\n"
    kernel = load_kernel(source)
    assert (kernel.source, kernel.entry, kernel.language) == (source, "kernel", "python")


def test_a_file_gives_the_kernel_its_text_gives_and_a_name(tmp_path):
    (tmp_path / "mine.py").write_text(GPU_MODE)
    kernel = load_kernel(tmp_path / "mine.py", load_own_task("softmax"))
    assert kernel.kernel_id == load_kernel(GPU_MODE).kernel_id
    assert (kernel.name, kernel.task) == ("mine", "softmax")


def test_a_gpu_mode_kernel_gets_the_tensor_itself_where_there_is_one():
    x = torch.randn(3, 5)
    assert torch.equal(run(load_kernel(GPU_MODE), x), torch.softmax(x, -1))


def test_a_gpu_mode_kernel_gets_the_tuple_where_there_are_several():
    source = "from task import input_t\ndef custom_kernel(data: input_t):\n    a, b = data\n    return a - b\n"
    a, b = torch.randn(2, 3), torch.randn(2, 3)
    assert torch.equal(run(load_kernel(source), a, b), a - b)


@pytest.mark.parametrize(
    "imported",
    [
        "from task import (\n    input_t,\n    output_t,\n)\n",
        "import math; from task import input_t, output_t; import re\n",
        "try:\n    from task import input_t, output_t\nexcept ImportError:\n    input_t = output_t = object\n",
        "from task import input_t as data_t, output_t\n",
    ],
)
def test_the_types_of_gpu_mode_need_no_module_of_theirs(imported):
    assert run(load_kernel(imported + "def custom_kernel(data):\n    return data + 1\n"), torch.zeros(2)).tolist() == [1, 1]


def test_a_kernelbench_model_is_built_once_and_needs_no_gradient():
    source = CANDIDATE + "\n\ndef get_init_inputs():\n    return [8, 4]\n"
    kernel = load_kernel(source)
    names = {}
    exec(compile(kernel.source, "<test>", "exec"), names)
    x = torch.randn(2, 8)
    first = names[ENTRY](x)
    assert first.shape == (2, 4) and not first.requires_grad
    assert torch.equal(first, names[ENTRY](x))


def test_building_a_model_leaves_the_random_state_alone():
    before = torch.random.get_rng_state()
    run(
        load_kernel(CANDIDATE + "\n\ndef get_init_inputs():\n    return [8, 4]\n"), torch.randn(2, 8, generator=torch.Generator())
    )
    assert torch.equal(before, torch.random.get_rng_state())


def test_model_and_modelnew_of_a_problem_have_equal_parameters(problem):
    (x,) = problem.make_inputs(problem.preset("tiny")[0], np.random.default_rng(1))
    ours = run(load_kernel(CANDIDATE, problem), x)
    assert torch.equal(ours, reference_function(problem)(x))


def test_init_inputs_of_the_problem_win_over_the_candidates_own(problem):
    kernel = load_kernel(CANDIDATE + "\n\ndef get_init_inputs():\n    return [1, 1]\n", problem)
    assert run(kernel, torch.rand(16, 64)).shape == (16, 48)


def test_a_problem_is_a_task_with_fresh_inputs_and_a_reference_that_takes_float64(problem):
    case = problem.preset("host")[0]
    draws = [problem.make_inputs(case, np.random.default_rng(s))[0] for s in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    wide = reference_function(problem)(draws[0].double())
    assert wide.dtype == torch.float64
    assert problem.signature == "kernel(float32[16, 64]) -> float32[16, 48]"
    assert problem.held_out == "" and "scaled" in problem.stresses
    assert problem.nbytes(case) == 16 * 48 * 4


def test_a_problem_keeps_only_stresses_it_survives(tmp_path):
    path = tmp_path / "log.py"
    path.write_text(PROBLEM.replace("torch.relu(self.linear(x))", "torch.log(x)"))
    assert not {"zero", "negative"} & set(load_problem(path).stresses)


def test_a_task_may_be_a_name_a_folder_or_a_problem_file(tmp_path):
    assert load_task("softmax") is load_own_task("softmax")
    assert load_task(load_own_task("softmax").folder).name == "softmax"
    (tmp_path / "mine.py").write_text(PROBLEM)
    assert load_task(tmp_path / "mine.py").name == "mine"
    with pytest.raises(UnknownNameError, match="softmax"):
        load_task("sofmax")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (CANDIDATE, "defines Model, get_inputs"),
        (PROBLEM.replace("torch.rand(16, N)", "torch.rand(16, N + 1)"), "fails here"),
        (PROBLEM.replace("torch.rand(16, N)", "3"), "fails here|must be tensors"),
    ],
)
def test_a_file_that_is_no_problem_says_why(tmp_path, text, match):
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(TaskError, match=match):
        load_problem(path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("def solve(x):\n    return x\n", r"found: solve \(function\).*allowed: .*ModelNew"),
        ("class Net:\n    pass\n", r"found: Net \(class\)"),
        ("x = 1\n", "no function or class"),
        ("import triton\n\n@triton.jit\ndef kernel(x):\n    pass\n", "another function must launch"),
        (" \n\n", "empty"),
        ("x\0\n", "NUL"),
        ("#" * (MAX_BYTES + 1) + "\n", "longer than"),
    ],
)
def test_a_source_without_an_entry_says_what_was_found_and_what_is_allowed(text, match):
    with pytest.raises(TaskError, match=match):
        load_kernel(text)


def test_files_that_are_no_text_or_absent_are_refused(tmp_path):
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\ndef kernel(x): return x\n")
    (tmp_path / "kernel.txt").write_text("def kernel(x): return x\n")
    for name, match in (("latin.py", "not UTF-8"), ("absent.py", "cannot be read"), ("kernel.txt", "ends in .py")):
        with pytest.raises(TaskError, match=match):
            load_kernel(tmp_path / name)


def test_nothing_of_a_candidate_runs_while_it_is_read(tmp_path):
    mark = tmp_path / "ran"
    load_kernel(f"open({str(mark)!r}, 'w')\ndef custom_kernel(data):\n    return data\n")
    assert not mark.exists()


@pytest.mark.parametrize("text", ["def kernel(x:\n", "(" * 100_000 + "\n", "-" * 100_000 + "1\n", "x" + ".x" * 100_000 + "\n"])
def test_a_source_python_cannot_read_is_left_for_the_device_to_judge(text):
    try:
        assert load_kernel(text).source == text
    except TaskError as error:
        assert "no entry point" in str(error)


def test_triton_and_cuda_sources_are_told_apart(tmp_path):
    assert load_kernel("import triton\n\n\ndef kernel(x):\n    return x\n").language == "triton"
    path = tmp_path / "double.cu"
    path.write_text(
        "// inputs: x[N]\n// outputs: y[N] float32\n// launch: twice grid=(cdiv(N, 64),) block=(64,) args=(x, y, N)\n"
        'extern "C" __global__ void twice(const float* x, float* y, int n) {}\n'
    )
    kernel = load_kernel(path)
    assert (kernel.language, kernel.entry) == ("cuda", "twice")
    path.write_text("__global__ void f() {}\n")
    with pytest.raises(LaunchError):
        load_kernel(path)
