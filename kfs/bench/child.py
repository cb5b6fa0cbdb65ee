"""What runs in the zygote and its children; the judge's side is ``kfs.bench.sandbox``.

The zygote imports torch and, when it is told to, Numba, whose first compilation takes a second. It runs no op, starts no
thread, never initialises CUDA and holds no secret. Each child it forks runs one kernel: it stamps each call, copies the outputs
to their slots after the stop stamp, and answers with raw integers in a fixed frame. From the moment candidate code is imported,
nothing here can be trusted, and the judge does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import mmap
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass

from kfs.bench import confine

HEADER = struct.Struct("<4sIII")  # magic, code, text bytes, number of stamps
REQUEST = struct.Struct("<I")
MAGIC = b"kfs2"
MAX_TEXT = 4000
MAX_STAMPS = 1 << 16
OK, IMPORT_FAILED, CALL_FAILED, NO_MEMORY, BAD_OUTPUT = range(5)

_CLOCK = time.perf_counter_ns  # bound before any candidate can replace it
_POISON = 0x80  # M_PERTURB: fresh memory is filled with 0x7f, 3.4e38 in float32
_HEAP_BYTES = 31 << 20  # as much as malloc takes from the heap at once
_HEAP_SHARE = 8  # times what calls read and write: enough for temporaries, and tiny cases need not wait for 31 MB
_HUGE, _COLLAPSE, _POPULATE_WRITE = 2 << 20, 25, 23
_FEW = 16  # children of a device that was opened for one or two kernels
_LAYOUTS = 8  # that are kept ready


@dataclass(frozen=True)
class TensorSlot:
    """Where a tensor lies in an arena; ``strides`` in elements, None for contiguous."""

    offset: int
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    strides: tuple[int, ...] | None = None

    def fields(self) -> tuple:
        """The slot as a request carries it."""
        return self.offset, self.shape, self.dtype, self.nbytes, self.strides


@dataclass(frozen=True)
class CallSlots:
    """Inputs and outputs of one call."""

    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]


def tensor_view(buffer, slot: TensorSlot):
    """Tensor of ``slot`` over a writable buffer."""
    import torch

    dtype = getattr(torch, slot.dtype)
    if slot.nbytes == 0:
        return torch.empty(slot.shape, dtype=dtype)
    flat = torch.frombuffer(buffer, dtype=dtype, count=slot.nbytes // dtype.itemsize, offset=slot.offset)
    return flat.view(slot.shape) if slot.strides is None else flat.as_strided(slot.shape, slot.strides)


def receive(sock: socket.socket, n: int) -> bytes:
    """Exactly ``n`` bytes; raises EOFError when the other end is gone."""
    parts = bytearray()
    while len(parts) < n:
        part = sock.recv(n - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def zygote_main(fd: int, scratch: str, deny: list[str], engine: str = "host") -> None:
    """Serve fork requests on socket ``fd`` until it closes; ``engine`` says what kernels will run on, host or cuda."""
    denied = frozenset(deny)
    layers = confine.enter_namespaces(scratch, deny=denied)
    import torch  # noqa: F401  (children inherit the import)

    if engine == "cuda":
        from kfs.bench import gpu_child

        gpu_child.preload()
    try:
        programs = [confine.seccomp_program(programs=may, gpu=engine == "cuda") for may in (False, True)]
    except (ImportError, OSError):
        programs = [None, None]
    readable = confine.readable_paths()
    gc.freeze()  # children share these pages; a collection would copy them
    gc.enable()
    sock = socket.socket(fileno=fd)
    known: dict[int, str] = {}
    forks = 0
    while True:
        message, fds, _, _ = socket.recv_fds(sock, 8192, 2)
        if not message:
            os._exit(0)
        if message[:1] == b"F":
            options = json.loads(message[1:])
            folder = os.path.join(scratch, str(options["number"]))
            pid, forks = -1, forks + 1
            if forks == _FEW:
                _collapse()
            try:
                for each in filter(None, (folder, options["jit"] and os.path.join(scratch, options["jit"]))):
                    os.makedirs(each, exist_ok=True)
                pid = os.fork()
            except OSError as error:
                sock.sendall(f"!{error}".encode()[:60])
            if pid == 0:
                sock.close()
                _child_main(socket.socket(fileno=fds[0]), fds[1], options, scratch, folder, readable, programs, denied)
            for each in fds:
                os.close(each)
            if pid > 0:
                known[pid] = folder
                pidfd = os.pidfd_open(pid)
                socket.send_fds(sock, [str(pid).encode()], [pidfd])
                os.close(pidfd)
        elif message[:1] == b"W":  # the judge has killed it: reap, and sweep what it left
            pid = int(message[1:])
            _, status = os.waitpid(pid, 0)
            _remove(known.pop(pid))
            strays = _sweep(known)
            sock.sendall(f"{status} {strays}".encode())
        elif message[:1] == b"D":  # forget a kernel's folder of compiled code
            _remove(os.path.join(scratch, message[1:].decode()))
            sock.sendall(b"done")
        elif message[:1] == b"N":
            _warm_numba()
            gc.freeze()
            sock.sendall(b"done")
        else:
            sock.sendall(json.dumps([[x.name, x.active, x.detail] for x in layers]).encode())


def _remove(folder: str) -> None:
    """Remove a folder that a kernel may have filled on purpose; ``rm`` stands any depth, and a limit on its time."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["rm", "-rf", "--one-file-system", folder], stderr=subprocess.DEVNULL, timeout=30, check=False)


