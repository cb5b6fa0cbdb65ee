"""Isolation layers for processes that run candidate code: each is tried, and those that hold are named.

The zygote enters namespaces once (``enter_namespaces``): its children see no other process, no network, and a file system that is
read-only but for a scratch folder in memory. Every child then gives up what it can (``confine``): limits, capabilities, files
outside a short list (Landlock), and system calls a kernel has no use for (seccomp): new processes, programs, sockets, signals,
scheduling, debugging. A plain user gets namespaces through a user namespace where the system allows that. Numbers come from the
Linux headers; the seccomp program is made by libseccomp.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LAYERS = ("namespaces", "read_only", "limits", "capabilities", "landlock", "seccomp")
SCRATCH_BYTES = 512 << 20
SCRATCH_FILES = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)

_PDEATHSIG, _DUMPABLE, _SECCOMP, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 22, 24, 36, 38
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 0x4000, 0x40000
_CLONE_THREAD = 0x10000

_FORBIDDEN = """
    fork vfork execve execveat ptrace process_vm_readv process_vm_writev kcmp kill tkill tgkill rt_sigqueueinfo
    rt_tgsigqueueinfo pidfd_send_signal pidfd_getfd socket bind connect listen accept accept4 mount umount2 pivot_root
    chroot unshare setns open_tree move_mount fsopen fsmount mount_setattr sched_setaffinity sched_setscheduler
    sched_setparam sched_setattr setpriority ioprio_set setrlimit perf_event_open bpf userfaultfd keyctl add_key
    request_key init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff settimeofday
    clock_settime clock_adjtime adjtimex iopl ioperm shmget msgget semget mq_open io_uring_setup io_uring_enter
    io_uring_register personality migrate_pages move_pages quotactl acct syslog sethostname setdomainname
    name_to_handle_at open_by_handle_at fanotify_init process_madvise memfd_secret timer_create utime utimes utimensat
    futimesat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat truncate setxattr lsetxattr fsetxattr
    setxattrat removexattr lremovexattr fremovexattr removexattrat
"""
_PROGRAMS = ("fork", "vfork", "execve", "execveat")
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_NOTIFY = 8, 10, 15, 1026


@dataclass(frozen=True)
class Layer:
    """One isolation layer: whether it holds, and why not."""

    name: str
    active: bool
    detail: str = ""


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends."""
    _libc.prctl(_PDEATHSIG, 9, 0, 0, 0)


def hide_from_siblings() -> None:
    """End with the parent, and let no process of the same user look inside."""
    die_with_parent()
    _libc.prctl(_DUMPABLE, 0, 0, 0, 0)


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter_namespaces(scratch: str, *, deny: frozenset[str] = frozenset()) -> list[Layer]:
    """Move into namespaces of one's own; returns in a new process, of which the old one only waits for the end.

    Call it first, while there is one thread. Where namespaces are denied the process stays as it is and becomes the one that
    orphans of its children fall to.

    Parameters
    ----------
    scratch : str
        Existing folder that stays writable; in namespaces it becomes a file system in memory of ``SCRATCH_BYTES``.
    deny : set of str
        Layers to go without, for tests.
    """
    die_with_parent()
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        if "namespaces" in deny:
            raise OSError(errno.EPERM, "denied by request")
        spaces = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
        uid, gid = os.getuid(), os.getgid()
        if os.geteuid() != 0:
            spaces |= _NEWUSER
        _check(_libc.unshare(spaces), "unshare")
        if spaces & _NEWUSER:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError as error:
        why = os.strerror(error.errno)
        return [Layer("namespaces", False, why), Layer("read_only", False, "needs a mount namespace")]
    inner = os.fork()
    if inner:
        os.waitpid(inner, 0)
        os._exit(0)
    die_with_parent()
    return [Layer("namespaces", True), _mounts(scratch, deny)]


def _mounts(scratch: str, deny: frozenset[str]) -> Layer:
    """Private mounts: everything read-only, /proc of this namespace, scratch in memory."""
    try:
        if "read_only" in deny:
            raise OSError(errno.EPERM, "denied by request")
        _check(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "make mounts private")
        quiet = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        shows_others = _libc.mount(b"proc", b"/proc", b"proc", quiet, None) < 0
        attributes = struct.pack("<4Q", 1, 0, 0, 0)  # MOUNT_ATTR_RDONLY
        _check(_libc.syscall(442, -100, b"/", 0x8000, attributes, ctypes.c_size_t(len(attributes))), "make mounts read-only")
        options = f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES},mode=755".encode()
        nosuid = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
        _check(_libc.mount(b"tmpfs", scratch.encode(), b"tmpfs", nosuid, options), "mount scratch")
        return Layer("read_only", True, "/proc shows other processes" if shows_others else "")
    except OSError as error:
        return Layer("read_only", False, str(error))


