import ast
import importlib.util
import itertools

import numpy as np
import pytest
import torch

import kfs.forecast.disguise as disguise_module
from kfs.bench.compile import compile_kernel
from kfs.forecast.disguise import disguise
from kfs.records import Kernel
from kfs.tasks import load_task, task_names
from tests.forecast.disguise_cases import CASES

_NUMBERS = itertools.count()


def loaded(source, folder):
    """The function ``kernel`` of one of our own sources."""
    path = folder / f"disguised_{next(_NUMBERS)}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


@pytest.mark.parametrize("name", task_names())
def test_a_disguised_kernel_computes_the_same_bits(name, tmp_path):
    task = load_task(name)
    families = {k.family: k for k in task.kernels("host") if "numba" not in k.source}  # compiling those takes seconds each
    numba = next(k for k in task.kernels("host") if "numba" in k.source)
    for k in [*families.values(), numba]:
        found, outputs = disguise(k.source), []
        assert found.renamed > 0 and found.source != k.source
        for source in (k.source, found.source):
            made = loaded(source, tmp_path)(*task.make_inputs(task.preset("tiny")[0], np.random.default_rng(0)))
            outputs.append(made if isinstance(made, tuple) else (made,))
        for a, b in zip(*outputs, strict=True):
            assert torch.equal(a.nan_to_num(), b.nan_to_num()), k.name


@pytest.mark.parametrize("name", ["triton_row", "cuda_block_online", "cuda_float4_registers", "cuda_split_chunks"])
def test_a_disguised_gpu_kernel_compiles_to_the_same_code(name):
    task = load_task("softmax")
    k = next(k for k in task.kernels("cuda") if k.family == name)
    found = disguise(k.source, k.language)
    assert found.renamed > 3
    facts = [
        compile_kernel(Kernel(language=k.language, source=s), arch="sm_90", task=task, case=task.preset("paper")[0])
        for s in (k.source, found.source)
    ]
    assert [f.status for f in facts] == ["ok", "ok"]
    assert [e.model_dump(exclude={"name"}) for e in facts[0].entries] == [
        e.model_dump(exclude={"name"}) for e in facts[1].entries
    ]


def test_interface_imports_builtins_and_names_reached_from_elsewhere_stay():
    source = '''
"""A fast softmax."""
import torch.nn as nn
from math import exp as power

class Model(nn.Module):
    """Claims."""
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.inner = nn.Linear(width, width)
        self.register_buffer("scale", None)

    def _helper(self, value, *, factor=2):
        return value * factor  # twice

    def forward(self, x):
        max = x.max()
        return self._helper(self.inner(x), factor=3) * self.width + self.inner.weight.sum() + max

def get_inputs():
    return [width_of_input]

width_of_input = 4
'''
    text = disguise(source).source
    for word in ("Claims", "fast", "twice", "width_of_input", "value", "_helper", "self.width"):
        assert word not in text
    for word in (
        "Model",
        "get_inputs",
        "forward",
        "factor=3",
        "'scale'",
        "register_buffer",
        "nn.Linear",
        "weight",
        "max",
        "power",
    ):
        assert word in text
    compile(text, "x", "exec")


def test_inline_cuda_is_disguised_and_its_bound_names_are_not():
    source = (
        "from torch.utils.cpp_extension import load_inline\n"
        "code = '''\n#include <torch/extension.h>\n#define TILE 16\n"
        "__device__ float squash(float value) { return value / TILE; } // claims\n"
        "__global__ void rows(const float* data, float* result, int count) {\n"
        "    int index = threadIdx.x; if (index < count) result[index] = squash(data[index]); }\n"
        "torch::Tensor go(torch::Tensor data) { return data; }'''\n"
        "module = load_inline(name='m', cuda_sources=[code], functions=['go'])\n"
        "def kernel(x):\n    return module.go(x)\n"
    )
    text = disguise(source).source
    inline = ast.literal_eval(next(n.value for n in ast.parse(text).body if isinstance(n, ast.Assign)))
    for word in ("squash", "value", "rows", "result", "index", "claims"):
        assert word not in inline
    assert all(word in inline for word in ("TILE", "go(", "threadIdx.x", "#include <torch/extension.h>"))
    assert "functions=['go']" in text


@pytest.mark.parametrize("source", ["def kernel(:\n", "", "x = (" * 500, "\0", "é = 1\nprint(é)"])
def test_what_does_not_parse_is_returned_as_it_is_and_nothing_raises(source):
    found = disguise(source)
    assert found.source == source or (found.renamed >= 0 and ast.parse(found.source))


def test_a_source_that_reflects_on_names_keeps_those_it_may_reach():
    text = disguise("total = 1\nother = 2\ndef kernel(x):\n    return eval('total + 1') + other").source
    assert "total = 1" in text and "other" not in text


def outcome(source):
    """What one of the cases does, errors included."""
    names = {"__name__": "case"}
    try:
        exec(compile(source, "<case>", "exec"), names)
        return repr(names["kernel"](5.0))
    except Exception as error:
        return repr(error)


@pytest.mark.parametrize("name", CASES)
def test_a_treacherous_program_does_what_it_did(name):
    assert outcome(disguise(CASES[name]).source) == outcome(CASES[name])


def test_attributes_of_a_module_are_known():
    found = set(dir(torch.nn.Module())) - set(dir(object()))
    assert {n for n in found if not n.startswith("__")} <= disguise_module._MODULE


@pytest.mark.timeout(60)
def test_hostile_text_takes_no_more_than_its_share_of_time():
    for text in ("__global__ " * 9000, "#define x\nint" + " " * 99_000 + ";", "#define x\n" + "\n" * 99_000, '"\\' * 49_000):
        disguise(f"s = {text!r}\ndef kernel(x):\n    return x\n")
    assert disguise("x = 1\n" * 50_000).renamed == 0
