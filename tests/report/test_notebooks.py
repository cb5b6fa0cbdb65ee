import ast
import json
import re
from pathlib import Path

import pytest

from kfs.report.study import read_notebook

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def code(path):
    return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]


def test_the_five_notebooks_of_the_study_are_there():
    found = [p.stem for p in NOTEBOOKS]
    assert {"01_measurements", "02_accuracy", "03_calibration", "04_selective", "05_recovery"} <= set(found)


@each
def test_a_notebook_is_committed_stripped(path):
    assert all(c["outputs"] == [] and c["execution_count"] is None for c in code(path))


@each
def test_a_notebook_has_language_metadata_and_a_parameters_cell_of_plain_literals(path):
    read_notebook(path)
    assert json.loads(path.read_text())["metadata"]["kernelspec"]["name"] == "python3"
    (cell,) = [c for c in code(path) if "parameters" in c["metadata"].get("tags", [])]
    for statement in ast.parse("".join(cell["source"])).body:
        ast.literal_eval(statement.value)


@each
def test_a_notebook_defines_nothing_and_catches_nothing(path):
    for cell in code(path):
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            assert not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.Try)), ast.unparse(node)


@each
def test_a_notebook_is_short_and_ends_with_finish(path):
    cells = code(path)
    assert len(cells) <= 15
    assert "".join(cells[-1]["source"]).strip().endswith("run.finish()")


@each
def test_a_notebook_opens_with_its_question_inputs_minutes_and_gpu(path):
    first = json.loads(path.read_text())["cells"][0]
    text = "".join(first["source"])
    assert first["cell_type"] == "markdown"
    assert re.match(r"# .*\?", text)
    assert all(word in text for word in ("Inputs", "minute", "GPU"))


@each
def test_a_notebook_holds_no_absolute_path(path):
    assert not re.search(r"[\"'\s](/[a-z]+/|[A-Z]:\\\\)", path.read_text())
