"""The study runner: runs a study's notebooks, each in its own process, and keeps what they make. Computes no result itself.

``runs/<study>/<digest>/`` holds config.yaml, records/, figures/, tables/, notebooks/ (executed), site/, logs/ and, written
last, manifest.json; the digest covers the configuration and the content of the data. A notebook is skipped when all that
decides what it makes is what it was - its source, the configuration, data and models, the package's source it reaches, the
versions of libraries - and its outputs are intact. No manifest: unfinished. What JupyterLab makes stands apart, in lab/.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kfs.errors import SchemaError, StudyError
from kfs.records import atomic_write, content_id
from kfs.report.config import compose, project_root, to_yaml
from kfs.report.execute import EXIT_CELL_FAILED, EXIT_KERNEL_DIED
from kfs.report.provenance import ENTRY, PACKAGE, cell_imports, code_digest, git_commit, versions
from kfs.report.schemas import LiveData, StudyConfig
from kfs.report.sources import data_digests, model_digests, run_folder

PARAMETERS = ("study", "overrides", "out_dir")
FOLDERS = ("KFS_MIRROR", "KFS_CACHE")
"""Environment variables that name folders: absolute in a notebook's process, which works in another folder."""


@dataclass(frozen=True)
class Outcome:
    """What a call of the runner did."""

    out_dir: Path
    ran: list[str]
    skipped: list[str]
    seconds: float

    @property
    def index(self) -> Path:
        """The page to open."""
        return self.out_dir / "site" / "index.html"


def sha256(path: Path) -> str:
    """Hex digest of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def read_notebook(path: Path) -> list[dict]:
    """Cells of a notebook, checked: language metadata, and a cell tagged ``parameters`` with the three literals.

    Raises
    ------
    SchemaError
        Naming the notebook and what it lacks.
    """
    try:
        notebook = json.loads(path.read_text())
        cells = notebook["cells"]
        language = notebook["metadata"]["kernelspec"]["language"]
    except (json.JSONDecodeError, KeyError) as error:
        raise SchemaError(f"{path.name}: not a notebook with kernelspec and language metadata ({error!r})") from error
    if language != "python":
        raise SchemaError(f"{path.name}: language {language!r}; only python notebooks are run")
    tagged = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
    text = "".join("".join(c["source"]) + "\n" for c in tagged)
    declared = [line.split("=")[0].strip() for line in text.splitlines() if "=" in line and not line.startswith((" ", "#"))]
    if sorted(declared) != sorted(PARAMETERS):
        found = ", ".join(declared) or "none"
        raise SchemaError(f"{path.name}: the cell tagged 'parameters' must set just {', '.join(PARAMETERS)}; found {found}")
    return cells


def notebook_key(path: Path, config: StudyConfig, inputs: dict[str, str], package: Path = PACKAGE) -> str:
    """Digest of everything that decides what a notebook makes.

    Parameters
    ----------
    path : Path
        The notebook; its own imports say which source of the package it can reach.
    config : StudyConfig
        Which notebooks run beside it does not count.
    inputs : dict of str to str
        Digests of data and models.
    package : Path, optional
        Folder of the package's source.
    """
    cells = read_notebook(path)
    shown = [[c["cell_type"], "".join(c["source"]), c["metadata"].get("tags", [])] for c in cells]
    alone = dataclasses.replace(config, notebooks=[])
    code = code_digest([ENTRY, *cell_imports(cells, path.name)], package)
    return content_id(
        json.dumps(shown), to_yaml(alone), json.dumps(inputs, sort_keys=True), code, json.dumps(versions()), length=64
    )


def _intact(out_dir: Path, name: str, key: str) -> dict | None:
    """The record of a finished notebook, if it was made from ``key`` and all its outputs are still what they were."""
    path = out_dir / "logs" / f"{name}.json"
    try:
        state = json.loads(path.read_text())
        same = state["key"] == key and all(sha256(out_dir / file) == digest for file, digest in state["outputs"].items())
    except (OSError, ValueError, KeyError):
        return None
    return state if same else None


@contextlib.contextmanager
def run_lock(out_dir: Path, *, wait_s: float = 10.0) -> Iterator[int]:
    """Hold a run's folder; yields the lock's descriptor, which a notebook's process inherits.

    The operating system lets go of it when the last holder ends, so a killed runner leaves no stale lock.

    Raises
    ------
    StudyError
        If another runner holds it; names its process.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    with open(out_dir / ".lock", "a+") as file:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    file.seek(0)
                    holder = file.read().strip() or "unknown"
                    raise StudyError(f"{out_dir}: process {holder} is running this study; wait for it or end it") from None
                time.sleep(0.25)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield file.fileno()


