"""``kfs doctor``: what this machine can do, what is missing, and the command that mends it. Changes nothing."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    what: str
    state: str
    """ok, absent (optional and not there) or broken (needed and not there)."""
    detail: str
    mend: str = ""
    """Command or step that changes it; empty where there is nothing to mend."""


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Register the verb ``doctor``."""
    verb = verbs.add_parser("doctor", help="what this machine can do, what is missing and how to mend it", description=__doc__)
    verb.add_argument("--json", action="store_true", help="print findings as JSON")
    verb.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    findings = examine()
    if args.json:
        print(json.dumps([asdict(f) for f in findings], indent=1))
    else:
        width = max(len(f.what) for f in findings)
        for f in findings:
            mark = {"ok": "ok    ", "absent": "absent", "broken": "BROKEN"}[f.state]
            print(f"{mark}  {f.what:{width}}  {f.detail}")
            if f.mend:
                print(f"        {'':{width}}  -> {f.mend}")
    return 1 if any(f.state == "broken" for f in findings) else 0


def examine() -> list[Finding]:
    """Look at everything kfs can use; cheap enough to run any time (a few seconds, most of it importing torch)."""
    return [*_python(), *_packages(), *_torch(), *_compilers(), *_data(), *_sandbox(), *_machine()]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _python() -> list[Finding]:
    enough = sys.version_info >= (3, 11)
    mend = "" if enough else "install Python 3.11 or newer and run `make setup PYTHON=...`"
    return [Finding("python", "ok" if enough else "broken", f"{platform.python_version()}, kfs {_version('kfs')}", mend)]


def _packages() -> list[Finding]:
    groups = {
        "notebook runner": (("papermill", "nbconvert", "ipykernel", "hydra-core"), "make setup"),
        "jupyterlab": (("jupyterlab",), "pip install -e '.[lab]' -c constraints.txt"),
        "language model": (("transformers", "gguf", "openai", "safetensors"), "pip install -e '.[lm]' -c constraints.txt"),
        "cuda python": (("cuda-bindings", "cuda-core", "nvidia-cuda-nvrtc"), "pip install -e '.[gpu]' -c constraints.txt"),
        "triton": (("triton",), "pip install -e '.[gpu]' -c constraints.txt"),
        "vllm": (("vllm",), "pip install -e '.[vllm]' in an environment of its own (it brings a torch of its own)"),
    }
    found = []
    for what, (packages, mend) in groups.items():
        versions = {p: _version(p) for p in packages}
        missing = [p for p, v in versions.items() if v is None]
        detail = ", ".join(f"{p} {v}" for p, v in versions.items() if v) or "not installed"
        if missing and len(missing) < len(packages):
            detail += f"; missing: {', '.join(missing)}"
        state = "ok" if not missing else "broken" if mend == "make setup" else "absent"
        found.append(Finding(what, state, detail, mend if missing else ""))
    return found


def _torch() -> list[Finding]:
    try:
        import torch
    except ImportError as error:
        return [Finding("torch", "broken", f"cannot be imported: {error}", "make setup")]
    found = [Finding("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads")]
    if torch.cuda.is_available():
        found += [
            Finding(f"gpu {i}", "ok", f"{torch.cuda.get_device_name(i)}, CUDA {torch.version.cuda}")
            for i in range(torch.cuda.device_count())
        ]
    else:
        why = "this torch is a CPU build" if torch.version.cuda is None else "no usable driver or device"
        found.append(Finding("gpu", "absent", f"none: {why}", "not needed for `make study` and `make test`"))
    return found


def _compilers() -> list[Finding]:
    found = []
    for name, needed_for in (("gcc", "Triton's launcher"), ("nvcc", "nothing: CUDA C++ is compiled by NVRTC")):
        path = shutil.which(name)
        state = "ok" if path else "absent"
        found.append(
            Finding(name, state, path or f"not found; used for {needed_for}", "" if path or name == "nvcc" else "install gcc")
        )
    return found


def _data() -> list[Finding]:
    from kfs.data import manifest
    from kfs.pairs import RECORDS

    mirror = os.environ.get("KFS_MIRROR")
    if mirror is None:
        found = [Finding("mirror", "absent", "KFS_MIRROR is not set; public data comes from its origin")]
    elif Path(mirror).is_dir():
        found = [Finding("mirror", "ok", mirror)]
    else:
        found = [Finding("mirror", "broken", f"KFS_MIRROR={mirror} is not a folder", "unset KFS_MIRROR, or correct it")]
    for row in manifest.status():
        ready, detail = row["where"] in ("mirror", "cache"), f"{row['bytes'] / 1e6:.0f} MB, {row['licence']}, {row['where']}"
        mend = "" if ready else f"kfs data pull {row['name']}"
        found.append(Finding(f"data {row['name']}", "ok" if ready else "absent", detail, mend))
    folders = sorted(p.name for p in RECORDS.glob("host-*"))
    found.append(
        Finding(
            "embedded records",
            "ok" if folders else "broken",
            ", ".join(folders) or f"none under {RECORDS.name}",
            "" if folders else "kfs record --out data/records",
        )
    )
    return found


def _sandbox() -> list[Finding]:
    """Isolation layers the system offers; `kfs.bench.confine` uses them."""
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(444, None, 0, 1)  # landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION)
    landlock = Finding("landlock", "ok" if abi > 0 else "absent", f"ABI {abi}" if abi > 0 else "not offered by this kernel")
    spaces = {"user": 0x10000000, "pid": 0x20000000, "mount": 0x00020000, "network": 0x40000000}
    allowed = [name for name, flag in spaces.items() if _can_unshare(libc, flag)]
    denied = sorted(set(spaces) - set(allowed))
    detail = f"{', '.join(allowed) or 'none'} allowed" + (f"; denied: {', '.join(denied)}" if denied else "")
    try:
        from kfs.bench.confine import seccomp_program

        seccomp = Finding("seccomp", "ok", f"filter of {len(seccomp_program()) // 8} instructions")
    except (ImportError, OSError) as error:
        seccomp = Finding("seccomp", "absent", f"no filter can be built: {error}", "install libseccomp (Debian: libseccomp2)")
    memfd = hasattr(os, "memfd_create")
    return [
        Finding("shared memory", "ok" if memfd else "broken", "memfd" if memfd else "memfd_create is missing: Linux is needed"),
        landlock,
        Finding("namespaces", "ok" if allowed else "absent", detail),
        seccomp,
    ]


def _can_unshare(libc: ctypes.CDLL, flag: int) -> bool:
    """Try in a process of its own, so that this one stays where it is."""
    together = flag if os.geteuid() == 0 else flag | 0x10000000  # a plain user needs a user namespace around the others
    pid = os.fork()
    if pid == 0:
        os._exit(0 if libc.unshare(together) == 0 else 1)
    return os.waitpid(pid, 0)[1] == 0


def _machine() -> list[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    free_gb = shutil.disk_usage(".").free / 1e9
    return [
        Finding(
            "cores", "ok" if cores > 1 else "absent", f"{cores}" + ("" if cores > 1 else ": timings share it with the judge")
        ),
        Finding(
            "disk",
            "ok" if free_gb > 2 else "broken",
            f"{free_gb:.0f} GB free here",
            "" if free_gb > 2 else "free some space: a study needs about 1 GB",
        ),
    ]
