"""Compiler facts of a GPU kernel without a GPU: does it compile, and what did the compiler make of it.

CUDA C++ is compiled by NVRTC in a process that is killed at a deadline; of a Python module that holds CUDA C++ in its strings,
that device code is (``inline``), and the module is not run. A Triton module is Python, so it runs in a sandboxed
child (``triton_capture``) that gives PTX back, which the assembler then turns into code. Binaries are disassembled, never loaded.
Use: turn broken candidates away before a GPU is asked, features for a learner, a section of a prompt (``kfs.bench.facts``).

Not seen: which way branches go, how often loops run, how memory answers. Triton kernels are those that one call with a case's
shapes launches. A hostile module can hand back the PTX of another kernel: its facts are then wrong, its measurement is not.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import tempfile
import time
from functools import lru_cache
from pathlib import Path

import numpy as np

from kfs.bench.child import CallSlots, TensorSlot
from kfs.bench.facts import Entry, Facts
from kfs.bench.inline import MARK, InlineError, device_units
from kfs.bench.launch import LaunchError, Program, evaluate, parse_launch
from kfs.bench.launch_sites import kernel_of
from kfs.bench.processors import Architecture, architecture, load_hardware, occupancy, speed_of_light_us
from kfs.bench.sandbox import ChildDied, Zygote
from kfs.bench.sass import Code, Resources, parameter_sizes, read_disassembly, read_resources
from kfs.bench.toolchain import DeadlinePassed, package_version, run_nvrtc, run_tool, tool, tool_version
from kfs.data.manifest import cache_folder
from kfs.errors import HarnessError, SchemaError, TaskError
from kfs.records import Kernel, atomic_write, content_id
from kfs.tasks import Case, Task

MAX_REASON = 2000
MEMORY_BYTES = 4 << 30
_PTX_BYTES = 16 << 20
_ALIGN = 256
_MAX_KERNELS = 64
_CAPTURE = Path(__file__).with_name("triton_capture.py")
_CODE = (
    "compile",
    "facts",
    "inline",
    "launch",
    "launch_sites",
    "nvrtc_worker",
    "processors",
    "sass",
    "toolchain",
    "triton_capture",
)


class _Rejected(Exception):
    """A candidate's fault, with where and why."""

    def __init__(self, stage: str, reason: str, *, status: str = "compile_error", entries: list[Entry] | None = None):
        super().__init__(reason)
        self.stage, self.reason, self.status, self.entries = stage, reason, status, entries or []


