"""Is a kernel right? Expected values, stresses, comparison, and the admission of tasks.

Pure functions on tensors that a candidate's process produced; nothing here imports or runs candidate code. Strict tasks are
held to an fp64 yardstick: the error may be a small multiple of the largest one the reference itself makes on inputs of the same
distribution, plus a few units in the last place of the output's size, and must also keep rtol/atol. Order of summation costs a
factor of 1 to 20 (measured on the host kernels), half precision inside a float32 task 1000 and more. Tolerance tasks are held to
rtol/atol alone.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kfs.bench.child import layout_fault
from kfs.errors import TaskError
from kfs.records import Kernel
from kfs.tasks import Case, Task, reference_function

STRICT_FACTOR = 32.0
STRICT_ULPS = 16.0
_OWN_CODE = {"numba", "triton", "ctypes", "cffi", "cuda", "cupy"}


def as_tuple(outputs) -> tuple:
    """Outputs of a kernel as a tuple, whether it returned one tensor or several."""
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


@dataclass(frozen=True)
class Expected:
    """What one set of inputs must give."""

    reference: tuple[torch.Tensor, ...]
    """The reference's own outputs: type, shape and dtype to match."""
    low: tuple[np.ndarray, ...]
    """Smallest accepted value of every element; NaN where NaN is expected."""
    high: tuple[np.ndarray, ...]
    """Largest accepted value of every element."""

    @property
    def finite(self) -> bool:
        """Whether every expected value is a finite number."""
        return all(bool(np.isfinite(x).all()) for x in self.low)


def expect(task: Task, inputs: tuple[torch.Tensor, ...], reference=None) -> Expected:
    """What a kernel must return for ``inputs``; see ``expect_sets``."""
    return expect_sets(task, [inputs], reference)[0]


def expect_sets(
    task: Task, sets: Sequence[tuple[torch.Tensor, ...]], reference=None, *, stressed: bool = False
) -> list[Expected]:
    """Compute what a kernel must return for each set of inputs, in this (trusted) process.

    Parameters
    ----------
    task : Task
        A TaskError is raised if its reference does not return new real tensors, or changes an input.
    sets : sequence of tuples of tensors
        Draws of one distribution; the reference's own error is the largest over all of them. Not modified.
    reference : callable, optional
        The task's reference function, where the caller has it loaded.
    stressed : bool
        The inputs are harder than the task's own: rtol/atol or the strict bound, whichever is wider, since orders of evaluation
        that agree on ordinary values part company there.
    """
    reference = reference or reference_function(task)
    strict = task.precision == "strict"
    outputs, exact = [], []
    with torch.inference_mode():
        for inputs in sets:
            outputs.append(_returned(task, reference, tuple(x.clone() for x in inputs)))
            if strict:
                wide = tuple(x.double() if x.is_floating_point() else x.clone() for x in inputs)
                exact.append(tuple(y.double() for y in as_tuple(reference(*wide))))
            else:
                exact.append(tuple(y.double() for y in outputs[-1]))
        own = [max(_largest(y[i].double() - e[i]) for y, e in zip(outputs, exact, strict=True)) for i in range(len(outputs[0]))]
        return [_bounds(task, y, e, own, stressed) for y, e in zip(outputs, exact, strict=True)]


