"""The cuda device as far as a CPU can test it. Children that 'run on a GPU' here run on FakeCuda: CPU tensors and a log."""

import importlib.util
import multiprocessing
import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kfs.bench import HARNESS, Target, cuda, gpu_check, gpu_probe, gpu_record, sandbox
from kfs.bench.child import BAD_OUTPUT, CALL_FAILED, OK
from kfs.bench.gpu_child import CudaKernel, Engine, compile_cubin, launch_arguments
from kfs.bench.launch import parse_launch
from kfs.bench.machine import measuring
from kfs.bench.nvml import Nvml, State
from kfs.bench.side import Rotation
from kfs.bench.timing import Staging
from kfs.errors import HarnessError
from kfs.records import Block, Hardware, Kernel, Measurement, Status, read_records
from kfs.tasks import load_task

RIGHT = "import torch\n\n\ndef kernel(x):\n    return torch.softmax(x, -1)\n"
QUICK = Target(looks=(3,), settle_blocks=1, blocks=2, min_calls=2, max_calls=2, deadline_s=20.0)
ROOT = Path(__file__).resolve().parents[2]
HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
FakeCuda = importlib.import_module("fake_cuda").FakeCuda
sys.path.remove(HERE)


# the child's engine, in this process


def engine(tmp_path, kernel):
    buffer = bytearray(1 << 16)
    made = Engine(buffer, str(tmp_path), str(tmp_path), gpu=FakeCuda())
    made.kernel = kernel
    return made, buffer


def call_slots(i, shape=(4, 8)):
    at = 4096 + i * 16384
    return [[[at, shape, "float32", 128, None]], [[at + 8192, shape, "float32", 128, None]]]


def write(buffer, slot, value):
    torch.frombuffer(buffer, dtype=torch.float32, count=32, offset=slot[0]).copy_(value.reshape(-1))


def read(buffer, slot):
    return torch.frombuffer(buffer, dtype=torch.float32, count=32, offset=slot[0]).view(4, 8).clone()


def test_each_call_is_flushed_and_synchronised_before_and_synchronised_inside_its_window(tmp_path):
    made, _ = engine(tmp_path, None)
    made.kernel = lambda x: made.gpu.log.append("kernel") or x * 2
    code, stamps, _ = made.serve({"do": "call", "calls": [call_slots(0), call_slots(1)], "hold": False}, "")
    assert code == OK and len(stamps) == 4  # end-to-end, then device time
    one = ["use_stream", "flush", "sync", "record 0", "kernel", "record 1", "sync", "use_stream"]
    assert made.gpu.log == [*one, *one, "sync"]


def test_outputs_reach_the_arena_when_they_are_collected_and_not_before(tmp_path):
    made, buffer = engine(tmp_path, lambda x: x * 2)
    slots, values = call_slots(0), torch.randn(4, 8)
    write(buffer, slots[0][0], values)
    assert made.serve({"do": "call", "calls": [slots], "hold": False}, "")[0] == OK
    assert not read(buffer, slots[1][0]).any()
    assert made.serve({"do": "collect"}, "")[0] == OK
    assert torch.equal(read(buffer, slots[1][0]), values * 2)


def test_a_changed_input_and_a_write_beside_it_come_back_with_the_bands(tmp_path):
    def kernel(x):
        y = x * 2
        x.as_strided((33,), (1,), x.storage_offset())[32] = 7.0  # one element behind the buffer
        x[0, 0] = 5.0
        return y

    made, buffer = engine(tmp_path, kernel)
    slots = call_slots(0)
    write(buffer, slots[0][0], torch.zeros(4, 8))
    made.serve({"do": "call", "calls": [slots], "hold": False}, "")
    made.serve({"do": "collect"}, "")
    assert read(buffer, slots[0][0])[0, 0] == 5.0
    assert torch.frombuffer(buffer, dtype=torch.float32, count=1, offset=slots[0][0][0] + 128).item() == 7.0


def test_every_call_of_a_block_gets_memory_of_its_own(tmp_path):
    seen = []
    made, _ = engine(tmp_path, lambda x: seen.append(x.data_ptr()) or x * 2)
    made.serve({"do": "call", "calls": [call_slots(0), call_slots(1)], "hold": False}, "")
    assert len(set(seen)) == 2


