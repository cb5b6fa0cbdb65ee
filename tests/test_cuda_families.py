"""Kernels for CUDA devices of all ten tasks: what a CPU can say of them.

Triton runs in its interpreter, beside PyTorch, and both are judged. CUDA C++ does not run: its launches are bound to every case's
shapes, its answers need a GPU (``make gpu-check``). Compiling all of them takes many minutes, so ``kfs compile --families`` does
it once and commits what came out; here the facts must be of today's sources, and two small files are compiled again. Run as a
script, this file is the child that interprets tasks.
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

from kfs.bench.compile import compile_kernel, toolchain
from kfs.bench.compile_command import FAMILY_ARCHITECTURES
from kfs.bench.facts import Facts
from kfs.bench.judge import expect, fault
from kfs.bench.launch import parse_launch
from kfs.bench.sandbox import Zygote
from kfs.records import read_records
from kfs.tasks import case, load_task, reference_function, task_names

EVERY = {
    "trimul": (case(s=3, b=2, dim=8, hidden=5, distribution="masked"),),
    "rmsnorm": (case(rows=5, cols=37), case(rows=3, cols=64, distribution="heavy_tailed")),
    "cumsum": (case(rows=3, cols=67, distribution="positive"),),
    "matmul_bias_gelu": (case(m=5, k=7, n=33), case(m=16, k=3, n=20, distribution="heavy_tailed")),
    "gdn_recompute_w_u": (case(B=2, T=10, H=2, K=5, V=7, C=5),),
    "cross_entropy": (case(rows=3, vocab=37),),
    "fp8_quant": (case(tokens=3, hidden=256), case(tokens=5, hidden=384, distribution="heavy_tailed")),
    "gdn_chunk_fwd_h": (case(B=1, T=128, H=2, K=5, V=7),),
    "gdn_chunk_fwd_o": (case(B=2, T=10, H=2, K=5, V=7, C=5),),
    "softmax": (case(rows=4, cols=33), case(rows=3, cols=64, distribution="heavy_tailed")),
}
"""What every variant is asked, by task: odd sizes, several rows, heads and chunks."""
LONGER = {
    "trimul": (case(s=5, b=1, dim=7, hidden=12),),
    "rmsnorm": (case(rows=2, cols=2501),),
    "cumsum": (case(rows=2, cols=1061, distribution="positive"),),
    "matmul_bias_gelu": (case(m=67, k=35, n=67),),
    "gdn_recompute_w_u": (case(B=1, T=34, H=2, K=5, V=7, C=17),),
    "cross_entropy": (case(rows=2, vocab=9001),),
    "fp8_quant": (case(tokens=17, hidden=1152, distribution="heavy_tailed"),),
    "gdn_chunk_fwd_h": (case(B=2, T=192, H=1, K=8, V=6),),
    "gdn_chunk_fwd_o": (case(B=1, T=34, H=2, K=5, V=7, C=17),),
    "softmax": (case(rows=2, cols=2501),),
}
"""What the first variant of each file is asked besides: loops run more than once, the last block is not full."""
SLOW = {"triton_token_rows[BV=2]", "triton_token_rows[BV=32]", "triton_token_loop[BT=1]", "triton_split_k_triangle[SPLITS=8]"}
"""Further variants that the interpreter takes seconds for; left out."""


def _gdn(c, *names):
    B, T, H, C = c["B"], c["T"], c["H"], c["C"] if "C" in c.sizes else 64
    state = (B, T // C, H, c["K"], c["V"])
    shapes = {"K": (B, T, H, c["K"]), "V": (B, T, H, c["V"]), "C": (B, T, H, C), "1": (B, T, H), "h": state}
    return [shapes[name] for name in names]


def _trimul(c):
    pixels, gates = (c["b"], c["s"], c["s"]), [(c["hidden"], c["dim"])] * 5
    return [(*pixels, c["dim"]), pixels, *[(c["dim"],)] * 2, *gates, *[(c["hidden"],)] * 2, (c["dim"], c["hidden"])]


SHAPES = {
    "trimul": _trimul,
    "rmsnorm": lambda c: [(c["rows"], c["cols"]), (c["cols"],)],
    "cumsum": lambda c: [(c["rows"], c["cols"])],
    "matmul_bias_gelu": lambda c: [(c["m"], c["k"]), (c["k"], c["n"]), (c["n"],)],
    "gdn_recompute_w_u": lambda c: _gdn(c, "K", "V", "1", "C", "1"),
    "cross_entropy": lambda c: [(c["rows"], c["vocab"]), (c["rows"],)],
    "fp8_quant": lambda c: [(c["tokens"], c["hidden"])],
    "gdn_chunk_fwd_h": lambda c: _gdn(c, "K", "K", "V", "1"),
    "gdn_chunk_fwd_o": lambda c: _gdn(c, "K", "K", "V", "h", "1"),
    "softmax": lambda c: [(c["rows"], c["cols"])],
}
"""Shapes of a case's inputs without making them: those of the paper take gigabytes."""
TASKS = tuple(EVERY)
FACTS = Path(__file__).parents[1] / "data" / "compiled" / "facts.parquet"
AGAIN = (("gdn_recompute_w_u", "triton_scaled_a[BT=16]"), ("gdn_recompute_w_u", "block_chunk"))
"""Kernels compiled afresh: quick ones, of a case that is quickly made."""


