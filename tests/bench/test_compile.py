"""Compiler facts: real compilers on small sources, no GPU. Numbers that a compiler version may change are bounded, not pinned."""

import json
import math
import time

import pytest

from kfs.bench import compile as compiling
from kfs.bench import processors
from kfs.bench.compile import compile_kernel, input_layout
from kfs.bench.facts import FEATURES, Facts, compile_features, prompt_section
from kfs.bench.processors import ARCHITECTURES, architecture, load_hardware, occupancy, speed_of_light_us
from kfs.bench.sandbox import Zygote
from kfs.bench.sass import instruction_class, read_resources
from kfs.cli import main
from kfs.errors import SchemaError, TaskError, UnknownNameError
from kfs.records import Kernel, read_records, write_records
from kfs.tasks import Task, case, normal

for package in ("cuda.bindings", "triton"):
    pytest.importorskip(package, reason="the compilers come with: pip install 'kfs[gpu]'")

SUM = Task(
    name="sum",
    title="Sum of two vectors.",
    signature="kernel(x: float32[n], y: float32[n]) -> float32[n]",
    make_inputs=lambda case, rng: (normal(rng, case["n"]), normal(rng, case["n"])),
    cases={"tiny": (case(n=1000),), "paper": (case(n=67_000_000),)},
    rtol=1e-5,
    atol=1e-6,
    precision="strict",
    flops=lambda case: case["n"],
    nbytes=lambda case: 12 * case["n"],
    definition="sum of two vectors, for tests",
)
TINY = SUM.preset("tiny")[0]

HEAD = "// inputs: x[N], y[N]\n// outputs: z[N] float32\n// launch: add grid=(cdiv(N, 256),) block=(256,) args=(x, y, z, N)\n"
ADD = f"""{HEAD}extern "C" __global__ void add(const float* x, const float* y, float* z, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}}
"""
REDUCE = """\
// inputs: x[N], y[N]
// outputs: z[N] float32
// let: EXTRA = 4 * min(N, 100)
// launch: partial grid=(cdiv(N, 256),) block=(256,) shared=EXTRA args=(x, z)
// launch: partial grid=(1,) block=(256,) shared=EXTRA args=(y, z)
#include <cuda_fp16.h>
extern "C" __global__ void partial(const float* x, float* z) {
    __shared__ float part[256];
    extern __shared__ float more[];
    part[threadIdx.x] = __expf(x[threadIdx.x]);
    more[threadIdx.x % 100] = part[threadIdx.x];
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) atomicAdd(z, part[0] + more[1] + __half2float(__float2half(x[1])));
}
"""
SPILL = """\
// inputs: x[N], y[N]
// outputs: z[N] float32
// launch: heavy grid=(N,) block=(1024,) args=(x, z, N)
extern "C" __global__ void __launch_bounds__(1024, 2) heavy(const float* x, float* z, int n) {
    float a[64];
    #pragma unroll
    for (int i = 0; i < 64; i++) a[i] = x[i * n + threadIdx.x];
    for (int k = 0; k < n; k++) {
        #pragma unroll
        for (int i = 0; i < 64; i++) a[i] = a[i] * a[(i + 1) % 64] + x[k];
    }
    #pragma unroll
    for (int i = 0; i < 64; i++) z[i * n + threadIdx.x] = a[i];
}
"""
BOMB = """
template <int N, long M> struct F { static constexpr int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; };
template <long M> struct F<0, M> { static constexpr int v = 1; };
extern "C" __global__ void add(const float* x, const float* y, float* z, int n) { z[0] = F<60, 0>::v; }
"""