def _last_line(path: Path) -> str:
    """The last line, or carriage-returned part of one, of a growing file: what a progress bar shows now."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 400))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    parts = [p.strip() for p in text.replace("\n", "\r").split("\r") if p.strip() and "[IPKernelApp]" not in p]
    return parts[-1] if parts else ""


class _Process:
    """One notebook that runs in a process of its own.

    Parameters
    ----------
    source : Path
        The notebook.
    study : str
    overrides : list of str
    out_dir : Path
        The run's folder.
    lock : int
        Descriptor of the run's lock, which the process inherits.
    """

    def __init__(self, source: Path, study: str, overrides: list[str], out_dir: Path, lock: int):
        self.name, self._out_dir = source.stem, out_dir
        logs = out_dir / "logs"
        self._job = job = {
            "notebook": str(source),
            "partial": str(logs / f"{self.name}.partial.ipynb"),
            "error": str(logs / f"{self.name}.error.json"),
            "progress": str(logs / f"{self.name}.progress.txt"),
            "study": study,
            "overrides": shlex.join(overrides),
            "out_dir": str(out_dir),
        }
        self._made, self._log = logs / f"{self.name}.outputs.json", logs / f"{self.name}.log"
        for stale in (job["error"], job["progress"], self._made):
            Path(stale).unlink(missing_ok=True)
        (logs / f"{self.name}.job.json").write_text(json.dumps(job, indent=1))
        environment = {
            "OMP_WAIT_POLICY": "passive",  # waiting by spinning makes SmolLM2 some five times slower beside other busy processes
            **os.environ,
            **{key: os.path.abspath(os.path.expanduser(os.environ[key])) for key in FOLDERS if os.environ.get(key)},
            "KFS_CWD": os.getcwd(),
            "KFS_NOTEBOOK": self.name,
            "JUPYTER_PREFER_ENV_PATH": "1",
            "JUPYTER_PLATFORM_DIRS": "1",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        self._began = time.monotonic()
        with open(self._log, "w") as file:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "kfs.report.execute", str(logs / f"{self.name}.job.json")],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=environment,
                pass_fds=(lock,),
            )

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._began

    def __str__(self) -> str:
        return f"{self.name}  {self.seconds:.0f} s  {_last_line(Path(self._job['progress']))}".rstrip()

    def ended(self) -> bool:
        """Whether it is over."""
        return self._child.poll() is not None

    def keep(self, *, report: bool) -> None:
        """Move the executed notebook to its place. Raises StudyError if it failed, with a written ``report`` if asked."""
        if self._child.returncode == 0 and not self._made.is_file():
            unfinished = {"error": "it ended without run.finish()", "traceback": "", "kind": "unfinished"}
            Path(self._job["error"]).write_text(json.dumps(unfinished))
        if self._child.returncode != 0 or not self._made.is_file():
            if not report:
                raise StudyError(f"notebook {self.name} failed, too")
            raise _failure(self.name, self._child.returncode, self._job, self._out_dir, self._log)
        os.replace(self._job["partial"], self._out_dir / "notebooks" / f"{self.name}.ipynb")

    def end(self) -> None:
        """End it, if it still runs."""
        self._child.terminate()
        self._child.wait()


def default_jobs() -> int:
    """How many notebooks run at a time: one a core, four at most, since each brings its own libraries."""
    return min(4, len(os.sched_getaffinity(0)))


def _side_by_side(
    names: list[str], start: Callable[[str], _Process], jobs: int, say: Callable[..., None]
) -> Iterator[tuple[_Process, float]]:
    """Run notebooks, at most ``jobs`` at a time, in order; gives each that ended well, with its seconds, when it is over.

    After a failure none is started; those that run are waited for and kept, then the first failure is raised.
    """
    waiting, running, failure = list(names), [], None
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(start(waiting.pop(0)))
            time.sleep(0.1)
            for process in [p for p in running if p.ended()]:
                running.remove(process)
                seconds = process.seconds
                try:
                    process.keep(report=failure is None)
                except StudyError as error:
                    waiting, failure = [], failure or error
                    say(f"{process.name} failed" + "; waiting for those that run" * bool(running))
                else:
                    yield process, seconds
            if running:
                say("   ".join(map(str, running)), passing=True)
    finally:
        for process in running:
            process.end()
    if failure is not None:
        raise failure


def _failure(name: str, status: int, job: dict[str, str], out_dir: Path, log: Path) -> StudyError:
    """Write failure.json and failure.md, and return the error that says the same in short."""
    known = status in (0, EXIT_CELL_FAILED, EXIT_KERNEL_DIED) and Path(job["error"]).is_file()
    if known:
        report = json.loads(Path(job["error"]).read_text())
    elif status < 0:
        end = signal.Signals(-status).name
        report = {
            "kind": "killed",
            "error": f"its process was killed by {end}" + (" (out of memory?)" if end == "SIGKILL" else ""),
        }
    else:
        report = {"kind": "runner", "error": f"its process ended with status {status}: {_last_line(log) or 'no output'}"}
    report = {"notebook": name, "exit_status": status, "cell": None, "cells": None, "traceback": "", "source": "", **report}
    place = f", code cell {report['cell']} of {report['cells']}" if report["cell"] else ""
    again = shlex.join(["kfs", "study", job["study"], *shlex.split(job["overrides"])])
    atomic_write(out_dir / "failure.json", json.dumps(report, indent=1).encode())
    text = (
        f"# Notebook {name} failed\n\n{report['error']}\n\nWhere: {name}{place}. What was done is kept; then run again:\n\n"
        f"    {again}\n\nThe notebook as far as it got: logs/{name}.partial.ipynb; output of its process: logs/{log.name}\n"
    )
    if report["source"]:
        text += f"\n## The cell\n\n```python\n{report['source']}\n```\n"
    if report["traceback"]:
        text += f"\n## Traceback\n\n```\n{report['traceback']}\n```\n"
    atomic_write(out_dir / "failure.md", text.encode())
    return StudyError(f"notebook {name}{place}: {report['error']}\nreport: {out_dir / 'failure.md'}\nafter mending it: {again}")


class Console:
    """Prints lines; shows a passing line in place on a terminal and once in half a minute elsewhere."""

    def __init__(self, stream=None) -> None:
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self._shown = time.monotonic()

    def __call__(self, text: str, *, passing: bool = False) -> None:
        if not passing:
            self.stream.write(("\r\x1b[K" if self.live else "") + text + "\n")
        elif self.live:
            columns = os.get_terminal_size(self.stream.fileno()).columns
            self.stream.write("\r\x1b[K" + text[: columns - 1])
        elif time.monotonic() - self._shown > 30:
            self.stream.write(text + "\n")
            self._shown = time.monotonic()
        self.stream.flush()


def run_study(
    study: str = "embedded",
    overrides: list[str] | None = None,
    *,
    root: Path | None = None,
    runs: Path | None = None,
    jobs: int | None = None,
    say: Callable[..., None] | None = None,
) -> Outcome:
    """Run a study's notebooks, or what is left of them, and build its site.

    Notebooks are started in the order of the configuration. They read no other's output; where two ask for the same forecasts,
    one computes them and the other waits.

    Parameters
    ----------
    study : str
        A file of ``conf/study``.
    overrides : list of str, optional
        Hydra overrides.
    root : Path, optional
        Folder with ``conf/`` and ``notebooks/``; default the checkout.
    runs : Path, optional
        Where runs are kept; default ``root/runs``.
    jobs : int, optional
        Notebooks at a time; default :func:`default_jobs`.
    say : callable, optional
        Shows a line of progress; default prints to stderr.

    Returns
    -------
    Outcome
        The run's folder, and which notebooks ran or were skipped.

    Raises
    ------
    StudyError
        If a notebook failed (failure.md in the run's folder says where and why) or another runner holds the folder.
    DataError
        If the study's data is absent; names the command that fetches it.
    """
    began = time.monotonic()
    root, say, overrides = root or project_root(), say or Console(), list(overrides or [])
    config = compose(study, overrides, root=root)
    if isinstance(config.data, LiveData):
        from kfs.report.live import measure

        measure(config.data, say)
    data = data_digests(config)
    inputs = {**data, **model_digests(config)}
    out_dir = run_folder(config, data, runs or root / "runs")
    sources = {name: root / "notebooks" / f"{name}.ipynb" for name in config.notebooks}
    keys = {name: notebook_key(path, config, inputs) for name, path in sources.items()}
    ran, skipped, states = [], [], {}
    with run_lock(out_dir) as lock:
        manifest = _manifest(out_dir)
        for folder in ("logs", "notebooks", "tables", "figures", "records"):
            (out_dir / folder).mkdir(exist_ok=True)
        atomic_write(out_dir / "config.yaml", to_yaml(config).encode())
        for name in config.notebooks:
            if state := _intact(out_dir, name, keys[name]):
                states[name] = state
                skipped.append(name)
        waiting = [name for name in config.notebooks if name not in states]
        for stale in ("manifest.json", "failure.json", "failure.md") if waiting else ():
            (out_dir / stale).unlink(missing_ok=True)
        made_by = {"git_commit": git_commit(root), "versions": versions()}
        start = lambda name: _Process(sources[name], study, overrides, out_dir, lock)
        with contextlib.closing(_side_by_side(waiting, start, jobs or default_jobs(), say)) as ended:
            for process, seconds in ended:
                name = process.name
                states[name] = _record(out_dir, name, keys[name], seconds, made_by)
                ran.append(name)
                made = f"{len(states[name]['tables'])} tables, {len(states[name]['figures'])} figures"
                say(f"[{len(states)}/{len(config.notebooks)}] {name}  {seconds:.0f} s, {made}")
        ran.sort(key=config.notebooks.index)
        presents = _site_key()
        if ran or manifest is None or manifest["site_key"] != presents or not _site_intact(out_dir, manifest):
            (out_dir / "manifest.json").unlink(missing_ok=True)
            _finish(out_dir, config, data, states, presents)
    return Outcome(out_dir, ran, skipped, time.monotonic() - began)


def _record(out_dir: Path, name: str, key: str, seconds: float, made_by: dict) -> dict:
    """Keep what a notebook made, with digests and with what it ran on, as its record of being finished."""
    made = json.loads((out_dir / "logs" / f"{name}.outputs.json").read_text())
    files = [f"notebooks/{name}.ipynb", *made["files"]]
    state = {
        "notebook": name,
        "key": key,
        "seconds": round(seconds, 1),
        **made_by,
        "tables": made["tables"],
        "figures": made["figures"],
        "outputs": {file: sha256(out_dir / file) for file in files},
    }
    atomic_write(out_dir / "logs" / f"{name}.json", json.dumps(state, indent=1).encode())
    return state


def _manifest(out_dir: Path) -> dict | None:
    try:
        return json.loads((out_dir / "manifest.json").read_text())
    except (OSError, ValueError):
        return None


def _site_key() -> str:
    """Digest of what shapes the site."""
    files = [PACKAGE / "report" / "site.py", *sorted(p for p in (PACKAGE / "report" / "templates").rglob("*") if p.is_file())]
    return content_id(*(f"{p.name}\0{p.read_text()}" for p in files))


def _site_intact(out_dir: Path, manifest: dict) -> bool:
    try:
        return all(sha256(out_dir / file) == digest for file, digest in manifest["site"].items())
    except OSError:
        return False


def _finish(out_dir: Path, config: StudyConfig, data: dict[str, str], states: dict[str, dict], presents: str) -> None:
    """Build the site, then write the manifest: the last thing a run does. Commit and versions are those of each notebook."""
    shown = ("notebook", "seconds", "git_commit", "versions", "tables", "figures")
    from kfs.report.site import build_site

    manifest = {
        "schema_version": 1,
        "study": config.study,
        "digest": out_dir.name,
        "config": dataclasses.asdict(config),
        "data": data,
        "seconds": round(sum(s["seconds"] for s in states.values()), 1),
        "notebooks": [{k: states[name][k] for k in shown} for name in config.notebooks],
        "tables": {f: d for s in states.values() for f, d in s["outputs"].items() if f.startswith("tables/")},
        "figures": {f: d for s in states.values() for f, d in s["outputs"].items() if f.startswith("figures/")},
        "executed": {f: d for s in states.values() for f, d in s["outputs"].items() if f.startswith("notebooks/")},
        "site_key": presents,
    }
    pages = build_site(out_dir, manifest)
    manifest["site"] = {str(p.relative_to(out_dir)): sha256(p) for p in pages}
    atomic_write(out_dir / "manifest.json", json.dumps(manifest, indent=1).encode())