def test_inputs_of_the_next_block_lie_where_the_last_ones_lay(tmp_path):
    seen, held = [], []  # what a candidate holds on to must not move them either
    made, buffer = engine(tmp_path, lambda x: held.append(torch.empty(x.nbytes + 8192)) or seen.append(x.data_ptr()) or x * 2)
    slots = [call_slots(0), call_slots(1)]
    for value in (1.0, 2.0):
        for inputs, _ in slots:
            write(buffer, inputs[0], torch.full((4, 8), value))
        assert made.serve({"do": "call", "calls": slots, "hold": False}, "")[0] == OK
    assert seen[:2] == seen[2:]
    made.serve({"do": "collect"}, "")
    assert torch.equal(read(buffer, slots[1][1][0]), torch.full((4, 8), 4.0))


@pytest.mark.parametrize("outcome", [lambda x: x, lambda x: (x, x), lambda x: x.double() * 2, lambda x: [1.0]])
def test_outputs_of_the_wrong_kind_are_refused(tmp_path, outcome):
    made, _ = engine(tmp_path, outcome)
    assert made.serve({"do": "call", "calls": [call_slots(0)], "hold": False}, "")[0] == BAD_OUTPUT


def test_a_captured_call_that_hands_back_an_earlier_output_is_refused(tmp_path):
    kept = []
    made, _ = engine(tmp_path, lambda x: kept[0] if kept else kept.append(x * 2) or kept[0])
    code, _, text = made.serve({"do": "graph", "calls": [call_slots(0), call_slots(1)], "hold": False}, "")
    assert code == BAD_OUTPUT and "another call" in text


def test_a_graph_has_every_call_once_and_its_outputs_are_those_of_the_replay(tmp_path):
    made, buffer = engine(tmp_path, lambda x: x * 2)
    slots, values = [call_slots(0), call_slots(1)], torch.randn(2, 4, 8)
    for s, v in zip(slots, values, strict=True):
        write(buffer, s[0][0], v)
    code, stamps, _ = made.serve({"do": "graph", "calls": slots, "hold": False}, "")
    assert code == OK and len(set(stamps)) == 1 and made.gpu.log.count("replay") == 2
    made.serve({"do": "collect"}, "")
    assert all(torch.equal(read(buffer, s[1][0]), 2 * v) for s, v in zip(slots, values, strict=True))


def test_what_cannot_be_captured_says_so(tmp_path):
    made, _ = engine(tmp_path, lambda x: x * 2)
    made.gpu.capture = lambda run: (_ for _ in ()).throw(RuntimeError("operation not permitted when stream is capturing"))
    code, _, text = made.serve({"do": "graph", "calls": [call_slots(0)], "hold": False}, "")
    assert code == CALL_FAILED and text.startswith("no graph: RuntimeError")


# CUDA C++

CU = """// inputs: x[R, C] float32
// outputs: y[R, C] float32
// scratch: s[R] float32
// launch: first grid=(R,) block=(64,) args=(x, s, C)
// launch: second grid=(R, 2) block=(32,) shared=4*C args=(x, s, y, C, 0.5)
extern "C" __global__ void first(const float* x, float* s, int c) { s[blockIdx.x] = x[blockIdx.x * c]; }
extern "C" __global__ void second(const float* x, const float* s, float* y, int c, float f) {
    if (blockIdx.y) return;
    for (int i = threadIdx.x; i < c; i += 32) y[blockIdx.x * c + i] = x[blockIdx.x * c + i] * s[blockIdx.x] * f;
}
"""


def test_arguments_are_places_of_pointers_and_32_bit_scalars():
    program = parse_launch(CU)
    bound = program.plan(program.bind([(3, 5)], ["float32"]))
    first, second = (launch_arguments(program, b) for b in bound)
    assert first == [0, 2, 5] and [type(a).__name__ for a in first] == ["int", "int", "int32"]
    assert second == [0, 2, 1, 5, 0.5] and [type(a).__name__ for a in second] == ["int", "int", "int", "int32", "float32"]


