import json
import os
import signal
import subprocess
import sys
import time

import pytest

import kfs
from kfs.errors import DataError, SchemaError, StudyError, UnknownNameError
from kfs.report import provenance, sources, study
from kfs.report.config import compose
from kfs.report.study import run_lock, run_study

START = "import kfs\n\nrun = kfs.start(study, overrides, out_dir)"
FINISH = "run.finish()"
BASE = ["forecaster=prior", "data.folder=records"]
BOTH = [*BASE, "notebooks=[01_one,02_two]"]
SECOND = [*BASE, "notebooks=[02_two]"]
SAVE = 'import pandas as pd\nrun.save_table("{name}", pd.DataFrame({{"value": [{value}]}}))'


def quiet(*args, **options):
    pass


def run(project, overrides):
    return run_study("embedded", overrides, root=project, say=quiet)


def test_a_study_runs_then_does_nothing_then_reruns_only_what_changed(kit, project):
    first = run(project, BOTH)
    assert first.ran == ["01_one", "02_two"]
    manifest = json.loads((first.out_dir / "manifest.json").read_text())
    assert [n["notebook"] for n in manifest["notebooks"]] == ["01_one", "02_two"]
    assert all(n["versions"] == provenance.versions() for n in manifest["notebooks"])
    assert set(manifest["tables"]) == {"tables/one.csv", "tables/two.csv"}
    assert {"site/index.html", "site/01_one.html", "site/tables/two.csv"} <= set(manifest["site"])
    assert "01_one.html" in first.index.read_text()
    assert str(project) not in (first.out_dir / "site" / "01_one.html").read_text()

    before = {p: p.stat().st_mtime_ns for p in first.out_dir.rglob("*") if p.is_file() and p.name not in (".lock", "config.yaml")}
    second = run(project, BOTH)
    assert (second.ran, second.skipped) == ([], ["01_one", "02_two"])
    assert {p: p.stat().st_mtime_ns for p in before} == before

    kit.write_notebook(project / "notebooks" / "02_two.ipynb", START, "2 / 1", FINISH)
    third = run(project, BOTH)
    assert (third.ran, third.skipped) == (["02_two"], ["01_one"])
    assert not study._intact(third.out_dir, "01_one", "another key")
    (third.out_dir / "tables" / "one.csv").write_text("altered\n")
    key = json.loads((third.out_dir / "logs" / "01_one.json").read_text())["key"]
    assert not study._intact(third.out_dir, "01_one", key)


def test_a_site_made_anew_does_not_claim_that_old_results_ran_on_what_is_here_now(project, monkeypatch):
    monkeypatch.setattr(study, "git_commit", lambda root: "0123456789ab")
    first = run(project, SECOND)
    first.index.unlink()
    monkeypatch.setattr(study, "git_commit", lambda root: "ffffffffffff")
    assert run(project, SECOND).ran == []
    assert "0123456789ab" in first.index.read_text()
    assert "ffffffffffff" not in first.index.read_text()


def test_a_killed_runner_leaves_what_was_done_and_the_next_one_does_only_the_rest(kit, project):
    wait = (
        "import pathlib, time\n\npathlib.Path('../waiting').touch()\nwhile not pathlib.Path('../go').exists(): time.sleep(0.05)"
    )
    kit.write_notebook(project / "notebooks" / "02_two.ipynb", START, SAVE.format(name="two", value=2), wait, FINISH)
    runner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from kfs.report.study import run_study; run_study('embedded', sys.argv[1:], jobs=1)",
            *BOTH,
        ],
        cwd=project,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (project / "waiting").exists() and runner.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert runner.poll() is None
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    (out_dir,) = (project / "runs" / "embedded").iterdir()
    done = (out_dir / "logs" / "01_one.json").stat().st_mtime_ns
    assert not (out_dir / "manifest.json").exists()
    assert not (out_dir / "logs" / "02_two.json").exists()

    (project / "go").touch()
    outcome = run(project, BOTH)
    assert (outcome.ran, outcome.skipped) == (["02_two"], ["01_one"])
    assert (out_dir / "logs" / "01_one.json").stat().st_mtime_ns == done
    assert set(json.loads((out_dir / "manifest.json").read_text())["tables"]) == {"tables/one.csv", "tables/two.csv"}