def compile_kernel(
    kernel: Kernel,
    *,
    arch: str = "sm_90",
    task: Task | None = None,
    case: Case | None = None,
    hardware: str | None = None,
    deadline_s: float = 60.0,
    zygote: Zygote | None = None,
    cached: bool = True,
) -> Facts:
    """Compile one kernel and say what came out.

    Parameters
    ----------
    kernel : Kernel
        Triton, CUDA C++, or Python with CUDA C++ in its strings.
    arch : str, optional
        One of ``kfs.bench.processors.ARCHITECTURES``. Triton compiles for the variant ``sm_90a`` of ``sm_90``, as it always does.
    task, case : optional
        Whose shapes the inputs have. Triton needs both; without them CUDA C++ has no speed of light, and no occupancy where a
        launch depends on sizes.
    hardware : str, optional
        Processor of ``conf/hardware`` for the speed of light; default the one that stands for ``arch``.
    deadline_s : float, optional
        Wall time after which compilation is given up.
    zygote : Zygote, optional
        A running one, for many Triton kernels in a row; default one of its own, which takes seconds to start.
    cached : bool, optional
        Look the facts up by content in ``KFS_CACHE`` first, and keep them there. A timeout is never kept.

    Returns
    -------
    Facts
        Status ``ok``, or the candidate's fault; a broken harness is an exception.

    Raises
    ------
    UnknownNameError
        For an architecture or hardware that does not exist.
    TaskError
        For a kernel that holds neither Triton nor CUDA C++, or a Triton kernel without a task and case.
    MissingDependencyError
        If a compiler is not installed.
    """
    limits = architecture(arch)
    inline = kernel.language == "python" and MARK in kernel.source
    if kernel.language not in ("triton", "cuda") and not inline:
        raise TaskError(
            f"a {kernel.language} kernel has nothing to compile; facts are for triton and cuda kernels, and for Python modules "
            f"with {MARK} in a string"
        )
    if (task is None) != (case is None) or (kernel.language == "triton" and task is None):
        raise TaskError("a Triton kernel is compiled for a task's shapes: give task and case, both")
    processor = load_hardware(hardware or limits.hardware) if hardware or limits.hardware else None
    if processor is not None and processor.architecture != arch.removesuffix("a"):
        raise SchemaError(f"hardware {processor.name!r} is {processor.architecture}, not {arch}; choose another or leave it out")
    versions = toolchain(kernel.language, arch)
    about = {
        "kernel_id": kernel.kernel_id,
        "language": kernel.language,
        "arch": arch,
        "task": task.name if task else None,
        "case": case.name if case else None,
        "hardware": processor.name if processor and task else None,
        "toolchain": versions,
    }
    parts = [about, kernel.entry, task.task_id if task else "", processor.model_dump() if processor and task else {}]
    key = content_id(json.dumps(parts, sort_keys=True), _code())
    path = cache_folder() / "compiled" / f"{key}.json"
    if cached and path.is_file():
        with contextlib.suppress(ValueError):  # written by a disk that lost power: compile again
            return Facts.model_validate_json(path.read_text())
    started = time.monotonic()
    deadline = started + deadline_s
    notes: list[str] = []
    try:
        if inline:
            entries = _compile_inline(kernel.source, limits, deadline, notes)
        elif kernel.language == "cuda":
            entries = _compile_cuda(kernel.source, limits, task, case, deadline)
        else:
            entries = _compile_triton(kernel, limits, task, case, deadline, zygote, notes)
        _fit(entries, limits)
        end = {"status": "ok", "entries": entries}
    except _Rejected as fault:
        end = {"status": fault.status, "stage": fault.stage, "reason": _bounded(fault.reason), "entries": fault.entries}
    except DeadlinePassed as late:
        end = {"status": "timeout", "stage": "compile", "reason": f"{late} ({deadline_s:g} s)"}
    light = speed_of_light_us(task, case, processor) if task and processor else None
    seconds = round(time.monotonic() - started, 3)
    facts = Facts(**about, **end, notes=notes, speed_of_light_us=light, seconds=seconds)
    if cached and facts.status != "timeout":
        atomic_write(path, facts.model_dump_json().encode())
    return facts


def toolchain(language: str, arch: str) -> dict[str, str]:
    """Versions of what turns a source into code and reads it; MissingDependencyError where something is not installed."""
    if language != "triton":
        return {"nvrtc": package_version("nvidia-cuda-nvrtc"), "nvdisasm": tool_version("nvdisasm")}
    return {"triton": package_version("triton"), "ptxas": tool_version(_ptxas(arch)), "nvdisasm": tool_version("nvdisasm")}


@lru_cache
def _code() -> str:
    """Content id of the code that makes facts: a change of it makes cached ones be made again."""
    return content_id(*((Path(__file__).parent / f"{name}.py").read_text() for name in _CODE))


def _bounded(text: str) -> str:
    text = text.strip() or "no reason given"
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 20]} ... (cut)"


def _capability(arch: str) -> int:
    return int(re.sub(r"\D", "", arch))


def _ptxas(arch: str) -> str:
    return "ptxas-blackwell" if _capability(arch) >= 100 else "ptxas"


# CUDA C++


def _compile_cuda(source: str, limits: Architecture, task: Task | None, case: Case | None, deadline: float) -> list[Entry]:
    try:
        program = parse_launch(source)
        bound = None
        if task is not None:
            layout = input_layout(task, case)
            sizes = program.bind([shape for shape, _ in layout], [dtype for _, dtype in layout])
            program.tensors("outputs", sizes), program.tensors("scratch", sizes)
            bound = program.plan(sizes)
    except LaunchError as error:
        raise _Rejected("launch", str(error)) from None
    cubin, resources, codes = _run_nvrtc(source, limits, deadline)
    for launch in program.launches:
        _check_parameters(launch, program, cubin, resources)
    entries: dict[tuple, Entry] = {}
    for i, launch in enumerate(program.launches):
        if bound is not None:
            grid, threads, shared = list(bound[i].grid), bound[i].threads, bound[i].shared
        else:
            grid, (threads, shared) = None, _constant_numbers(program, launch)
        key = (launch.entry, threads, shared)
        if key in entries:
            entries[key] = entries[key].model_copy(update={"launches": entries[key].launches + 1})
        else:
            entries[key] = _entry(launch.entry, resources[launch.entry], codes, limits, threads=threads, grid=grid, shared=shared)
    return list(entries.values())


