from pathlib import Path

import pytest

from kfs.bench.compile import compile_kernel
from kfs.bench.inline import MARK, MAX_CHARACTERS, InlineError, device_units
from kfs.bench.launch_sites import Launched, kernel_of
from kfs.data import cuda_l1
from kfs.errors import TaskError
from kfs.records import Kernel

EXCERPTS = Path(__file__).parents[2] / "data" / "excerpts" / "cuda_l1"
SUM = f"{MARK} void add(float* a) {{ a[threadIdx.x] += 1.0f; }}"
MODULE = '''
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <vector>
#define TILE 16
/* a kernel { that nobody closes */
namespace detail {
template <typename scalar_t, int BLOCK>
__global__ void __launch_bounds__(BLOCK) scale(const scalar_t* __restrict__ x, scalar_t* y, int n = 0) {
    extern __shared__ float tile[];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = x[i] * scalar_t(2);
}
}
__device__ __constant__ float weights[TILE];
struct Holder { std::vector<torch::Tensor> tensors; };
struct Twice { __device__ float operator()(float v) const { return 2 * v; } };
__global__ void grid2d(float* y) { y[threadIdx.y * TILE + threadIdx.x] = Twice()(weights[threadIdx.x]); }
__global__ void never(double* y) { y[0] = 1; }
torch::Tensor run(torch::Tensor x) {
    const int threads = TILE * 8;
    const size_t bytes = threads * sizeof(float);
    auto y = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", ([&] {
        detail::scale<scalar_t, 128><<<(x.numel() + threads - 1) / threads, threads, bytes>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), 5);
    }));
    dim3 block(TILE, TILE);
    grid2d<<<x.size(0), block>>>(y.data_ptr<float>());
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, "a \\"run\\" }"); }
"""
extension = load_inline(name="x", cpp_sources="", cuda_sources=SOURCE)
'''


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KFS_CACHE", str(tmp_path / "cache"))


def module(text):
    return Kernel(language="python", source=f"SOURCE = {text!r}\n")


def released():
    """Custom sources of the excerpts that hold a kernel, by GPU and problem."""
    rows = [row for gpu in ("a100", "h100") for row in cuda_l1.read_rows(EXCERPTS / f"{gpu}.json")]
    found = {(r.gpu, r.pack): r.sources.get("custom", "") for r in rows}
    return {key: source for key, source in found.items() if MARK in source}


def test_device_code_stays_and_host_code_goes():
    (unit,) = device_units(MODULE)
    assert not any(word in unit.source for word in ("torch", "PYBIND11", "std::vector", "nobody", "Holder", "<<<", "dim3"))
    assert all(word in unit.source for word in ("#define TILE 16", "namespace detail {", "float weights[TILE]", "struct Twice"))


def test_launches_give_template_arguments_threads_and_shared_memory():
    (unit,) = device_units(MODULE)
    assert "template __global__ void scale<float, 128>(const float* __restrict__ x, float* y, int n);" in unit.source
    assert unit.launched == {"scale": Launched("scale", 1, 128, 512), "grid2d": Launched("grid2d", 1, 256, 0)}


def test_what_depends_on_inputs_stays_unknown():
    text = f"{SUM} void run(int n) {{ int threads = n * 2; add<<<n, threads, n * sizeof(float)>>>(p); }}"
    (unit,) = device_units(module(text).source)
    assert unit.launched == {"add": Launched("add", 1, None, None)}


@pytest.mark.parametrize(
    ("code", "threads"),
    [
        ("void run(int n) { int threads = 256; if (n < 64) threads = n; add<<<n, threads>>>(p); }", None),
        ("void run(int n) { int threads = 256; threads /= 2; add<<<n, threads>>>(p); }", None),
        ("void run(int n) { int threads = 256; for (; n; n--) threads++; add<<<n, threads>>>(p); }", None),
        ("const int threads = 64; void run(int threads) { add<<<1, threads>>>(p); }", None),
        ("const int threads = 64; void run(int n) { n = 3; if (n == threads) add<<<n, threads>>>(p); }", 64),
        ("#define threads 128 // of a block\nvoid run() { add<<<1, threads>>>(p); }", 128),
        ("#define threads 128 /* of a block */\nvoid run() { add<<<1, threads>>>(p); }", 128),
    ],
)
def test_only_what_never_changes_is_a_constant(code, threads):
    (unit,) = device_units(module(f"{SUM}\n{code}").source)
    assert unit.launched["add"].threads == threads


def test_launches_of_one_string_tell_of_kernels_in_another():
    host = "torch::Tensor f(torch::Tensor x) { add<<<1, 96>>>(x.data_ptr<float>()); return x; }"
    (unit,) = device_units(f"A = {SUM!r}\nB = {host!r}\n")
    assert unit.launched["add"].threads == 96


def test_joined_constants_are_one_text_and_values_of_a_run_are_none():
    assert "+= 1.0f" in device_units(f"A = {SUM[:30]!r} + {SUM[30:]!r}\n")[0].source
    assert "+= 1.0f" in device_units(f"A = f'''{SUM.replace('{', '{{').replace('}', '}}')}'''\n")[0].source
    with pytest.raises(InlineError, match="no constant string"):
        device_units(f"A = f'''{MARK} void k(float* a) {{{{ a[{{n}}] = 1; }}}}'''\n")