def test_a_relative_mirror_cache_and_data_folder_are_those_of_the_caller(kit, project, monkeypatch):
    where = "import os\nfrom kfs.data.manifest import cache_folder, mirror_folder"
    found = SAVE.format(
        name="where", value="[os.path.isfile(mirror_folder() / 'mark'), str(cache_folder()), run.config.data.folder]"
    )
    kit.write_notebook(project / "notebooks" / "02_two.ipynb", START, where, found, FINISH)
    below = project / "below"
    for folder in ("mirror", "below"):
        (project / folder).mkdir()
    (project / "mirror" / "mark").touch()
    monkeypatch.chdir(below)
    monkeypatch.setenv("KFS_MIRROR", "../mirror")
    monkeypatch.setenv("KFS_CACHE", "cache")
    outcome = run(project, ["forecaster=prior", "notebooks=[02_two]", "data.folder=../records"])
    text = (outcome.out_dir / "tables" / "where.csv").read_text()
    assert all(word in text for word in ("True", str(below / "cache"), str(project / "records")))


def test_a_notebook_in_jupyterlab_replaces_nothing_of_a_finished_study(project, monkeypatch):
    import pandas as pd

    outcome = run(project, SECOND)
    before = (outcome.out_dir / "tables" / "two.csv").read_bytes()
    lab = kfs.start("embedded", SECOND)
    lab.save_table("two", pd.DataFrame({"seed": [99]}))
    lab.finish()
    assert lab.run_dir == outcome.out_dir
    assert (outcome.out_dir / "tables" / "two.csv").read_bytes() == before
    assert "99" in (outcome.out_dir / "lab" / "tables" / "two.csv").read_text()
    assert run(project, SECOND).ran == []


def test_a_failing_cell_is_reported_by_notebook_cell_and_error_and_the_rerun_continues(kit, project):
    kit.write_notebook(project / "notebooks" / "02_two.ipynb", "1 / 0", FINISH)
    with pytest.raises(StudyError, match="notebook 02_two, code cell 2 of 3: ZeroDivisionError: division by zero"):
        run(project, SECOND)
    (out_dir,) = (project / "runs" / "embedded").iterdir()
    report = json.loads((out_dir / "failure.json").read_text())
    assert (report["notebook"], report["cell"], report["source"]) == ("02_two", 2, "1 / 0")
    assert "ZeroDivisionError" in (out_dir / "failure.md").read_text()
    assert (out_dir / "logs" / "02_two.partial.ipynb").is_file()
    assert not (out_dir / "manifest.json").exists()

    kit.write_notebook(project / "notebooks" / "02_two.ipynb", START, FINISH)
    assert run(project, SECOND).ran == ["02_two"]
    assert (out_dir / "manifest.json").is_file()
    assert not (out_dir / "failure.md").exists()


MEET = (
    "import pathlib, time\n\npathlib.Path('../{mine}').touch()\nwhile not pathlib.Path('../{other}').exists(): time.sleep(0.05)"
)


def test_notebooks_run_side_by_side(kit, project):
    for name, mine, other in (("01_one", "a", "b"), ("02_two", "b", "a")):
        meet = MEET.format(mine=mine, other=other)
        kit.write_notebook(project / "notebooks" / f"{name}.ipynb", START, meet, SAVE.format(name=name, value=1), FINISH)
    assert run_study("embedded", BOTH, root=project, jobs=2, say=quiet).ran == ["01_one", "02_two"]


def test_the_neighbour_of_a_notebook_that_fails_is_kept_and_none_is_started_after(kit, project):
    fail = MEET.format(mine="a", other="b") + "\n1 / 0"
    wait = MEET.format(mine="b", other="failed")
    kit.write_notebook(project / "notebooks" / "01_one.ipynb", START, fail, FINISH)
    kit.write_notebook(project / "notebooks" / "02_two.ipynb", START, wait, FINISH)
    kit.write_notebook(project / "notebooks" / "03_three.ipynb", START, FINISH)
    said = []

    def say(text, passing=False):
        said.append(text)
        if "01_one failed" in text:
            (project / "failed").touch()

    three = [*BASE, "notebooks=[01_one,02_two,03_three]"]
    with pytest.raises(StudyError, match="notebook 01_one, code cell 3 of 4: ZeroDivisionError"):
        run_study("embedded", three, root=project, jobs=2, say=say)
    assert "01_one failed; waiting for those that run" in said
    (out_dir,) = (project / "runs" / "embedded").iterdir()
    assert (out_dir / "logs" / "02_two.json").is_file() and not (out_dir / "logs" / "03_three.job.json").exists()
    assert json.loads((out_dir / "failure.json").read_text())["notebook"] == "01_one"


def test_a_kernel_that_is_killed_is_reported_as_that(kit, project):
    kill = "import os, signal\n\nos.kill(os.getpid(), signal.SIGKILL)"
    kit.write_notebook(project / "notebooks" / "02_two.ipynb", kill, "3")
    with pytest.raises(StudyError, match="notebook 02_two, code cell 2 of 3: the kernel died"):
        run(project, SECOND)


