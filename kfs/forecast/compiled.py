"""Boosted trees that also see what a compiler makes of both sources: registers, spills, shared memory, instructions.

Facts need no GPU and are kept by content under ``KFS_CACHE``, so that a study pays for them once and a killed one goes on where
it was. They exist for CUDA C++ and Triton, and for Python modules with CUDA C++ in their strings (CUDA-L1's custom kernels); host
kernels have none, and there this forecaster is ``boosted``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from kfs.forecast.boosted import Boosted
from kfs.forecast.context import compiler_facts, processor_of, task_of
from kfs.forecast.query import Query, languages
from kfs.records import Pair

DEADLINE_S = 300.0
"""Of one compilation. Far above what kernels take, since one that is given up has other features than one that is not."""
SIDES = ("anchor_code", "candidate_code")


@dataclass
class BoostedFacts(Boosted):
    """``boosted`` with the compiler facts of anchor and candidate, and their difference, as further features.

    Where there are none, and where a source does not compile, all are 0, the first of them (``compiles``) too.
    """

    name: ClassVar[str] = "boosted_facts"
    libraries: ClassVar[tuple[str, ...]] = (*Boosted.libraries, "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "triton")
    reads: ClassVar[tuple[str, ...]] = ("kfs.bench.compile",)

    def _features(self, items: Sequence[Pair | Query], *, swapped: bool = False) -> np.ndarray:
        sides = fact_features(items)
        anchor, candidate = sides[::-1] if swapped else sides
        text = super()._features(items, swapped=swapped)
        return np.hstack([text, anchor, candidate, candidate - anchor]).astype(np.float32)


def fact_features(items: Sequence[Pair | Query]) -> np.ndarray:
    """Compiler facts of anchors and candidates, shape (2, n, features); ``kfs.bench.facts.FEATURES`` in order.

    What is not compiled yet is compiled now, with a progress bar where that takes long.
    """
    from tqdm.auto import tqdm

    wanted = [[_question(i, side) for i in items] for side in SIDES]
    distinct = dict.fromkeys(question for side in wanted for question in side)
    row = {question: _row(*question) for question in tqdm(distinct, desc="compiling", unit="source", delay=2.0, leave=False)}
    return np.array([[row[question] for question in side] for side in wanted])


def has_facts(item: Pair | Query) -> tuple[bool, bool]:
    """Whether anchor and candidate compile to something the facts speak of."""
    anchor, candidate = (bool(_row(*_question(item, side))[0]) for side in SIDES)
    return anchor, candidate


def _question(item: Pair | Query, side: str) -> tuple[str, str, str, str]:
    language = languages(item)[side]
    return getattr(item, side), language, item.hardware, "" if language == "python" else item.pack


@lru_cache(maxsize=50_000)
def _row(source: str, language: str, hardware: str, pack: str) -> tuple[float, ...]:
    from kfs.bench.facts import FEATURES, compile_features

    facts = compiler_facts(source, language, processor_of(hardware), task_of(pack), deadline_s=DEADLINE_S)
    return tuple(compile_features(facts).values()) if facts else (0.0,) * len(FEATURES)