def test_every_kernel_of_the_excerpts_is_told_apart_from_its_host_code():
    sources = released()
    assert len(sources) == 9
    for gpu in ("a100", "h100"):  # cut off in the release
        with pytest.raises(InlineError, match=r"does not parse as Python"):
            device_units(sources.pop((gpu, "level3_problem26")))
    for source in sources.values():
        for unit in device_units(source):
            assert MARK in unit.source and not any(w in unit.source for w in ("torch::", "PYBIND11_MODULE", "AT_DISPATCH", "<<<"))


@pytest.mark.parametrize("entry", ["add", "_Z3addPfi", "_ZL3addPf", "_ZN6detail3addIfLi8EEEvPT_", "_ZN12_GLOBAL__N_13addEPf"])
def test_entries_are_found_by_their_mangled_names(entry):
    known = {"add": Launched("add", 1, 32, 0), "ad": Launched("ad", 1, 32, 0)}
    assert kernel_of(entry, known) is known["add"]
    assert kernel_of("_Z4add2Pf", known) is None


def test_a_module_compiles_to_the_facts_of_what_it_launches():
    pytest.importorskip("cuda.core")
    facts = compile_kernel(Kernel(language="python", source=MODULE), arch="sm_86")
    assert facts.status == "ok", facts.reason
    scale, grid2d = sorted(facts.entries, key=lambda e: e.threads)
    assert (scale.threads, scale.dynamic_shared_bytes, scale.grid, grid2d.threads) == (128, 512, None, 256)
    assert scale.registers > 0 and scale.mix["load_global"] and scale.occupancy == 1.0  # 12 blocks of 4 warps of 48
    assert any("never" in note and "left out" in note for note in facts.notes)


@pytest.mark.parametrize("problem", [("a100", "level1_problem23"), ("h100", "level1_problem12")])
def test_released_kernels_compile_to_facts_that_are_kept(problem, monkeypatch):
    pytest.importorskip("cuda.core")
    kernel, arch = Kernel(language="python", source=released()[problem]), {"a100": "sm_80", "h100": "sm_90"}[problem[0]]
    facts = compile_kernel(kernel, arch=arch)
    assert facts.status == "ok" and facts.entries and all(e.registers > 0 and e.instructions > 0 for e in facts.entries)
    monkeypatch.setattr("kfs.bench.compile.run_nvrtc", lambda *a, **k: pytest.fail("compiled again"))
    assert compile_kernel(kernel, arch=arch) == facts


def test_the_module_is_never_run(tmp_path):
    pytest.importorskip("cuda.core")
    trace = tmp_path / "was-here"
    source = f"open({str(trace)!r}, 'w').close()\nSOURCE = {SUM!r}\nraise SystemExit(3)\n"
    assert compile_kernel(Kernel(language="python", source=source)).status == "ok"
    assert not trace.exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (MARK + "x" * (1 << 20), f"at most {MAX_CHARACTERS} are searched"),
        (f"{SUM} void f() {{{{", "brackets of its CUDA C\\+\\+ do not match"),
        (f"{SUM} }} void f() {{", "brackets of its CUDA C\\+\\+ do not match"),
        (f"// nothing but a word, {MARK}", f"no string defines a function that is {MARK}"),
        (f"{MARK} void k(float*);", f"no string defines a function that is {MARK}"),
    ],
)
def test_texts_without_a_kernel_end_in_no_facts_with_a_reason(text, reason):
    facts = compile_kernel(module(text))
    assert (facts.status, facts.stage, facts.entries) == ("compile_error", "extract", [])
    with pytest.raises(InlineError, match=reason) as found:
        device_units(module(text).source)
    assert facts.reason == str(found.value)


def test_a_module_that_does_not_parse_ends_in_no_facts():
    for source in (f"x = '{MARK}", "(" * 5000 + MARK, "+".join([f"'{MARK}'"] * 5000)):
        assert compile_kernel(Kernel(language="python", source=source)).stage == "extract"


def test_a_python_kernel_without_any_is_a_wrong_question():
    with pytest.raises(TaskError, match=rf"nothing to compile.*Python modules with {MARK}"):
        compile_kernel(Kernel(language="python", source="def kernel(x): return x"))


def test_code_that_does_not_compile_says_what_the_compiler_says():
    pytest.importorskip("cuda.core")
    facts = compile_kernel(module(f"{MARK} void k(float* a) {{ a[0] = nonesuch(a); }}"))
    assert (facts.status, facts.stage) == ("compile_error", "compile") and '"nonesuch" is undefined' in facts.reason


@pytest.mark.parametrize(
    "text",
    [
        *(f"{SUM}{sign * 60_000}" for sign in ("{", "}", "/*", "'\"")),
        "x = " + "{}" * 50_000 + SUM,
        "a " * 50_000 + "= " + "{}" * 20_000 + ";" + SUM,
        "template <class T> " + "a" * 150_000 + " " + SUM,
        SUM + "void f() {" + "int a=" * 30_000 + "}",
        SUM + "void f() {" + "k<" * 30_000 + "<<<1, 2>>>(); }",
        SUM + "void f() {" + "k<<<1, 2>>>(a);" * 9_000 + "}",
        "template <" * 15_000 + SUM,
        "x = '\ud800'; " + SUM,
        SUM + "void f() { k<<<1, 2>>>(a); " + "a" * 150_000 + " }",
        SUM + "void f() { k<<<1, 2>>>(a); ;" + " " * 150_000 + "}",
    ],
    ids=range(14),
)
def test_hostile_texts_are_read_to_an_end(text):  # the time limit of every test ends one that takes forever
    try:
        units = device_units(module(text).source)
    except InlineError as error:
        units = []
        assert "match" in str(error) or "no string" in str(error)
    assert all(MARK in u.source and u.source.encode() for u in units)
