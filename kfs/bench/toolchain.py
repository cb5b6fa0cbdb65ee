"""The CUDA compilers and binary tools that need no GPU: where they are, which versions, and running one so that it ends.

Every tool is handed a stranger's text or what was made of it: each runs in a process group of its own with a deadline, a limit of
memory and of what it may write, and its output is read as bytes.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from kfs.bench import nvrtc_worker
from kfs.errors import HarnessError, MissingDependencyError

MAX_OUTPUT = 256 << 20
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")
_INSTALL = "install it with: pip install 'kfs[gpu]'"


class DeadlinePassed(Exception):
    """A tool was killed at its deadline; the message names it."""


def _triton_folders() -> list[str]:
    """Where Triton's wheel keeps what it brings of CUDA; empty without Triton."""
    spec = importlib.util.find_spec("triton")
    found = [os.path.join(f, "backends", "nvidia") for f in (spec.submodule_search_locations or ())] if spec else []
    return [f for f in found if os.path.isdir(f)]


@cache
def tool(name: str) -> str:
    """Path of ``ptxas``, ``ptxas-blackwell`` or ``nvdisasm``: those in Triton's wheel, else those on the path.

    Raises
    ------
    MissingDependencyError
        If there is none.
    """
    for folder in _triton_folders():
        if os.path.isfile(path := os.path.join(folder, "bin", name)):
            return path
    if (found := shutil.which(name)) is None:
        raise MissingDependencyError(f"{name} is neither in Triton's wheel nor on the path; {_INSTALL}")
    return found


@cache
def tool_version(name: str) -> str:
    """Version a tool states, for example ``12.8.93``."""
    text = subprocess.run([tool(name), "--version"], capture_output=True, text=True, timeout=60).stdout
    if (match := re.search(r"V(\d+\.\d+\.\d+)", text)) is None:
        raise HarnessError(f"{tool(name)} --version does not name a version: {text[:200]!r}")
    return match[1]


def package_version(name: str) -> str:
    """Version of an installed package; MissingDependencyError where it is absent."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingDependencyError(f"{name} is not installed; {_INSTALL}") from error


@cache
def include_folders() -> tuple[str, ...]:
    """Folders of the CUDA headers a kernel may include: the runtime's, those of CCCL (cub, libcu++), and Triton's copy.

    The last is for ``crt/mma.h``, which ``mma.h`` needs and which wheels of the runtime lack.
    """
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError as error:
        raise MissingDependencyError(f"cuda-python is not installed; {_INSTALL}") from error
    folder = find_nvidia_header_directory("cudart")
    if folder is None:
        raise MissingDependencyError(f"the CUDA runtime's headers are missing (nvidia-cuda-runtime); {_INSTALL}")
    found = [folder, os.path.join(folder, "cccl"), *(os.path.join(f, "include") for f in _triton_folders())]
    return tuple(f for f in found if os.path.isdir(f))


def nvrtc_options(arch: str) -> list[str]:
    """How a CUDA C++ kernel is compiled, here and for measuring: C++17, NVRTC's defaults, the CUDA headers."""
    return [f"--gpu-architecture={arch}", "--std=c++17", *(f"--include-path={f}" for f in include_folders())]


def run_tool(
    argv: list[str], *, stdin: bytes = b"", deadline: float, memory_bytes: int | None = None
) -> tuple[int, bytes, bytes]:
    """Run a program to its end or to the deadline; its return code, standard output and standard error.

    Parameters
    ----------
    argv : list of str
    stdin : bytes, optional
    deadline : float
        On the clock of ``time.monotonic``.
    memory_bytes : int, optional
        Limit of its address space.

    Raises
    ------
    DeadlinePassed
        If it had to be killed.
    """

    def limits():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_OUTPUT, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        if memory_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))

    environment = {k: v for k, v in os.environ.items() if k in _ENVIRONMENT}
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        process = subprocess.Popen(
            argv, stdin=given, stdout=out, stderr=err, env=environment, start_new_session=True, preexec_fn=limits
        )
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise DeadlinePassed(f"{Path(argv[0]).name} did not end before the deadline") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


def run_nvrtc(source: str, arch: str, *, deadline: float, memory_bytes: int) -> tuple[bool, str, bytes]:
    """Compile CUDA C++ in a process of its own; whether it succeeded, the log, the binary.

    Raises
    ------
    DeadlinePassed
        If it had to be killed.
    HarnessError
        If NVRTC could not be started: never the source's fault.
    """
    root = os.path.dirname(include_folders()[0])
    request = {
        "source": source,
        "options": [*nvrtc_options(arch), "--ptxas-options=-v"],
        "folders": [root, *include_folders(), "/lib", "/lib64", "/usr/lib"],
        "memory_bytes": memory_bytes,
    }
    argv = [sys.executable, "-m", "kfs.bench.nvrtc_worker"]
    try:
        code, out, err = run_tool(argv, stdin=json.dumps(request).encode(), deadline=deadline)
    except DeadlinePassed:
        raise DeadlinePassed("NVRTC did not end before the deadline") from None
    frame = nvrtc_worker.FRAME
    if code < 0 or (code and b"MemoryError" in err):
        return False, f"NVRTC was ended by {signal.Signals(-code).name if code < 0 else 'a lack of memory'}", b""
    if code or len(out) < frame.size:
        raise HarnessError(f"NVRTC could not be run: {err.decode(errors='replace').strip()[-500:]}")
    magic, result, n_log, n_binary = frame.unpack_from(out)
    if magic != nvrtc_worker.MAGIC or len(out) != frame.size + n_log + n_binary:
        raise HarnessError("the process that runs NVRTC answered with something else than its frame")
    log = out[frame.size : frame.size + n_log].decode(errors="replace")
    for i, folder in enumerate(include_folders()):
        log = log.replace(folder, ("<cuda>", "<cccl>", "<crt>")[min(i, 2)])
    return result == 0, log, out[frame.size + n_log :]
