"""Kernels and tasks written for other benchmarks, as ours.

``load_kernel`` takes a candidate's source, finds its entry point in the syntax tree and adds a few lines that call it; the source
is never imported or executed here. Accepted: ``kernel(*inputs)`` (ours), ``custom_kernel(data)`` (GPU MODE; ``data`` is the tuple
of inputs, or the tensor itself where there is one), a class ``ModelNew`` or ``Model`` with ``get_init_inputs()`` (KernelBench;
built once when the kernel is imported, from a fixed seed, without gradients) and CUDA C++ (``.cu``) that says in its leading
comments how it is launched (``kfs.bench.launch``). ``load_task`` also takes a KernelBench problem file (``Model``,
``get_inputs``, ``get_init_inputs``); unlike a candidate it is trusted, as any task file is: it runs in this process.

Not adapted: GPU MODE's own generators and checkers (the task of ours decides inputs and tolerance), outputs handed in as part of
``data``, and KernelBench's inputs that are not tensors.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from kfs import tasks
from kfs.errors import TaskError
from kfs.records import Kernel
from kfs.tasks import STRESSES, Case, Task

MAX_BYTES = 1_000_000
ENTRY = "kfs_entry"
"""Entry point of an adapted kernel: a name that its own helpers do not use."""
SEED = 42
"""Parameters of a ``Model`` and of its ``ModelNew`` are drawn from this seed, so that they are equal where both draw alike."""
_KNOWN = {
    "custom_kernel": "custom_kernel(data) (GPU MODE)",
    "ModelNew": "class ModelNew (KernelBench)",
    "kernel": "kernel(*inputs)",
    "Model": "class Model (KernelBench)",
}
_TRITON = re.compile(r"^\s*(import|from) triton\b", re.MULTILINE)

_CALL_CUSTOM = f"""

# Added by kfs: how the entry point is called.
def {ENTRY}(*inputs):
    return custom_kernel(inputs[0] if len(inputs) == 1 else inputs)
"""
_BUILD_MODEL = """

# Added by kfs: one model, built from a fixed seed at import and moved to the inputs' device at the first call.
import torch as _kfs_torch


def _kfs_build(model, init):
    with _kfs_torch.random.fork_rng(devices=[]):
        _kfs_torch.manual_seed({seed})
        arguments = init()
        _kfs_torch.manual_seed({seed})
        made = model(*arguments)
    if isinstance(made, _kfs_torch.nn.Module):
        made.requires_grad_(False)
    return made


_kfs_model = _kfs_build({model}, {init})
"""
_CALL_MODEL = f"""_kfs_placed = False


def {ENTRY}(*inputs):
    global _kfs_placed
    if not _kfs_placed:
        if inputs and isinstance(_kfs_model, _kfs_torch.nn.Module):
            _kfs_model.to(inputs[0].device)
        _kfs_placed = True
    return _kfs_model(*inputs)
"""
# A reference is also run on float64 inputs, for the yardstick.
_CALL_REFERENCE = f"""_kfs_placed, _kfs_wide = False, None


def {ENTRY}(*inputs):
    global _kfs_placed, _kfs_wide
    if not _kfs_placed:
        _kfs_model.to(inputs[0].device)
        _kfs_placed = True
    if inputs[{{index}}].dtype is _kfs_torch.float64:
        if _kfs_wide is None:
            import copy

            _kfs_wide = copy.deepcopy(_kfs_model).double()
        return _kfs_wide(*inputs)
    return _kfs_model(*inputs)