def seccomp_program(*, programs: bool = False, gpu: bool = False) -> bytes:
    """BPF program that refuses what kernels have no use for. Raises OSError or ImportError where libseccomp is missing.

    With ``programs`` new processes are allowed: Triton runs an assembler and a C compiler.
    """
    try:
        import pyseccomp as seccomp
    except RuntimeError as error:  # its way to say that the shared library is missing
        raise ImportError(str(error)) from error
    refuse = seccomp.ERRNO(errno.EPERM)
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    for name in _FORBIDDEN.split():
        if programs and name in _PROGRAMS:
            continue
        try:
            rules.add_rule(refuse, name)
        except (OSError, RuntimeError):  # a call this architecture or library does not know
            continue
    if not programs:
        rules.add_rule(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, _CLONE_THREAD, 0))
    rules.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")  # glibc then asks clone, whose flags can be seen
    rules.add_rule(refuse, "prlimit64", seccomp.Arg(2, seccomp.NE, 0))
    rules.add_rule(refuse, "prctl", seccomp.Arg(0, seccomp.EQ, _PDEATHSIG))
    for command in (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_NOTIFY):  # signals that could wake a stopped process
        rules.add_rule(refuse, "fcntl", seccomp.Arg(1, seccomp.EQ, command))
    if not gpu:  # memory outside every limit
        rules.add_rule(refuse, "memfd_create")
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def readable_paths() -> list[str]:
    """What a kernel may read: Python and its packages, system libraries, and what they ask of the system."""
    repository = Path(__file__).resolve().parents[2]
    packages = [p for p in sys.path if p and Path(p).resolve() != repository]
    system = ["/usr", "/lib", "/lib64", "/etc", "/proc", "/sys/devices/system", "/sys/fs/cgroup", "/opt"]
    return [p for p in dict.fromkeys([sys.prefix, sys.base_prefix, *packages, *system]) if os.path.exists(p)]


def confine(
    *,
    writable: list[str],
    readable: list[str],
    memory_bytes: int | None,
    program: bytes | None,
    deny: frozenset[str] = frozenset(),
    devices: Iterable[str] = (),
) -> list[Layer]:
    """Give up, for good, what a candidate must not have. Call it last, just before candidate code.

    Parameters
    ----------
    writable, readable : list of str
        Folders for Landlock.
    memory_bytes : int, optional
        Address space that may be added to what there is now; None for no limit (CUDA reserves far more than it uses).
    program : bytes, optional
        From ``seccomp_program``.
    devices : iterable of str
        Device files that may be read, written and controlled, for example a GPU's.
    """
    steps = {
        "limits": lambda: _limit(memory_bytes),
        "capabilities": _drop_capabilities,
        "landlock": lambda: _landlock(writable, readable, devices),
        "seccomp": lambda: _seccomp(program),
    }
    layers = []
    _check(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    for name, step in steps.items():
        try:
            if name in deny:
                raise OSError(errno.EPERM, "denied by request")
            layers.append(Layer(name, True, step() or ""))
        except OSError as error:
            layers.append(Layer(name, False, str(error)))
    return layers


def _limit(memory_bytes: int | None) -> None:
    if memory_bytes is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (SCRATCH_BYTES, SCRATCH_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
    resource.setrlimit(resource.RLIMIT_NPROC, (4096, 4096))  # for a plain user; seccomp holds root, too


def _drop_capabilities() -> None:
    for capability in range(64):
        _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)  # fails past the last one, and where there is none to drop
    header = struct.pack("<Ii", 0x20080522, 0)
    _check(_libc.capset(header, bytes(24)), "capset")


def _landlock(writable: list[str], readable: list[str], devices: Iterable[str] = ()) -> str:
    abi = _libc.syscall(444, None, ctypes.c_size_t(0), 1)
    _check(abi, "landlock")
    rights = (1 << (13 if abi == 1 else 14 if abi == 2 else 15 if abi < 5 else 16)) - 1
    of_files = rights & (1 | 2 | 4 | 1 << 14 | 1 << 15)
    attributes = struct.pack("<3Q", rights, 3, 3)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = _libc.syscall(444, attributes, ctypes.c_size_t(len(attributes)), 0)
    _check(ruleset, "landlock ruleset")
    read = 1 | 4 | 8  # execute, read a file, list a folder
    plain = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"]
    control = rights & (1 << 15)  # ioctl
    for paths, allowed in ((readable, read), (writable, rights), (plain, 2 | 4), (devices, 2 | 4 | control)):
        for path in paths:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            mask = allowed if os.path.isdir(path) else allowed & of_files
            _check(_libc.syscall(445, ruleset, 1, struct.pack("<Qi", mask, fd), 0), f"landlock rule for {path}")
            os.close(fd)
    _check(_libc.syscall(446, ruleset, 0), "landlock restrict")
    os.close(ruleset)
    return f"ABI {abi}"


class _Program(ctypes.Structure):
    _fields_ = (("n", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _seccomp(program: bytes | None) -> None:
    if program is None:
        raise OSError(errno.ENOSYS, "libseccomp or pyseccomp is missing")
    filters = _Program(len(program) // 8, program)
    _check(_libc.prctl(_SECCOMP, 2, ctypes.byref(filters), 0, 0), "seccomp")
