"""Is a kernel right? Expected values, comparison, and the admission of tasks.

Pure functions on tensors that a candidate's process produced; nothing here imports or runs candidate code. Strict tasks are
held to an fp64 yardstick: the error may be a small multiple of the reference's own plus a few units in the last place, and
must also keep rtol/atol. Tolerance tasks are held to rtol/atol alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kfs.bench.sandbox import layout_fault
from kfs.errors import TaskError
from kfs.tasks import Case, Task, reference_function

STRICT_FACTOR = 8.0
STRICT_ULPS = 16.0


def as_tuple(outputs) -> tuple:
    """Outputs of a kernel as a tuple, whether it returned one tensor or several."""
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


@dataclass(frozen=True)
class Expected:
    """What one set of inputs must give."""

    reference: tuple[torch.Tensor, ...]
    """The reference's own outputs: type, shape and dtype to match."""
    yardstick: tuple[torch.Tensor, ...]
    """The outputs in float64 (strict tasks: computed in float64 throughout)."""
    allowed: tuple[torch.Tensor, ...]
    """Largest accepted absolute error for every element, float64."""


def expect(task: Task, inputs: tuple[torch.Tensor, ...], reference=None) -> Expected:
    """Compute what a kernel must return for ``inputs``, in this (trusted) process.

    Parameters
    ----------
    task : Task
    inputs : tuple of tensors
        Not modified.
    reference : callable, optional
        The task's reference function, where the caller has it loaded.
    """
    reference = reference or reference_function(task)
    with torch.inference_mode():
        outputs = as_tuple(reference(*(x.clone() for x in inputs)))
        yardstick = tuple(y.double() for y in outputs)
        if task.precision == "strict":
            wide = tuple(x.double() if x.is_floating_point() else x.clone() for x in inputs)
            yardstick = tuple(y.double() for y in as_tuple(reference(*wide)))
        allowed = []
        for y, exact in zip(outputs, yardstick, strict=True):
            bound = task.atol + task.rtol * exact.abs()
            if task.precision == "strict" and y.is_floating_point():
                own = (y.double() - exact).abs()
                own = own[own.isfinite()].max() if own.isfinite().any() else torch.tensor(0.0)
                eps = torch.finfo(y.dtype).eps
                bound = torch.minimum(bound, STRICT_FACTOR * own + STRICT_ULPS * eps * exact.abs())
            allowed.append(bound)
    return Expected(outputs, yardstick, tuple(allowed))


def value_fault(expected: Expected, outputs: tuple[torch.Tensor, ...]) -> str | None:
    """Where the outputs are wrong, in words; None if every element is right."""
    for i, (got, exact, allowed) in enumerate(zip(outputs, expected.yardstick, expected.allowed, strict=True)):
        got = got.double()
        if bool(((got - exact).abs_() <= allowed).all()):  # the common case; false wherever anything is not finite
            continue
        same_kind = torch.where(exact.isfinite(), got.isfinite(), (got == exact) | (got.isnan() & exact.isnan()))
        right = same_kind & (~exact.isfinite() | ((got - exact).abs() <= allowed))
        if not bool(right.all()):
            wrong = ~right
            first = tuple(int(k) for k in wrong.nonzero()[0])
            share = wrong.double().mean().item()
            return (
                f"output {i}: {share:.2%} of elements wrong; first at {list(first)}: "
                f"found {got[first].item():.6g}, expected {exact[first].item():.6g} within {allowed[first].item():.2g}"
            )
    return None


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

    Tries zeros, ones, a constant, broadcast values, each input itself, and the answer to other inputs, for each output alone.
    An impostor that passes in half of the cases or more refuses the task: a single case may be trivial, as the state before the
    first chunk is.

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
        for i, y in enumerate(expected.yardstick):
            if not bool(y.isfinite().all()):
                raise TaskError(f"{where}: reference output {i} is not finite; scale the inputs")
        if (found := fault(expected, expected.reference)) is not None:
            raise TaskError(f"{where}: the reference fails its own check ({found}); widen the tolerance or mend the reference")
        fakes = _impostors(inputs, expected)
        fakes["the answer to other inputs"] = expect(task, task.make_inputs(case, rng)).reference
        for name, fake in fakes.items():
            for i, part in enumerate(fake):
                alone = tuple(part if j == i else y for j, y in enumerate(expected.reference))
                if part is not expected.reference[i] and value_fault(expected, alone) is None:
                    passed[i, name] += 1
    for (i, name), n in passed.items():
        if 2 * n >= len(cases):
            raise TaskError(
                f"task {task.name!r}: {name} passes as output {i} in {n} of {len(cases)} cases "
                f"({', '.join(c.name for c in cases)}); the task is degenerate, change its inputs or tolerance"
            )
