"""Processes that run candidate code: a zygote that has imported what kernels need, and killable children forked from it.

The judge (the caller) holds inputs, expected values and statistics. The zygote imports torch and, where it is installed,
Numba, whose first compilation takes seconds; it runs no op, starts no thread and holds no secret. Each child it forks runs one
kernel, pinned to one core with one thread. Inputs lie in shared memory before a block starts; a child stamps each call, copies
its outputs to their slots after the stop stamp, and answers with raw integers in a fixed frame. Nothing a child sends is
unpickled; its standard output goes nowhere and its exit code proves nothing.

The side that is not being timed is stopped, with all its threads.

Not defended here: a child runs as the caller's user, reads its files and network, and shares a process with the clock that
stamps its calls; a descendant that starts a session of its own outlives its child.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from kfs.errors import HarnessError

_HEADER = struct.Struct("<4sIIQQ")  # magic, code, text bytes, n stamps, reserved
_MAGIC = b"kfs1"
_MAX_TEXT = 4000
_MAX_STAMPS = 1 << 16
_REQUEST = struct.Struct("<I")

_CLOCK = time.perf_counter_ns  # bound before any candidate can replace it

OK, IMPORT_FAILED, CALL_FAILED, NO_MEMORY, BAD_OUTPUT = range(5)
# What a child may know of the caller's environment: no tokens, no keys.
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS")

# glibc: keep freed memory, so that outputs past 1 MB do not cost page faults in one process and none in the next.
_WARM_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}


@dataclass(frozen=True)
class TensorSlot:
    """Where a tensor lies in an arena."""

    offset: int
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


@dataclass(frozen=True)
class CallSlots:
    """Inputs and outputs of one call."""

    inputs: tuple[TensorSlot, ...]
    outputs: tuple[TensorSlot, ...]


@dataclass(frozen=True)
class Reply:
    """What a child answered: a code, one duration a call in nanoseconds, and bounded text."""

    code: int
    durations_ns: tuple[int, ...]
    text: str


class ChildDied(Exception):
    """The child went away, broke the protocol or missed its deadline; ``kind`` says which."""

    def __init__(self, kind: str, detail: str):
        super().__init__(detail)
        self.kind, self.detail = kind, detail


class Arena:
    """Shared memory of one child, written and read by the judge through ``view``."""

    def __init__(self, nbytes: int):
        self.nbytes = max(nbytes, mmap.PAGESIZE)
        self.fd = os.memfd_create("kfs-arena")
        os.ftruncate(self.fd, self.nbytes)
        self.map = mmap.mmap(self.fd, self.nbytes)

    def view(self, slot: TensorSlot):
        """The tensor at ``slot``, sharing the arena's memory."""
        return tensor_view(self.map, slot)

    def poison(self, slot: TensorSlot) -> None:
        """Fill ``slot`` with 0xFF bytes (NaN, or -1), so that what was never written cannot pass for an answer."""
        self.map[slot.offset : slot.offset + slot.nbytes] = b"\xff" * slot.nbytes

    def close(self) -> None:
        """Free the memory once no view is left."""
        with contextlib.suppress(BufferError):
            self.map.close()
        os.close(self.fd)


