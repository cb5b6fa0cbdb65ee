import subprocess
import sys
import time

import pytest

from kfs.bench import HARNESS, Target
from kfs.bench.campaign import read_folder, read_log, record, task_kernels
from kfs.bench.replay import ReplayDevice
from kfs.errors import DataError, HarnessError
from kfs.records import Block, Hardware, Kernel, Measurement
from kfs.tasks import load_task

CPU = Hardware(name="host-scripted", vendor="none", architecture="none", kind="cpu")


class ScriptedDevice:
    """Stands in for a device where only the campaign is tested: invents no timing, answers from a script."""

    def __init__(self, dies_after=None):
        self.hardware, self.calls, self.dies_after = CPU, 0, dies_after

    def measure(self, task, kernels, *, preset="host", target=None):
        for kernel in kernels:
            if self.calls == self.dies_after:
                raise KeyboardInterrupt
            self.calls += 1
            yield Measurement(
                task=task.name, preset=preset, kernel_id=kernel.kernel_id, reference_id=task.reference.kernel_id,
                hardware=CPU.name, harness=HARNESS, status="ok", speedup=1.0, speedup_low=1.0, speedup_high=1.0,
                confidence=0.95, log2_std_error=0.0, n_child_pairs=2, task_id=task.task_id,
                environment={"target": target.describe()},
                blocks=[Block(case="c", child_pair=0, reference_ns=[1], candidate_ns=[1])],
            )  # fmt: skip


@pytest.fixture
def tasks():
    return [load_task("softmax"), load_task("cumsum")]


def run(device, tasks, tmp_path):
    return record(device, tasks, tmp_path / "records", log_folder=tmp_path / "log", progress=False)


def test_a_campaign_measures_the_reference_and_every_kernel_once(tasks, tmp_path):
    device = ScriptedDevice()
    run(device, tasks, tmp_path)
    measurements, kernels, hardware = read_folder(tmp_path / "records" / CPU.name)
    wanted = {(t.name, k.kernel_id) for t in tasks for k in task_kernels(t)}
    assert {(m.task, m.kernel_id) for m in measurements} == wanted == {(k.task, k.kernel_id) for k in kernels}
    assert len(measurements) == device.calls == len(wanted)
    assert hardware == CPU


def test_a_finished_campaign_measures_nothing_again(tasks, tmp_path):
    run(ScriptedDevice(), tasks, tmp_path)
    again = ScriptedDevice()
    run(again, tasks, tmp_path)
    assert again.calls == 0


def test_an_interrupted_campaign_measures_only_what_was_left(tasks, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(ScriptedDevice(dies_after=7), tasks, tmp_path)
    rest = ScriptedDevice()
    run(rest, tasks, tmp_path)
    assert rest.calls == sum(len(task_kernels(t)) for t in tasks) - 7


def test_another_target_or_task_definition_is_measured_anew(tasks, tmp_path):
    run(ScriptedDevice(), tasks[:1], tmp_path)
    again = ScriptedDevice()
    record(again, tasks[:1], tmp_path / "r", log_folder=tmp_path / "log", progress=False, target=Target(looks=(3,)))
    assert again.calls == len(task_kernels(tasks[0]))


def test_a_torn_last_line_is_measured_again_and_the_log_stays_whole(tasks, tmp_path):
    run(ScriptedDevice(), tasks[:1], tmp_path)
    log = tmp_path / "log" / CPU.name / "host" / "softmax.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole[:-30])
    again = ScriptedDevice()
    run(again, tasks[:1], tmp_path)
    assert again.calls == 1
    assert len(read_log(log)) == len(task_kernels(tasks[0]))


def test_damage_inside_a_log_is_named(tasks, tmp_path):
    run(ScriptedDevice(), tasks[:1], tmp_path)
    log = tmp_path / "log" / CPU.name / "host" / "softmax.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join(["{broken", *lines[1:]]) + "\n")
    with pytest.raises(DataError, match=r"softmax\.jsonl, line 1"):
        read_log(log)


def test_a_folder_without_records_says_how_to_make_them(tmp_path):
    with pytest.raises(DataError, match="kfs record"):
        read_folder(tmp_path)


def test_replay_answers_what_was_recorded_and_counts_the_budget(tasks, tmp_path):
    run(ScriptedDevice(), tasks[:1], tmp_path)
    measurements, kernels, hardware = read_folder(tmp_path / "records" / CPU.name)
    with ReplayDevice(measurements, hardware) as device:
        found = list(device.measure(tasks[0], kernels[:3]))
    assert [m.kernel_id for m in found] == [k.kernel_id for k in kernels[:3]]
    assert device.measurements_spent == 3


def test_replay_refuses_a_kernel_nobody_recorded(tasks, tmp_path):
    run(ScriptedDevice(), tasks[:1], tmp_path)
    measurements, _, hardware = read_folder(tmp_path / "records" / CPU.name)
    other = Kernel(language="python", source="x")
    with pytest.raises(KeyError, match="was not recorded on host-scripted"):
        list(ReplayDevice(measurements, hardware).measure(tasks[0], [other]))
    with pytest.raises(HarnessError, match="live device"):
        list(ReplayDevice(measurements, hardware).measure(tasks[0], [], anchor=other))


def test_kfs_record_killed_in_the_middle_goes_on_where_it_was(tmp_path):
    folder = tmp_path / "double"
    (folder / "host").mkdir(parents=True)
    (folder / "task.py").write_text(
        "from kfs.tasks import Task, case, normal\n"
        "TASK = Task(name='double', title='t', signature='s', make_inputs=lambda c, rng: (normal(rng, c['n']),),\n"
        "    cases={'tiny': (case(n=64),)}, rtol=1e-5, atol=1e-6, precision='strict',\n"
        "    flops=lambda c: 1.0, nbytes=lambda c: 1.0)\n"
    )
    (folder / "reference.py").write_text("def kernel(x):\n    return 2 * x\n")
    for i in range(4):
        (folder / "host" / f"add{i}.py").write_text(f"def kernel(x):\n    return x + x  # {i}\n")
    command = [sys.executable, "-m", "kfs.cli", "record", str(folder), "--preset", "tiny", "--child-pairs", "3"]
    command += ["--out", str(tmp_path / "records"), "--log", str(tmp_path / "log")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    done = []
    while not done and time.monotonic() < deadline:
        time.sleep(0.02)
        done = [m for log in (tmp_path / "log").rglob("double.jsonl") for m in read_log(log)]
    process.kill()
    process.wait()
    assert 0 < len(done) < 5
    subprocess.run(command, check=True, capture_output=True)
    (records,) = (tmp_path / "records").iterdir()
    measurements, kernels, _ = read_folder(records)
    assert len(measurements) == len(kernels) == 5
    assert all(m in measurements for m in done)
    assert {m.n_child_pairs for m in measurements} == {3}
