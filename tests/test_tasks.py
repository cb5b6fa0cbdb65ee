import re
import types

import numba
import numpy as np
import pytest
import torch

from kfs.bench.judge import admit, as_tuple, expect, fault
from kfs.errors import TaskError
from kfs.records import Kernel
from kfs.tasks import Case, Task, expand_variants, load_task, reference_function, task_names

STUDY_TASKS = {"trimul", "cross_entropy", "gdn_chunk_fwd_h", "gdn_chunk_fwd_o", "gdn_recompute_w_u", "fp8_quant"}
EVERYDAY_TASKS = {"softmax", "rmsnorm", "matmul_bias_gelu", "cumsum"}


def first_fault(kernel: Kernel, sets, expected) -> str | None:
    """What is wrong with a kernel on value sets, in words."""
    module = types.ModuleType(kernel.name)
    try:
        exec(compile(kernel.source, kernel.name, "exec"), module.__dict__)
        for inputs, want in zip(sets, expected, strict=True):
            copies = [x.clone() for x in inputs]
            with torch.inference_mode():
                wrong = fault(want, module.kernel(*copies))
            if wrong is None and not all(torch.equal(a, b) for a, b in zip(copies, inputs, strict=True)):
                wrong = "an input was changed"
            if wrong is not None:
                return wrong
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def test_the_six_study_tasks_and_four_everyday_ones_are_there():
    assert set(task_names()) == STUDY_TASKS | EVERYDAY_TASKS


def test_an_unknown_task_lists_the_known_ones():
    with pytest.raises(KeyError, match=r"unknown task 'trimull' \(did you mean 'trimul'\?\); known: cross_entropy, cumsum"):
        load_task("trimull")


@pytest.mark.parametrize("name", task_names())
def test_a_task_admits_its_tiny_and_host_cases(name, rng):
    task = load_task(name)
    for preset in ("tiny", "host"):
        admit(task, task.preset(preset), rng)


@pytest.mark.parametrize("name", task_names())
def test_host_cases_hold_at_most_8_mb(name, rng):
    task = load_task(name)
    for case in task.preset("host"):
        inputs = task.make_inputs(case, rng)
        outputs = as_tuple(reference_function(task)(*inputs))
        assert sum(x.nbytes for x in (*inputs, *outputs)) <= 8e6, case.name


@pytest.mark.parametrize("name", task_names())
def test_stated_bytes_are_those_of_inputs_and_outputs(name, rng):
    task = load_task(name)
    for case in task.preset("tiny"):
        inputs = task.make_inputs(case, rng)
        outputs = as_tuple(reference_function(task)(*inputs))
        moved = sum(x.nbytes for x in (*inputs, *outputs))
        assert 0.3 * moved <= task.nbytes(case) <= moved * 1.001, case.name
        assert task.flops(case) > 0


