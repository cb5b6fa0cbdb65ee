"""What must be computed: one folder a task.

``task.py`` defines ``TASK`` (inputs, cases, tolerance, cost), ``reference.py`` is the kernel candidates are compared with,
``host/`` and ``cuda/`` hold one file for each algorithm or layout of candidate kernels: Python for a CPU; Triton, PyTorch
(``.py``) or CUDA C++ (``.cu``) for a GPU. A folder of a user's own with these files works like ours: pass its path wherever a
task name is taken. Whether a task deserves to be measured is decided by ``kfs.bench.judge.admit``.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np

from kfs.errors import TaskError, unknown_name
from kfs.records import Kernel, content_id

if TYPE_CHECKING:
    import torch

DEVICES = ("host", "cuda")
MAX_VARIANTS = 4
_FOLDER = Path(__file__).parent
_VARIANTS = re.compile(
    r"^(?P<head>(?:#define )?(?P<name>[A-Z][A-Z0-9_]*) (?:= )?)(?P<value>[^#/\n]+?)\s*(?:#|//) variants: (?P<others>.+)$",
    re.MULTILINE,
)
STRESSES = ("scaled", "zero", "negative", "outlier", "near_duplicates")
"""Distributions a right kernel must survive besides the timed one; ``kfs.bench.judge.stress`` makes them."""


@dataclass(frozen=True)
class Case:
    """One benchmark case: named sizes and how its inputs are distributed."""

    name: str
    sizes: Mapping[str, int]
    distribution: str = "normal"
    """What ``make_inputs`` draws from, for example normal, heavy_tailed or masked."""

    def __getitem__(self, key: str) -> int:
        return self.sizes[key]


def case(distribution: str = "normal", **sizes: int) -> Case:
    """A case named after its sizes.

    Examples
    --------
    >>> case(rows=8, cols=32, distribution="heavy_tailed").name
    'rows8_cols32_heavy_tailed'
    """
    name = "_".join(f"{k}{v}" for k, v in sizes.items())
    return Case(name if distribution == "normal" else f"{name}_{distribution}", sizes, distribution)


@dataclass(frozen=True)
class Task:
    """What must be computed, on which inputs, how exactly, and what it must cost at least."""

    name: str
    title: str
    """One sentence: the operator."""
    signature: str
    """Inputs and outputs with shapes and dtypes, for prompts and people."""
    make_inputs: Callable[[Case, np.random.Generator], tuple[torch.Tensor, ...]]
    """Fresh contiguous CPU tensors for one call."""
    cases: Mapping[str, tuple[Case, ...]]
    """Benchmark cases by preset: tiny (tests), host (CPU measurements), paper (GPU)."""
    rtol: float
    atol: float
    precision: Literal["strict", "tolerance"]
    """tolerance: rtol/atol alone; strict: also at most a small multiple of the reference's own error against fp64."""
    flops: Callable[[Case], float]
    """Unavoidable floating point operations of one call."""
    nbytes: Callable[[Case], float]
    """Compulsory memory traffic of one call: inputs read once, outputs written once, bytes."""
    held_out: str = "tiny"
    """Preset whose shapes are checked and never timed; empty where the contract is the timed shapes alone."""
    stresses: tuple[str, ...] = STRESSES
    """Which of ``STRESSES`` the contract includes."""
    stressed: tuple[int, ...] = (0,)
    """Inputs that stresses change; the others are drawn as always."""
    reference: Kernel = field(default=None, compare=False)
    """Competent eager PyTorch for this task; runs unchanged on float64 inputs. Filled by the loader from ``reference.py``."""
    definition: str = field(default="", compare=False, repr=False)
    """Text of ``task.py``, filled by the loader."""
    folder: Path | None = field(default=None, compare=False)
    """Where its kernel families lie, filled by the loader."""

    def __post_init__(self):
        unknown = [name for name in self.stresses if name not in STRESSES]
        if unknown:
            raise unknown_name("stress", unknown[0], STRESSES, "kfs/tasks")

    @property
    def task_id(self) -> str:
        """Content id of ``task.py``: cases, inputs and tolerance."""
        return content_id(self.definition)

    def kernels(self, device: str = "host") -> list[Kernel]:
        """Candidate kernels for a kind of device, in a fixed order: every file, and every variant of its constants."""
        if device not in DEVICES:
            raise unknown_name("kernel family device", device, DEVICES, "kfs/tasks")
        files = sorted(p for p in (self.folder / device).glob("[!_]*") if p.suffix in (".py", ".cu")) if self.folder else []
        return [k for path in files for k in expand_variants(path, task=self.name, language=language_of(path))]

    def preset(self, name: str) -> tuple[Case, ...]:
        """Cases of a preset."""
        if name not in self.cases:
            raise unknown_name("preset", name, self.cases, f"task {self.name}")
        return self.cases[name]