def test_a_plan_has_shapes_launches_and_dynamic_shared_memory():
    pytest.importorskip("cuda.core")
    kernel = CudaKernel.__new__(CudaKernel)
    kernel.program, kernel.gpu, kernel._shared = parse_launch(CU), FakeCuda(), {}
    kernel._entries = {"first": "first", "second": "second"}
    outputs, scratch, launches = kernel._plan((torch.zeros(3, 5),))
    assert outputs == [((3, 5), torch.float32)] and scratch == [((3,), torch.float32)]
    assert [(tuple(c.grid), tuple(c.block), c.shmem_size, k) for c, k, _ in launches] == [
        ((3, 1, 1), (64, 1, 1), 0, "first"),
        ((3, 2, 1), (32, 1, 1), 20, "second"),
    ]


def test_more_shared_memory_than_a_block_has_unasked_is_asked_for_once():
    pytest.importorskip("cuda.core")
    driver = pytest.importorskip("cuda.bindings.driver")
    asked = []
    fake = SimpleNamespace(CUfunction_attribute=driver.CUfunction_attribute, CUdevice=driver.CUdevice)
    fake.cuKernelSetAttribute = lambda what, n, handle, device: asked.append((n, handle)) or (driver.CUresult.CUDA_SUCCESS,)
    kernel = CudaKernel.__new__(CudaKernel)
    kernel.program, kernel.gpu, kernel._shared = parse_launch(CU), FakeCuda(), {}
    kernel.gpu.driver = fake
    kernel._entries = {"first": SimpleNamespace(handle=1), "second": SimpleNamespace(handle=2)}
    for cols in (20_000, 20_000, 13_000):
        kernel._plan((torch.zeros(1, cols),))
    assert asked == [(80_000, 2)]


def test_machine_code_comes_from_the_cache_the_second_time(tmp_path, monkeypatch):
    core = pytest.importorskip("cuda.core")
    pytest.importorskip("cuda.bindings.nvrtc")
    first = compile_cubin(CU, "sm_90", str(tmp_path))
    monkeypatch.setattr(core, "Program", None)
    assert compile_cubin(CU, "sm_90", str(tmp_path)) == first and first[:4] == b"\x7fELF"


# what the judge does by itself


def _hold(name, ready, release):
    with measuring(name, wait_s=0):
        ready.set()
        release.wait(30)


def test_a_second_judge_waits_for_the_gpu_and_then_gives_up_naming_the_first():
    context = multiprocessing.get_context("spawn")
    ready, release, name = context.Event(), context.Event(), f"test-{os.getpid()}"
    first = context.Process(target=_hold, args=(name, ready, release))
    first.start()
    try:
        assert ready.wait(60)
        said = []
        with pytest.raises(HarnessError, match=f"process {first.pid}"), measuring(name, wait_s=0.3, say=said.append):
            pass
        assert len(said) == 1 and str(first.pid) in said[0]
        release.set()
        with measuring(name, wait_s=30) as path:
            assert path.read_text() == str(os.getpid())
        path.unlink()
    finally:
        release.set()
        first.join(30)


def attempts_that_fail_with(*bad):
    """Attempts fail while a layer of ``bad`` holds; what was attempted, in order."""
    tried = []

    def attempt(denied):
        tried.append(denied)
        if set(bad) - denied:
            raise HarnessError(f"{sorted(set(bad) - denied)[0]} is in the way")
        return SimpleNamespace(close=lambda: None)

    return attempt, tried


@pytest.mark.parametrize("bad", [(), ("landlock",), ("namespaces",), ("seccomp", "limits"), ("limits", "namespaces")])
def test_no_more_layers_are_dropped_than_one_order_needs(bad):
    attempt, tried = attempts_that_fail_with(*bad)
    denied, _ = cuda.settle_layers(attempt)
    assert set(bad) <= denied
    if len(bad) < 2:
        assert denied == (frozenset(bad) | ({"read_only"} if "namespaces" in bad else set()))
    assert tried[0] == frozenset()


def test_where_no_layer_is_to_blame_it_stops_after_two_attempts():
    attempt, tried = attempts_that_fail_with("the driver")
    with pytest.raises(HarnessError, match=r"without isolation layers: the driver is in the way"):
        cuda.settle_layers(attempt)
    assert len(tried) == 2


def test_a_rotation_keeps_its_first_item_for_the_check():
    assert [Rotation([0, 1, 2], 27)[i] for i in range(27)].count(0) == 1
    with pytest.raises(IndexError):
        Rotation([0, 1], 3)[3]


