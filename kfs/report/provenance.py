"""What decides a result besides configuration, data and models: the source code behind it, and the versions of libraries.

Source code is found by following imports from the modules a notebook names, so none can be forgotten; the few files that are
read instead of imported are listed in ``READ``. Modules that only run or present notebooks, and those that only measure, are
not imported on that way and change nothing. A model's weights are the business of ``sources.model_digests``.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import kfs
from kfs.errors import SchemaError

PACKAGE = Path(kfs.__file__).parent
ENTRY = "kfs.report.run"
"""What ``kfs.start`` imports."""
READ = ("tasks/*/task.py", "tasks/*/reference.py", "forecast/templates/*")
"""Files that are read, not imported: what tasks say of themselves, their references, and prompts."""
LIBRARIES = (
    "numpy",
    "scipy",
    "pandas",
    "scikit-learn",
    "torch",
    "transformers",
    "tokenizers",
    "gguf",
    "pyarrow",
    "matplotlib",
    "seaborn",
    "papermill",
    "hydra-core",
)
"""Libraries that can change a number, or the bytes of a figure."""


@lru_cache(maxsize=1024)
def imported(source: str, package: str) -> frozenset[str]:
    """Dotted names that ``source`` imports at any depth, with every name that could be a module.

    Examples
    --------
    >>> sorted(imported("from kfs.report import tables", "kfs"))
    ['kfs.report', 'kfs.report.tables']
    """
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names.update((origin, *(f"{origin}.{alias.name}" for alias in node.names)))
    return frozenset(names)


def cell_imports(cells: Iterable[dict], where: str) -> set[str]:
    """Dotted names that a notebook's code cells import.

    Raises
    ------
    SchemaError
        If a cell is not Python; lines of IPython's own (``%`` and ``!``) are passed over.
    """
    names: set[str] = set()
    for number, cell in enumerate((c for c in cells if c["cell_type"] == "code"), start=1):
        lines = "".join(cell["source"]).splitlines()
        try:
            names |= imported("\n".join(line for line in lines if not line.lstrip().startswith(("%", "!"))), "")
        except SyntaxError as error:
            raise SchemaError(f"{where}, code cell {number}: not Python ({error})") from error
    return names


def modules(roots: Iterable[str], package: Path = PACKAGE) -> dict[str, Path]:
    """Every module of the package that ``roots`` import, directly or through others, and its file."""
    found: dict[str, Path] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        parts = name.split(".")
        base = package.joinpath(*parts[1:])
        path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        if parts[0] != package.name or name in found or not path.is_file():
            continue
        found[name] = path
        waiting += [*imported(path.read_text(), name if base.is_dir() else name.rpartition(".")[0]), name.rpartition(".")[0]]
    return found


def code_digest(roots: Iterable[str], package: Path = PACKAGE) -> str:
    """Digest of the source that ``roots`` can reach, and of the files that it reads."""
    out = hashlib.sha256()
    read = (p for pattern in READ for p in package.glob(pattern) if p.is_file())
    for path in sorted({*modules(roots, package).values(), *read}):
        out.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return out.hexdigest()


def versions() -> dict[str, str]:
    """Versions of Python, kfs and the ``LIBRARIES`` that are installed."""
    found = {"python": sys.version.split()[0], "kfs": kfs.__version__}
    for name in LIBRARIES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def git_commit(root: Path) -> str | None:
    """Commit of the checkout, with ``+`` where tracked files were changed since; None outside git."""
    run = lambda *args: subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True, check=False)
    try:
        head = run("rev-parse", "--short=12", "HEAD")
        if head.returncode != 0:
            return None
        return head.stdout.strip() + ("+" if run("status", "--porcelain", "--untracked-files=no").stdout.strip() else "")
    except OSError:
        return None
