"""What runs in a child whose kernels run on a GPU: a context of its own, device buffers, and two clocks around every call.

Inputs of a block arrive in the arena, with the judge's canary bands, and are copied to device buffers of their own, bands
included; ``collect`` copies all of it back, so that the judge itself sees a changed input or band. Before each call memory the
allocator would hand out again is poisoned, persisting lines are let go, L2 is flushed and the device is synchronised.

``end_to_end_ns`` is the wall clock from there to the return of a device-wide synchronisation: side streams, the legacy default
stream and work on the host all count. ``device_ns`` is the time between an event before the call and one after it on the stream
the kernel is given: it leaves out what the host does before and after, and misses other streams, so it is never the label's clock
where the two disagree. Everything here is bound before candidate code is imported; from then on the judge does not trust it.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import hashlib
import os
import platform
import sys
import time

from kfs.bench import child
from kfs.bench.child import BAD_OUTPUT, CALL_FAILED, IMPORT_FAILED, OK, TensorSlot, copy_files, sharing_fault, tensor_view

FLUSH_L2 = 2
"""The flush writes and then reads this many times the device's L2, and no less than ``FLUSH_BYTES``."""
FLUSH_BYTES = 64 << 20
BAND = 4096
_OPT_IN_SHARED = 48 << 10
_clock = time.perf_counter_ns


