"""Which pairs a forecaster is trained on: whole groups of a reference, spread over tasks, and never a task it is judged on.

The control is made here, too: the same pairs with candidates' sources swapped among those of one task and variant, so that what
is left to learn is the base rate, the reference and what the variant gives away.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from kfs.errors import TrainingError
from kfs.forecast.local import Local
from kfs.forecast.prompt import Prompt
from kfs.forecast.query import Query
from kfs.pairs import Fold, family, require_held_out
from kfs.records import Pair


def labels(pairs: Sequence[Pair]) -> tuple[list[int], list[float]]:
    """True bins and measured speedups."""
    return [p.true_bin for p in pairs], [p.aggregated_speedup for p in pairs]


def reference_of(pair: Pair) -> str:
    """What names the reference of a pair: all pairs with the same one are compared with the same kernel on the same hardware."""
    return f"{pair.pack}\0{pair.hardware}\0{pair.anchor_code}"


def training_pairs(fold: Fold, n: int, per_reference: int, *, control: bool) -> list[Pair]:
    """The pairs of a fold's training split that a run learns from; for the control, with candidates' sources swapped."""
    chosen = choose(fold.train, n, per_reference, "train")
    return swapped(chosen, _rng("control")) if control else chosen


def _rng(purpose: str) -> np.random.Generator:
    """The same numbers for a purpose whatever a run's seed, so that runs differ in start and order and not in what they see."""
    return np.random.default_rng(zlib.crc32(purpose.encode()))


def choose(pairs: Sequence[Pair], n: int, per_reference: int, purpose: str) -> list[Pair]:
    """About ``n`` pairs, even over tasks, each time up to ``per_reference`` pairs of one reference; original order kept.

    Pairs of a reference share most of their prompt, so they are taken together. Labels play no part in the choice: the base
    rate is part of what is learnt. The choice for a ``purpose`` is always the same.
    """
    rng = _rng(purpose)
    by_task: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, p in enumerate(pairs):
        by_task[p.pack][reference_of(p)].append(i)
    queues = {}
    for task, references in sorted(by_task.items()):
        names = sorted(references)
        groups = [list(rng.permutation(references[names[k]])) for k in rng.permutation(len(names))]
        queues[task] = [
            [int(i) for i in rows[j : j + per_reference]] for rows in groups for j in range(0, len(rows), per_reference)
        ]
    chosen: set[int] = set()
    taken = {task: 0 for task in [list(queues)[k] for k in rng.permutation(len(queues))]}
    while len(chosen) < min(n, len(pairs)):
        task = min((t for t in taken if queues[t]), key=taken.get)  # groups differ in size: the one that has least comes next
        rows = queues[task].pop(0)
        chosen.update(rows)
        taken[task] += len(rows)
    return [p for i, p in enumerate(pairs) if i in chosen]


def swapped(pairs: Sequence[Pair], rng: np.random.Generator) -> list[Pair]:
    """The same pairs with candidates' sources permuted among those of one task and variant; labels stay.

    A source is given to a pair that measured another one wherever the task and variant have several sources.
    """
    cells: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for i, p in enumerate(pairs):
        cells[p.pack, p.candidate_variant, p.language].append(i)
    found = list(pairs)
    for _, rows in sorted(cells.items()):
        order = rng.permutation(len(rows))
        by_source: dict[str, list[int]] = defaultdict(list)
        for k in order:
            by_source[pairs[rows[k]].candidate_code].append(rows[k])
        line = [i for same in by_source.values() for i in same]
        step = max(map(len, by_source.values()))  # further than any run of equal sources: nobody keeps its own, if that can be
        for here, there in zip(line, line[step:] + line[:step], strict=True):
            given = pairs[there]
            found[here] = pairs[here].model_copy(
                update={"candidate_code": given.candidate_code, "candidate_id": given.candidate_id}
            )
    return found


def prompts_of(local: Local, pairs: Sequence[Pair]) -> list[Prompt]:
    """What a model is asked of each pair.

    Raises
    ------
    TrainingError
        If prompts may not be long enough for the sources.
    """
    try:
        return [local.prompt(Query.from_pair(p)) for p in pairs]
    except ValueError as error:
        raise TrainingError(f"train.max_tokens={local.max_tokens}: {error}") from error


def require_pairs(fold: Fold) -> None:
    """Refuse a fold that cannot be trained on.

    Raises
    ------
    TrainingError
        If a split is empty, or the bins of the training split are all one.
    """
    for split in ("train", "calibration", "test"):
        if not getattr(fold, split):
            raise TrainingError(
                f"the {split} split is empty; training needs pairs in all three: raise data.max_packs, or name other data"
            )
    if len({p.true_bin for p in fold.train}) < 2:
        raise TrainingError(f"all {len(fold.train)} training pairs lie in bin {fold.train[0].true_bin}: nothing can be learnt")
    require_held_out(map(family, [*fold.train, *fold.calibration]), fold.test, "a forecaster")
