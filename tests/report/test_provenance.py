import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kfs.report import provenance
from kfs.report.study import read_notebook

REPOSITORY = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))


def roots():
    return [provenance.ENTRY, *(name for path in NOTEBOOKS for name in provenance.cell_imports(read_notebook(path), path.name))]


@pytest.fixture
def package(tmp_path):
    """A copy of the package's source, to be changed."""
    return shutil.copytree(provenance.PACKAGE, tmp_path / "kfs", ignore=shutil.ignore_patterns("__pycache__"))


COUNTS = (
    "bench/timing.py",
    "bench/campaign.py",
    "pairs.py",
    "speedup.py",
    "data/cuda_l1.py",
    "data/clean.py",
    "forecast/trees.py",
    "forecast/templates/candidate.j2",
    "tasks/softmax/task.py",
    "score/bootstrap.py",
    "report/tables.py",
    "report/style.py",
)
COUNTS_NOT = (
    "bench/host.py",
    "bench/sandbox.py",
    "bench/judge.py",
    "report/site.py",
    "report/study.py",
    "report/templates/style.css",
    "cli.py",
)


def test_a_change_counts_where_it_can_reach_a_result_and_nowhere_else(package):
    digest = provenance.code_digest(roots(), package)
    assert digest == provenance.code_digest(roots())
    kernel = next((package / "tasks" / "softmax" / "host").glob("*.py")).relative_to(package)
    for file in (*COUNTS_NOT, kernel):
        (package / file).write_text((package / file).read_text() + "\n")
    assert provenance.code_digest(roots(), package) == digest
    for file in COUNTS:
        before = provenance.code_digest(roots(), package)
        (package / file).write_text((package / file).read_text() + "\n")
        assert provenance.code_digest(roots(), package) != before, file


def test_what_pairs_are_made_of_counts_for_pairs():
    reached = {str(p.relative_to(provenance.PACKAGE)) for p in provenance.modules(["kfs.report.sources"]).values()}
    assert {"pairs.py", "bench/timing.py", "bench/campaign.py", "data/cuda_l1.py", "data/duplicates.py", "records.py"} <= reached
    assert not {"bench/host.py", "bench/sandbox.py", "report/tables.py"} & reached


def test_every_module_and_file_of_the_package_that_a_study_touches_counts(tmp_path):
    """Not by reading the source, as the digest does, but by watching a study: all it imports, all it opens."""
    script = """
import json, os, sys
from pathlib import Path
import numpy as np
package = Path(sys.argv[1])
opened = set()
def watch(event, details):
    if event == "open" and not isinstance(details[0], int) and os.fsdecode(details[0]).startswith(str(package)):
        opened.add(os.fsdecode(details[0]))
sys.addaudithook(watch)
import kfs
from kfs import pairs as rooms
from kfs.report import figures, measured, sources, tables
sys.path.insert(0, sys.argv[3])
import conftest
made = conftest.make_pairs(np.random.default_rng(0))
names = {"task0": "softmax", "task1": "cumsum", "task2": "rmsnorm"}
code = "def kernel(x):\\n    return x.exp().sum(dim=1) + torch.relu(x)  # "
fields = lambda p: {"pack": names[p.pack], "anchor_code": code + p.anchor_code, "candidate_code": code + p.candidate_code}
made = [p.model_copy(update=fields(p)) for p in made]
run = kfs.start("embedded", "forecaster.local=null data.folder=. bootstrap.n_resamples=5", sys.argv[2])
sources.load_pairs = lambda *a: made
frame = run.frame()
tables.headline(frame, run.intervals), tables.recovery(frame), measured.label_noise(made, "pack")
figures.headline(tables.headline(frame, run.intervals), "")
from kfs.data import cuda_l1
cuda_l1.pairs(cuda_l1.load_rows(paths=[sys.argv[4]]))
modules = {m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "kfs" and getattr(m, "__file__", None)}
print(json.dumps(sorted(modules | {f for f in opened if "__pycache__" not in f and Path(f).is_file()})))
"""
    (tmp_path / "measurements.jsonl").write_text("{}\n")
    excerpt = REPOSITORY / "data" / "excerpts" / "cuda_l1" / "h100.json"
    words = [str(provenance.PACKAGE), str(tmp_path / "run"), str(Path(__file__).parent), str(excerpt)]
    environment = {
        **os.environ,
        "KFS_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": str(REPOSITORY),
        "MPLCONFIGDIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    touched = {str(Path(f).relative_to(provenance.PACKAGE)) for f in json.loads(done.stdout.splitlines()[-1])}
    counted = {str(p.relative_to(provenance.PACKAGE)) for p in provenance.modules(roots()).values()}
    counted |= {str(p.relative_to(provenance.PACKAGE)) for pattern in provenance.READ for p in provenance.PACKAGE.glob(pattern)}
    assert {"bench/timing.py", "tasks/softmax/task.py", "forecast/boosted.py"} <= touched
    assert touched <= counted


def test_imports_are_found_at_any_depth_and_relative_ones_too():
    source = "from kfs import score\ndef f():\n    import kfs.pairs\n    from .cache import x\n"
    names = provenance.imported(source, "kfs.forecast")
    assert {"kfs", "kfs.score", "kfs.pairs", "kfs.forecast.cache"} <= names


def test_versions_name_python_and_the_libraries_that_compute():
    found = provenance.versions()
    assert {"python", "kfs", "numpy", "torch", "scikit-learn"} <= set(found)
