"""The host device on real processes. Deadlines are generous where nothing should hang and short where something must."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time

import psutil
import pytest
import torch

from kfs.bench import Target, machine
from kfs.bench.host import HostDevice
from kfs.bench.machine import measuring, this_cpu
from kfs.errors import HarnessError, TaskError
from kfs.records import Kernel, Status
from kfs.speedup import STUDY_BINS
from kfs.tasks import Case, Task, load_task

QUICK = Target(looks=(3,), settle_blocks=1, blocks=2, min_calls=2, max_calls=2)
SHORT = Target(looks=(3,), settle_blocks=1, blocks=2, min_calls=2, max_calls=2, deadline_s=3)


@pytest.fixture(scope="module")
def device():
    with HostDevice() as device:
        yield device


@pytest.fixture(scope="module")
def softmax():
    return load_task("softmax")


def python(source: str) -> Kernel:
    return Kernel(language="python", source=source)


def verdict(device, task, source, target=QUICK):
    (measurement,) = device.measure(task, [python(source)], preset="tiny", target=target)
    return measurement


RIGHT = "import torch\n\ndef kernel(x):\n    return torch.softmax(x, -1)\n"

FAILURES = {
    "syntax error": ("def kernel(x:\n", Status.COMPILE_ERROR, "import", "SyntaxError"),
    "import error": ("import nowhere\n", Status.COMPILE_ERROR, "import", "nowhere"),
    "no entry": ("def other(x): return x\n", Status.COMPILE_ERROR, "import", "no function 'kernel'"),
    "exception": ("def kernel(x):\n    raise KeyError('why')\n", Status.RUNTIME_ERROR, "check", "KeyError: 'why'"),
    "hostile exception": (
        "class E(Exception):\n    def __str__(self):\n        while True: pass\ndef kernel(x):\n    raise E('why', 3)\n",
        Status.RUNTIME_ERROR,
        "check",
        "E: why 3",
    ),
    "zeros": ("def kernel(x):\n    return x * 0\n", Status.WRONG_OUTPUT, "check", "elements wrong"),
    "wrong shape": ("def kernel(x):\n    return x[:, :1]\n", Status.WRONG_OUTPUT, "check", "expected torch.float32 (4, 33)"),
    "wrong dtype": ("def kernel(x):\n    return x.softmax(-1).double()\n", Status.WRONG_OUTPUT, "check", "float64"),
    "not a tensor": ("def kernel(x):\n    return x.softmax(-1).numpy()\n", Status.WRONG_OUTPUT, "check", "ndarray"),
    "expanded": ("def kernel(x):\n    return x.mean().expand(x.shape)\n", Status.WRONG_OUTPUT, "check", "strides (0, 0)"),
    "changed input": (
        "def kernel(x):\n    y = x.softmax(-1)\n    x.zero_()\n    return y\n",
        Status.REJECTED,
        "check",
        "input 0 was modified",
    ),
    "segfault": ("import ctypes\ndef kernel(x):\n    ctypes.string_at(0)\n", Status.CRASH, "check", "SIGSEGV"),
    "exit": ("import os\nos._exit(0)\n", Status.CRASH, "import", "without an answer"),
    "memory": ("def kernel(x):\n    return bytearray(1 << 40)\n", Status.OUT_OF_MEMORY, "check", "MemoryError"),
    "garbage on every descriptor": (
        "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'x' * 64)\n    except OSError: pass\nos._exit(0)\n",
        Status.REJECTED,
        "import",
        "not a frame",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_kernel_that_fails_is_a_measurement_that_says_how(device, softmax, name):
    source, status, stage, reason = FAILURES[name]
    found = verdict(device, softmax, source)
    assert (found.status, found.stage) == (status, stage), found.reason
    assert reason in found.reason
    assert found.speedup is None


def test_a_kernel_that_hangs_is_killed_at_its_deadline(device, softmax):
    found = verdict(device, softmax, "def kernel(x):\n    while True: pass\n", SHORT)
    assert (found.status, found.stage) == (Status.TIMEOUT, "check")


def test_a_right_kernel_is_ok_with_every_raw_sample(device, softmax):
    found = verdict(device, softmax, RIGHT)
    assert found.status == Status.OK
    assert {(b.case, b.child_pair) for b in found.blocks} == {(c.name, p) for c in softmax.preset("tiny") for p in range(3)}
    assert all(len(b.reference_ns) == len(b.candidate_ns) == 2 and min(b.candidate_ns) > 0 for b in found.blocks)
    assert found.speedup_low <= found.speedup <= found.speedup_high
    assert found.n_child_pairs == 3 and {a.when for a in found.alone} == {"before", "after"}
    assert set(found.first_call_ms) == {"import", "strided", *(c.name for c in softmax.preset("tiny"))}
    low, high = STUDY_BINS.index(found.speedup_low), STUDY_BINS.index(found.speedup_high)
    assert (found.stop == "certain") == (low == high)
    assert (f"borderline {low}-{high}" in found.flags) == (low != high)


def test_a_slower_kernel_measures_slower(device, softmax):
    slow = RIGHT.replace("    return", "    for _ in range(60): torch.softmax(x, -1)\n    return")
    assert verdict(device, softmax, slow).speedup < 0.25


def test_a_kernel_right_for_its_first_calls_only_is_caught(device, softmax):
    source = RIGHT.replace("def kernel", "n = 0\n\ndef kernel").replace(
        "    return", "    global n\n    n += 1\n    if n > 5: return torch.empty_like(x)\n    return"
    )
    assert verdict(device, softmax, source).status == Status.WRONG_OUTPUT


def test_a_kernel_that_remembers_its_first_answer_is_caught(device, softmax):
    source = RIGHT.replace("def kernel", "seen = {}\n\ndef kernel").replace(
        "return torch.softmax(x, -1)", "return seen.setdefault(x.shape, torch.softmax(x, -1))"
    )
    assert verdict(device, softmax, source).status == Status.WRONG_OUTPUT


PATCHES = "import time, torch\ntime.perf_counter_ns = lambda: 0\ntorch.allclose = torch.equal = lambda *a, **k: True\n"


def test_a_patched_comparison_does_not_make_a_wrong_kernel_right(device, softmax):
    assert verdict(device, softmax, PATCHES + "def kernel(x):\n    return x * 0\n").status == Status.WRONG_OUTPUT


def test_a_patched_clock_does_not_make_a_kernel_fast(device, softmax):
    found = verdict(device, softmax, PATCHES + RIGHT)
    assert found.status == Status.OK and found.speedup < 8
    assert all(min(b.candidate_ns) > 500 for b in found.blocks)


def test_a_child_does_not_see_the_callers_secrets(softmax, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    with HostDevice() as device:
        found = verdict(device, softmax, "import os\nassert 'HF_TOKEN' not in os.environ\n" + RIGHT)
    assert found.status == Status.OK, found.reason


def test_a_kernel_whose_threads_work_on_after_it_returned_is_rejected(device, softmax):
    busy = "import threading\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()\n"
    found = verdict(device, softmax, busy + RIGHT)
    assert found.status == Status.REJECTED and "threads work on" in found.reason


def test_idle_threads_of_an_honest_kernel_are_no_offence(device, softmax):
    pool = "from concurrent.futures import ThreadPoolExecutor\nimport torch\npool = ThreadPoolExecutor(1)\n"
    found = verdict(device, softmax, pool + "def kernel(x):\n    return pool.submit(torch.softmax, x, -1).result()\n")
    assert found.status == Status.OK, found.reason


def test_one_buffer_returned_twice_is_caught(device, softmax):
    source = "import torch\nbuffers = {}\ndef kernel(x):\n    out = buffers.setdefault(x.shape, torch.empty_like(x))\n"
    found = verdict(device, softmax, source + "    return torch.softmax(x, -1, out=out) if False else out.copy_(x.softmax(-1))\n")
    assert found.status == Status.WRONG_OUTPUT and "another call" in found.reason


def test_a_write_next_to_an_input_is_caught(device, softmax):
    source = "import ctypes\ndef kernel(x):\n    ctypes.memset(x.data_ptr() + x.nbytes, 7, 8)\n    return x.softmax(-1)\n"
    found = verdict(device, softmax, source)
    assert found.status == Status.REJECTED and "next to" in found.reason


def test_memory_kept_on_every_call_is_flagged(device, softmax):
    source = RIGHT.replace("def kernel", "kept = []\n\ndef kernel").replace(
        "    return", "    kept.append(torch.ones(1 << 18))\n    return"
    )
    assert "leak" in verdict(device, softmax, source).flags


def test_a_kernel_that_needs_contiguous_inputs_is_labelled(device, softmax):
    source = "import torch\ndef kernel(x):\n    return torch.as_strided(x, x.shape, (x.shape[1], 1)).softmax(-1)\n"
    found = verdict(device, softmax, source)
    assert found.status == Status.OK and "contiguous_only" in found.flags


def test_a_kernel_that_skips_the_maximum_is_wrong_on_large_inputs(device, softmax):
    found = verdict(device, softmax, "def kernel(x):\n    e = x.exp()\n    return e / e.sum(-1, keepdim=True)\n")
    assert found.status == Status.WRONG_OUTPUT and "scaled" in found.reason


def test_what_a_kernel_tries_outside_its_folder_is_told(device, softmax):
    found = verdict(device, softmax, "try: open('/kfs-probe', 'w')\nexcept OSError: pass\n" + RIGHT)
    assert found.status == Status.OK and "tried: write /kfs-probe" in found.flags


def test_timing_stops_at_a_look_when_the_bin_is_certain(device, softmax):
    slow = RIGHT.replace("    return", "    for _ in range(2000): torch.softmax(x, -1)\n    return")
    found = verdict(device, softmax, slow, Target(looks=(3, 12), settle_blocks=1, blocks=2, min_calls=2, max_calls=2))
    assert (found.stop, found.n_child_pairs) == ("certain", 3)


def test_a_budget_in_seconds_ends_with_three_child_pairs(device, softmax):
    found = verdict(
        device, softmax, RIGHT, Target(looks=(12,), seconds=0.001, settle_blocks=1, blocks=2, min_calls=2, max_calls=2)
    )
    assert found.n_child_pairs == 3


def test_an_anchor_stands_in_for_the_reference(device, softmax):
    anchor = python(RIGHT.replace("    return", "    for _ in range(60): torch.softmax(x, -1)\n    return"))
    (found,) = device.measure(softmax, [python(RIGHT)], preset="tiny", target=QUICK, anchor=anchor)
    assert found.reference_id == anchor.kernel_id and found.speedup > 4


def test_a_kernel_may_not_signal_anyone_not_even_itself(device, softmax):
    found = verdict(device, softmax, "import os\ndef kernel(x):\n    os.kill(os.getpid(), 40)\n")
    assert found.status == Status.RUNTIME_ERROR and "not permitted" in found.reason


def test_one_thread_on_one_core_is_what_a_kernel_sees(device, softmax):
    source = RIGHT.replace("    return", f"    import os\n    assert os.sched_getaffinity(0) == {{{device.core}}}\n"
                           "    assert torch.get_num_threads() == 1\n    return")  # fmt: skip
    assert verdict(device, softmax, source).status == Status.OK


def test_the_next_candidate_does_not_notice_the_last_one(device, softmax):
    hostile = [FAILURES[name][0] for name in ("segfault", "memory", "exit")]
    found = list(device.measure(softmax, [python(s) for s in (*hostile, RIGHT)], preset="tiny", target=QUICK))
    assert [m.status for m in found] == [Status.CRASH, Status.OUT_OF_MEMORY, Status.CRASH, Status.OK]


def scratch_users() -> set[int]:
    """Processes that work in a scratch folder of ours, orphans included."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if f"/kfs-{os.getpid()}-" in process.cwd():
                found.add(process.pid)
    return found