"""


def load_kernel(source: str | Path, task: Task | None = None) -> Kernel:
    """A candidate as a kernel of ours, without running a line of it.

    Parameters
    ----------
    source : str or Path
        Path of a ``.py`` or ``.cu`` file, or a Python source itself (a string with a line break in it).
    task : Task, optional
        What it is a candidate for. If that came from a KernelBench problem, its ``get_init_inputs`` is used.

    Returns
    -------
    Kernel
        The source with a few lines added; unchanged if it defines ``kernel(*inputs)``, or is not Python at all: then the device
        says what is wrong with it.

    Raises
    ------
    TaskError
        If the file is absent, empty, no text, longer than 1 MB, or has no entry point known here: says what was found.
    LaunchError
        If a ``.cu`` file does not say how to launch it.
    """
    if isinstance(source, str) and "\n" in source:
        where, text, name, suffix = "the source", _checked(source.encode(), "the source"), None, ".py"
    else:
        path = Path(source)
        where, text, name, suffix = str(path), read_source(path), path.stem, path.suffix
    common = {"task": task.name if task else None, "name": name, "family": name}
    if suffix == ".cu":
        from kfs.bench.launch import parse_launch

        return Kernel(language="cuda", source=text, entry=parse_launch(text).launches[-1].entry, **common)
    language = "triton" if _TRITON.search(text) else "python"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Kernel(language=language, source=text, **common)
    found = _entry(tree, where)
    if found == "kernel":
        return Kernel(language=language, source=text, **common)
    text = _without_task_module(text, tree)
    if found == "custom_kernel":
        text += _CALL_CUSTOM
    else:
        text += _BUILD_MODEL.format(seed=SEED, model=found, init=_init_of(tree, task)) + _CALL_MODEL
    return Kernel(language=language, source=text, entry=ENTRY, **common)


def read_source(path: Path) -> str:
    """Text of a kernel file.

    Raises
    ------
    TaskError
        If it is absent, empty, not UTF-8 text or longer than 1 MB, or neither ``.py`` nor ``.cu``.
    """
    if path.suffix not in (".py", ".cu"):
        raise TaskError(f"{path}: a kernel file ends in .py (Python, Triton) or .cu (CUDA C++)")
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror or error})") from error
    return _checked(raw, str(path))


def _checked(raw: bytes, where: str) -> str:
    if len(raw) > MAX_BYTES:
        raise TaskError(f"{where}: longer than {MAX_BYTES} bytes; a kernel's source is at most that")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TaskError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    if "\0" in text:
        raise TaskError(f"{where}: holds NUL bytes; it is not a source text")
    if not text.strip():
        raise TaskError(f"{where}: empty; a kernel file defines one of: {', '.join(_KNOWN.values())}")
    return text.replace("\r\n", "\n")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run at import, those inside if, try, with and loops too."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from _statements(getattr(node, name, []))
        for handler in getattr(node, "handlers", []):
            yield from _statements(handler.body)


def _is_triton_kernel(node: ast.stmt) -> bool:
    """Whether a function is launched on a grid, and so no entry point: decorated with ``triton.jit`` or the like."""
    return isinstance(node, ast.FunctionDef) and any(
        re.search(r"\b(triton|tl)\.|\bjit\b", ast.unparse(d)) and "numba" not in ast.unparse(d) for d in node.decorator_list
    )


def _names(tree: ast.Module) -> dict[str, ast.stmt]:
    """Functions, classes and other names a module binds at import, with the statement that does."""
    names: dict[str, ast.stmt] = {}
    for node in _statements(tree.body):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names[node.name] = node
        elif isinstance(node, ast.Assign):
            names |= {t.id: node for target in node.targets for t in ast.walk(target) if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            names[node.target.id] = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(a.asname or a.name).split(".")[0]: node for a in node.names}
    return names


def _entry(tree: ast.Module, where: str) -> str:
    """Which of the known entry points a module has; the ones of a benchmark come before the plain ``kernel`` of a helper."""
    names = _names(tree)
    for name in _KNOWN:
        if name in names and not (name == "kernel" and _is_triton_kernel(names[name]) and _uses_triton(tree)):
            return name
    defined = [f"{n} ({type(node).__name__.removesuffix('Def').lower()})" for n, node in names.items() if hasattr(node, "body")]
    helper = "; its kernel is a Triton function, which another function must launch" if "kernel" in names else ""
    raise TaskError(
        f"{where}: no entry point known here{helper}; found: {', '.join(defined[:12]) or 'no function or class'}; "
        f"allowed: {', '.join(_KNOWN.values())}"
    )


def _uses_triton(tree: ast.Module) -> bool:
    return any(
        (isinstance(n, ast.Import) and any(a.name.split(".")[0] == "triton" for a in n.names))
        or (isinstance(n, ast.ImportFrom) and (n.module or "").split(".")[0] == "triton")
        for n in ast.walk(tree)
    )


def _without_task_module(text: str, tree: ast.Module) -> str:
    """The text with ``from task import input_t, output_t`` (GPU MODE's types for annotations) made plain assignments."""
    lines = text.splitlines(keepends=True)
    for node in reversed(list(_statements(tree.body))):
        if isinstance(node, ast.ImportFrom) and node.module == "task" and node.level == 0:
            names = [a.asname or a.name for a in node.names if a.name != "*"] or ["input_t", "output_t"]
            first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
            kept = first[: node.col_offset].decode(), last[node.end_col_offset :].decode()
            lines[node.lineno - 1 : node.end_lineno] = [f"{kept[0]}{' = '.join(names)} = object{kept[1]}"]
    return "".join(lines)


def _init_of(tree: ast.Module, task: Task | None) -> str:
    """Expression of a function that gives the arguments of ``Model``: the problem's values, else the source's own function."""
    if task is not None and is_problem(task.definition):
        values = _trusted_module(task.definition, task.name).get_init_inputs()
        try:
            ast.literal_eval(repr(values))
        except (ValueError, SyntaxError) as error:
            raise TaskError(
                f"task {task.name!r}: get_init_inputs() gives {repr(values)[:80]}; only numbers, strings, lists, tuples and "
                "dictionaries can be handed to a candidate"
            ) from error
        return f"lambda: {values!r}"
    return "get_init_inputs" if "get_init_inputs" in _names(tree) else "lambda: []"


def is_problem(text: str) -> bool:
    """Whether a source is a KernelBench problem: ``Model``, ``get_inputs`` and ``get_init_inputs``."""
    try:
        return {"Model", "get_inputs", "get_init_inputs"} <= _names(ast.parse(text)).keys()
    except (SyntaxError, ValueError):
        return False


def load_task(name: str | Path) -> Task:
    """A task by name, by the path of a folder with ``task.py``, or by the path of a KernelBench problem file.

    All of these are trusted: they run in this process, with its rights.

    Raises
    ------
    UnknownNameError
        If there is no such task.
    TaskError
        If the file or folder is no task.
    """
    path = Path(name)
    if path.suffix == ".py" and path.is_file():
        return load_problem(path)
    return tasks.load_task(name)


def _trusted_module(text: str, name: str) -> ModuleType:
    module = ModuleType(f"kfs_problem_{name}")
    exec(compile(text, f"<problem {name}>", "exec"), module.__dict__)
    return module


def load_problem(path: Path) -> Task:
    """A KernelBench problem file as a task. The file is trusted: it runs in this process.

    Every preset is the problem's one shape, with inputs as ``get_inputs`` draws them; no other shape is held out. Stresses are
    those under which the model's outputs are finite. Outputs written once are all the traffic that is certain, and one operation
    an output all the work.

    Raises
    ------
    TaskError
        If it does not define the three names, or its inputs or outputs are not tensors of the CPU.
    """
    import numpy as np
    import torch

    from kfs.bench.judge import as_tuple, stress

    text = read_source(path)
    if not is_problem(text):
        raise TaskError(f"{path}: a KernelBench problem defines Model, get_inputs() and get_init_inputs()")

    def make_inputs(case, rng):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(rng.integers(2**63)))
            return tuple(module.get_inputs())

    rng = np.random.default_rng(SEED)
    try:
        module = _trusted_module(text, path.stem)
        inputs = make_inputs(None, rng)
        floats = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        source = text + _BUILD_MODEL.format(seed=SEED, model="Model", init="get_init_inputs")
        source += _CALL_REFERENCE.replace("{index}", str(floats[0])) if floats else _CALL_MODEL
        reference = getattr(_trusted_module(source, path.stem), ENTRY)
        with torch.inference_mode():
            outputs = as_tuple(reference(*(copy.deepcopy(x) for x in inputs)))
    except TaskError:
        raise
    except Exception as error:
        raise TaskError(f"{path}: the problem itself fails here: {type(error).__name__}: {str(error)[:300]}") from error
    if odd := [type(x).__name__ for x in (*inputs, *outputs) if not isinstance(x, torch.Tensor) or x.device.type != "cpu"]:
        raise TaskError(f"{path}: inputs and outputs must be tensors on the CPU, found {', '.join(odd)}")

    def survives(name: str) -> bool:
        try:
            with torch.inference_mode():
                return all(bool(y.isfinite().all()) for y in as_tuple(reference(*stress(name, draft, inputs, rng))))
        except (RuntimeError, ValueError, IndexError):
            return False

    case = Case("problem", {})
    size = max(float(y.double().square().mean().sqrt()) for y in outputs) or 1.0
    draft = Task(
        name=path.stem,
        title=f"KernelBench problem {path.stem}.",
        signature=f"kernel({', '.join(map(_declare, inputs))}) -> {', '.join(map(_declare, outputs))}",
        make_inputs=make_inputs,
        cases=dict.fromkeys(("tiny", "host", "paper"), (case,)),
        rtol=1e-3,
        atol=1e-4 * size,
        precision="strict" if floats else "tolerance",
        flops=lambda case: float(sum(y.numel() for y in outputs)),
        nbytes=lambda case: float(sum(y.nbytes for y in outputs)),
        held_out="",
        stresses=(),
        stressed=tuple(floats),
        reference=Kernel(language="python", source=source, entry=ENTRY, task=path.stem, name="reference", family="reference"),
        definition=text,
    )
    return replace(draft, stresses=tuple(s for s in STRESSES if floats and survives(s)))


def _declare(tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, tensor.shape))}]"
