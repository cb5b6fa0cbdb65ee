"""The judge's side of the sandbox: a zygote that has imported what kernels need, and killable children forked from it.

The judge (the caller) holds inputs, expected values and statistics, and never imports candidate code; ``kfs.bench.child`` is what
runs on the other side. Inputs lie in shared memory before a request; an answer is raw integers and bounded text in a fixed frame.
Nothing a child sends is unpickled; its standard output goes nowhere and its exit code proves nothing. A child that is not asked
anything is stopped, with all its threads; the judge times every request from outside. The isolation layers are those of
``kfs.bench.confine``; ``Zygote.layers`` names the ones that hold on this system.

Not defended: holes of the Linux kernel itself; reading what the allow-list of ``confine.readable_paths`` holds (Python, its
packages, system libraries, /etc); side channels through caches shared with the judge; where seccomp is missing, descendants run
until their child is reaped (they are found and killed then, and the kernel is rejected); where Landlock and namespaces are both
missing, files and network of the caller's user; in a container that denies real-time scheduling, other work on the core. The
stamps of single calls are made in the candidate's process: ``kfs.bench.timing`` bounds them by the judge's clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kfs.bench.arena import Arena
from kfs.bench.child import (
    BAD_OUTPUT,
    HEADER,
    MAGIC,
    MAX_STAMPS,
    MAX_TEXT,
    OK,
    REQUEST,
    CallSlots,
)
from kfs.bench.confine import Layer
from kfs.errors import HarnessError

# What a child may know of the caller's environment: no tokens, no keys.
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
_GPU_ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CC", "TRITON_LIBCUDA_PATH")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_ONE_THREAD = {"OMP_THREAD_LIMIT": "1", "OMP_WAIT_POLICY": "PASSIVE"}  # whatever the kernel asks for

# glibc: keep freed memory, so that outputs past 1 MB do not cost page faults in one process and none in the next.
_WARM_ALLOCATOR = {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}

_RESTLESS_NS = 500_000


@dataclass(frozen=True)
class Reply:
    """What a child answered, and what the judge saw of it from outside."""

    code: int
    durations_ns: tuple[int, ...]
    """One a call, by the child's own clock."""
    text: str
    elapsed_ns: int = 0
    """How long the judge waited."""
    cpu_ns: int = 0
    """CPU time the kernel accounts to the process, all its threads, over the request."""
    device_ns: tuple[int, ...] = ()
    """GPU only: one a call, time between events."""


class ChildDied(Exception):
    """The child went away, broke the protocol or missed its deadline; ``kind`` says which."""

    def __init__(self, kind: str, detail: str):
        super().__init__(detail)
        self.kind, self.detail = kind, detail


