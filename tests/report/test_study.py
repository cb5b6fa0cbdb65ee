import json
import os
import subprocess
import sys

import pytest

from kfs.errors import DataError, SchemaError, StudyError, UnknownNameError
from kfs.report import study
from kfs.report.config import compose
from kfs.report.study import run_lock, run_study

START = "import kfs\n\nrun = kfs.start(study, overrides, out_dir)"
FINISH = "run.finish()"
BOTH = ["forecaster=prior", "notebooks=[01_one,02_two]"]
SECOND = ["forecaster=prior", "notebooks=[02_two]"]


@pytest.fixture(autouse=True)
def steady(monkeypatch):
    """Others may edit the package while tests run; these are about notebooks."""
    monkeypatch.setattr(study, "package_digest", lambda: "package")


def quiet(*args, **options):
    pass


def run(project, overrides):
    return run_study("embedded", overrides, root=project, say=quiet)


def test_a_study_runs_then_does_nothing_then_reruns_only_what_changed(kit, project):
    first = run(project, BOTH)
    assert first.ran == ["01_one", "02_two"]
    manifest = json.loads((first.out_dir / "manifest.json").read_text())
    assert [n["notebook"] for n in manifest["notebooks"]] == ["01_one", "02_two"]
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
    (project / "data" / "records" / "host-test" / "measurements.jsonl").unlink()
    with pytest.raises(DataError, match="kfs record"):
        run(project, BOTH)


def test_absent_public_data_names_the_command_that_fetches_it(project, monkeypatch, tmp_path):
    monkeypatch.setenv("KFS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KFS_MIRROR", raising=False)
    with pytest.raises(DataError, match="kfs data pull cuda_l1"):
        run_study("cuda_l1", BOTH, root=project, say=quiet)


def test_the_key_of_a_notebook_covers_source_configuration_data_and_package(kit, project):
    path = project / "notebooks" / "01_one.ipynb"
    config = compose("embedded", BOTH, root=project)
    key = study.notebook_key(path, config, {"a": "1"}, "p")
    assert key == study.notebook_key(
        path, compose("embedded", ["forecaster=prior", "notebooks=[01_one]"], root=project), {"a": "1"}, "p"
    )
    assert key != study.notebook_key(path, compose("embedded", ["seed=1", *BOTH], root=project), {"a": "1"}, "p")
    assert key != study.notebook_key(path, config, {"a": "2"}, "p")
    assert key != study.notebook_key(path, config, {"a": "1"}, "q")
    kit.write_notebook(path, START, "1", FINISH)
    assert key != study.notebook_key(path, config, {"a": "1"}, "p")


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


def test_importing_kfs_imports_nothing_heavy_and_offers_start():
    script = (
        "import sys, kfs\n"
        "heavy = {'numpy', 'pandas', 'torch', 'hydra', 'matplotlib', 'pydantic', 'papermill'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert 'start' in dir(kfs) and callable(kfs.start)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