@pytest.mark.parametrize("name", task_names())
def test_inputs_depend_on_nothing_but_the_generator(name):
    task = load_task(name)
    case = task.preset("tiny")[0]
    one, same, other = (task.make_inputs(case, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("name", task_names())
def test_a_family_has_thirty_kernels_of_eight_algorithms(name):
    kernels = load_task(name).kernels("host")
    families = [k.family for k in kernels]
    assert len({k.kernel_id for k in kernels}) >= 30
    assert len(set(families)) >= 8
    assert max(families.count(f) for f in families) <= 4


@pytest.mark.parametrize("name", task_names())
def test_no_source_names_its_variants(name):
    for kernel in load_task(name).kernels("host"):
        assert not re.search(r"#\s*variants", kernel.source), kernel.name


@pytest.mark.parametrize("name", task_names())
def test_every_kernel_is_right_on_tiny_cases_and_leaves_its_inputs_alone(name, rng, monkeypatch):
    task = load_task(name)
    reference = reference_function(task)
    sets = [task.make_inputs(case, rng) for case in task.preset("tiny")]
    expected = [expect(task, inputs, reference) for inputs in sets]
    with monkeypatch.context() as patch:
        patch.setattr(numba.config, "DISABLE_JIT", True)  # compiling 200 kernels takes minutes, interpreting them seconds
        doubtful = [k for k in task.kernels("host") if first_fault(k, sets, expected) is not None]
    assert {k.name: wrong for k in doubtful if (wrong := first_fault(k, sets, expected)) is not None} == {}
    assert len(doubtful) <= 4  # those that need compiled integer types or guvectorize


def make_task(reference: str, **changes):
    fields = {
        "name": "mine",
        "title": "t",
        "signature": "s",
        "make_inputs": lambda case, rng: (torch.from_numpy(rng.standard_normal((case["n"], 8), dtype=np.float32)),),
        "cases": {"tiny": (Case("n4", {"n": 4}),)},
        "rtol": 1e-4,
        "atol": 1e-6,
        "precision": "strict",
        "flops": lambda case: 1.0,
        "nbytes": lambda case: 1.0,
        "reference": Kernel(language="python", source=reference, task="mine"),
    }
    return Task(**{**fields, **changes})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("x * 0", "zeros passes"),
        ("x * 0 + 3", "a constant|other inputs"),
        ("x * 1", "input 0 itself passes"),
        ("x[:, :1].expand(-1, 8) * 1", "a broadcast value"),
        ("x.softmax(-1).mean(-1)", "constant|other inputs|ones"),
        ("x / 0 * 0", "not finite"),
    ],
)
def test_a_degenerate_task_is_refused(rng, body, why):
    task = make_task(f"import torch\n\n\ndef kernel(x):\n    return {body}\n")
    with pytest.raises(TaskError, match=why):
        admit(task, task.cases["tiny"], rng)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("x.mul_(2)", "output 0 lies in the memory of input 0"),
        ("x.mul_(2).clone()", "input 0 is changed in place"),
        ("torch.fft.fft(x)", r"output 0 is torch\.complex64; return its real view"),
        ("(x * 2, None)", "output 1 is a NoneType"),
        ("None", "output 0 is a NoneType"),
    ],
)
def test_a_reference_that_breaks_the_contract_of_candidates_is_named(rng, body, why):
    task = make_task(f"import torch\n\n\ndef kernel(x):\n    return {body}\n")
    with pytest.raises(TaskError, match=f"the reference breaks the contract: {why}"):
        admit(task, task.cases["tiny"], rng)


def test_a_task_whose_tolerance_lets_zeros_pass_is_refused(rng):
    task = make_task("def kernel(x):\n    return x.softmax(-1)\n", atol=1.0, precision="tolerance")
    with pytest.raises(TaskError, match="zeros passes"):
        admit(task, task.cases["tiny"], rng)


def test_a_folder_of_ones_own_works_like_ours(tmp_path, rng):
    folder = tmp_path / "double"
    (folder / "host").mkdir(parents=True)
    (folder / "task.py").write_text(
        "from kfs.tasks import Task, case, normal\n"
        "TASK = Task(name='double', title='t', signature='s', make_inputs=lambda c, rng: (normal(rng, c['n']),),\n"
        "    cases={'tiny': (case(n=5),)}, rtol=1e-5, atol=1e-6, precision='strict', flops=lambda c: 1.0, nbytes=lambda c: 1.0)\n"
    )
    (folder / "reference.py").write_text("def kernel(x):\n    return 2 * x\n")
    (folder / "host" / "add.py").write_text("def kernel(x):\n    return x + x\n")
    task = load_task(folder)
    admit(task, task.preset("tiny"), rng)
    assert [k.name for k in task.kernels("host")] == ["add"]


def test_a_task_file_without_a_task_says_what_to_define(tmp_path):
    (tmp_path / "task.py").write_text("TASK = 3\n")
    with pytest.raises(TaskError, match=r"define TASK = Task\(\.\.\.\), found int"):
        load_task(tmp_path)


def test_variants_of_a_constant_become_kernels_without_the_comment(tmp_path):
    path = tmp_path / "blocked.py"
    path.write_text("BLOCK = 64  # variants: 16, 256\n\n\ndef kernel(x):\n    return x\n")
    kernels = expand_variants(path, task="t", language="python")
    assert [k.name for k in kernels] == ["blocked[BLOCK=64]", "blocked[BLOCK=16]", "blocked[BLOCK=256]"]
    assert [k.source.splitlines()[0] for k in kernels] == ["BLOCK = 64", "BLOCK = 16", "BLOCK = 256"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A = 1  # variants: 2\nB = 1  # variants: 2\n", "at most one"),
        ("A = 1  # variants: 2, 3, 4, 5\n", "at most 4"),
        ("A = 1  # variants: x()\n", "literals"),
    ],
)
def test_bad_variants_are_named(tmp_path, text, why):
    path = tmp_path / "k.py"
    path.write_text(text)
    with pytest.raises(TaskError, match=why):
        expand_variants(path, task="t", language="python")