def _run_nvrtc(source: str, limits: Architecture, deadline: float) -> tuple[bytes, dict[str, Resources], dict[str, Code]]:
    """The binary, and what the assembler and the disassembler say of each of its entries."""
    good, log, cubin = run_nvrtc(source, limits.name, deadline=deadline, memory_bytes=MEMORY_BYTES)
    if not good:
        raise _Rejected("compile", "\n".join(line for line in log.split("\n") if not line.startswith("ptxas info")))
    codes = _disassemble(cubin, deadline)
    return cubin, {name: found for name, found in read_resources(log).items() if name in codes}, codes


def _compile_inline(source: str, limits: Architecture, deadline: float, notes: list[str]) -> list[Entry]:
    """Every kernel that the module's strings launch; all of them where no string launches any."""
    try:
        units = device_units(source)
    except InlineError as error:
        raise _Rejected("extract", str(error)) from None
    entries = []
    for unit in units:
        _, resources, codes = _run_nvrtc(unit.source, limits, deadline)
        for name, found in resources.items():
            kernel = kernel_of(name, unit.launched)
            if unit.launched and kernel is None:
                notes.append(f"{name} is not launched in its text: left out")
                continue
            said = {"threads": kernel.threads, "shared": kernel.shared_bytes, "launches": kernel.sites} if kernel else {}
            entries.append(_entry(name, found, codes, limits, **{"threads": None, "shared": None, "grid": None, **said}))
    if not entries:
        raise _Rejected("extract", "the compiler makes no entry of its device code: no launch says how a template is used")
    return entries


def _check_parameters(launch, program: Program, cubin: bytes, resources: dict[str, Resources]) -> None:
    """The launch must name an entry, and pass what it takes."""
    if launch.entry not in resources:
        raise _Rejected(
            "launch",
            f"line {launch.line}: the source has no entry {launch.entry!r}; found {', '.join(sorted(resources)) or 'none'}; "
            'declare it extern "C" __global__',
        )
    tensors = {t.name for t in (*program.inputs, *program.outputs, *program.scratch)}
    passed, taken = [8 if a in tensors else 4 for a in launch.args], parameter_sizes(cubin, launch.entry)
    if taken is not None and taken != passed:
        raise _Rejected(
            "launch",
            f"line {launch.line}: {launch.entry!r} takes {len(taken)} parameters of {', '.join(map(str, taken)) or 'no'} bytes, "
            f"args=({', '.join(launch.args)}) passes {', '.join(map(str, passed)) or 'no'} bytes; a tensor's pointer has 8, "
            "an int or a float 4",
        )


def _constant_numbers(program: Program, launch) -> tuple[int | None, int | None]:
    """Threads and dynamic shared memory of a launch, where they do not depend on the inputs."""
    sizes = dict(program.defines)
    for name, text, line in program.lets:
        with contextlib.suppress(LaunchError):
            sizes[name] = evaluate(text, sizes, line)
    found: list[int | None] = [None, None]
    with contextlib.suppress(LaunchError):
        found[0] = math.prod(evaluate(t, sizes, launch.line) for t in launch.block)
    with contextlib.suppress(LaunchError):
        found[1] = evaluate(launch.shared, sizes, launch.line)
    return found[0], found[1]


# Triton