def of_language(task, *languages):
    return [k for k in task.kernels("cuda") if k.language in languages]


def test_the_cases_are_of_all_tasks_and_the_slow_variants_exist():
    assert sorted(EVERY) == sorted(LONGER) == sorted(SHAPES) == task_names()
    further = {k.name for n in TASKS for k in of_language(load_task(n), "triton")} - {k.name for n in TASKS for k in firsts(n)}
    assert further >= SLOW


# Triton and PyTorch: answers


def firsts(name: str):
    """The first Triton or PyTorch kernel of each file."""
    return list({k.family: k for k in reversed(of_language(load_task(name), "triton", "python"))}.values())


def load(kernel, folder: Path):
    """A kernel's function, from a file of its own: Triton reads sources back."""
    path = folder / f"{kernel.family}_{kernel.kernel_id[:16]}.py"
    path.write_text(kernel.source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def first_fault(function, sets, expected) -> str | None:
    """What is wrong with a function's answers, in words."""
    for inputs, want in zip(sets, expected, strict=True):
        copies = [x.clone() for x in inputs]
        wrong = fault(want, function(*copies))
        if wrong is None and not all(torch.equal(a, b) for a, b in zip(copies, inputs, strict=True)):
            wrong = "an input was changed"
        if wrong is not None:
            return f"{[tuple(x.shape) for x in inputs]}: {wrong}"
    return None


def interpret(name: str, folder: Path) -> dict[str, str | None]:
    """What is wrong with the Triton and PyTorch kernels of a task, by name."""
    task = load_task(name)
    rng = np.random.default_rng(0)
    sets = [tuple(x.contiguous() for x in task.make_inputs(c, rng)) for c in (*EVERY[name], *LONGER[name])]
    expected = [expect(task, inputs, reference_function(task)) for inputs in sets]
    first = {k.name for k in firsts(name)}
    found = {}
    for kernel in of_language(task, "triton", "python"):
        if kernel.name in SLOW:
            continue
        n = len(sets) if kernel.name in first else len(EVERY[name])
        try:
            found[kernel.name] = first_fault(load(kernel, folder), sets[:n], expected[:n])
        except Exception as error:
            found[kernel.name] = f"{type(error).__name__}: {error}"
    return found


def interpret_in_child(folder: Path, names: tuple[str, ...]) -> dict[str, dict[str, str | None]]:
    command = [sys.executable, __file__, str(folder), *names]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Faults by task and kernel; two children at a time."""
    pytest.importorskip("triton", reason="Triton comes with: pip install 'kfs[gpu]'")
    folder = tmp_path_factory.mktemp("interpreted")
    with ThreadPoolExecutor(2) as pool:
        halves = list(pool.map(lambda names: interpret_in_child(folder, names), (TASKS[::2], TASKS[1::2])))
    return halves[0] | halves[1]


@pytest.mark.timeout(600)  # half a minute on two idle cores, all of it in one fixture
@pytest.mark.parametrize("name", TASKS)
def test_triton_and_pytorch_kernels_are_right_and_leave_their_inputs_alone(answers, name):
    found = answers[name]
    assert set(found) == {k.name for k in of_language(load_task(name), "triton", "python")} - SLOW
    assert {kernel: wrong for kernel, wrong in found.items() if wrong is not None} == {}


# CUDA C++: launches


@pytest.mark.parametrize("name", TASKS)
def test_launches_of_cuda_kernels_fit_every_case(name):
    task = load_task(name)
    dtypes = [str(x.dtype).removeprefix("torch.") for x in task.make_inputs(task.preset("tiny")[0], np.random.default_rng(0))]
    for kernel in of_language(task, "cuda"):
        program = parse_launch(kernel.source)
        for c in (*EVERY[name], *LONGER[name], *(c for preset in ("tiny", "host", "paper") for c in task.preset(preset))):
            sizes = program.bind(SHAPES[name](c), dtypes)
            program.tensors("scratch", sizes)
            for launch in program.plan(sizes):
                assert launch.shared <= 96 * 1024, (kernel.name, c.name)
                heads = re.findall(rf'extern "C" __global__ void[^{{;]*?\b{launch.entry}\(([^)]*)\)', kernel.source)
                assert len(heads) == 1 and heads[0].count(",") + 1 == len(launch.args), (kernel.name, launch.entry)


@pytest.mark.parametrize("name", TASKS)
def test_outputs_of_cuda_kernels_are_those_of_the_reference(name):
    task = load_task(name)
    rng = np.random.default_rng(0)
    for c in task.preset("tiny"):
        inputs = task.make_inputs(c, rng)
        assert [tuple(x.shape) for x in inputs] == SHAPES[name](c)
        wants = [(tuple(y.shape), str(y.dtype).removeprefix("torch.")) for y in expect(task, inputs).reference]
        for kernel in of_language(task, "cuda"):
            program = parse_launch(kernel.source)
            outputs = program.tensors("outputs", program.bind([x.shape for x in inputs]))
            assert [(t.shape, t.dtype) for t in outputs] == wants, kernel.name


# Sources


@pytest.mark.parametrize("name", TASKS)
def test_a_family_has_eight_gpu_kernels_of_three_algorithms_and_two_of_pytorch(name):
    task = load_task(name)
    kernels = task.kernels("cuda")
    files = {language: {k.family for k in of_language(task, language)} for language in ("triton", "cuda", "python")}
    families = [k.family for k in kernels]
    assert len({k.kernel_id for k in kernels}) == len(kernels)
    assert set().union(*files.values()) == {p.stem for p in task.folder.glob("cuda/[!_]*.*")}
    assert max(families.count(f) for f in families) <= 4
    assert len(files["triton"]) >= 5 and len(files["cuda"]) >= 3 and len(files["python"]) >= 2
    assert len({f.removeprefix("triton_").removeprefix("cuda_") for f in files["triton"] | files["cuda"]}) >= 3


@pytest.mark.parametrize("name", TASKS)
def test_sources_hold_no_comments_besides_how_they_are_launched(name):
    for kernel in load_task(name).kernels("cuda"):
        if kernel.language == "cuda":
            comments = [line for line in kernel.source.splitlines() if "//" in line or "/*" in line]
            assert all(re.match(r"// (inputs|outputs|scratch|let|launch): ", line) for line in comments), kernel.name
        else:
            assert "#" not in kernel.source and '"""' not in kernel.source, kernel.name


# Compilers


@pytest.fixture(scope="module")
def committed():
    """Facts on disk by task, kernel and architecture."""
    return {(f.task, f.kernel_id, f.arch): f for f in read_records(Facts, FACTS)}


@pytest.mark.parametrize("arch", FAMILY_ARCHITECTURES)
def test_committed_facts_say_that_todays_kernels_compile(committed, arch):
    kernels = {
        (task.name, k.kernel_id): (f"{task.name} {k.name}", task.preset("paper")[0].name)
        for task in map(load_task, TASKS)
        for k in of_language(task, "triton", "cuda")
    }
    facts = {(task, kernel): f for (task, kernel, of), f in committed.items() if of == arch}
    missing = [name for key, (name, sizes) in kernels.items() if key not in facts or facts[key].case != sizes]
    stale = [f"{task} {kernel[:12]}" for task, kernel in facts if (task, kernel) not in kernels]
    renew = f"{FACTS.name} is not of today's kernels for {arch}: run `kfs compile --families` and commit {FACTS}"
    assert not missing, f"{renew}; missing: {', '.join(missing)}"
    assert not stale, f"{renew}; of kernels that are gone: {', '.join(stale)}"
    assert {kernels[key][0]: f.reason for key, f in facts.items() if f.status != "ok"} == {}
    assert [kernels[key][0] for key, f in facts.items() if not f.entries] == []


@pytest.fixture(scope="module")
def zygote():
    pytest.importorskip("triton", reason="Triton comes with: pip install 'kfs[gpu]'")
    with Zygote() as zygote:
        yield zygote


@pytest.mark.timeout(300)
@pytest.mark.parametrize("arch", FAMILY_ARCHITECTURES)
@pytest.mark.parametrize(("name", "kernel_name"), AGAIN)
def test_compiling_again_gives_the_committed_facts(committed, zygote, name, kernel_name, arch):
    pytest.importorskip("cuda.bindings", reason="the compilers come with: pip install 'kfs[gpu]'")
    task = load_task(name)
    (kernel,) = (k for k in task.kernels("cuda") if k.name == kernel_name)
    facts = compile_kernel(
        kernel, arch=arch, task=task, case=task.preset("paper")[0], zygote=zygote, cached=False, deadline_s=240.0
    )
    assert facts.status == "ok" and facts.entries, facts.reason
    before = committed.get((name, kernel.kernel_id, arch))
    assert before is not None, f"{FACTS.name} lacks {name} {kernel_name} for {arch}: run `kfs compile --families`"
    if before.toolchain != toolchain(kernel.language, arch):
        pytest.skip(f"facts were made with {before.toolchain}, here is {facts.toolchain}; numbers differ between them")
    assert [(e.name, e.registers, e.static_shared_bytes, e.dynamic_shared_bytes) for e in facts.entries] == [
        (e.name, e.registers, e.static_shared_bytes, e.dynamic_shared_bytes) for e in before.entries
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.inference_mode():
        print(json.dumps({name: interpret(name, Path(sys.argv[1])) for name in sys.argv[2:]}))
