"""Run one notebook in a process of its own: ``python -m kfs.report.execute JOB.json``. A child of the study runner.

Papermill changes the working folder of its process and trusts what a dead kernel last said, so each notebook gets a process
and the runner trusts its exit status: 0 done, 3 a cell failed, 4 the kernel died; anything else, or a signal, is this
process's own end. What went wrong is written beside the log. Ends itself when the runner is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

EXIT_CELL_FAILED = 3
EXIT_KERNEL_DIED = 4
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def _end_with_parent() -> None:
    """End when the runner does; the kernel ends when this process does."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def no_uri_grammar() -> Iterator[None]:
    """Import notebook libraries without the grammar of URIs that jsonschema builds at import, which takes two seconds.

    No field of a notebook is a URI, and jsonschema does without the module where it is not installed.
    """
    name = "rfc3987_syntax"
    absent = name not in sys.modules
    if absent:
        sys.modules[name] = None
    try:
        yield
    finally:
        if absent:
            del sys.modules[name]


def code_cells(path: Path) -> list:
    """Code cells of an executed notebook as the source has them: without what papermill put in."""
    import nbformat

    cells = nbformat.read(path, as_version=4).cells
    return [c for c in cells if c.cell_type == "code" and "injected-parameters" not in c.metadata.get("tags", [])]


def _where(partial: Path, status: str) -> dict[str, object]:
    """Number, count and source of the last code cell that began (or the one with ``status``)."""
    cells = code_cells(partial)
    begun = [i for i, c in enumerate(cells) if c.metadata.get("papermill", {}).get("start_time")]
    failed = [i for i in begun if cells[i].metadata["papermill"].get("status") == status]
    index = (failed or begun or [0])[-1]
    return {"cell": index + 1, "cells": len(cells), "source": cells[index].source}


def execute(job: dict[str, str]) -> int:
    """Execute ``job["notebook"]`` with its three parameters; return the exit status.

    Parameters
    ----------
    job : dict
        ``notebook`` (source), ``partial`` (executed notebook, growing), ``error`` (written on failure), ``progress`` (the
        kernel's stderr as it comes), ``study``, ``overrides``, ``out_dir``.
    """
    with no_uri_grammar():
        import papermill
        from nbclient.exceptions import DeadKernelError
        from papermill.exceptions import PapermillExecutionError

    partial = Path(job["partial"])
    try:
        with open(job["progress"], "w", buffering=1) as progress:
            papermill.execute_notebook(
                job["notebook"],
                str(partial),
                {"study": job["study"], "overrides": job["overrides"], "out_dir": job["out_dir"]},
                kernel_name="python3",
                progress_bar=False,
                stderr_file=progress,
                cwd=str(Path(job["notebook"]).parent),
            )
    except PapermillExecutionError as error:
        report = {
            "kind": "cell",
            **_where(partial, "failed"),
            "error": f"{error.ename}: {error.evalue}",
            "traceback": _ANSI.sub("", "\n".join(error.traceback)),
        }
        status = EXIT_CELL_FAILED
    except DeadKernelError:
        report = {
            "kind": "kernel",
            **_where(partial, "running"),
            "error": "the kernel died: it was killed (out of memory is the usual reason) or crashed in native code",
            "traceback": "",
        }
        status = EXIT_KERNEL_DIED
    else:
        return 0
    Path(job["error"]).write_text(json.dumps(report, indent=1))
    return status


if __name__ == "__main__":
    _end_with_parent()
    sys.exit(execute(json.loads(Path(sys.argv[1]).read_text())))