def test_nothing_is_left_behind(softmax):
    before = scratch_users()
    with HostDevice() as device:
        verdict(device, softmax, RIGHT)
        verdict(device, softmax, "import os, time\nif os.fork() == 0: time.sleep(60)\n" + RIGHT)
        root = device._zygote._scratch
        assert not list(root.iterdir())
    deadline = time.monotonic() + 10
    while (left := scratch_users() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    assert not root.exists()
    assert os.sched_getaffinity(0) >= {device.core}


def test_scratch_of_a_killed_judge_is_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stale, alive = tmp_path / "kfs-999999999-x", tmp_path / f"kfs-{os.getpid()}-y"
    stale.mkdir(), alive.mkdir()
    with HostDevice():
        assert not stale.exists() and alive.exists()


def test_budget_is_counted_in_measurements_and_seconds(softmax):
    with HostDevice() as device:
        verdict(device, softmax, RIGHT)
        assert device.measurements_spent == 1 and device.seconds_spent > 0


def own_task(reference: str) -> Task:
    return Task(
        name="mine", title="t", signature="s", make_inputs=lambda c, rng: (torch.from_numpy(rng.standard_normal((4, 4))),),
        cases={"tiny": (Case("c", {}),)}, rtol=1e-6, atol=1e-9, precision="tolerance", flops=lambda c: 1.0,
        nbytes=lambda c: 1.0, reference=python(reference),
    )  # fmt: skip


def test_a_broken_reference_is_the_harness_fault_not_the_candidates(device):
    reference = "import os\n\n\ndef kernel(x):\n    if 'kfs-' in os.getcwd():\n        raise OSError\n    return x * 2\n"
    with pytest.raises(HarnessError, match="reference fails at warmup"):
        list(device.measure(own_task(reference), [python("def kernel(x): return x * 2")], preset="tiny", target=QUICK))


def test_a_candidate_that_breaks_the_reference_beside_it_is_rejected(tmp_path):
    flag = tmp_path / "flag"
    reference = f"import os\n\n\ndef kernel(x):\n    if os.path.exists({str(flag)!r}):\n        raise OSError\n    return x * 2\n"
    source = f"n = 0\ndef kernel(x):\n    open({str(flag)!r}, 'w').close()\n    return x * 2\n"
    task = own_task(reference)
    with HostDevice(deny=("namespaces", "landlock", "seccomp", "capabilities")) as device:
        check, prove = device._check, device._prove_reference
        device._check = lambda *a: (check(*a), flag.unlink())
        device._prove_reference = lambda *a: (flag.unlink(), prove(*a))
        (found,) = device.measure(task, [python(source)], preset="tiny", target=QUICK)
    assert found.status == Status.REJECTED and "works alone" in found.reason


def test_a_degenerate_task_is_not_measured(device):
    task = own_task("def kernel(x):\n    return x * 0\n")
    with pytest.raises(TaskError, match="zeros"):
        list(device.measure(task, [python("def kernel(x): return x")], preset="tiny", target=QUICK))


@pytest.mark.parametrize("wrong", [{"looks": (2,)}, {"looks": (4, 4)}, {"level": 1.0}, {"min_calls": 7}, {"blocks": 0}])
def test_a_target_that_cannot_give_an_interval_is_refused(wrong):
    with pytest.raises(HarnessError, match="need"):
        Target(**wrong)


def test_an_interrupt_reaches_the_judge_and_leaves_nothing(tmp_path):
    code = (
        "import tempfile\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "from kfs.cli import main\n"
        f"raise SystemExit(main(['record', 'softmax', '--preset', 'tiny', '--out', {str(tmp_path / 'o')!r}, "
        f"'--log', {str(tmp_path / 'l')!r}]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not [p for p in (tmp_path / "l").rglob("*.jsonl") if p.stat().st_size] and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    error = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130 and "goes on from there" in error
    assert not list(tmp_path.glob("kfs-[0-9]*"))


def test_a_kernel_in_a_language_the_host_cannot_run_is_refused_not_raised(device, softmax):
    (found,) = device.measure(softmax, [Kernel(language="cuda", source="")], preset="tiny", target=QUICK)
    assert (found.status, found.stage) == (Status.REJECTED, "admission")


def test_an_unknown_preset_lists_the_known_ones(device, softmax):
    with pytest.raises(KeyError, match="known: host, paper, tiny"):
        list(device.measure(softmax, [], preset="huge"))


def test_a_device_that_was_not_entered_says_how(softmax):
    with pytest.raises(HarnessError, match="with HostDevice"):
        list(HostDevice().measure(softmax, []))


def test_this_cpu_is_described():
    cpu = this_cpu()
    assert cpu.kind == "cpu" and cpu.name.startswith("host-") and cpu.units >= 1


def test_processes_that_measure_on_one_core_take_turns_whoever_they_belong_to(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_LOCKS", tmp_path)
    with measuring("core 99") as path, measuring("core 99"):  # one process may hold it twice
        assert path.stat().st_mode & 0o777 == 0o666
        code = (
            f"import pathlib\nfrom kfs.bench import machine\nmachine._LOCKS = pathlib.Path({str(tmp_path)!r})\n"
            "with machine.measuring('core 99', wait_s=0.5): pass\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "waiting" in done.stderr and "measures on core 99" in done.stderr and done.returncode == 1
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_a_lock_that_cannot_be_opened_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_LOCKS", tmp_path)
    (tmp_path / "kfs-core-99.lock").mkdir()
    with pytest.raises(HarnessError, match=r"kfs-core-99\.lock, cannot be opened"), measuring("core 99"):
        pass
