"""The errors kfs raises: one family, each also the standard-library error it specialises.

A message names what was found, what was allowed and the next step.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KfsError(Exception):
    """Base of every error kfs raises on purpose."""

    def __str__(self) -> str:  # KeyError would show its message quoted
        return Exception.__str__(self)


class UnknownNameError(KfsError, KeyError):
    """A task, dataset, forecaster, config key or parameter that does not exist."""


class SchemaError(KfsError, ValueError):
    """A record or a file of records that does not have the documented form."""


class DataError(KfsError, OSError):
    """A public data file that is absent, truncated or altered."""


class TaskError(KfsError, ValueError):
    """A task that cannot be admitted, or a task file that is wrong."""


class HarnessError(KfsError, RuntimeError):
    """The measuring harness itself broke. Never charged to a candidate kernel."""


class StudyError(KfsError, RuntimeError):
    """A study that did not finish; names the notebook, the cell and the cause."""


class TrainingError(KfsError, RuntimeError):
    """A training run that cannot start or go on; what its last checkpoint holds is kept."""


class EndpointError(KfsError, ConnectionError):
    """A model's server that cannot be reached, refuses, or left calls unanswered. What was answered is kept."""


class MissingDependencyError(KfsError, ImportError):
    """An optional package is not installed; names the extra that brings it."""


def unknown_name(kind: str, name: object, known: Iterable[str], where: str = "") -> UnknownNameError:
    """Build the error for a name that does not exist, listing those that do.

    Parameters
    ----------
    kind : str
        What was looked up, for example ``"task"``.
    name : object
        What was asked for.
    known : iterable of str
        Every name that would have been accepted.
    where : str, optional
        Where such names are defined, for example ``"kfs/tasks"``.
    """
    names = sorted(str(k) for k in known)
    close = difflib.get_close_matches(str(name), names, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    place = f" ({where})" if where else ""
    return UnknownNameError(f"unknown {kind} {name!r}{hint}; known: {', '.join(names) or 'none'}{place}")