def tensor_view(buffer, slot: TensorSlot):
    """Tensor of ``slot`` over a writable buffer."""
    import torch

    dtype = getattr(torch, slot.dtype)
    if slot.nbytes == 0:
        return torch.empty(slot.shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype, count=slot.nbytes // dtype.itemsize, offset=slot.offset).view(slot.shape)


def _receive(sock: socket.socket, n: int, deadline: float | None = None) -> bytes:
    """Exactly ``n`` bytes, or ChildDied."""
    parts = bytearray()
    while len(parts) < n:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([sock], [], [], left)[0]:
                raise ChildDied("timeout", "no answer before the deadline")
        try:
            part = sock.recv(n - len(parts))
        except ConnectionError:
            part = b""
        if not part:
            raise ChildDied("crash", "the process ended without an answer")
        parts += part
    return bytes(parts)


class Child:
    """One kernel in one process, stopped between requests. Use through ``Zygote.spawn``; ``close`` kills it."""

    def __init__(self, zygote: Zygote, pid: int, sock: socket.socket, arena: Arena, scratch: str):
        self._zygote, self.pid, self._sock, self.arena, self._scratch = zygote, pid, sock, arena, scratch
        self._closed = False
        self._status: int | None = None

    def load(self, source: str, entry: str, deadline_s: float) -> Reply:
        """Import the kernel's source in the child."""
        return self._ask({"do": "load", "source": source, "entry": entry}, deadline_s)

    def call(self, calls: list[CallSlots], deadline_s: float) -> Reply:
        """Run the kernel once for each element of ``calls``, in order; one duration each."""
        layout = [[[(s.offset, s.shape, s.dtype, s.nbytes) for s in part] for part in (c.inputs, c.outputs)] for c in calls]
        reply = self._ask({"do": "call", "calls": layout}, deadline_s)
        if reply.code == OK and len(reply.durations_ns) != len(calls):
            raise ChildDied("protocol", f"{len(reply.durations_ns)} durations for {len(calls)} calls")
        return reply

    def _ask(self, request: dict, deadline_s: float) -> Reply:
        deadline = time.monotonic() + deadline_s
        body = json.dumps(request).encode()
        self._signal(signal.SIGCONT)
        try:
            self._sock.sendall(_REQUEST.pack(len(body)) + body)
            magic, code, n_text, n_stamps, _ = _HEADER.unpack(_receive(self._sock, _HEADER.size, deadline))
            if magic != _MAGIC or code > BAD_OUTPUT or n_text > _MAX_TEXT or n_stamps > _MAX_STAMPS:
                raise ChildDied("protocol", "the answer is not a frame of the protocol")
            stamps = struct.unpack(f"<{n_stamps}q", _receive(self._sock, 8 * n_stamps, deadline))
            text = _receive(self._sock, n_text, deadline).decode(errors="replace")
        except ChildDied as died:
            if died.kind == "crash":
                raise ChildDied("crash", self._end()) from died
            raise
        except OSError as error:
            raise ChildDied("crash", self._end()) from error
        self._signal(signal.SIGSTOP)
        return Reply(code, stamps, text)

    def _signal(self, number: int) -> None:
        """Send a signal to the process and its group, if they are still there."""
        for send in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                send(self.pid, number)

    def _end(self) -> str:
        """Kill what is left, reap it, and say in words how it ended."""
        if self._status is None:
            for _ in range(20):  # its socket is closed: give it a moment to end by itself
                if self._zygote.ended(self.pid):
                    break
                time.sleep(0.01)
            self._signal(signal.SIGKILL)
            self._status = self._zygote.reap(self.pid)
        if os.WIFSIGNALED(self._status):
            number = os.WTERMSIG(self._status)
            name = signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
            return f"killed by {name}"
        return f"exited with status {os.waitstatus_to_exitcode(self._status)} without an answer"

    def close(self) -> None:
        """Kill the process and its group, free its memory and scratch folder."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._status is None:
                self._signal(signal.SIGKILL)
                self._status = self._zygote.reap(self.pid)
        finally:
            self._sock.close()
            self.arena.close()
            shutil.rmtree(self._scratch, ignore_errors=True)


class Zygote:
    """A process that imported torch and forks children on request. Context manager."""

    def __init__(self):
        _sweep_scratch()
        self._scratch = Path(tempfile.mkdtemp(prefix=f"kfs-{os.getpid()}-"))
        self._spawned = 0
        ours, theirs = socket.socketpair()
        environment = {k: v for k, v in os.environ.items() if k in _ENVIRONMENT}
        environment |= dict.fromkeys(_THREAD_VARIABLES, "1") | _WARM_ALLOCATOR
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(self._scratch), "TMPDIR": str(self._scratch)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from kfs.bench.sandbox import zygote_main; zygote_main({theirs.fileno()})"],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt from the keyboard is the judge's to handle
        )
        theirs.close()
        self._sock = ours
        self._request(b"?", "start")

    def spawn(self, arena_bytes: int, core: int, memory_bytes: int, *, alone: bool) -> Child:
        """Fork a child with an arena of its own, pinned to ``core``; real-time priority there if ``alone`` and permitted.

        Raises
        ------
        HarnessError
            If the zygote is gone or cannot fork: never the candidate's fault.
        """
        arena = Arena(arena_bytes)
        ours, theirs = socket.socketpair()
        self._spawned += 1
        scratch = self._scratch / str(self._spawned)
        scratch.mkdir()
        options = {"nbytes": arena.nbytes, "core": core, "memory": memory_bytes, "scratch": str(scratch), "alone": alone}
        try:
            socket.send_fds(self._sock, [b"F" + json.dumps(options).encode()], [theirs.fileno(), arena.fd])
            pid = int(self._answer("fork"))
        except (OSError, HarnessError) as error:
            ours.close()
            arena.close()
            raise HarnessError(f"the zygote cannot fork a child: {error}") from error
        finally:
            theirs.close()
        return Child(self, pid, ours, arena, str(scratch))

    def reap(self, pid: int) -> int:
        """Wait for a child that was killed or died; its wait status."""
        return int(self._request(f"W{pid}".encode(), "reap a child"))

    def ended(self, pid: int) -> bool:
        """Whether a child is dead already."""
        return self._request(f"E{pid}".encode(), "look at a child") == "1"

    def _request(self, message: bytes, what: str) -> str:
        try:
            self._sock.sendall(message)
        except OSError as error:
            raise HarnessError(f"the zygote is gone, cannot {what}: {error}") from error
        return self._answer(what)

    def _answer(self, what: str) -> str:
        if not select.select([self._sock], [], [], 120)[0]:
            raise HarnessError(f"the zygote does not answer (asked to {what})")
        answer = self._sock.recv(64).decode()
        if not answer or answer.startswith("!"):
            raise HarnessError(f"the zygote failed to {what}: {answer[1:] or 'it is gone'}")
        return answer

    def close(self) -> None:
        """End the zygote."""
        self._sock.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _sweep_scratch() -> None:
    """Remove scratch folders of judges that were killed."""
    for folder in Path(tempfile.gettempdir()).glob("kfs-[0-9]*-*"):
        if not Path(f"/proc/{folder.name.split('-')[1]}").exists():
            shutil.rmtree(folder, ignore_errors=True)


# What follows runs in the zygote and its children.


def zygote_main(fd: int) -> None:
    """Serve fork requests on socket ``fd`` until it closes."""
    import torch  # noqa: F401  (children inherit the import)

    _warm_numba()
    sock = socket.socket(fileno=fd)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with the judge
    statuses: dict[int, int] = {}
    while True:
        message, fds, _, _ = socket.recv_fds(sock, 4096, 2)
        if not message:
            os._exit(0)
        if message[:1] == b"F":
            try:
                pid = os.fork()
            except OSError as error:
                sock.sendall(f"!{error}".encode()[:60])
                continue
            if pid == 0:
                sock.close()
                _child_main(socket.socket(fileno=fds[0]), fds[1], json.loads(message[1:]))
            for each in fds:
                os.close(each)
            sock.sendall(str(pid).encode())
        elif message[:1] in (b"W", b"E"):
            pid = int(message[1:])
            if pid not in statuses:
                found, status = os.waitpid(pid, 0 if message[:1] == b"W" else os.WNOHANG)
                if found:
                    statuses[pid] = status
            if message[:1] == b"E":
                sock.sendall(b"1" if pid in statuses else b"0")
            else:
                sock.sendall(str(statuses.pop(pid)).encode())
        else:
            sock.sendall(b"ready")


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


def _child_main(sock: socket.socket, arena_fd: int, options: dict) -> None:
    """Serve load and call requests; never returns."""
    import types

    import torch

    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.chdir(options["scratch"])
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    os.sched_setaffinity(0, {options["core"]})
    if options["alone"]:
        with contextlib.suppress(PermissionError):  # other work on the core should not stand inside a sample
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    resource.setrlimit(resource.RLIMIT_AS, (options["memory"], options["memory"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    torch.set_num_threads(1)
    buffer = mmap.mmap(arena_fd, options["nbytes"])
    kernel = None

    def answer(code: int, stamps=(), text: str = "") -> None:
        raw = text.encode(errors="replace")[:_MAX_TEXT]
        sock.sendall(_HEADER.pack(_MAGIC, code, len(raw), len(stamps), 0) + struct.pack(f"<{len(stamps)}q", *stamps) + raw)

    while True:
        (n,) = _REQUEST.unpack(_receive(sock, _REQUEST.size))
        request = json.loads(_receive(sock, n))
        try:
            if request["do"] == "load":
                with open("candidate.py", "w") as file:
                    file.write(request["source"])
                module = types.ModuleType("candidate")
                module.__file__ = os.path.abspath("candidate.py")
                sys.modules["candidate"] = module
                exec(compile(request["source"], module.__file__, "exec"), module.__dict__)
                kernel = getattr(module, request["entry"], None)
                if not callable(kernel):
                    answer(IMPORT_FAILED, text=f"the source defines no function {request['entry']!r}")
                    continue
                answer(OK)
            else:
                answer(*_run_calls(kernel, buffer, request["calls"]))
        except MemoryError:
            answer(NO_MEMORY, text="MemoryError")
        except BaseException as error:
            code = IMPORT_FAILED if request["do"] == "load" else CALL_FAILED
            if isinstance(error, RuntimeError) and "can't allocate memory" in _words(error):
                code = NO_MEMORY
            answer(code, text=f"{type(error).__name__}: {_words(error)}")


def _words(error: BaseException) -> str:
    """The error's text; its own ``__str__`` may fail."""
    try:
        return str(error)[:_MAX_TEXT]
    except BaseException:
        return "(its text cannot be shown)"


def _run_calls(kernel, buffer, calls) -> tuple[int, list[int], str]:
    import torch

    views = [[[tensor_view(buffer, TensorSlot(o, tuple(s), d, n)) for o, s, d, n in part] for part in parts] for parts in calls]
    stamps = []
    with torch.inference_mode():
        for inputs, slots in views:
            start = _CLOCK()
            outputs = kernel(*inputs)
            stop = _CLOCK()
            stamps.append(stop - start)
            outputs = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
            if (wrong := layout_fault(outputs, slots)) is not None:
                return BAD_OUTPUT, [], wrong
            for slot, output in zip(slots, outputs, strict=True):
                slot.copy_(output)
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
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"output {i} is {got.dtype} {tuple(got.shape)}, expected {want.dtype} {tuple(want.shape)}"
        if not got.is_contiguous():
            return f"output {i} has strides {got.stride()}, expected a contiguous tensor"
    return None