def test_a_state_reads_back_from_its_text():
    for state in (State(), State(1980, 2619, 41, ()), State(345, 2619, 30, ("sw_power_cap", "hw_thermal"))):
        assert State.read(str(state)) == state
    assert State(throttle=("hw_thermal",)).throttled and not State(throttle=("idle",)).throttled


def test_nvml_that_is_not_there_is_an_os_error():
    with pytest.raises(OSError):
        Nvml(library="libnvidia-ml-absent.so.1")


def blocks(candidate, device):
    common = {"case": "c", "reference_ns": [100_000] * 3, "reference_device_ns": [90_000] * 3}
    return [Block(child_pair=p, candidate_ns=candidate, candidate_device_ns=device, **common) for p in range(3)]


def test_work_that_a_stream_does_not_show_opens_a_gap_between_the_clocks():
    assert cuda.event_gap_ns(blocks([90_000] * 3, [5_000] * 3)) == 75_000
    assert cuda.event_gap_ns(blocks([90_000] * 3, [80_000] * 3)) == 0
    assert cuda.device_ratio(blocks([90_000] * 3, [45_000] * 3)) == 2.0
    assert cuda.device_ratio([Block(case="c", child_pair=0, reference_ns=[1], candidate_ns=[1])]) is None


def waiting(elapsed_ns):
    """Blocks of two calls that claim 20 us each, beside 100 us of staging."""
    common = {"case": "c", "reference_ns": [20_000] * 2, "candidate_ns": [20_000] * 2, "reference_elapsed_ns": 140_000}
    return [Block(child_pair=i, candidate_elapsed_ns=ns, **common) for i, ns in enumerate(elapsed_ns)]


def test_work_outside_the_stamps_makes_the_judge_wait():
    staging = {"c": Staging(60_000, 20_000)}
    assert cuda.wait_fault(waiting([140_000] * 8), staging) is None
    assert cuda.wait_fault(waiting([140_000] * 3 + [9_000_000] * 5), staging) is None  # a busy machine
    assert "0.960 ms longer" in cuda.wait_fault(waiting([1_100_000] * 8), staging)


def test_a_large_case_gets_few_value_sets_and_is_not_used_for_admission(rng):
    device, task = cuda.CudaDevice(), load_task("rmsnorm")
    small, large = task.preset("tiny")[0], max(task.preset("paper"), key=task.nbytes)
    assert device._distinct(task, small, 27) == 27
    assert 3 <= device._distinct(task, large, 27) < 27
    affordable = device._affordable(task, task.preset("paper"))
    assert large not in affordable and all(task.nbytes(c) <= cuda.AFFORDABLE_BYTES for c in affordable)


# whole measurements, with children that run on FakeCuda


@pytest.fixture(scope="module")
def fake_device():
    """A CudaDevice whose children have FakeCuda for a GPU."""
    pytest.importorskip("cuda.core")
    start = f"import sys; sys.path.insert(0, {HERE!r}); import fake_cuda; fake_cuda.install(); "

    def popen(argv, **options):
        return subprocess.Popen([*argv[:2], start + argv[2]], **options)

    fast = (
        gpu_probe.LIGHT.split("def best_ns")[0]
        + "def kernel(n):\n    return torch.tensor([1.0] * len(n) + [1e12] * 2, dtype=torch.float64)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        honest = cuda.why_not
        patch.setattr(cuda, "why_not", lambda: None)
        patch.setattr(gpu_probe, "LIGHT", fast)
        patch.setattr(cuda, "WAIT_SLACK_NS", 1e9)  # these children wait for the processor, not for a GPU
        patch.setattr(sandbox, "subprocess", SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL))
        with cuda.CudaDevice(lock_wait_s=60) as device:
            patch.setattr(cuda, "why_not", honest)
            yield device


def verdict(device, source, task="softmax", **options):
    (found,) = device.measure(load_task(task), [Kernel(language="python", source=source)], preset="tiny", target=QUICK, **options)
    return found


def test_fake_a_right_kernel_has_both_clocks_graphs_and_the_gpu_in_its_record(fake_device):
    found = verdict(fake_device, RIGHT)
    assert found.status == Status.OK, found.reason
    assert found.hardware == "fakecuda" and found.clock == fake_device.clock and found.first_call_ms["context"] > 0
    assert found.environment["without_layers"] == "none"
    for b in found.blocks:
        assert len(b.candidate_device_ns) == len(b.candidate_ns) == 2 and b.candidate_elapsed_ns > sum(b.candidate_ns)
        assert State.read(b.state) == State()
    assert {(g.case, g.child_pair) for g in found.graph} == {(b.case, b.child_pair) for b in found.blocks}
    assert all(g.candidate_ns and g.reference_ns and g.calls == 2 for g in found.graph)