def cuda(source: str) -> Kernel:
    return Kernel(language="cuda", source=source)


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of the tests' own, shared by them."""
    folder = tmp_path_factory.getbasetemp() / "compile-cache"
    monkeypatch.setenv("KFS_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def zygote():
    with Zygote() as zygote:
        yield zygote


# Processors


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks", "limiter"),
    [
        ("sm_90", 256, 32, 0, 8, "threads"),  # 64 warps / 8
        ("sm_90", 256, 40, 0, 6, "registers"),  # 40 * 32 = 1280 a warp; 16384 // 1280 = 12 a partition, 48 warps / 8
        ("sm_90", 256, 33, 0, 6, "registers"),  # rounded up to 1280
        ("sm_90", 128, 32, 100 * 1024, 2, "shared"),  # 228 KiB // 101 KiB
        ("sm_80", 128, 32, 100 * 1024, 1, "shared"),  # 164 KiB // 101 KiB
        ("sm_90", 32, 16, 0, 32, "blocks"),
        ("sm_120", 256, 32, 0, 6, "threads"),  # 48 warps / 8
        ("sm_120", 32, 16, 0, 24, "blocks"),
        ("sm_90", 1024, 65, 0, 0, "registers"),  # 72 * 1024 > 65536
        ("sm_90", 64, 32, 227 * 1024 + 1, 0, "shared"),
        ("sm_90", 64, 32, 227 * 1024, 1, "shared"),
        ("sm_90", 1056, 16, 0, 0, "threads"),
    ],
)
def test_occupancy_is_what_the_occupancy_rules_give_by_hand(arch, threads, registers, shared, blocks, limiter):
    found = occupancy(architecture(arch), threads=threads, registers=registers, shared_bytes=shared)
    warps = -(-threads // 32)
    assert (found.blocks_per_sm, found.warps_per_sm, found.limiter) == (blocks, blocks * warps, limiter)
    assert found.share == blocks * warps / architecture(arch).warps


def test_speed_of_light_is_traffic_or_arithmetic_whichever_takes_longer():
    big = SUM.preset("paper")[0]
    assert speed_of_light_us(SUM, big, load_hardware("h200")) == pytest.approx(12 * 67e6 / 4800e9 * 1e6)
    dense = Task(**{**SUM.__dict__, "flops": lambda case: 1e12, "precision": "tolerance"})
    assert speed_of_light_us(dense, big, load_hardware("a100")) == pytest.approx(1e12 / 312e12 * 1e6)


def test_every_architecture_with_a_processor_has_its_file():
    for arch in ARCHITECTURES.values():
        if arch.hardware:
            processor = load_hardware(arch.hardware)
            assert processor.architecture == arch.name.removesuffix("a") and processor.sources
    with pytest.raises(UnknownNameError, match=r"unknown hardware 'h300'.*known: .*a100, .*h100, .*h200"):
        load_hardware("h300")


# Reading what tools say


def test_instruction_classes_tell_spills_tensor_cores_and_moves_apart():
    expected = {
        "HGMMA.64x64x16.F32": "tensor",
        "UTCHMMA": "tensor",
        "HFMA2": "half",
        "FFMA": "fp32",
        "DFMA": "fp64",
        "F2FP.BF16.F32.PACK_AB": "convert",
        "STL.64": "store_local",
        "LDS.128": "load_shared",
        "LDGSTS.E.BYPASS.128": "load_global",
        "REDUX.SUM": "shuffle",
        "RED.E.ADD.F32": "atomic",
        "IADD3": "integer",
        "IMAD.MOV.U32": "move",
        "ULDC.64": "load_constant",
        "BAR.SYNC.DEFER_BLOCKING": "barrier",
        "EXIT": "branch",
    }
    assert {opcode: instruction_class(opcode) for opcode in expected} == expected


def test_resources_are_read_entry_by_entry():
    log = """ptxas info    : Compiling entry function 'a' for 'sm_90'
ptxas info    : Function properties for a
ptxas         .     1256 bytes stack frame, 1824 bytes spill stores, 1948 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 1256 bytes cumulative stack size
ptxas info    : Compiling entry function 'b' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 1024 bytes smem"""
    found = read_resources(log)
    assert (found["a"].registers, found["a"].stack_bytes, found["a"].spill_store_bytes) == (32, 1256, 1824)
    assert (found["b"].registers, found["b"].shared_bytes, found["b"].spill_load_bytes) == (12, 1024, 0)


# CUDA C++


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
def test_a_sum_has_two_loads_a_store_and_full_occupancy(arch):
    facts = compile_kernel(cuda(ADD), arch=arch, task=SUM, case=TINY)
    (entry,) = facts.entries
    assert (facts.status, entry.name, entry.grid, entry.threads, entry.launches) == ("ok", "add", [4, 1, 1], 256, 1)
    assert (entry.mix["load_global"], entry.mix["store_global"], entry.mix["fp32"]) == (2, 1, 1)
    assert entry.spill_store_bytes == entry.stack_bytes == entry.static_shared_bytes == entry.dynamic_shared_bytes == 0
    assert (entry.occupancy, entry.limiter) == (1.0, "threads") and 4 <= entry.registers <= 32
    assert entry.code_bytes >= 16 * entry.instructions and set(facts.toolchain) == {"nvrtc", "nvdisasm"}
    assert (facts.speed_of_light_us is None) == (arch == "sm_120")


def test_shared_memory_barriers_and_repeated_launches_are_counted():
    (entry,) = compile_kernel(cuda(REDUCE), task=SUM, case=TINY).entries
    assert (entry.static_shared_bytes, entry.dynamic_shared_bytes, entry.launches) == (1024, 400, 2)
    assert entry.mix["barrier"] and entry.mix["special"] and entry.mix["atomic"] and entry.mix["convert"]
    assert entry.mix["load_shared"] and entry.mix["store_shared"]


def test_a_register_heavy_kernel_under_launch_bounds_spills():
    facts = compile_kernel(cuda(SPILL), task=SUM, case=TINY)
    (entry,) = facts.entries
    assert entry.registers <= 32 and entry.spill_store_bytes > 0 and entry.spill_load_bytes > 0 and entry.stack_bytes > 0
    assert entry.mix["load_local"] > 0 and entry.mix["store_local"] > 0
    assert entry.blocks_per_sm == 2
    assert "spills" in prompt_section(facts)


def test_without_a_task_only_what_depends_on_sizes_is_unknown():
    facts = compile_kernel(cuda(REDUCE))
    (entry,) = facts.entries
    assert (facts.speed_of_light_us, entry.grid, entry.dynamic_shared_bytes, entry.occupancy) == (None, None, None, None)
    assert entry.threads == 256 and entry.registers > 0
    assert compile_kernel(cuda(ADD)).entries[0].occupancy == 1.0


FAULTS = {
    "syntax": (ADD.replace("+ y[i]", "+ ["), "compile", "kernel.cu(6): error: "),
    "unknown header": (ADD + "#include <nowhere.h>\n", "compile", 'cannot open source file "nowhere.h"'),
    "a host header": (ADD + "#include <vector>\n", "compile", 'cannot open source file "vector"'),
    "no launch": (ADD.replace("launch:", "lunch:"), "launch", "no '// launch:' line"),
    "other entry": (ADD.replace("void add", "void sum"), "launch", "line 3: the source has no entry 'add'; found sum"),
    "mangled": (ADD.replace('extern "C"', ""), "launch", 'declare it extern "C" __global__'),
    "too few arguments": (ADD.replace("(x, y, z, N)", "(x, y, z)"), "launch", "'add' takes 4 parameters of 8, 8, 8, 4 bytes"),
    "a 64-bit size": (ADD.replace("int n", "long long n"), "launch", "passes 8, 8, 8, 4 bytes"),
    "other inputs": (ADD.replace("x[N], y[N]", "x[N]"), "launch", "2 inputs given, the source declares 1 (x)"),
    "too much shared memory": (ADD.replace("args=", "shared=300000 args="), "launch", "300000 bytes of shared memory"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_kernel_that_cannot_run_is_turned_away_in_words(name):
    source, stage, words = FAULTS[name]
    facts = compile_kernel(cuda(source), task=SUM, case=TINY)
    assert (facts.status, facts.stage) == ("compile_error", stage)
    assert words in facts.reason and len(facts.reason) <= compiling.MAX_REASON
    assert compile_features(facts)["compiles"] == 0 and facts.reason in prompt_section(facts)


def test_the_compiler_cannot_read_files_outside_its_own_folders(tmp_path):
    secret = tmp_path / "secret.h"
    secret.write_text("the secret is 4711\n")
    facts = compile_kernel(cuda(f'{ADD}#include "{secret}"\n'), task=SUM, case=TINY)
    if "Permission denied" not in facts.reason:
        pytest.skip("this system has no Landlock")
    assert facts.status == "compile_error" and "4711" not in facts.reason


def test_an_endless_compilation_is_killed_at_its_deadline_and_not_kept(cache):
    started, before = time.monotonic(), set(cache.rglob("*.json"))
    facts = compile_kernel(cuda(HEAD + BOMB), task=SUM, case=TINY, deadline_s=3)
    assert (facts.status, facts.stage) == ("timeout", "compile") and "NVRTC did not end before the deadline (3 s)" in facts.reason
    assert time.monotonic() - started < 30
    assert {p.name for p in set(cache.rglob("*.json")) - before} <= {p.name for p in cache.rglob("layout-*")}


def test_a_source_cannot_speak_for_the_assembler():
    lies = "ptxas info : Compiling entry function '{}' for 'sm_90' 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    pragmas = "".join(f'#pragma message("\\n{lies.format(n)} Used 1 registers")\n' for n in ("add", "other"))
    (entry,) = compile_kernel(cuda(f"{HEAD}{pragmas}{ADD.removeprefix(HEAD)}"), task=SUM, case=TINY).entries
    assert entry.registers > 1
    facts = compile_kernel(cuda(f"{HEAD.replace('add', 'other')}{pragmas}{ADD.removeprefix(HEAD)}"), task=SUM, case=TINY)
    assert "the source has no entry 'other'; found add" in facts.reason


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(compiling, "MEMORY_BYTES", 64 << 20)
    facts = compile_kernel(cuda(HEAD + BOMB), task=SUM, case=TINY, deadline_s=60, cached=False)
    assert facts.status == "compile_error" and "memory" in facts.reason


def test_facts_are_found_again_by_content(monkeypatch):
    first = compile_kernel(cuda(ADD + "// again\n"), task=SUM, case=TINY)
    monkeypatch.setattr(compiling, "run_nvrtc", lambda *a, **k: pytest.fail("compiled again"))
    assert compile_kernel(cuda(ADD + "// again\n"), task=SUM, case=TINY) == first
    with pytest.raises(pytest.fail.Exception):
        compile_kernel(cuda(ADD + "// again\n"), task=SUM, case=TINY, hardware="h200")


def test_wrong_questions_are_errors_that_list_what_is_known():
    with pytest.raises(UnknownNameError, match=r"unknown architecture 'sm_91'.*sm_120, sm_80, sm_86, sm_89, sm_90, sm_90a"):
        compile_kernel(cuda(ADD), arch="sm_91")
    with pytest.raises(TaskError, match="a python kernel has nothing to compile"):
        compile_kernel(Kernel(language="python", source="def kernel(x): return x"))
    with pytest.raises(TaskError, match="give task and case"):
        compile_kernel(Kernel(language="triton", source=""))
    with pytest.raises(SchemaError, match="hardware 'a100' is sm_80, not sm_90"):
        compile_kernel(cuda(ADD), hardware="a100")


# Triton

TRITON_ADD = """\
import torch
import triton
import triton.language as tl

@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

def kernel(x, y):
    assert x.is_cuda and x.device.type == "cuda" and torch.cuda.is_available()
    z = torch.empty_like(x)
    with torch.cuda.device(x.device):
        add[(triton.cdiv(x.numel(), 512),)](x, y, z, x.numel(), BLOCK=512, num_warps=8)
    return z
"""
TRITON_SOFTMAX = """\
from __future__ import annotations
import torch
import triton
import triton.language as tl

@triton.autotune([triton.Config({"STEP": 2}, num_warps=2), triton.Config({"STEP": 4}, num_warps=8)], key=["n"])
@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
@triton.jit
def softmax(x, z, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(z + i, e / tl.sum(e, 0), mask=i < n)

def kernel(x, y):
    z = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    if float(y.sum()) < 1.0:  # reads a value
        for _ in range(3):
            softmax[lambda meta: (meta["STEP"],)](x, z, x.shape[0])
    return z
"""


def triton(source: str) -> Kernel:
    return Kernel(language="triton", source=source)


def test_a_triton_launch_is_compiled_as_triton_itself_would(zygote, tmp_path, monkeypatch):
    facts = compile_kernel(triton(TRITON_ADD), task=SUM, case=TINY, zygote=zygote)
    (entry,) = facts.entries
    assert (facts.status, facts.notes, entry.name, entry.grid, entry.threads) == ("ok", [], "add", [2, 1, 1], 256)
    assert set(facts.toolchain) == {"triton", "ptxas", "nvdisasm"}

    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "triton_add_for_test.py").write_text(TRITON_ADD)
    import triton_add_for_test as module

    signature = {"x": "*fp32", "y": "*fp32", "z": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(3)}  # 1000 is no multiple of 16
    source = ASTSource(fn=module.add, signature=signature, constexprs={(4,): 512}, attrs=aligned)
    own = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    codes = compiling._disassemble(own.asm["cubin"], time.monotonic() + 60)
    assert codes["add"].mix == entry.mix and codes["add"].code_bytes == entry.code_bytes
    assert own.metadata.shared == entry.dynamic_shared_bytes


def test_autotuned_kernels_take_their_first_configuration_and_values_read_are_zeros(zygote):
    facts = compile_kernel(triton(TRITON_SOFTMAX), task=SUM, case=TINY, zygote=zygote)
    assert facts.status == "ok", facts.reason
    (entry,) = facts.entries
    assert (entry.threads, entry.grid, entry.launches) == (64, [2, 1, 1], 3)
    assert entry.mix["special"] > 0 and entry.mix["shuffle"] > 0 and entry.dynamic_shared_bytes > 0
    assert [n.split(";")[0] for n in facts.notes] == [
        "autotuned over 2 configurations",
        "reads values of tensors on the CPU",
    ]


TRITON_FAULTS = {
    "type error": (TRITON_ADD.replace("tl.load(y", "tl.lood(y"), "compile", "has no attribute 'lood'"),
    "syntax": ("import triton\ndef kernel(x:\n", "import", "SyntaxError"),
    "no kernel": ("import triton\n", "import", "defines no function 'kernel'"),
    "exit": (TRITON_ADD + "import os\nos._exit(0)\n", "compile", "its process ended"),
}


@pytest.mark.parametrize("name", TRITON_FAULTS)
def test_a_triton_module_that_cannot_run_is_turned_away_in_words(zygote, name):
    source, stage, words = TRITON_FAULTS[name]
    facts = compile_kernel(triton(source), task=SUM, case=TINY, zygote=zygote)
    assert (facts.status, facts.stage) == ("compile_error", stage), facts.reason
    assert words in facts.reason


def test_an_endless_module_is_killed_at_its_deadline(zygote):
    facts = compile_kernel(triton("import triton\nwhile True: pass\n"), task=SUM, case=TINY, zygote=zygote, deadline_s=3)
    assert facts.status == "timeout"


@pytest.mark.parametrize("data", [b"", b"\xff" * 64, (2).to_bytes(8, "little") + b"[]", (4).to_bytes(8, "little") + b"null"])
def test_what_a_child_sends_may_be_anything(data):
    with pytest.raises(compiling._Rejected, match="something else than compiled kernels"):
        compiling._read_capture(data)


# What they are for


def test_features_are_finite_and_always_the_same_columns():
    rows = [compile_features(compile_kernel(cuda(s), task=SUM, case=TINY)) for s in (ADD, SPILL, FAULTS["syntax"][0])]
    for row in rows:
        assert tuple(row) == FEATURES and all(math.isfinite(v) for v in row.values())
    add, spill, broken = rows
    assert sum(v for k, v in add.items() if k.startswith("mix_")) == pytest.approx(1.0)
    assert add["spill_load_bytes"] == 0 < spill["spill_load_bytes"] and broken["compiles"] == 0


def test_a_prompt_section_says_what_a_reader_of_the_text_cannot_know():
    text = prompt_section(compile_kernel(cuda(ADD), task=SUM, case=TINY))
    for words in ("sm_90", "4 x 1 x 1 blocks of 256 threads", "no spills", "8 blocks (64 warps, 100%)", "limited by threads"):
        assert words in text
    assert "No kernel can take less than" in text and len(text) < 900


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_facts_survive_the_disk(tmp_path, suffix):
    facts = [compile_kernel(cuda(s), task=SUM, case=TINY) for s in (ADD, REDUCE, FAULTS["syntax"][0])]
    assert read_records(Facts, write_records(facts, tmp_path / f"facts{suffix}")) == facts


def test_shapes_of_a_case_are_made_once(monkeypatch):
    assert input_layout(SUM, TINY) == [((1000,), "float32")] * 2
    unmade = Task(**{**SUM.__dict__, "make_inputs": lambda case, rng: pytest.fail("made again")})
    assert input_layout(unmade, TINY) == [((1000,), "float32")] * 2


def test_the_command_prints_facts_and_fails_for_a_broken_file(tmp_path, capsys):
    good, broken, lone = tmp_path / "good.cu", tmp_path / "broken.cu", tmp_path / "lone.py"
    good.write_text(ADD)
    broken.write_text(FAULTS["syntax"][0])
    lone.write_text(TRITON_ADD)
    assert main(["compile", str(good), "arch=sm_90"]) == 0
    assert "8 blocks (64 warps, 100%)" in capsys.readouterr().out
    assert main(["compile", str(good), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "ok"
    assert main(["compile", str(broken)]) == 1
    assert "kernel.cu(6): error" in capsys.readouterr().out
    assert main(["compile", str(lone)]) == 1
    assert "add task=NAME" in capsys.readouterr().err
    assert main(["compile", str(good), "arc=sm_90"]) == 1
    assert "did you mean 'arch'?" in capsys.readouterr().err
    assert main(["compile", str(good), "task=softmax", "case=9"]) == 1
    assert "case=9 of task 'softmax' does not exist; known: 0 (" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(processors._FOLDER.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_described_processor_says_what_forecasts_need_and_where_it_is_from(path):
    found = load_hardware(path.stem)
    assert found.name == path.stem and found.kind == "gpu" and found.sources
    assert found.units and found.memory_gb and found.memory_bandwidth_gb_s and found.cache_mb and found.clock_mhz
    assert {"fp32", "fp16"} <= set(found.peak_tflops)