def preload() -> None:
    """Import what children need, in the zygote: nothing here touches a driver, and a child cannot read this repository later."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # NVML's order
    import cuda.bindings.driver
    import cuda.core
    import cuda.core.utils  # noqa: F401
    import numpy  # noqa: F401

    import kfs.bench.launch
    import kfs.bench.toolchain  # noqa: F401

    here = platform.architecture()  # runs `file`; part of the names under which Triton keeps what gcc made
    platform.architecture = lambda *_, **__: here
    with contextlib.suppress(ImportError):
        import triton  # noqa: F401
        from triton.runtime.cache import triton_key

        triton_key()  # reads all of Triton, once


def wake_triton(arch: str) -> None:
    """Have Triton run what it runs once a process (the assembler for its version, ldconfig, gcc): a timed kernel may not.

    Where it fails it fails again at a kernel's first launch, with an error that is the kernel's reason.
    """
    with contextlib.suppress(Exception):
        from triton.backends.compiler import GPUTarget
        from triton.compiler.compiler import make_backend

        make_backend(GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)).hash()
    with contextlib.suppress(Exception):
        from triton.runtime import driver

        driver.active.utils  # noqa: B018


def device_files() -> list[str]:
    """Device files a CUDA process opens."""
    return [*glob.glob("/dev/nvidia*"), *glob.glob("/dev/nvidia-caps/*"), *glob.glob("/dev/dri/*"), "/dev/nvgpu"]


class Want:
    """Type, shape and dtype an output must have, for ``child.layout_fault``."""

    def __init__(self, slot: TensorSlot, device):
        import torch

        self.shape, self.dtype, self.device = torch.Size(slot.shape), getattr(torch, slot.dtype), device


class Gpu:
    """The driver as a child uses it: one stream, events, synchronisation, the flush. Tests replace it by a log."""

    def __init__(self, buffer):
        import torch
        from cuda.bindings import driver
        from cuda.core import Device, EventOptions

        self.torch, self.driver = torch, driver
        self.core = Device(0)
        self.core.set_current()
        torch.cuda.set_device(0)
        torch.cuda.init()
        self.device = torch.device("cuda", 0)
        self.stream = self.core.create_stream()
        self.torch_stream = torch.cuda.ExternalStream(int(self.stream.handle), device=self.device)
        self._events = [self.core.create_event(EventOptions(timing_enabled=True)) for _ in range(2)]
        properties = torch.cuda.get_device_properties(0)
        self.arch = f"sm_{properties.major}{properties.minor}"
        self.use_stream()
        n = max(FLUSH_L2 * properties.L2_cache_size, FLUSH_BYTES)
        self._dirty = torch.zeros(n // 4, dtype=torch.int32, device=self.device)
        self._memset, self._read = driver.cuMemsetD8Async, torch.sum  # bound now: a candidate can replace names
        self._clean = torch.zeros(n // 4, dtype=torch.int32, device=self.device)
        self._sum = torch.zeros((), dtype=torch.int64, device=self.device)
        self._pin(buffer)
        self._last_error = self._runtime_error()
        self.flush()
        self.sync()

    def _pin(self, buffer) -> None:
        """Lock the arena's pages, so that copies are fast; through the driver, whose errors stay out of torch's way."""
        address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        self.driver.cuMemHostRegister(address, len(buffer), 0)

    def _runtime_error(self):
        """``cudaGetLastError`` of the runtime torch uses; None if it cannot be found."""
        major = (self.torch.version.cuda or "").split(".")[0]
        with contextlib.suppress(OSError, AttributeError):
            return ctypes.CDLL(f"libcudart.so.{major}").cudaGetLastError
        return None

    def use_stream(self) -> None:
        """Make the measuring stream torch's current one."""
        self.torch.cuda.set_stream(self.torch_stream)

    def flush(self) -> None:
        """Drop persisting lines, then write one buffer and read another, so that L2 holds nothing of use and nothing dirty."""
        self.driver.cuCtxSetLimit(self.driver.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0)
        self.driver.cuCtxResetPersistingL2Cache()
        self._memset(self._dirty.data_ptr(), 0, self._dirty.nbytes, self.stream.handle)
        self._read(self._clean, dim=0, out=self._sum)

    def sync(self) -> None:
        """Wait for everything on the device; raises what went wrong there."""
        self.core.sync()

    def record(self, which: int) -> None:
        """Record the first event (0) or the last one (1) on the measuring stream."""
        self.stream.record(self._events[which])

    def between_ns(self) -> int:
        """Time between the two events once both have passed, at least 1 ns."""
        return max(round((self._events[1] - self._events[0]) * 1e6), 1)

    def pending_error(self) -> int:
        """Error the runtime holds that nobody looked at; 0 for none. Clears it."""
        return int(self._last_error()) if self._last_error else 0

    def empty(self, nbytes: int):
        """Device memory."""
        return self.torch.empty(nbytes, dtype=self.torch.uint8, device=self.device)

    def capture(self, run):
        """``run()`` captured into a graph; the graph."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.torch_stream):
            run()
        return graph


class Engine:
    """Serves a child's requests. ``gpu`` is given by tests alone."""

    def __init__(self, buffer, jit: str, folder: str, *, warm: str = "", compiles: bool = True, gpu: Gpu | None = None):
        start = _clock()
        self.buffer, self.jit, self.compiles = buffer, jit, compiles
        self.compiled = os.path.join(jit if compiles else folder, "compiled")
        for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"):
            os.environ[name] = self.compiled
        if warm and os.path.isdir(source := os.path.join(warm, "compiled")) and not os.path.samefile(warm, jit):
            copy_files(source, self.compiled)
        self.gpu = gpu or Gpu(buffer)
        private = self.gpu.torch._C
        self._no_functions = getattr(private, "DisableTorchFunction", contextlib.nullcontext)
        self._no_dispatch = getattr(private, "_DisableTorchDispatch", contextlib.nullcontext)
        self.kernel = None
        self.kept: list = []
        self._memory: dict[tuple[int, int, int], object] = {}
        self.notes: list[str] = []
        if gpu is None and "triton" in sys.modules:
            wake_triton(self.gpu.arch)
        self.setup_ns = _clock() - start

    def serve(self, request: dict, path: str) -> tuple[int, list[int], str]:
        """Answer one request: code, stamps, text."""
        if request["do"] == "load":
            return self._load(request, path)
        if request["do"] == "collect":
            return self._collect()
        return (self._graph if request["do"] == "graph" else self._calls)(request["calls"], request["hold"])

    def _load(self, request: dict, path: str) -> tuple[int, list[int], str]:
        fresh = os.path.join(self.jit, "compiled")
        if not self.compiles and os.path.isdir(fresh):  # what the checking child compiled since this one was set up
            copy_files(fresh, self.compiled)
        if request["language"] == "cuda":
            try:
                self.kernel = CudaKernel(request["source"], self.gpu, self.compiled)
            except Exception as error:
                return IMPORT_FAILED, [], child._words(error)
            return OK, [], ""
        self.kernel, wrong = child._load(request["source"], request["entry"], path)
        return (IMPORT_FAILED if wrong else OK), [], wrong

    def _stage(self, calls) -> list[tuple[list, list, list]]:
        """Of each call: inputs; each one's host memory and device memory, with what lies before and behind it; output slots.

        A call's inputs lie where those of the last block's lay, so that what a kernel keeps by address is found stale.
        """
        staged, used = [], {}
        for turn, parts in enumerate(calls):
            inputs, regions = [], []
            for i, slot in enumerate(TensorSlot(*s) for s in parts[0]):
                low = max(slot.offset - BAND, 0)
                high = min(slot.offset + slot.nbytes + BAND, len(self.buffer))
                host = tensor_view(self.buffer, TensorSlot(low, (high - low,), "uint8", high - low))
                key = (turn, i, high - low)
                memory = self._memory.pop(key) if key in self._memory else self.gpu.empty(high - low)
                memory.copy_(host)
                begin = slot.offset - low
                flat = memory[begin : begin + slot.nbytes].view(getattr(self.gpu.torch, slot.dtype))
                inputs.append(flat.view(slot.shape) if slot.strides is None else flat.as_strided(slot.shape, slot.strides))
                regions.append((host, memory))
                used[key] = memory
            staged.append((inputs, regions, [TensorSlot(*s) for s in parts[1]]))
        self._memory = used
        return staged

    def _poison(self, slots: list[TensorSlot], turn: int) -> None:
        """Leave a pattern in the memory that outputs of this size get next: NaN and 3.4e38 in turn."""
        scratch = [self.gpu.empty(s.nbytes) for s in slots if s.nbytes]
        for memory in scratch:
            memory.fill_(0xFF if turn % 2 else 0x7F)

    def _calls(self, calls, hold: bool) -> tuple[int, list[int], str]:
        gpu = self.gpu
        self.kept.clear()
        staged = self._stage(calls)
        wall, device, held, notes = [], [], [], list(self.notes)
        with gpu.torch.inference_mode():
            for turn, (inputs, regions, slots) in enumerate(staged):
                with self._plain():
                    self._poison(slots, turn)
                    gpu.use_stream()
                    gpu.flush()
                    gpu.sync()
                    gpu.record(0)
                start = _clock()
                outputs = self.kernel(*inputs)
                gpu.record(1)
                gpu.sync()
                stop = _clock()
                gpu.use_stream()
                wall.append(stop - start)
                device.append(gpu.between_ns())
                if error := gpu.pending_error():
                    notes.append(f"CUDA error {error} left pending")
                outputs = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
                with self._plain():
                    if (wrong := self._output_fault(outputs, inputs, slots, held)) is not None:
                        return BAD_OUTPUT, [], wrong
                    self.kept.append((regions, slots, [y.clone() for y in outputs]))
                if hold:
                    held += outputs
                del outputs, inputs
            gpu.sync()
        return OK, wall + device, "\n".join(dict.fromkeys(notes))

    @contextlib.contextmanager
    def _plain(self):
        """No hook of a candidate's into torch functions or dispatch runs in here."""
        with self._no_functions(), self._no_dispatch():
            yield

    def _output_fault(self, outputs: tuple, inputs: list, slots: list[TensorSlot], held: list) -> str | None:
        wants = [Want(slot, self.gpu.device) for slot in slots]
        return child.layout_fault(outputs, wants) or sharing_fault(outputs, inputs, held)

    def _collect(self) -> tuple[int, list[int], str]:
        """Copy what the last block's calls read and made to the arena, where the judge looks at it."""
        for regions, slots, outputs in self.kept:
            for host, memory in regions:
                host.copy_(memory)
            for slot, output in zip(slots, outputs, strict=True):
                tensor_view(self.buffer, slot).copy_(output)
        self.kept.clear()
        return OK, [], ""

    def _graph(self, calls, hold: bool) -> tuple[int, list[int], str]:
        """Capture every call with inputs and outputs of its own, replay once; one share of the replay for each call."""
        gpu = self.gpu
        self.kept.clear()
        staged = self._stage(calls)
        made: list[tuple] = []

        def run():
            for inputs, _, _ in staged:
                outputs = self.kernel(*inputs)
                made.append(tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,))

        with gpu.torch.inference_mode():
            try:
                graph = gpu.capture(run)
            except Exception as error:
                return CALL_FAILED, [], f"no graph: {child._words(error)[:500]}"
            finally:
                gpu.use_stream()
            with self._plain():
                return self._replay(graph, made, staged)

    def _replay(self, graph, made: list[tuple], staged: list) -> tuple[int, list[int], str]:
        """Check what was captured, spoil its outputs, and time one cold replay."""
        gpu, held = self.gpu, []
        for outputs, (inputs, _, slots) in zip(made, staged, strict=True):
            if (wrong := self._output_fault(outputs, inputs, slots, held)) is not None:
                return BAD_OUTPUT, [], f"captured call: {wrong}"
            held += outputs
        graph.replay()  # uploads the graph
        gpu.sync()
        for output in held:
            output.view(-1).view(gpu.torch.uint8).fill_(0xFF)
        gpu.flush()
        gpu.sync()
        gpu.record(0)
        graph.replay()
        gpu.record(1)
        gpu.sync()
        for outputs, (_, regions, slots) in zip(made, staged, strict=True):
            self.kept.append((regions, slots, [y.clone() for y in outputs]))
        gpu.sync()
        return OK, [max(gpu.between_ns() // len(staged), 1)] * (2 * len(staged)), ""


class CudaKernel:
    """CUDA C++ as a callable: compiled by NVRTC through a program cache, launched as its leading comments say."""

    def __init__(self, source: str, gpu, cache: str):
        from kfs.bench.launch import parse_launch

        self.program, self.gpu = parse_launch(source), gpu
        code = compile_cubin(source, gpu.arch, cache)
        from cuda.core import ObjectCode

        self._code = ObjectCode.from_cubin(code)
        self._entries = {launch.entry: self._code.get_kernel(launch.entry) for launch in self.program.launches}
        self._plans: dict[tuple, tuple] = {}
        self._shared: dict[str, int] = {}

    def __call__(self, *inputs):
        from cuda.core import Stream, launch

        torch = self.gpu.torch
        key = tuple((tuple(x.shape), x.dtype) for x in inputs)
        if key not in self._plans:
            self._plans[key] = self._plan(inputs)
        outputs, scratch, launches = self._plans[key]
        if not all(x.is_contiguous() for x in inputs):
            raise ValueError("a CUDA C++ kernel takes contiguous inputs")
        made = [torch.empty(shape, dtype=dtype, device=self.gpu.device) for shape, dtype in (*outputs, *scratch)]
        pointers = [x.data_ptr() for x in (*inputs, *made)]
        current = torch.cuda.current_stream().cuda_stream
        stream = self.gpu.stream if current == int(self.gpu.stream.handle) else Stream.from_handle(current)
        for config, kernel, arguments in launches:
            launch(stream, config, kernel, *(pointers[a] if type(a) is int else a for a in arguments))
        return tuple(made[: len(outputs)])

    def _plan(self, inputs) -> tuple:
        """Shapes to allocate, and every launch with its numbers; an ``int`` among arguments is the place of a pointer."""
        from cuda.core import LaunchConfig

        torch, program = self.gpu.torch, self.program
        sizes = program.bind([tuple(x.shape) for x in inputs], [str(x.dtype).removeprefix("torch.") for x in inputs])
        outputs, scratch = (
            [(t.shape, getattr(torch, t.dtype)) for t in program.tensors(kind, sizes)] for kind in ("outputs", "scratch")
        )
        launches = []
        for bound in program.plan(sizes):
            kernel = self._entries[bound.entry]
            if bound.shared > max(_OPT_IN_SHARED, self._shared.get(bound.entry, 0)):
                self._allow_shared(kernel, bound.entry, bound.shared)
            config = LaunchConfig(grid=bound.grid, block=bound.block, shmem_size=bound.shared)
            launches.append((config, kernel, launch_arguments(program, bound)))
        return outputs, scratch, launches

    def _allow_shared(self, kernel, entry: str, nbytes: int) -> None:
        driver = self.gpu.driver
        what = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        (result,) = driver.cuKernelSetAttribute(what, nbytes, kernel.handle, driver.CUdevice(0))
        if int(result):
            raise RuntimeError(f"{entry} cannot have {nbytes} bytes of dynamic shared memory: {result.name}")
        self._shared[entry] = nbytes


def launch_arguments(program, bound) -> list:
    """Arguments of a launch: ``int`` for the place of a tensor among inputs, outputs and scratch, else a 32-bit scalar."""
    import numpy as np

    place = {t.name: i for i, t in enumerate((*program.inputs, *program.outputs, *program.scratch))}
    return [place[a] if isinstance(a, str) else np.float32(a) if isinstance(a, float) else np.int32(a) for a in bound.args]


def compile_cubin(source: str, arch: str, cache: str) -> bytes:
    """Machine code of a CUDA C++ source, from cuda.core's program cache where it has been compiled before; needs no GPU."""
    from cuda.core import Program, ProgramOptions
    from cuda.core.utils import FileStreamProgramCache, make_program_cache_key

    from kfs.bench.toolchain import include_folders

    options = ProgramOptions(arch=arch, std="c++17", include_path=list(include_folders()))
    headers = hashlib.sha256("\0".join(include_folders()).encode()).digest()  # their paths name the versions
    key = make_program_cache_key(code=source, code_type="c++", options=options, target_type="cubin", extra_digest=headers)
    os.makedirs(cache, exist_ok=True)
    with FileStreamProgramCache(os.path.join(cache, "nvrtc")) as programs:
        found = programs.get(key)
        if found is None:
            compiled = Program(source, "c++", options).compile("cubin")
            programs[key] = compiled
            found = compiled.code
    return bytes(found if isinstance(found, (bytes, bytearray, memoryview)) else found.code)