def _returned(task: Task, reference, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """What a reference returns, if it keeps the contract that candidates are held to."""
    kept = [x.clone() for x in inputs]
    outputs = as_tuple(reference(*inputs))
    wrong, lying = "", {x.untyped_storage().data_ptr(): i for i, x in enumerate(inputs)}
    for i, y in enumerate(outputs):
        if not isinstance(y, torch.Tensor):
            wrong = f"output {i} is a {type(y).__name__}; kernels return what they compute as new tensors"
        elif y.is_complex():
            wrong = f"output {i} is {y.dtype}; return its real view (torch.view_as_real)"
        elif y.untyped_storage().data_ptr() in lying and y.numel():
            wrong = f"output {i} lies in the memory of input {lying[y.untyped_storage().data_ptr()]}; return a new tensor"
    if not wrong and (changed := [i for i, x in enumerate(inputs) if not _same(x, kept[i])]):
        wrong = f"input {changed[0]} is changed in place; kernels leave their inputs alone and return new tensors"
    if wrong:
        raise TaskError(f"task {task.name!r}: the reference breaks the contract: {wrong}")
    return outputs


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(torch.equal(a.nan_to_num(), b.nan_to_num()) if a.is_floating_point() else torch.equal(a, b))


def _largest(error: torch.Tensor) -> float:
    """Largest absolute value among the finite ones."""
    error = error.abs()[error.isfinite()]
    return error.max().item() if error.numel() else 0.0


def _bounds(task: Task, outputs: tuple, exact: tuple, own: list[float], stressed: bool) -> Expected:
    low, high = [], []
    for y, e, worst in zip(outputs, exact, own, strict=True):
        if not y.is_floating_point():
            low.append(y.numpy())
            high.append(y.numpy())
            continue
        size = e.abs()
        allowed = task.atol + task.rtol * size
        if task.precision == "strict":
            typical = size[size.isfinite()].square().mean().sqrt() if size.isfinite().any() else torch.tensor(0.0)
            ulps = STRICT_ULPS * torch.finfo(y.dtype).eps * size.clamp(min=typical)
            allowed = (torch.maximum if stressed else torch.minimum)(allowed, STRICT_FACTOR * worst + ulps)
        dtype = torch.float64 if y.dtype == torch.float64 else torch.float32
        open_ = ~e.isfinite()
        low.append(torch.where(open_, e, e - allowed).to(dtype).numpy())
        high.append(torch.where(open_, e, e + allowed).to(dtype).numpy())
    return Expected(outputs, tuple(low), tuple(high))


def value_fault(expected: Expected, outputs: tuple[torch.Tensor, ...]) -> str | None:
    """Where the outputs are wrong, in words; None if every element is right."""
    for i, (tensor, low, high) in enumerate(zip(outputs, expected.low, expected.high, strict=True)):
        got = _array(tensor)
        right = (got >= low) & (got <= high)  # false wherever something is NaN
        if right.all():
            continue
        if low.dtype.kind == "f":
            right |= np.isnan(low) & np.isnan(got)
        if not right.all():
            wrong = ~right
            first = tuple(int(k) for k in np.argwhere(wrong)[0])
            center, width = (float(high[first]) + float(low[first])) / 2, (float(high[first]) - float(low[first])) / 2
            return (
                f"output {i}: {wrong.mean():.2%} of elements wrong; first at {list(first)}: "
                f"found {float(got[first]):.6g}, expected {center:.6g} within {width:.2g}"
            )
    return None


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The values in numpy, which compares many times faster than torch with one thread; short floats as float32."""
    short = tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64)
    return (tensor.float() if short else tensor).numpy()


def stress(name: str, task: Task, inputs: tuple[torch.Tensor, ...], rng: np.random.Generator) -> tuple[torch.Tensor, ...]:
    """Inputs with those the task names in ``stressed`` replaced by a harder draw.

    Parameters
    ----------
    name : str
        scaled (times 100), zero, negative (minus the absolute value), outlier (one element of 10^4 times the largest) or
        near_duplicates (100 plus a hundredth of the draw, where one-pass variances cancel).
    """
    changed = list(inputs)
    for i in task.stressed:
        x = inputs[i]
        if not x.is_floating_point():
            continue
        if name == "scaled":
            y = x * 100
        elif name == "zero":
            y = torch.zeros_like(x)
        elif name == "negative":
            y = -x.abs()
        elif name == "outlier":
            y = x.clone()
            y.view(-1)[int(rng.integers(x.numel()))] = 1e4 * x.abs().max()
        else:
            y = (100 + x.double() / 100).to(x.dtype)
        changed[i] = y
    return tuple(changed)


def fault(expected: Expected, outputs) -> str | None:
    """First fault of layout, then of values; None for a right answer."""
    outputs = as_tuple(outputs)
    return layout_fault(outputs, expected.reference) or value_fault(expected, outputs)


def _impostors(inputs: tuple[torch.Tensor, ...], expected: Expected) -> dict[str, tuple[torch.Tensor, ...]]:
    """Outputs that compute nothing, by name."""
    wants = expected.reference
    fakes = {
        "zeros": tuple(torch.zeros_like(y) for y in wants),
        "ones": tuple(torch.ones_like(y) for y in wants),
        "a constant (the mean)": tuple(torch.full_like(y, y.double().mean().item()) for y in wants),
    }
    if any(y.dim() and y.shape[-1] > 1 for y in wants):
        fakes["a broadcast value (each row's first element)"] = tuple(
            y[..., :1].expand_as(y) if y.dim() and y.shape[-1] > 1 else y for y in wants
        )
    if any(y.dim() and y.shape[0] > 1 for y in wants):
        fakes["a broadcast value (the first row)"] = tuple(y[:1].expand_as(y) if y.dim() and y.shape[0] > 1 else y for y in wants)
    for i, x in enumerate(inputs):
        if any(x.shape == y.shape for y in wants):
            fakes[f"input {i} itself"] = tuple(x.to(y.dtype) if x.shape == y.shape else y for y in wants)
    return fakes


def admit(task: Task, cases: Sequence[Case], rng: np.random.Generator) -> None:
    """Refuse a degenerate task: one whose check a kernel passes that computes nothing.

    Tries zeros, ones, a constant, broadcast values, each input itself, and the answer to other inputs, for each output alone;
    and whether each input matters at all. An impostor that passes in half of the cases or more, and on every stress as well,
    refuses the task: a single case may be trivial, as the state before the first chunk is.

    Raises
    ------
    TaskError
        Naming the task, the case and the impostor that passed, or an output that is not finite.
    """
    passed: dict[tuple[int, str], int] = Counter()
    for case in cases:
        where = f"task {task.name!r}, case {case.name!r}"
        inputs = task.make_inputs(case, rng)
        expected = expect(task, inputs)
        if not expected.finite:
            raise TaskError(f"{where}: the reference's outputs are not finite; scale the inputs")
        if (found := fault(expected, expected.reference)) is not None:
            raise TaskError(f"{where}: the reference fails its own check ({found}); widen the tolerance or mend the reference")
        passed.update(_survivors(task, inputs, expected, task.make_inputs(case, rng)))
    suspects = [which for which, n in passed.items() if 2 * n >= len(cases)]
    for name in task.stresses if suspects else ():
        inputs, other = (stress(name, task, task.make_inputs(cases[0], rng), rng) for _ in range(2))
        (expected,) = expect_sets(task, [inputs], stressed=True)
        if expected.finite and not all(torch.equal(a, b) for a, b in zip(inputs, other, strict=True)):
            still = _survivors(task, inputs, expected, other)
            suspects = [which for which in suspects if which in still]
    for i, name in suspects[:1]:
        raise TaskError(
            f"task {task.name!r}: {name} passes as {'every output' if i < 0 else f'output {i}'} in {passed[i, name]} of "
            f"{len(cases)} cases ({', '.join(c.name for c in cases)}); the task is degenerate, change its inputs or tolerance"
        )


def _survivors(task: Task, inputs: tuple, expected: Expected, other: tuple) -> list[tuple[int, str]]:
    """Impostors that pass the check for these inputs: output (-1 for all of them at once) and name."""
    found = []
    fakes = _impostors(inputs, expected)
    fakes["the answer to other inputs"] = expect(task, other).reference
    for name, fake in fakes.items():
        for i, part in enumerate(fake):
            alone = tuple(part if j == i else y for j, y in enumerate(expected.reference))
            if part is not expected.reference[i] and value_fault(expected, alone) is None:
                found.append((i, name))
    for i in range(len(inputs)):
        swapped = expect(task, (*inputs[:i], other[i], *inputs[i + 1 :])).reference
        if value_fault(expected, swapped) is None and not torch.equal(inputs[i], other[i]):
            found.append((-1, f"the answer to another input {i}"))
    return found


def library_only(kernel: Kernel) -> bool:
    """Whether a Python kernel leaves all work to library operators: a label read from its source, never a verdict.

    True if it imports none of the ways to run compiled code of its own (numba, triton, ctypes, cffi, cuda, cupy).
    """
    try:
        nodes = list(ast.walk(ast.parse(kernel.source)))
    except (SyntaxError, ValueError, RecursionError):
        return False
    names = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    names += [n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module]
    return kernel.language == "python" and not {n.split(".")[0] for n in names} & _OWN_CODE
