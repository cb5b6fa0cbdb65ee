"""The question a forecaster answers: two sources, the hardware and the task. It has no field for the answer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from kfs.records import Pair
from kfs.tasks import load_task, task_names


@dataclass(frozen=True)
class Query:
    """One pair of kernels to be compared, without its measured speedup, bin or interval."""

    comparison_id: str
    pack: str
    """Task or problem; names the forecast, never a feature."""
    hardware: str
    title: str
    """The operator in one sentence; empty where unknown."""
    signature: str
    """Inputs and outputs with shapes and dtypes; empty where unknown."""
    anchor_code: str
    candidate_code: str
    language: str = "python"
    anchor_variant: str = ""
    """For the variant table only; never in a prompt or a feature."""
    candidate_variant: str = ""
    anchor_language: str = ""
    """Where it is not ``language``, which is then the candidate's."""

    @classmethod
    def from_pair(cls, pair: Pair) -> Query:
        """The question of a pair. Title and signature are filled where its pack is a task of kfs."""
        title, signature = _task_text(pair.pack)
        return cls(
            comparison_id=pair.comparison_id,
            pack=pair.pack,
            hardware=pair.hardware,
            title=title,
            signature=signature,
            anchor_code=pair.anchor_code,
            candidate_code=pair.candidate_code,
            language=pair.language,
            anchor_language=pair.anchor_language,
            anchor_variant=pair.anchor_variant,
            candidate_variant=pair.candidate_variant,
        )


def languages(item: Query | Pair) -> dict[str, str]:
    """Language of each source: keys ``anchor_code`` and ``candidate_code``."""
    return {"anchor_code": item.anchor_language or item.language, "candidate_code": item.language}


@lru_cache(maxsize=1024)
def _task_text(pack: str) -> tuple[str, str]:
    if pack not in task_names():
        return "", ""
    task = load_task(pack)
    return task.title, task.signature