class Child:
    """One kernel in one process, stopped between requests. Made by ``Zygote.spawn``; ``close`` kills it."""

    def __init__(self, zygote: Zygote, number: int, pidfd: int, sock: socket.socket, arena: Arena, memory_bytes: int | None):
        self._zygote, self._number, self._pid, self._pidfd = zygote, number, _pid_of(pidfd), pidfd
        self._sock, self.arena = sock, arena
        self._closed = False
        self._status: int | None = None
        self.memory_bytes = memory_bytes
        self.memory_limit: int | None = None
        self.layers: list[Layer] = []
        self.strays = 0
        self._rest_ns = 0  # CPU time when it last stopped
        self._asked = self._restless = 0
        self.setup_ns = 0
        """GPU only: how long it took to make a context."""

    def load(self, source: str, entry: str, deadline_s: float, *, language: str = "python") -> Reply:
        """Import the kernel's source in the child."""
        return self.ask({"do": "load", "source": source, "entry": entry, "language": language}, deadline_s)

    def call(self, calls: list[CallSlots], deadline_s: float, *, hold: bool = False, do: str = "call") -> Reply:
        """Run the kernel once for each element of ``calls``, in order; one duration each.

        With ``hold`` outputs stay alive until the last call, so that a kernel which returns one buffer twice is found. On a GPU
        ``do`` may be ``graph``, and outputs stay there until ``collect``.
        """
        layout = [[[s.fields() for s in part] for part in (c.inputs, c.outputs)] for c in calls]
        reply = self.ask({"do": do, "calls": layout, "hold": hold}, deadline_s)
        if self.setup_ns:
            reply = replace(reply, durations_ns=reply.durations_ns[: len(calls)], device_ns=reply.durations_ns[len(calls) :])
        if reply.code == OK and len(reply.durations_ns) != len(calls):
            raise ChildDied("protocol", f"{len(reply.durations_ns)} durations for {len(calls)} calls")
        return reply

    def collect(self, deadline_s: float) -> Reply:
        """GPU only: have what the last block read and wrote copied to the arena."""
        return self.ask({"do": "collect"}, deadline_s)

    def ask(self, request: dict, deadline_s: float) -> Reply:
        """Send a request, let the child run until it answers, stop it again.

        Raises
        ------
        ChildDied
            If it ends, breaks the protocol or misses the deadline.
        """
        body = json.dumps(request).encode()
        self._asked += 1
        if self._rest_ns and self.cpu_ns() - self._rest_ns > _RESTLESS_NS:  # once in a while a hypervisor's pause looks like it
            self._restless += 1
            if self._restless >= 5 and 4 * self._restless >= self._asked:
                raise ChildDied("protocol", f"the process ran {self._restless} times while it was stopped")
        try:
            self._sock.settimeout(deadline_s)
            if len(body) > 1 << 16:  # more than a socket holds: it must run to read it
                self._signal(signal.SIGCONT)
            self._sock.sendall(REQUEST.pack(len(body)) + body)
            start, cpu = time.perf_counter_ns(), self.cpu_ns()
            self._signal(signal.SIGCONT)
            code, stamps, text, elapsed = self._reply(start, time.monotonic() + deadline_s)
            self._stop()
            reply = Reply(code, stamps, text, elapsed, self._rest_ns - cpu)
        except TimeoutError as error:
            raise ChildDied("timeout", f"no answer within {deadline_s:g} s") from error
        except (ChildDied, OSError) as error:
            if isinstance(error, ChildDied) and error.kind != "crash":
                raise
            raise ChildDied("crash", self._end()) from error
        return reply

    def _stop(self) -> None:
        """Stop the process and all its threads, and read its CPU time, which the kernel knows exactly only then."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), open(f"/proc/{self._pid}/stat", "rb") as file:
                if file.read().rpartition(b") ")[2][:1] in b"TtZX":
                    break
                continue
            break
        self._rest_ns = self.cpu_ns()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def cpu_ns(self) -> int:
        """CPU time of the process so far, nanoseconds."""
        with contextlib.suppress(OSError):
            return time.clock_gettime_ns((~self._pid << 3) | 2)  # CPUCLOCK_SCHED of another process
        return 0

    def _reply(self, start: int, deadline: float) -> tuple[int, tuple[int, ...], str, int]:
        head = self._receive(HEADER.size, deadline)
        elapsed = time.perf_counter_ns() - start
        magic, code, n_text, n_stamps = HEADER.unpack(head)
        if magic != MAGIC or code > BAD_OUTPUT or n_text > MAX_TEXT or n_stamps > MAX_STAMPS:
            raise ChildDied("protocol", "the answer is not a frame of the protocol")
        stamps = struct.unpack(f"<{n_stamps}q", self._receive(8 * n_stamps, deadline))
        text = self._receive(n_text, deadline).decode(errors="replace")
        return code, stamps, "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text), elapsed

    def _receive(self, n: int, deadline: float) -> bytes:
        parts = bytearray()
        while len(parts) < n:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._sock], [], [], left)[0]:
                raise TimeoutError
            part = self._sock.recv(n - len(parts))
            if not part:
                raise ChildDied("crash", "")
            parts += part
        return bytes(parts)

    def hello(self) -> None:
        """Read the child's first frame: which layers hold. Sent before any candidate code is there."""
        try:
            code, stamps, text, _ = self._reply(0, time.monotonic() + 60)
            if code != OK:
                raise HarnessError(f"a child could not be set up: {text}")
            self.layers = [Layer(*x) for x in json.loads(text)]
            self.setup_ns = stamps[0] if stamps else 0
        except (ChildDied, TimeoutError, ValueError) as error:
            raise HarnessError(f"a child could not be set up: {self._end()}") from error
        if self.memory_bytes is not None and (size := self.memory().get("VmSize")):
            self.memory_limit = size + self.memory_bytes
        self._stop()

    def busy_threads_ns(self, pause_s: float = 0.003) -> int:
        """CPU time that threads other than the main one spend while the kernel is not being called, over ``pause_s``."""
        if self.threads() < 2:
            return 0
        self._signal(signal.SIGCONT)
        before = self._thread_times()
        time.sleep(pause_s)
        after = self._thread_times()
        self._stop()
        return sum(max(ns - before.get(tid, 0), 0) for tid, ns in after.items())

    def threads(self) -> int:
        """Threads the process has now."""
        with contextlib.suppress(OSError):
            return len(os.listdir(f"/proc/{self._pid}/task"))
        return 0

    def _thread_times(self) -> dict[str, int]:
        times = {}
        with contextlib.suppress(OSError):
            for tid in os.listdir(f"/proc/{self._pid}/task"):
                if tid != str(self._pid):
                    with contextlib.suppress(OSError), open(f"/proc/{self._pid}/task/{tid}/schedstat") as file:
                        times[tid] = int(file.read().split()[0])
        return times

    def memory(self) -> dict[str, int]:
        """``VmPeak`` and ``RssAnon`` of the process, bytes; empty where /proc does not say."""
        with contextlib.suppress(OSError), open(f"/proc/{self._pid}/status") as file:
            rows = (line.split() for line in file)
            return {r[0][:-1]: int(r[1]) << 10 for r in rows if r[0] in ("VmPeak:", "RssAnon:", "VmSize:")}
        return {}

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def _end(self) -> str:
        """Kill what is left, reap it, and say in words how it ended."""
        if self._status is None:
            select.select([self._pidfd], [], [], 0.2)  # its socket is closed: give it a moment to end by itself
            self._reap()
        if os.WIFSIGNALED(self._status):
            number = os.WTERMSIG(self._status)
            name = signal.Signals(number).name if number in list(signal.Signals) else f"signal {number}"
            return f"killed by {name}"
        return f"exited with status {os.waitstatus_to_exitcode(self._status)} without an answer"

    def _reap(self) -> None:
        self._signal(signal.SIGKILL)
        self._status, self.strays = self._zygote.reap(self._number)

    def close(self) -> int:
        """Kill the process, free its memory and scratch folder; how many descendants it left behind."""
        if not self._closed:
            self._closed = True
            try:
                if self._status is None:
                    self._reap()
            finally:
                os.close(self._pidfd)
                self._sock.close()
                self.arena.close()
        return self.strays