def copy_files(source: str, target: str) -> None:
    """Copy a folder's plain files, and neither modes nor times nor anything else that a kernel could have hidden in them."""
    for folder, _, names in os.walk(source):
        there = os.path.join(target, os.path.relpath(folder, source))
        os.makedirs(there, exist_ok=True)
        for name in names:
            with contextlib.suppress(OSError):
                if not os.path.islink(os.path.join(folder, name)):
                    shutil.copyfile(os.path.join(folder, name), os.path.join(there, name))


def _collapse() -> None:
    """Have the kernel put this process's own memory into huge pages, where it can: fork and exit of a child then copy and free
    a third of what they did. A child's writes split them again, and what it allocates lies in plain pages as ever. It takes some
    0.3 s, so a judge of one kernel goes without."""
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    with contextlib.suppress(OSError), open("/proc/self/maps") as file:
        for fields in map(str.split, file.read().splitlines()):
            if fields[1] == "rw-p" and fields[4] == "0" and fields[5:] in ([], ["[heap]"]):
                low, high = (int(x, 16) for x in fields[0].split("-"))
                low, high = -(-low // _HUGE) * _HUGE, high // _HUGE * _HUGE
                if low < high:
                    libc.madvise(low, high - low, _COLLAPSE)


def _children() -> set[int]:
    with contextlib.suppress(OSError), open("/proc/thread-self/children") as file:
        return set(map(int, file.read().split()))
    return set()


def _sweep(known: dict[int, str]) -> int:
    """Kill and reap processes that fell to the zygote when their parent ended; how many there were."""
    strays = 0
    while left := _children() - set(known):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        strays += len(left)
    return strays


def _warm_numba() -> None:
    """Compile one trivial function, so that a child with a Numba kernel pays for its own compilation alone."""
    with contextlib.suppress(ImportError):
        import numba
        import numpy as np

        def warm(x):
            total = np.float32(0.0)
            for i in range(x.shape[0]):
                total += np.exp(x[i])
            return total

        numba.njit(warm)(np.zeros(2, dtype=np.float32))


def _child_main(sock, arena_fd: int, options: dict, scratch: str, folder: str, readable, programs, denied) -> None:
    """Set up, give up what a candidate must not have, say so, then serve; never returns."""
    import torch

    os.setsid()
    confine.hide_from_siblings()
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    buffer = mmap.mmap(arena_fd, options["nbytes"])
    top = max(os.sysconf("SC_OPEN_MAX"), 1024) if sock.fileno() < 1024 else sock.fileno() + 1
    os.closerange(3, sock.fileno())
    os.closerange(sock.fileno() + 1, min(top, 1 << 16))
    cores = options["core"]
    os.sched_setaffinity(0, {cores} if isinstance(cores, int) else cores)
    if options["alone"]:
        with contextlib.suppress(PermissionError):  # other work on the core should not stand inside a sample
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    _touch_heap(min(_HEAP_SHARE * options["nbytes"], _HEAP_BYTES))
    if options["poison"]:
        ctypes.CDLL(None).mallopt(-6, _POISON)
    torch.set_num_threads(1)
    tempfile.tempdir = folder
    jit = os.path.join(scratch, options["jit"]) if options["jit"] else folder
    if options["jit"] and not options["compiles"] and options["engine"] == "host":
        copy_files(jit, os.path.join(folder, "jit"))  # of its own: shared files would carry messages in their metadata
        jit = os.path.join(folder, "jit")
    os.environ |= {"TMPDIR": folder, "HOME": folder, "NUMBA_CACHE_DIR": jit, "TRITON_CACHE_DIR": jit}
    gpu, devices = None, ()
    if options["engine"] == "cuda":  # a context of its own, before anything is given up
        from kfs.bench import gpu_child

        try:
            gpu = gpu_child.Engine(buffer, jit, folder, warm=os.path.join(scratch, "warm"), compiles=options["compiles"])
        except BaseException as error:
            _answer(sock, CALL_FAILED, text=_words(error))
            os._exit(1)
        readable, devices = [*readable, "/sys"], gpu_child.device_files()
    layers = confine.confine(
        writable=[folder, jit] if options["compiles"] else [folder],
        readable=[*readable, jit],
        memory_bytes=options["memory"],
        program=programs[gpu is not None and options["compiles"]],
        deny=denied | set(options["deny"]),
        devices=devices,
    )
    attempts = _watch(folder, jit)
    stamps = [gpu.setup_ns] if gpu else []
    _answer(sock, OK, stamps, text=json.dumps([[x.name, x.active, x.detail] for x in layers]))
    try:
        _serve(sock, buffer, os.path.join(jit, "candidate.py"), attempts, gpu)
    finally:
        os._exit(1)


def _touch_heap(nbytes: int) -> None:
    """Have memory at hand that was written before: else early calls pay for pages, few in one process and many in the next."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if block := libc.malloc(nbytes):
        first, last = block // mmap.PAGESIZE * mmap.PAGESIZE, -(-(block + nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        if libc.madvise(first, last - first, _POPULATE_WRITE):  # older than Linux 5.14
            ctypes.memset(block, 1, nbytes)
        libc.free(block)


def _answer(sock, code: int, stamps=(), text: str = "") -> None:
    raw = text.encode(errors="replace")[:MAX_TEXT]
    sock.sendall(HEADER.pack(MAGIC, code, len(raw), len(stamps)) + struct.pack(f"<{len(stamps)}q", *stamps) + raw)


def _serve(sock, buffer, path: str, attempts: list[str], gpu=None) -> None:
    """Load and call requests, until the judge kills this process."""
    kernel, ready = None, {}
    while True:
        (n,) = REQUEST.unpack(receive(sock, REQUEST.size))
        body = receive(sock, n)
        request = json.loads(body)
        loading = request["do"] == "load"
        try:
            if gpu is not None:
                code, stamps, text = gpu.serve(request, path)
                _answer(sock, code, stamps, text or "\n".join(attempts))
            elif loading:
                kernel, wrong = _load(request["source"], request["entry"], path)
                _answer(sock, IMPORT_FAILED if wrong else OK, text=wrong)
            else:
                if body not in ready:  # blocks of a case lie where the last ones lay
                    ready = {} if len(ready) >= _LAYOUTS else ready
                    ready[body] = _views(buffer, request["calls"])
                code, stamps, text = _run_calls(kernel, ready[body], request["hold"])
                _answer(sock, code, stamps, text or "\n".join(attempts))
        except MemoryError:
            _answer(sock, NO_MEMORY, text="MemoryError")
        except BaseException as error:
            words = _words(error)
            no_memory = isinstance(error, RuntimeError) and ("can't allocate memory" in words or "out of memory" in words)
            _answer(sock, NO_MEMORY if no_memory else IMPORT_FAILED if loading else CALL_FAILED, text=words)


def _load(source: str, entry: str, path: str):
    """Import the candidate; the kernel, or None and why not."""
    import types

    if not os.path.exists(path):  # the children of one kernel share the file, and with it what Numba compiled
        with open(path, "w") as file:
            file.write(source)
    _keep_compiled(path)
    module = types.ModuleType("candidate")
    module.__file__ = path
    sys.modules["candidate"] = module
    exec(compile(source, path, "exec"), module.__dict__)
    kernel = getattr(module, entry, None)
    return (kernel, "") if callable(kernel) else (None, f"the source defines no function {entry!r}")


def _keep_compiled(path: str) -> None:
    """Have Numba keep what it compiles for the candidate, so that its next child need not compile again."""
    if (dispatcher := sys.modules.get("numba.core.dispatcher")) is None:
        return
    from numba import config
    from numba.core import caching

    config.CACHE_DIR = os.path.dirname(path)
    caching._CacheLocator.get_suitable_cache_subpath = classmethod(lambda cls, source: "numba")  # wherever a copy lies
    caching._SourceFileBackedLocatorMixin.get_source_stamp = lambda self: 0
    load, save = caching.Cache.load_overload, caching.Cache.save_overload
    caching._CacheLocator.ensure_cache_path = _quiet(lambda self: os.makedirs(self.get_cache_path(), exist_ok=True))
    caching.Cache.load_overload, caching.Cache.save_overload = _quiet(load), _quiet(save)  # a timed child may not write
    plain = dispatcher.Dispatcher.__init__

    def cached(self, *args, **kwargs):
        plain(self, *args, **kwargs)
        if self.py_func.__code__.co_filename == path:
            with contextlib.suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.enable_caching()

    dispatcher.Dispatcher.__init__ = cached


def _quiet(function):
    """The function, or None where it raises: a cache that fails costs time and nothing else."""

    def call(*args, **kwargs):
        with contextlib.suppress(Exception):
            return function(*args, **kwargs)

    return call


_PROCESS_EVENTS = {"os.fork", "os.exec", "os.posix_spawn", "os.system", "subprocess.Popen", "os.kill", "os.killpg"}


def _watch(*folders: str) -> list[str]:
    """Note what Python code tries to reach outside its folders: hints for a reader, never a verdict."""
    attempts: list[str] = []
    plain = (*folders, os.devnull)

    def look(event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if not writes or not isinstance(path, str) or os.path.abspath(path).startswith(plain):
                return
            what = f"write {path}"
        elif event.startswith("socket.") or event in _PROCESS_EVENTS:
            what = event
        elif event in ("os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc/"):
            what = f"list {arguments[0]}"
        else:
            return
        if len(attempts) < 8 and what[:80] not in attempts:
            attempts.append(what[:80])

    sys.addaudithook(look)
    return attempts


_PLAIN_TEXT = {
    c.__str__ for c in (BaseException, OSError, KeyError, ImportError, SyntaxError, UnicodeDecodeError, UnicodeEncodeError)
}


def _words(error: BaseException) -> str:
    """The error in words. Its own ``__str__`` may never return, so only those of Python itself are called."""
    kind = type(error)
    texts = all(type(a) is str for a in error.args)
    if kind.__str__ in _PLAIN_TEXT and (texts or kind.__str__ is not BaseException.__str__):
        text = str(error)[:MAX_TEXT]
    else:
        text = " ".join(a if type(a) is str else repr(a) for a in error.args if type(a) in (str, int, float))[:MAX_TEXT]
    return f"{kind.__name__}: {text}"


def _views(buffer, calls) -> list:
    """Tensors of every call's inputs and outputs."""
    return [[[tensor_view(buffer, TensorSlot(*slot)) for slot in part] for part in parts] for parts in calls]


def _run_calls(kernel, views: list, hold: bool) -> tuple[int, list[int], str]:
    """Run, stamp, then check the layout and copy to the slots; ``hold`` keeps outputs, so that a reused buffer shows."""
    import torch

    stamps, held = [], []
    arena = [slot for _, slots in views for slot in slots]
    with torch.inference_mode():
        for inputs, slots in views:
            start = _CLOCK()
            outputs = kernel(*inputs)
            stop = _CLOCK()
            stamps.append(stop - start)
            outputs = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
            if (wrong := layout_fault(outputs, slots) or sharing_fault(outputs, inputs, held + arena)) is not None:
                return BAD_OUTPUT, [], wrong
            for slot, output in zip(slots, outputs, strict=True):
                slot.copy_(output)
            if hold:
                held += outputs
            del outputs, output  # freed here, not inside the next timed call
    return OK, stamps, ""


def layout_fault(outputs: tuple, wants: tuple | list) -> str | None:
    """Why outputs do not have the number, types, shapes, dtypes or layout of ``wants``; None if they do."""
    import torch

    if len(outputs) != len(wants):
        return f"{len(outputs)} outputs, expected {len(wants)}"
    for i, (got, want) in enumerate(zip(outputs, wants, strict=True)):
        if type(got) is not torch.Tensor:
            return f"output {i} is a {type(got).__name__}, expected a plain torch.Tensor"
        if got.layout != torch.strided or got.device != want.device:
            return f"output {i} is a {got.layout} tensor on {got.device}, expected a dense one on {want.device}"
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"output {i} is {got.dtype} {tuple(got.shape)}, expected {want.dtype} {tuple(want.shape)}"
        if not got.is_contiguous():
            return f"output {i} has strides {got.stride()}, expected a contiguous tensor"
    return None


def sharing_fault(outputs: tuple, inputs: list, earlier: list) -> str | None:
    """Which output overlaps an input, another output or one of an earlier call; None if none does."""
    taken = [(x.data_ptr(), x.data_ptr() + x.nbytes, "an input") for x in inputs]
    taken += [(x.data_ptr(), x.data_ptr() + x.nbytes, "another call") for x in earlier]
    for i, y in enumerate(outputs):
        start, stop = y.data_ptr(), y.data_ptr() + y.nbytes
        for low, high, what in taken:
            if start < high and low < stop:
                return f"output {i} shares its memory with {what}"
        taken.append((start, stop, "another output"))
    return None
