"""Isolation layers on real processes: as whoever runs the tests, as a plain user, and with layers taken away."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from kfs.bench.child import CallSlots, TensorSlot
from kfs.bench.sandbox import ChildDied, Zygote

IN, OUT = TensorSlot(4096, (4,), "float32", 16), TensorSlot(16384, (4,), "float32", 16)

# Each line is tried in a child; those that succeed come back as ones.
PROBES = {
    "fork": "pid = os.fork()\n    if pid == 0: os._exit(0)",
    "run a program": "subprocess.run(['true'], check=True)",
    "open a socket": "socket.socket()",
    "write outside": "open('/tmp/kfs-probe', 'w').close(); os.unlink('/tmp/kfs-probe')",
    "write shared memory": "open('/dev/shm/kfs-probe', 'w').close(); os.unlink('/dev/shm/kfs-probe')",
    "read the checkout": "os.listdir(HERE)",
    "read the parent's memory": "open(f'/proc/{PARENT}/mem', 'rb').close()",
    "kill": "os.kill(1, 0)",
    "move to another core": "os.sched_setaffinity(0, {0}); assert os.sched_getaffinity(0) != START",
    "lift a limit": "resource.setrlimit(resource.RLIMIT_CORE, (1, 1))",
    "attach": "assert ctypes.CDLL(None).ptrace(0x4206, PARENT, 0, 0) == 0",
}
HEADER = f"""
import ctypes, os, resource, socket, subprocess, torch
HERE, PARENT, START = {os.path.dirname(os.path.abspath(__file__))!r}, {os.getpid()}, os.sched_getaffinity(0)
"""


def attempts(names) -> str:
    steps = "".join(f"try:\n    {PROBES[name]}\n    got.append(1.0)\nexcept BaseException: got.append(0.0)\n" for name in names)
    return HEADER + "got = []\n" + steps + "def kernel(x):\n    return torch.tensor(got)\n"


def tried(deny=()) -> set[str]:
    """Which probes a child succeeds in."""
    names = list(PROBES)
    out = TensorSlot(16384, (len(names),), "float32", 4 * len(names))
    with Zygote(deny=deny) as zygote:
        child = zygote.spawn(1 << 16, max(os.sched_getaffinity(0)), 1 << 30, alone=False)
        assert child.load(attempts(names), "kernel", 30).code == 0
        reply = child.call([CallSlots((IN,), (out,))], 30)
        assert reply.code == 0, reply.text
        got = child.arena.view(out).tolist()
        child.close()
    return {name for name, success in zip(names, got, strict=True) if success}


def test_nothing_forbidden_succeeds_with_every_layer():
    assert tried() == set()


def test_without_namespaces_the_other_layers_hold():
    assert tried(("namespaces", "read_only")) == set()


def test_without_seccomp_files_are_still_out_of_reach():
    allowed = tried(("seccomp",))
    assert not allowed & {"write outside", "write shared memory", "read the checkout", "read the parent's memory", "attach"}
    assert "fork" in allowed


def test_without_any_layer_everything_but_the_limits_is_possible():
    allowed = tried(("namespaces", "read_only", "landlock", "seccomp", "capabilities", "limits"))
    assert {"fork", "write outside", "read the checkout", "open a socket"} <= allowed


def test_every_layer_that_was_denied_is_recorded_as_such():
    with Zygote(deny=("landlock", "namespaces")) as zygote:
        zygote.spawn(4096, max(os.sched_getaffinity(0)), 1 << 30, alone=False).close()
        active = {x.name: x.active for x in zygote.layers}
    assert active["landlock"] is False and active["namespaces"] is False and active["limits"] is True


def test_descendants_that_outlive_a_child_are_counted_and_gone():
    source = (
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(60)\n"
        "def kernel(x): return x + 1\n"
    )
    for deny in (("seccomp",), ("seccomp", "namespaces")):
        with Zygote(deny=deny) as zygote:
            child = zygote.spawn(1 << 16, max(os.sched_getaffinity(0)), 1 << 30, alone=False)
            assert child.load(source, "kernel", 30).code == 0
            time.sleep(0.05)
            assert child.close() == 3


def test_a_child_that_ends_says_how_and_the_next_one_works():
    with Zygote() as zygote:
        core = max(os.sched_getaffinity(0))
        first = zygote.spawn(1 << 16, core, 1 << 30, alone=False)
        with pytest.raises(ChildDied, match="status 3"):
            first.load("import os\nos._exit(3)\n", "kernel", 30)
        first.close()
        second = zygote.spawn(1 << 16, core, 1 << 30, alone=False)
        second.load("def kernel(x): return x + 1\n", "kernel", 30)
        second.arena.view(IN).copy_(torch.arange(4.0))
        assert second.call([CallSlots((IN,), (OUT,))], 30).code == 0
        assert second.arena.view(OUT).tolist() == [1.0, 2.0, 3.0, 4.0]
        second.close()


def test_cpu_time_is_seen_from_outside_whatever_the_child_claims():
    with Zygote() as zygote:
        child = zygote.spawn(1 << 16, max(os.sched_getaffinity(0)), 1 << 30, alone=False)
        source = (
            "import sys, time\nsys.modules['kfs.bench.child']._CLOCK = lambda: 0\n"
            "def kernel(x):\n    end = time.process_time() + 0.05\n    while time.process_time() < end: pass\n    return x + 1\n"
        )
        child.load(source, "kernel", 30)
        reply = child.call([CallSlots((IN,), (OUT,))], 30)
        child.close()
    assert reply.durations_ns == (0,) and reply.cpu_ns > 45_000_000


# A plain user that may read what root owns: the interpreter of these tests may lie in root's home.
AS_NOBODY = """
import ctypes, os, struct
libc = ctypes.CDLL(None)
libc.prctl(8, 1, 0, 0, 0)
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
read = 1 << 2
libc.capset(struct.pack("<Ii", 0x20080522, 0), struct.pack("<6I", read, read, read, 0, 0, 0))
libc.prctl(47, 2, 2, 0, 0)
import json, tempfile, sys
sys.path.insert(0, {tests!r})
from test_sandbox import tried
from kfs.bench.sandbox import Zygote
deny = ("namespaces",)  # inside a user namespace root's home is closed to anyone
with Zygote(deny=deny) as z:
    z.spawn(4096, max(os.sched_getaffinity(0)), 1 << 30, alone=False).close()
    layers = {{x.name: x.active for x in z.layers}}