class Zygote:
    """A process that imported torch and forks children on request. Context manager.

    Parameters
    ----------
    deny : iterable of str
        Isolation layers to go without, for tests; see ``kfs.bench.confine.LAYERS``.
    engine : str
        What its children run kernels on: host or cuda.

    Attributes
    ----------
    layers : list of kfs.bench.confine.Layer
        Which layers hold here, after the first child.
    """

    def __init__(self, *, deny: Iterable[str] = (), engine: str = "host"):
        self._engine, self._lock = engine, threading.Lock()
        _sweep_scratch()
        self._scratch = Path(tempfile.mkdtemp(prefix=f"kfs-{os.getpid()}-"))
        self._spawned = 0
        ours, theirs = socket.socketpair()
        wanted = _ENVIRONMENT + (_GPU_ENVIRONMENT if engine == "cuda" else ())
        environment = {k: v for k, v in os.environ.items() if k in wanted}
        environment |= dict.fromkeys(_THREAD_VARIABLES, "1") | _ONE_THREAD | _WARM_ALLOCATOR
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(self._scratch), "TMPDIR": str(self._scratch)}
        arguments = f"{theirs.fileno()}, {str(self._scratch)!r}, {sorted(deny)!r}, {engine!r}"
        begin = "import gc; gc.disable()"  # a fifth of the time imports take; the zygote turns it on again
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"{begin}; from kfs.bench.child import zygote_main; zygote_main({arguments})"],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt from the keyboard is the judge's to handle
        )
        theirs.close()
        self._sock = ours
        self._broken = self._numba = False
        self._own_layers = [Layer(*x) for x in json.loads(self._request(b"?", "start"))]
        self.layers = list(self._own_layers)

    def spawn(
        self,
        arena_bytes: int,
        core: int | list[int],
        memory_bytes: int | None,
        *,
        alone: bool,
        jit: str = "",
        compiles: bool = False,
        poison: bool = False,
        deny: Iterable[str] = (),
        wait: bool = True,
    ) -> Child:
        """Fork a child with an arena of its own, pinned to ``core``.

        Parameters
        ----------
        arena_bytes : int
        core : int or list of int
        memory_bytes : int or None
            Address space a kernel may add.
        alone : bool
            Ask for real-time priority on the core.
        jit : str
            Name of the folder of compiled code that children of one kernel share; empty for none.
        compiles : bool
            Whether this child may write there.
        poison : bool
            Fill fresh memory with a pattern, for checks that are not timed.
        deny : iterable of str
            Layers this child goes without, besides the zygote's.
        wait : bool
            False: return at once; call ``Child.hello`` before anything else.

        Raises
        ------
        HarnessError
            If the zygote is gone or cannot fork: never the candidate's fault.
        """
        arena = Arena(arena_bytes)
        ours, theirs = socket.socketpair()
        with self._lock:
            self._spawned += 1
            number = self._spawned
        options = {"number": number, "nbytes": arena.nbytes, "core": core, "memory": memory_bytes, "alone": alone}
        options |= {"jit": jit, "compiles": compiles, "poison": poison, "deny": sorted(deny), "engine": self._engine}
        try:
            with self._lock:
                socket.send_fds(self._sock, [b"F" + json.dumps(options).encode()], [theirs.fileno(), arena.fd])
                number, fds = self._answer("fork", fds=1)
        except (OSError, HarnessError) as error:
            ours.close()
            arena.close()
            raise HarnessError(f"the zygote cannot fork a child: {error}") from error
        finally:
            theirs.close()
        child = Child(self, int(number), fds[0], ours, arena, memory_bytes)
        return self.greet(child) if wait else child

    def greet(self, child: Child) -> Child:
        """Wait until a child that was spawned is set up."""
        try:
            child.hello()
        except HarnessError:
            child.close()
            raise
        self.layers = self._own_layers + child.layers
        return child

    def reap(self, number: int) -> tuple[int, int]:
        """Wait for a child that was killed or died; its wait status, and how many descendants it left behind."""
        status, strays = self._request(f"W{number}".encode(), "reap a child").split()
        return int(status), int(strays)

    def warm_numba(self) -> None:
        """Import Numba, once, and have it compile something: later children need not."""
        if not self._numba:
            self._request(b"N", "import Numba")
            self._numba = True

    def forget(self, jit: str) -> None:
        """Remove a kernel's folder of compiled code."""
        self._request(b"D" + jit.encode(), "remove compiled code")

    def _request(self, message: bytes, what: str) -> str:
        with self._lock:
            if self._broken:
                raise HarnessError(f"a request to the zygote was interrupted, cannot {what}: open the device again")
            self._broken = True  # until the answer is in: the next request would take it for its own
            try:
                self._sock.sendall(message)
            except OSError as error:
                raise HarnessError(f"the zygote is gone, cannot {what}: {error}") from error
            answer = self._answer(what)[0]
            self._broken = False
        return answer

    def _answer(self, what: str, fds: int = 0) -> tuple[str, list[int]]:
        if not select.select([self._sock], [], [], 120)[0]:
            raise HarnessError(f"the zygote does not answer (asked to {what})")
        message, found, _, _ = socket.recv_fds(self._sock, 4096, fds)
        answer = message.decode()
        if not answer or answer.startswith("!"):
            raise HarnessError(f"the zygote failed to {what}: {answer[1:] or 'it is gone'}")
        return answer, found

    def close(self) -> None:
        """End the zygote and with it all its children."""
        self._sock.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _pid_of(pidfd: int) -> int:
    """The process behind a pidfd, as this process's /proc numbers it."""
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("Pid:")), 0)


def _sweep_scratch() -> None:
    """Remove scratch folders of judges that were killed."""
    for folder in Path(tempfile.gettempdir()).glob("kfs-[0-9]*-*"):
        if not Path(f"/proc/{folder.name.split('-')[1]}").exists():
            shutil.rmtree(folder, ignore_errors=True)