@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        (RIGHT.replace("(x, -1)", "(x, 0)"), Status.WRONG_OUTPUT, "elements wrong"),
        ("import torch\n\n\ndef kernel(x):\n    return torch.empty_like(x)\n", Status.WRONG_OUTPUT, "elements wrong"),
        (RIGHT.replace("    return", "    x.zero_()\n    return"), Status.WRONG_OUTPUT, "elements wrong"),
        ("def kernel(x):\n    y = x.softmax(-1)\n    x.add_(1)\n    return y\n", Status.REJECTED, "input 0 was modified"),
        ("def kernel(x):\n    raise RuntimeError('CUDA out of memory')\n", Status.OUT_OF_MEMORY, "out of memory"),
        ("def kernel(x:\n", Status.COMPILE_ERROR, "SyntaxError"),
        ("import os\n\n\ndef kernel(x):\n    os._exit(3)\n", Status.CRASH, "status 3"),
    ],
)
def test_fake_a_kernel_that_fails_says_how(fake_device, source, status, words):
    found = verdict(fake_device, source)
    assert (found.status, words in found.reason) == (status, True), found.reason


def test_fake_a_kernel_that_skips_captured_calls_is_rejected_by_its_graph(fake_device):
    source = """
    import sys
    last = None
    def kernel(x):
        global last
        frame, names = sys._getframe(), set()
        while frame:
            names.add(frame.f_code.co_name)
            frame = frame.f_back
        if "capture" in names and last is not None:
            return last
        last = x.softmax(-1)
        return last
    """
    found = verdict(fake_device, textwrap.dedent(source))
    assert (found.status, found.stage) == (Status.WRONG_OUTPUT, "graph"), found.reason


COMPILES = """
import os

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kfs.bench import gpu_child

CU = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] *= 2; }'


@triton.jit
def double(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def kernel(x):
    assert gpu_child.compile_cubin(CU, "sm_90", os.environ["TRITON_CACHE_DIR"])[:4] == b"\\x7fELF"
    source = ASTSource(fn=double, signature={"x": "*fp32", "n": "i32", "B": "constexpr"}, constexprs={"B": 128})
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"][:4] == b"\\x7fELF"
    return torch.softmax(x, -1)
"""


def test_fake_what_the_checking_child_compiles_serves_timed_ones_that_may_not_start_an_assembler(fake_device):
    pytest.importorskip("triton")
    pytest.importorskip("cuda.bindings.nvrtc")
    found = verdict(fake_device, COMPILES)
    assert found.status == Status.OK, found.reason
    first, *others = (found.first_call_ms[c.name] for c in load_task("softmax").preset("tiny"))
    assert max(others) < first


LAUNCHER = """
import torch
from triton.runtime.build import compile_module_from_src

C = '''
#include <Python.h>
static struct PyModuleDef m = {PyModuleDef_HEAD_INIT, "kfs_launcher", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_kfs_launcher(void) { return PyModule_Create(&m); }
'''


def kernel(x):
    compile_module_from_src(src=C, name="kfs_launcher", library_dirs=[], include_dirs=[], libraries=[])
    return torch.softmax(x, -1)
"""


def test_fake_what_gcc_made_for_the_checking_child_is_found_by_timed_ones(fake_device):
    build = pytest.importorskip("triton.runtime.build")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not hasattr(build, "compile_module_from_src") or not (shutil.which("gcc") and header.exists()):
        pytest.skip("needs gcc and Python's headers")
    found = verdict(fake_device, LAUNCHER)
    assert found.status == Status.OK, found.reason


def test_fake_a_timed_child_cannot_start_programs(fake_device):
    if "seccomp" not in fake_device.facts["layers"]:
        pytest.skip("libseccomp is missing")
    source = RIGHT.replace("    return", "    subprocess.run(['/bin/true'], check=True)\n    return").replace(
        "import torch", "import subprocess\n\nimport torch"
    )
    found = verdict(fake_device, source)
    assert (found.status, found.stage) == (Status.RUNTIME_ERROR, "warmup"), found.reason