def language_of(path: Path) -> str:
    """Language of a kernel file: ``.cu`` is cuda; ``.py`` is triton if it imports triton, else python."""
    if path.suffix == ".cu":
        return "cuda"
    return "triton" if re.search(r"^\s*(import|from) triton\b", path.read_text(), re.MULTILINE) else "python"


def expand_variants(path: Path, *, task: str, language: str) -> list[Kernel]:
    """Kernels of one family file.

    A line ``BLOCK = 64  # variants: 16, 256`` (``#define BLOCK 64  // variants: 16, 256`` in CUDA C++) makes one kernel for each
    value; the comment is taken out of every source.

    Raises
    ------
    TaskError
        If a file has several such lines, more than four values, or a value that is not a literal.
    """
    text = path.read_text()
    matches = list(_VARIANTS.finditer(text))
    if not matches:
        return [Kernel(language=language, source=text, task=task, name=path.stem, family=path.stem)]
    if len(matches) > 1:
        raise TaskError(f"{path.name}: {len(matches)} lines with '# variants:'; at most one a file")
    (match,) = matches
    try:
        others = ast.literal_eval(f"({match['others']},)")
        values = [ast.literal_eval(match["value"]), *others]
    except (ValueError, SyntaxError) as error:
        raise TaskError(f"{path.name}: variants must be literals separated by commas, found {match['others']!r}") from error
    if len(values) > MAX_VARIANTS or len(set(map(repr, values))) < len(values):
        raise TaskError(f"{path.name}: at most {MAX_VARIANTS} different values of {match['name']}, found {values}")
    return [
        Kernel(
            language=language,
            source=text[: match.start()] + f"{match['head']}{value!r}" + text[match.end() :],
            task=task,
            name=f"{path.stem}[{match['name']}={value!r}]",
            family=path.stem,
        )
        for value in values
    ]


def task_names() -> list[str]:
    """Names of the tasks that come with kfs."""
    return sorted(p.parent.name for p in _FOLDER.glob("*/task.py"))


def load_task(name: str | Path) -> Task:
    """Load a task by name, or from the path of a folder with ``task.py`` and ``reference.py``.

    Raises
    ------
    UnknownNameError
        If there is no such task; lists those there are.
    TaskError
        If the folder's ``task.py`` does not define a ``Task`` named ``TASK`` or ``reference.py`` is absent.
    """
    folder = _FOLDER / str(name) if str(name) in task_names() else Path(name)
    if not (folder / "task.py").is_file():
        raise unknown_name("task", str(name), task_names(), "kfs/tasks, or the path of a folder with task.py and reference.py")
    return _load_folder(folder.resolve())


@cache
def _load_folder(folder: Path) -> Task:
    task = getattr(load_module(folder / "task.py"), "TASK", None)
    if not isinstance(task, Task):
        raise TaskError(f"{folder / 'task.py'}: define TASK = Task(...), found {type(task).__name__}")
    if not (folder / "reference.py").is_file():
        raise TaskError(f"{folder}: reference.py is missing; it defines kernel(*inputs) in plain PyTorch")
    source = (folder / "reference.py").read_text()
    reference = Kernel(language="python", source=source, task=task.name, name="reference", family="reference")
    return replace(task, folder=folder, reference=reference, definition=(folder / "task.py").read_text())


def load_module(path: Path) -> ModuleType:
    """Run a trusted Python file (a task or its reference) as a module of its own. Never used for candidates."""
    spec = importlib.util.spec_from_file_location(f"kfs_task_{zlib.crc32(str(path).encode()):08x}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reference_function(task: Task) -> Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]:
    """The reference as a Python function of this process; reference code is trusted."""
    module = ModuleType("kfs_reference")
    exec(compile(task.reference.source, f"<reference of {task.name}>", "exec"), module.__dict__)
    return getattr(module, task.reference.entry)


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    """Standard normal float32 tensor, times ``scale``."""
    import torch

    return torch.from_numpy(rng.standard_normal(shape, dtype=np.float32) * np.float32(scale))


def heavy_tailed(rng: np.random.Generator, *shape: int, df: float = 2.0) -> torch.Tensor:
    """Student t float32 tensor with ``df`` degrees of freedom: most values small, a few very large."""
    import torch

    return torch.from_numpy(rng.standard_t(df, shape).astype(np.float32))