def test_a_notebook_that_does_not_finish_is_a_failure(kit, project):
    kit.write_notebook(project / "notebooks" / "02_two.ipynb", "1 + 1")
    with pytest.raises(StudyError, match=r"02_two: it ended without run.finish\(\)"):
        run(project, SECOND)


def test_a_notebook_without_the_three_parameters_is_refused_before_anything_runs(kit, project):
    kit.write_notebook(
        project / "notebooks" / "02_two.ipynb", "1", parameters='study = ""\noverrides = ""\nout_dir = None\nextra = 1'
    )
    with pytest.raises(SchemaError, match="must set just study, overrides, out_dir; found study, overrides, out_dir, extra"):
        run(project, BOTH)
    assert not (project / "runs").exists()


def test_an_unknown_notebook_lists_those_there_are(project):
    with pytest.raises(UnknownNameError, match="known: 01_one, 02_two"):
        run(project, ["notebooks=[03_three]"])


def test_absent_records_name_the_command_that_makes_them(project):
    (project / "records" / "measurements.jsonl").unlink()
    with pytest.raises(DataError, match="kfs record"):
        run(project, BOTH)


def test_absent_public_data_names_the_command_that_fetches_it(project, monkeypatch, tmp_path):
    monkeypatch.setenv("KFS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KFS_MIRROR", raising=False)
    with pytest.raises(DataError, match="kfs data pull cuda_l1"):
        run_study("cuda_l1", ["forecaster=prior", "notebooks=[01_one]"], root=project, say=quiet)


def test_the_key_of_a_notebook_covers_source_configuration_inputs_and_library_versions(kit, project, monkeypatch):
    path = project / "notebooks" / "01_one.ipynb"
    config = compose("embedded", BOTH, root=project)
    key = study.notebook_key(path, config, {"a": "1"})
    assert key == study.notebook_key(path, compose("embedded", [*BASE, "notebooks=[01_one]"], root=project), {"a": "1"})
    assert key != study.notebook_key(path, compose("embedded", ["seed=1", *BOTH], root=project), {"a": "1"})
    assert key != study.notebook_key(path, config, {"a": "2"})
    with monkeypatch.context() as patch:
        patch.setattr(study, "versions", lambda: {**provenance.versions(), "numpy": "0.1"})
        assert key != study.notebook_key(path, config, {"a": "1"})
    kit.write_notebook(path, START, "1", FINISH)
    assert key != study.notebook_key(path, config, {"a": "1"})


def test_a_cell_that_is_not_python_is_refused_before_anything_runs(kit, project):
    kit.write_notebook(project / "notebooks" / "02_two.ipynb", "%matplotlib inline", "1 +", FINISH)
    with pytest.raises(SchemaError, match=r"02_two\.ipynb, code cell 3: not Python"):
        run(project, BOTH)
    assert not (project / "runs").exists()


def test_the_identity_of_a_model_is_among_the_inputs_of_a_study(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    config = compose("embedded", ["forecaster=local", f"forecaster.local.model={tmp_path}"])
    before = sources.model_digests(config)
    (tmp_path / "weights").write_text("more")
    assert set(before) == {"local"}
    assert sources.model_digests(config) != before


def test_two_runners_do_not_share_a_folder(tmp_path):
    with (
        run_lock(tmp_path),
        pytest.raises(StudyError, match=f"process {os.getpid()} is running this study"),
        run_lock(tmp_path, wait_s=0),
    ):
        pass


def test_the_lock_of_a_dead_runner_is_taken_over(tmp_path):
    script = (
        "import os, pathlib, sys\nfrom kfs.report.study import run_lock\n"
        "run_lock(pathlib.Path(sys.argv[1])).__enter__()\nos._exit(9)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert (tmp_path / ".lock").read_text().strip().isdigit()
    with run_lock(tmp_path, wait_s=0):
        pass


def test_notebooks_are_executed_without_building_a_grammar_of_uris():
    script = (
        "import sys\nfrom kfs.report.execute import no_uri_grammar\n"
        "with no_uri_grammar():\n    import papermill\n"
        "assert 'rfc3987_syntax' not in sys.modules and 'jsonschema' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_importing_kfs_imports_nothing_heavy_and_offers_start():
    script = (
        "import sys, kfs\n"
        "heavy = {'numpy', 'pandas', 'torch', 'hydra', 'matplotlib', 'pydantic', 'papermill'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert 'start' in dir(kfs) and callable(kfs.start)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
