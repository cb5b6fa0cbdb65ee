"""CUDA families of five tasks: Triton and PyTorch kernels are right, everything compiles for sm_80 and sm_90.

Triton runs in its interpreter, on a CPU. Nothing here runs CUDA C++: that a ``.cu`` file compiles and that its launches fit every
case say nothing about its answers. Run as a script, this file is the child that interprets or compiles.
"""

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from kfs.bench.judge import expect, fault
from kfs.bench.launch import parse_launch
from kfs.tasks import case, load_task, reference_function

LONGER = {
    "softmax": (case(rows=2, cols=2501), case(rows=19, cols=64, distribution="heavy_tailed")),
    "rmsnorm": (case(rows=2, cols=2501), case(rows=19, cols=64, distribution="heavy_tailed")),
    "cumsum": (case(rows=2, cols=1301, distribution="positive"), case(rows=19, cols=64)),
    "matmul_bias_gelu": (case(m=35, k=70, n=130), case(m=3, k=129, n=257, distribution="heavy_tailed")),
    "fp8_quant": (case(tokens=35, hidden=1152, distribution="heavy_tailed"), case(tokens=2, hidden=4096)),
}
"""Cases besides the tiny ones, so that loops run more than once and the last block is not full."""
SHAPES = {
    "softmax": lambda c: [(c["rows"], c["cols"])],
    "rmsnorm": lambda c: [(c["rows"], c["cols"]), (c["cols"],)],
    "cumsum": lambda c: [(c["rows"], c["cols"])],
    "matmul_bias_gelu": lambda c: [(c["m"], c["k"]), (c["k"], c["n"]), (c["n"],)],
    "fp8_quant": lambda c: [(c["tokens"], c["hidden"])],
}
"""Shapes of the inputs of a case, without making them."""
TASKS = tuple(LONGER)
ARCHES = ("sm_80", "sm_90")
pytestmark = pytest.mark.timeout(900)  # a minute on two idle cores, all of it in one fixture; much more on busy ones