def _compile_triton(
    kernel: Kernel, limits: Architecture, task: Task, case: Case, deadline: float, zygote: Zygote | None, notes: list[str]
) -> list[Entry]:
    answer = _capture(kernel, limits, input_layout(task, case), deadline, zygote)
    if answer["tuned"] > 1:
        notes.append(f"autotuned over {answer['tuned']} configurations; compiled with the first")
    if answer["zeros"]:
        notes.append("reads values of tensors on the CPU; called with zeros")
    if not answer["kernels"]:
        notes.append("one call launches no Triton kernel")
    entries = []
    for found in answer["kernels"]:
        resources, code = _assemble(found, limits, deadline)
        match = re.search(r"\.(?:reqntid|maxntid)\s+(\d+)", found["ptx"])
        threads = int(match[1]) if match else 32 * found["warps"]
        made = {"threads": threads, "grid": found["grid"], "shared": found["shared"], "launches": found["launches"]}
        entries.append(_entry(found["name"], resources, code, limits, **made))
    return entries


def _capture(kernel: Kernel, limits: Architecture, layout, deadline: float, zygote: Zygote | None) -> dict:
    """Run the candidate in a sandboxed child, up to PTX; what it launched."""
    about = (kernel.source, kernel.entry, _capability(limits.name), _ptx_version(limits.name), _properties(limits))
    source = "\n".join(
        [
            _CAPTURE.read_text(),
            f"start{about!r}",
            "def captured(*inputs):",
            f"    return capture_launches(*inputs, nbytes={_PTX_BYTES})",
        ]
    )
    slots, end = [], 0
    for shape, dtype in [*layout, ((_PTX_BYTES,), "uint8")]:
        nbytes = math.prod(shape) * _itemsize(dtype)
        slots.append(TensorSlot(end, tuple(shape), dtype, nbytes))
        end += -(-nbytes // _ALIGN) * _ALIGN
    cores = sorted(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        zygote = zygote or stack.enter_context(Zygote())
        child = zygote.spawn(end, cores[os.getpid() % len(cores)], end + 2 * MEMORY_BYTES, alone=False)
        stack.callback(child.close)
        try:
            reply = child.load(source, "captured", max(0.0, deadline - time.monotonic()))
            if reply.code:
                raise _Rejected("import", reply.text)
            reply = child.call([CallSlots(tuple(slots[:-1]), tuple(slots[-1:]))], max(0.0, deadline - time.monotonic()))
            if reply.code:
                raise _Rejected("compile", reply.text)
        except ChildDied as died:
            if died.kind == "timeout":
                raise DeadlinePassed("the module did not end before the deadline") from None
            raise _Rejected("compile", f"its process ended: {died.detail}") from None
        view = child.arena.view(slots[-1])
        data = bytes(view.numpy())
        del view
    return _read_capture(data)


def _read_capture(data: bytes) -> dict:
    """What a child sent, field by field: it may be anything."""
    try:
        answer = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        kernels = [
            {
                "name": str(k["name"])[:200],
                "ptx": str(k["ptx"]),
                "grid": [int(n) for n in k["grid"]][:3],
                "fuse": bool(k["fuse"]),
                **{name: int(k[name]) for name in ("warps", "shared", "launches")},
            }
            for k in answer["kernels"][:_MAX_KERNELS]
        ]
        return {"kernels": kernels, "tuned": int(answer["tuned"]), "zeros": bool(answer["zeros"])}
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise _Rejected("compile", "its process answered with something else than compiled kernels") from None


def _ptx_version(arch: str) -> int:
    """PTX version Triton writes for the assembler at hand (its rule: ``ptx_get_version``)."""
    major, minor = map(int, tool_version(_ptxas(arch)).split(".")[:2])
    return 90 + 10 * (major - 13) + minor if major >= 13 else 80 + minor - (minor >= 6)


def _properties(limits: Architecture) -> dict[str, int]:
    """What a module may ask of the GPU before it launches."""
    processor = load_hardware(limits.hardware) if limits.hardware else None
    return {
        "multiprocessor_count": processor.units if processor else 128,
        "max_shared_mem": limits.shared_bytes_block,
        "max_num_regs": limits.registers,
        "warpSize": 32,
    }


def _itemsize(dtype: str) -> int:
    import torch

    return getattr(torch, dtype).itemsize


def _assemble(found: dict, limits: Architecture, deadline: float) -> tuple[Resources, dict[str, Code]]:
    """Turn PTX into code, with the options Triton gives its assembler."""
    capability = _capability(limits.name)
    gpu = f"sm_{capability}{'a' if capability >= 90 else ''}"
    with tempfile.TemporaryDirectory(prefix="kfs-ptx-") as folder:
        text, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        text.write_text(found["ptx"])
        fuse = [] if found["fuse"] else ["--fmad=false"]
        argv = [tool(_ptxas(limits.name)), "-lineinfo", "-v", *fuse, "--regAllocOptLevel=2", f"--gpu-name={gpu}"]
        code, out, err = run_tool([*argv, str(text), "-o", str(binary)], deadline=deadline, memory_bytes=2 * MEMORY_BYTES)
        log = (out + err).decode(errors="replace").replace(folder + "/", "")
        if code or not binary.is_file():
            raise _Rejected("compile", log or f"ptxas ended with {code}")
        cubin = binary.read_bytes()
    resources = read_resources(log)
    if found["name"] not in resources:
        raise _Rejected("compile", f"the PTX has no entry {found['name']!r}; found {', '.join(resources) or 'none'}")
    return resources[found["name"]], _disassemble(cubin, deadline)


# Both


def _disassemble(cubin: bytes, deadline: float) -> dict[str, Code]:
    with tempfile.NamedTemporaryFile(prefix="kfs-", suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        argv = [tool("nvdisasm"), "-json", file.name]
        code, out, err = run_tool(argv, deadline=deadline, memory_bytes=2 * MEMORY_BYTES)
    if code:
        raise HarnessError(f"nvdisasm ended with {code}: {err.decode(errors='replace').strip()[-500:]}")
    return read_disassembly(out.decode(errors="replace"))


def _entry(
    name: str,
    resources: Resources,
    codes: dict[str, Code],
    limits: Architecture,
    *,
    threads: int | None,
    grid: list[int] | None,
    shared: int | None,
    launches: int = 1,
) -> Entry:
    if name not in codes:
        raise HarnessError(f"nvdisasm does not show {name!r}; found {', '.join(codes) or 'none'}")
    fit = None
    if threads is not None and shared is not None:
        total = resources.shared_bytes + shared
        fit = occupancy(limits, threads=threads, registers=resources.registers, shared_bytes=total)
    return Entry(
        name=name,
        registers=resources.registers,
        spill_store_bytes=resources.spill_store_bytes,
        spill_load_bytes=resources.spill_load_bytes,
        stack_bytes=resources.stack_bytes,
        static_shared_bytes=resources.shared_bytes,
        dynamic_shared_bytes=shared,
        code_bytes=codes[name].code_bytes,
        mix=codes[name].mix,
        threads=threads,
        grid=grid,
        launches=launches,
        blocks_per_sm=fit.blocks_per_sm if fit else None,
        warps_per_sm=fit.warps_per_sm if fit else None,
        occupancy=fit.share if fit else None,
        limiter=fit.limiter if fit else None,
    )


def _fit(entries: list[Entry], limits: Architecture) -> None:
    """A block that does not fit a multiprocessor cannot be launched."""
    for e in entries:
        if e.blocks_per_sm == 0:
            raise _Rejected(
                "launch",
                f"{e.name!r} cannot be launched on {limits.name}, limited by {e.limiter}: a block has {e.threads} threads of "
                f"{e.registers} registers and {e.static_shared_bytes} + {e.dynamic_shared_bytes} bytes of shared memory; at most "
                f"{limits.threads_block} threads, {limits.registers_block} registers, {limits.shared_bytes_block} bytes",
                entries=entries,
            )


def input_layout(task: Task, case: Case) -> list[tuple[tuple[int, ...], str]]:
    """Shape and torch type name of every input of a case; made once, then kept in ``KFS_CACHE``."""
    path = cache_folder() / "compiled" / f"layout-{content_id(task.task_id, case.name)}.json"
    if path.is_file():
        with contextlib.suppress(ValueError, TypeError):
            return [(tuple(shape), dtype) for shape, dtype in json.loads(path.read_text())]
    inputs = task.make_inputs(case, np.random.default_rng(0))
    layout = [(tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in inputs]
    atomic_write(path, json.dumps(layout).encode())
    return layout