@pytest.fixture(scope="module")
def corpus():
    """``tests/exploits/run.py``."""
    spec = importlib.util.spec_from_file_location("kfs_exploits_run_for_cuda", ROOT / "tests" / "exploits" / "run.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("prefix", ["s14", "s26", "s31", "s33", "s71", "s77", "s82"])
def test_fake_kernels_that_cheat_any_engine_are_refused_by_this_one(fake_device, corpus, prefix):
    (path,) = (ROOT / "tests" / "exploits").glob(f"{prefix}_*.py")
    exploit = corpus.read_exploit(path)
    task = corpus.op_task(exploit.op, corpus.ops_file(path))
    (found,) = fake_device.measure(task, [corpus.candidate(exploit)], preset="timed", target=QUICK)
    assert found.status != Status.OK, found.flags


def test_fake_children_and_the_kept_reference_end_with_the_device(fake_device, monkeypatch):
    monkeypatch.setattr(fake_device, "_one_reference", True)
    found = list(
        fake_device.measure(load_task("softmax"), [Kernel(language="python", source=RIGHT)] * 2, preset="tiny", target=QUICK)
    )
    assert [m.status for m in found] == ["ok", "ok"]
    assert [c.closed for c in fake_device._children].count(False) == 1  # the reference
    fake_device._drop(everything=True)
    assert all(c.closed for c in fake_device._children)


def test_fake_checking_alone_gives_verdicts_in_order(fake_device):
    kernels = [Kernel(language="python", source=s) for s in (RIGHT, RIGHT.replace("(x, -1)", "(x, 0)"), RIGHT + "\n")]
    found = list(fake_device.check(load_task("softmax"), kernels, workers=2))
    assert [v and v.status for _, v, _ in found] == [None, Status.WRONG_OUTPUT, None]
    assert [k for k, _, _ in found] == kernels


# gpu-check and gpu-record


class FakeDevice:
    """Gives every kernel a measurement and takes a second of a fake clock for it."""

    hardware = Hardware(name="fake", vendor="none", architecture="none", kind="gpu")

    def __init__(self):
        self.now, self.asked = 0.0, []

    def measure(self, task, kernels, *, preset, target):
        self.now += 2.0  # drawing inputs
        for kernel in kernels:
            self.now += 1.0
            self.asked.append((task.name, kernel.kernel_id))
            yield Measurement(
                task=task.name,
                preset=preset,
                kernel_id=kernel.kernel_id,
                reference_id=task.reference.kernel_id,
                task_id=task.task_id,
                hardware="fake",
                harness=HARNESS,
                status="crash",
                reason="fake",
                environment={"target": target.describe()},
            )


TASKS = ["softmax", "rmsnorm", "cumsum"]


def test_every_task_gets_kernels_before_the_time_is_up_and_first_variants_come_first(tmp_path):
    device, tasks = FakeDevice(), [load_task(name) for name in TASKS]
    found = gpu_record.record_for(device, tasks, tmp_path / "log.jsonl", seconds=60, clock=lambda: device.now, say=lambda _: None)
    assert device.now <= 61 and all(0 < done < of for done, of in found.values())
    first = [i for name, i in device.asked if name == "softmax"]
    families = [k.family for k in gpu_record.in_order(load_task("softmax").kernels("cuda"))]
    assert len(set(families[: len(set(families))])) == len(set(families)) and len(first) == len(set(first))


def test_a_second_run_goes_on_where_the_first_one_stopped_and_measures_nothing_twice(tmp_path):
    tasks, log = [load_task(name) for name in TASKS], tmp_path / "log.jsonl"
    asked = []
    for _ in range(4):
        device = FakeDevice()
        clock = lambda device=device: device.now
        found = gpu_record.record_for(device, tasks, log, seconds=60, clock=clock, say=lambda _: None)
        asked += device.asked
        with open(log, "ab") as file:
            file.write(b'{"torn')  # a kill in the middle of a line
    assert len(asked) == len(set(asked)) == sum(of for _, of in found.values())
    assert all(done == of for done, of in found.values())


def test_a_task_that_breaks_leaves_the_others_their_time(tmp_path):
    device = FakeDevice()
    good, said = device.measure, []

    def measure(task, kernels, **options):
        if task.name == "rmsnorm":
            raise HarnessError("no")
        return good(task, kernels, **options)

    device.measure = measure
    tasks = [load_task(name) for name in TASKS]
    found = gpu_record.record_for(device, tasks, tmp_path / "l.jsonl", seconds=500, clock=lambda: device.now, say=said.append)
    assert found["rmsnorm"][0] == 0 and found["softmax"][0] == found["softmax"][1]
    assert any("BROKEN: no" in line for line in said)


def test_a_log_becomes_the_parquet_files_that_studies_read(tmp_path):
    device, tasks = FakeDevice(), [load_task("softmax")]
    log = tmp_path / "paper.jsonl"
    gpu_record.record_for(device, tasks, log, seconds=500, clock=lambda: device.now, say=lambda _: None)
    (path,) = gpu_record.export(log, tmp_path / "out", tasks)
    assert len(read_records(Measurement, path)) == len(device.asked)
    assert {k.kernel_id for k in read_records(Kernel, tmp_path / "out" / "kernels.parquet")} == {i for _, i in device.asked}


@pytest.mark.skipif(cuda.why_not() is None, reason="there is a GPU")
@pytest.mark.parametrize("module", ["gpu_check", "gpu_record"])
def test_without_a_gpu_the_commands_say_so_and_end_with_status_2(module, capsys, tmp_path):
    command = {"gpu_check": gpu_check, "gpu_record": gpu_record}[module]
    assert command.main(["--out", str(tmp_path)]) == 2
    assert cuda.why_not() in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_check_that_raises_is_a_row_and_the_next_one_runs(tmp_path, capsys):
    report = gpu_check.Report(tmp_path / "out" / "check.jsonl", deadline=float("inf"))
    report.run("bad", lambda: 1 / 0)
    report.run("good", lambda: gpu_check.Row("good", True, "1"))
    report.run("many", lambda: iter([gpu_check.Row("a", True, ""), gpu_check.Row("b", False, "")]))
    assert [(r.check, r.holds) for r in report.rows] == [("bad", False), ("good", True), ("a", True), ("b", False)]
    assert len(report.path.read_text().splitlines()) == 4 and "ZeroDivisionError" in capsys.readouterr().out


_BARE = """
import sys
allowed = {allowed!r}
import importlib.abc, importlib.machinery, sysconfig
site = sysconfig.get_paths()["purelib"]


class Only(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if path is None and spec and (spec.origin or "").startswith(site) and top not in allowed:
            raise ModuleNotFoundError(f"{{name}} is not on a bare GPU machine", name=name)
        return None


sys.meta_path.insert(0, Only())
import kfs.bench.cuda, kfs.bench.gpu_check, kfs.bench.gpu_record, kfs.bench.campaign, kfs.bench.gpu_child, kfs.tasks, kfs.records
kfs.bench.gpu_child.preload()
tasks = [kfs.tasks.load_task(n) for n in kfs.tasks.task_names()]
print(len(tasks), sorted(m for m in sys.modules if m in ("pandas", "pyarrow", "hydra", "psutil", "yaml", "sklearn")))
"""
# torch and what it needs, and what is carried.
_ALLOWED = (
    *("torch", "torchgen", "triton", "numpy", "scipy", "cuda", "tqdm", "typing_extensions", "sympy", "mpmath", "filelock"),
    *("networkx", "jinja2", "markupsafe", "fsspec", "pydantic", "pydantic_core", "annotated_types", "typing_inspection"),
    *("pyseccomp", "functorch", "setuptools", "_distutils_hack", "packaging", "numba", "llvmlite"),
)


def test_the_measuring_core_imports_where_only_torch_triton_cuda_core_and_pydantic_are():
    source = _BARE.format(allowed=_ALLOWED)
    run = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr[-1500:]
    assert run.stdout.split()[1:] == ["[]"]


@pytest.mark.gpu
def test_gpu_a_right_kernel_is_ok_on_this_gpu():
    if (why := cuda.why_not()) is not None:
        pytest.skip(why)
    task = load_task("softmax")
    with cuda.CudaDevice() as device:
        for kernel in (task.reference, *[k for k in task.kernels("cuda") if k.language == "cuda"][:1]):
            (found,) = device.measure(task, [kernel], preset="tiny", target=QUICK)
            assert found.status == Status.OK, found.reason