print(json.dumps([os.getuid(), layers, sorted(tried(deny))]))
"""


IN_NAMESPACES = """
import ctypes, os, sys, tempfile
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
sys.path.insert(0, {checkout!r})
from kfs.bench import confine
scratch = tempfile.mkdtemp()
layers = confine.enter_namespaces(scratch)
open(os.path.join(scratch, "mine"), "w").close()
try:
    open(os.path.join(os.path.dirname(scratch), "kfs-probe"), "w").close()
    outside = "written"
except OSError as error:
    outside = "refused"
alone = sorted(p for p in os.listdir("/proc") if p.isdigit())
print([(x.name, x.active) for x in layers], os.getpid(), outside, alone, flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
@pytest.mark.skipif(not os.access("/usr/bin/python3", os.X_OK), reason="needs an interpreter that every user can read")
def test_a_plain_user_gets_namespaces_through_a_user_namespace():
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    run = ["/usr/bin/python3", "-c", IN_NAMESPACES.format(checkout=checkout)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, cwd="/")
    if "('namespaces', False)" in done.stdout:
        pytest.skip("this system denies user namespaces to plain users")
    assert done.stdout.split("] ")[0] == "[('namespaces', True), ('read_only', True)", done.stderr
    assert "] 1 refused ['1']" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests of this file already run as a plain user")
def test_a_plain_user_gets_the_same_protection():
    code = AS_NOBODY.format(tests=os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd="/")
    assert done.returncode == 0, done.stderr
    uid, layers, allowed = json.loads(done.stdout)
    assert uid == 65534 and allowed == []
    assert layers["limits"] and layers["landlock"] and layers["seccomp"]
