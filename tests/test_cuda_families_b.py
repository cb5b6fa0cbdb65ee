"""CUDA families of five tasks: Triton and PyTorch kernels are right, and what a GPU would run compiles for sm_80 and sm_90.

Triton runs in its interpreter, in children of their own. No CUDA C++ runs here: its launches are bound to every case's shapes,
its answers need a GPU. Run as a script, this file is the child that interprets one task.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from kfs.bench.compile import compile_kernel
from kfs.bench.judge import expect, fault
from kfs.bench.launch import parse_launch
from kfs.bench.sandbox import Zygote
from kfs.tasks import case, load_task

CASES = {
    "cross_entropy": (case(rows=3, vocab=37), case(rows=2, vocab=9001)),
    "gdn_chunk_fwd_h": (case(B=1, T=192, H=2, K=5, V=7),),
    "gdn_chunk_fwd_o": (case(B=1, T=34, H=3, K=5, V=7, C=17),),
    "gdn_recompute_w_u": (case(B=1, T=34, H=3, K=5, V=7, C=17),),
    "trimul": (case(s=5, b=2, dim=8, hidden=12, distribution="masked"),),
}
"""What the interpreter computes: odd sizes, several heads and chunks, more than one block."""
ARCHES = ("sm_80", "sm_90")
pytestmark = pytest.mark.timeout(900)  # a minute and a half on two idle cores, all of it in one fixture; more on busy ones


def first_variants(name: str, *languages: str):
    """The first kernel of each file in these languages."""
    kernels = [k for k in load_task(name).kernels("cuda") if k.language in languages]
    return list({k.family: k for k in reversed(kernels)}.values())


def first_fault(kernel, folder: Path, sets, expected) -> str | None:
    """What is wrong with a kernel, in words. Triton reads its source back, so it lies in a file."""
    path = folder / f"{kernel.family}.py"
    path.write_text(kernel.source)
    spec = importlib.util.spec_from_file_location(kernel.family, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for inputs, want in zip(sets, expected, strict=True):
        copies = [x.clone() for x in inputs]
        if (wrong := fault(want, module.kernel(*copies))) is not None:
            return wrong
        if not all(torch.equal(a, b) for a, b in zip(copies, inputs, strict=True)):
            return "an input was changed"
    return None


def interpret(name: str, folder: Path) -> dict[str, str | None]:
    """Faults of every Triton and PyTorch file of a task."""
    task = load_task(name)
    rng = np.random.default_rng(0)
    sets = [tuple(x.contiguous() for x in task.make_inputs(c, rng)) for c in CASES[name]]
    expected = [expect(task, inputs) for inputs in sets]
    found = {}
    for kernel in first_variants(name, "triton", "python"):
        try:
            with torch.inference_mode():
                found[kernel.name] = first_fault(kernel, folder, sets, expected)
        except Exception as error:
            found[kernel.name] = f"{type(error).__name__}: {error}"
    return found


def interpret_in_child(name: str, folder: Path) -> dict[str, str | None]:
    folder.mkdir()
    command = [sys.executable, __file__, name, str(folder)]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def compile_all(arch: str) -> dict[tuple[str, str], str]:
    """What the compilers said of every Triton and CUDA C++ file, at the sizes of a tiny case."""
    found = {}
    with Zygote() as zygote:
        for name in CASES:
            task = load_task(name)
            for kernel in first_variants(name, "triton", "cuda"):
                about = {"task": task, "case": task.preset("tiny")[0], "zygote": zygote, "deadline_s": 300.0}
                facts = compile_kernel(kernel, arch=arch, cached=False, **about)
                launches_nothing = kernel.language == "triton" and not facts.entries
                found[name, kernel.name] = (
                    "launches nothing" if launches_nothing else f"{facts.status} {facts.reason or ''}".strip()
                )
    return found


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Faults by task and compilers' answers by architecture; two at a time."""
    folder = tmp_path_factory.mktemp("interpreted")
    with ThreadPoolExecutor(2) as pool:
        compiled = {arch: pool.submit(compile_all, arch) for arch in ARCHES}
        faults = {name: pool.submit(interpret_in_child, name, folder / name) for name in CASES}
        return {key: future.result() for key, future in {**compiled, **faults}.items()}


@pytest.mark.parametrize("name", CASES)
def test_every_triton_and_pytorch_file_is_right_and_leaves_its_inputs_alone(answers, name):
    assert len(answers[name]) >= 8
    assert {kernel: wrong for kernel, wrong in answers[name].items() if wrong is not None} == {}


@pytest.mark.parametrize("arch", ARCHES)
def test_every_triton_and_cuda_file_compiles_without_a_gpu(answers, arch):
    assert len(answers[arch]) >= 8 * len(CASES)
    assert {kernel: found for kernel, found in answers[arch].items() if found != "ok"} == {}


@pytest.mark.parametrize("name", CASES)
def test_launches_of_cuda_files_fit_the_cases(name):
    task = load_task(name)
    rng = np.random.default_rng(0)
    for c in (*task.preset("tiny"), *task.preset("host"), *CASES[name]):
        inputs = task.make_inputs(c, rng)
        wants = [(tuple(y.shape), str(y.dtype).removeprefix("torch.")) for y in expect(task, inputs).reference]
        for kernel in first_variants(name, "cuda"):
            program = parse_launch(kernel.source)
            sizes = program.bind([x.shape for x in inputs], [str(x.dtype).removeprefix("torch.") for x in inputs])
            assert [(t.shape, t.dtype) for t in program.tensors("outputs", sizes)] == wants, kernel.name
            assert all(launch.shared <= 96 * 1024 for launch in program.plan(sizes)), kernel.name


@pytest.mark.parametrize("name", CASES)
def test_a_family_has_eight_gpu_files_of_two_languages_and_two_of_pytorch(name):
    kernels = load_task(name).kernels("cuda")
    families = [k.family for k in kernels]
    assert len({k.kernel_id for k in kernels}) == len(kernels)
    assert max(families.count(f) for f in families) <= 4
    assert len(first_variants(name, "triton")) >= 5
    assert len(first_variants(name, "cuda")) >= 3
    assert len(first_variants(name, "triton", "cuda")) >= 8
    assert len(first_variants(name, "python")) >= 2


@pytest.mark.parametrize("name", CASES)
def test_sources_hold_no_comments_besides_how_they_are_launched(name):
    for kernel in load_task(name).kernels("cuda"):
        if kernel.language == "cuda":
            comments = [line for line in kernel.source.splitlines() if "//" in line or "/*" in line]
            assert all(re.match(r"// (inputs|outputs|scratch|let|launch): ", line) for line in comments), kernel.name
        else:
            assert "#" not in kernel.source and '"""' not in kernel.source, kernel.name


if __name__ == "__main__":
    print(json.dumps(interpret(sys.argv[1], Path(sys.argv[2]))))