def load(kernel, folder: str):
    """A kernel's function, from a file of its own: Triton reads sources back."""
    path = Path(folder, f"{kernel.family}_{kernel.kernel_id[:16]}.py")
    path.write_text(kernel.source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def first_variants(kernels):
    """One kernel of each file."""
    return list({k.family: k for k in reversed(kernels)}.values())


def first_fault(function, sets, expected) -> str | None:
    """What is wrong with a function on value sets, in words."""
    for inputs, want in zip(sets, expected, strict=True):
        copies = [x.clone() for x in inputs]
        wrong = fault(want, function(*copies))
        if wrong is None and not all(torch.equal(a, b) for a, b in zip(copies, inputs, strict=True)):
            wrong = "an input was changed"
        if wrong is not None:
            return f"{[tuple(x.shape) for x in inputs]}: {wrong}"
    return None


def interpret(name: str, folder: str) -> dict[str, str | None]:
    """Every Triton and PyTorch kernel of a task on its tiny cases, the first of each file on longer ones too."""
    task = load_task(name)
    rng = np.random.default_rng(0)
    sets = [task.make_inputs(c, rng) for c in (*task.preset("tiny"), *LONGER[name])]
    expected = [expect(task, inputs, reference_function(task)) for inputs in sets]
    kernels = [k for k in task.kernels("cuda") if k.language != "cuda"]
    first = {k.kernel_id for k in first_variants(kernels)}
    found = {}
    for kernel in kernels:
        n = len(sets) if kernel.kernel_id in first else len(task.preset("tiny"))
        try:
            found[kernel.name] = first_fault(load(kernel, folder), sets[:n], expected[:n])
        except Exception as error:
            found[kernel.name] = f"{type(error).__name__}: {error}"
    return found


class Target:
    """Stands in for Triton's driver: names the GPU compiled for, owns none."""

    def __init__(self, arch: str):
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


def compile_triton(name: str, folder: str, arch: str) -> dict[str, str | None]:
    """Whether what the first kernel of each Triton file launches on a tiny case compiles, down to a cubin."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    launches = []
    run = JITFunction.run

    def compile_only(self, *args, grid, warmup, **kwargs):
        launches.append("cubin" in run(self, *args, grid=grid, warmup=True, **kwargs).asm)

    driver.set_active(Target(arch))
    JITFunction.run = compile_only
    task = load_task(name)
    inputs = task.make_inputs(task.preset("tiny")[0], np.random.default_rng(0))
    found = {}
    for kernel in first_variants([k for k in task.kernels("cuda") if k.language == "triton"]):
        launches.clear()
        try:
            load(kernel, folder)(*inputs)
            found[kernel.name] = None if launches and all(launches) else f"{len(launches)} launches, not all compiled"
        except Exception as error:
            found[kernel.name] = f"{type(error).__name__}: {error}"
    JITFunction.run = run
    return found


def child(*args: str) -> dict:
    """Answers of this file as a script, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TRITON_CACHE_DIR": folder, "TRITON_INTERPRET": str(int(args[0] == "interpret"))}
        done = subprocess.run([sys.executable, __file__, *args, folder], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def answers():
    """What is wrong with every kernel, by work and task; three children, two at a time."""
    works = [("interpret",), *(("compile", arch) for arch in ARCHES)]
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(works, pool.map(lambda work: child(*work), works), strict=True))


@pytest.mark.parametrize("name", TASKS)
def test_every_triton_and_pytorch_kernel_is_right_and_leaves_its_inputs_alone(answers, name):
    found = answers["interpret",][name]
    assert len(found) >= 8
    assert {kernel: wrong for kernel, wrong in found.items() if wrong is not None} == {}


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("name", TASKS)
def test_every_triton_kernel_compiles_without_a_gpu(answers, name, arch):
    found = answers["compile", arch][name]
    assert len(found) >= 5
    assert {kernel: wrong for kernel, wrong in found.items() if wrong is not None} == {}


@pytest.mark.parametrize("name", TASKS)
def test_every_cuda_kernel_compiles_without_a_gpu(name):
    from cuda.core import Program, ProgramOptions
    from cuda.pathfinder import find_nvidia_header_directory

    headers = find_nvidia_header_directory("cudart")
    for kernel in load_task(name).kernels("cuda"):
        for arch in ARCHES if kernel.language == "cuda" else ():
            log = io.StringIO()
            options = ProgramOptions(arch=arch, std="c++17", include_path=[headers, f"{headers}/cccl"])
            Program(kernel.source, "c++", options).compile("cubin", logs=log)
            assert "warning" not in log.getvalue(), kernel.name


@pytest.mark.parametrize("name", TASKS)
def test_launches_of_cuda_kernels_fit_every_case(name):
    task = load_task(name)
    rng = np.random.default_rng(0)
    inputs = task.make_inputs(task.preset("tiny")[0], rng)
    wants = [tuple(y.shape) for y in expect(task, inputs).reference]
    for kernel in task.kernels("cuda"):
        if kernel.language != "cuda":
            continue
        program = parse_launch(kernel.source)
        sizes = program.bind([x.shape for x in inputs])
        assert [t.shape for t in program.tensors("outputs", sizes)] == wants, kernel.name
        for c in (*task.preset("tiny"), *task.preset("host"), *task.preset("paper"), *LONGER[name]):
            for launch in program.plan(program.bind(SHAPES[name](c))):
                assert launch.shared <= 96 * 1024, kernel.name
                heads = re.findall(rf'extern "C" __global__ void[^{{;]*?\b{launch.entry}\(([^)]*)\)', kernel.source)
                assert len(heads) == 1 and heads[0].count(",") + 1 == len(launch.args), (kernel.name, launch.entry)


@pytest.mark.parametrize("name", TASKS)
def test_a_family_has_eight_gpu_kernels_of_three_algorithms_and_two_of_pytorch(name):
    kernels = load_task(name).kernels("cuda")
    families = [k.family for k in kernels]
    files = {language: {k.family for k in kernels if k.language == language} for language in ("triton", "cuda", "python")}
    assert len({k.kernel_id for k in kernels}) == len(kernels)
    assert len(set(families)) == len(list(load_task(name).folder.glob("cuda/[!_]*.*")))
    assert max(families.count(f) for f in families) <= 4
    assert len(files["triton"]) >= 5 and len(files["cuda"]) >= 3 and len(files["python"]) >= 2


@pytest.mark.parametrize("name", TASKS)
def test_sources_hold_no_comments_besides_how_they_are_launched(name):
    for kernel in load_task(name).kernels("cuda"):
        if kernel.language == "cuda":
            comments = [line for line in kernel.source.splitlines() if "//" in line or "/*" in line]
            assert all(re.match(r"// (inputs|outputs|scratch|let|launch): ", line) for line in comments), kernel.name
        else:
            assert "#" not in kernel.source and '"""' not in kernel.source, kernel.name


if __name__ == "__main__":
    work, *arguments, folder = sys.argv[1:]
    with torch.inference_mode():
        answer = {n: interpret(n, folder) if work == "interpret" else compile_triton(n, folder, *arguments) for n in TASKS}
    print(json.dumps(answer))
