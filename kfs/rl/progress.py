"""What a training run leaves behind: a checkpoint to go on from, a curve as records, and the same for TensorBoard.

The checkpoint is one file, replaced whole. A run that was killed goes on from it, takes back what the curve says of later steps,
and writes the curve it would have written.
"""

from __future__ import annotations

import io
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kfs.errors import TrainingError
from kfs.forecast.cache import library_versions
from kfs.records import Record, atomic_write, read_records
from kfs.score import accuracy, crps, ece, half_brier, spearman

CURVE, CHECKPOINT = "curve.jsonl", "checkpoint.pt"


class CurvePoint(Record):
    """Figures at one step: of the step itself (``train``), or of a split as forecast after it."""

    step: int
    split: Literal["train", "calibration", "test"]
    figures: dict[str, float]
    """Names and values, for example ``half_brier``, ``reward``, ``entropy``, ``seconds``."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    adapter: Path
    steps: int
    """Steps behind the weights that were kept."""
    figures: dict[str, float]
    """``half_brier_before``, ``half_brier_after`` and the like, on held-out pairs."""


def scored(p: np.ndarray, bins: Sequence[int], speedups: Sequence[float], failed=None) -> dict[str, float]:
    """Scores, calibration, spread and order of forecasts, by name; ``spearman`` where there is an order.

    Parameters
    ----------
    p : ndarray of shape (n, 8)
    bins, speedups : sequence of length n
        What was measured.
    failed : array-like of bool, optional
        Replies that could not be parsed.
    """
    found = {
        "half_brier": half_brier(p, bins, parse_failed=failed),
        "crps": crps(p, bins, parse_failed=failed),
        "accuracy": accuracy(p, bins, parse_failed=failed),
        "ece": ece(p, bins, parse_failed=failed),
        "entropy": float(-(p * np.log(np.maximum(p, 1e-12))).sum(axis=1).mean()),
        "spearman": spearman(p, speedups, parse_failed=failed),
    }
    return {name: float(value) for name, value in found.items() if np.isfinite(value)}


def versions(*packages: str) -> dict[str, str]:
    """Versions of installed packages, by name."""
    return dict(v.rsplit(" ", 1) for v in library_versions(packages).split(", "))


class Progress:
    """The folder of one run.

    Parameters
    ----------
    folder : Path
        Made if need be.
    """

    def __init__(self, folder: Path):
        self.folder, self.curve = Path(folder), []
        self.folder.mkdir(parents=True, exist_ok=True)
        self._board: Any = None

    def restore(self) -> dict[str, Any] | None:
        """The last checkpoint, and the curve up to it; None where there is none.

        Raises
        ------
        TrainingError
            If the file cannot be read.
        """
        import torch

        path = self.folder / CHECKPOINT
        if not path.is_file():
            self.rewind(-1)
            return None
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
            self.rewind(state["step"])
        except (OSError, RuntimeError, ValueError, KeyError, EOFError, pickle.UnpicklingError) as error:
            why = str(error).splitlines()[0]
            raise TrainingError(f"{path}: not a readable checkpoint ({why}); delete it to begin anew") from error
        return state

    def rewind(self, step: int) -> None:
        """Take back what the curve says of later steps; they are about to be run again."""
        path = self.folder / CURVE
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        whole = text[: text.rfind("\n") + 1].splitlines()  # a kill may have cut the last line
        points = [CurvePoint.model_validate_json(line) for line in whole]
        ended = lambda p: p.split == "test" and p.step > 0  # it is looked at again
        self.curve = [p for p in points if p.step <= step and not ended(p)]
        atomic_write(path, "".join(p.model_dump_json() + "\n" for p in self.curve).encode())

    def save(self, state: dict[str, Any]) -> None:
        """Write a checkpoint, whole or not at all; ``state`` says its ``step``."""
        import torch

        buffer = io.BytesIO()
        torch.save(state, buffer)
        atomic_write(self.folder / CHECKPOINT, buffer.getvalue())

    def add(self, step: int, split: str, figures: dict[str, float]) -> None:
        """Add a point to the curve."""
        point = CurvePoint(step=step, split=split, figures=figures)
        self.curve.append(point)
        with open(self.folder / CURVE, "a", encoding="utf-8") as file:
            file.write(point.model_dump_json() + "\n")
        if board := self._tensorboard(step):
            for name, value in figures.items():
                board.add_scalar(f"{split}/{name}", value, step)

    def of(self, split: str, name: str) -> list[tuple[int, float]]:
        """Steps and values of one figure."""
        return [(p.step, p.figures[name]) for p in self.curve if p.split == split and name in p.figures]

    def before_and_after(self) -> dict[str, float]:
        """Held-out figures of the first and of the last look, for example ``half_brier_before``; clocks aside."""
        looks = [p.figures for p in self.curve if p.split == "test"]
        both = (("before", looks[0]), ("after", looks[-1]))
        return {f"{name}_{when}": v for when, figures in both for name, v in figures.items() if name != "seconds"}

    def copy_curve(self, folder: Path) -> None:
        """Put the curve so far beside an adapter."""
        shutil.copyfile(self.folder / CURVE, folder / CURVE)

    def close(self) -> None:
        """Let go of TensorBoard's file."""
        if self._board:
            self._board.close()

    def _tensorboard(self, step: int) -> Any:
        """TensorBoard's writer; what an earlier life wrote from this step on is marked as void. False where it is missing."""
        if self._board is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                self._board = False
            else:
                self._board = SummaryWriter(str(self.folder / "tensorboard"), purge_step=step)
        return self._board


def read_curve(path: str | Path) -> Sequence[CurvePoint]:
    """The curve of a run, from its folder or file."""
    path = Path(path)
    return read_records(CurvePoint, path / CURVE if path.is_dir() else path)
