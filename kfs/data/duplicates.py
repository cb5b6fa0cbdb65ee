"""Near-duplicate problems, and a fixed split into train, calibration and test that they never straddle.

Two problems are near-duplicates if the token shingles of their reference sources (numbers written as 0) have a Jaccard
similarity of at least ``THRESHOLD``; groups are the connected components. The split depends on the sources alone: no seed, no
order of rows. Nothing here knows any dataset.

Source: Broder, "On the resemblance and containment of documents" (1997).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from kfs.records import content_id

SHINGLE = 4
THRESHOLD = 0.75
"""On KernelBench this puts all plain matrix products, all pointwise activations and all plain convolutions into a group each."""
SPLITS = ("train", "calibration", "test")
SHARES = (150, 40, 60)

_TOKENS = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|[^\s\w]")


def shingles(source: str, *, size: int = SHINGLE) -> set[tuple[str, ...]]:
    """Runs of ``size`` neighbouring tokens; every number counts as 0, so that shapes make no difference.

    Examples
    --------
    >>> shingles("x = 128", size=3) == shingles("x = 256", size=3)
    True
    """
    tokens = ["0" if token[0].isdigit() else token for token in _TOKENS.findall(source)]
    return set(zip(*(tokens[i:] for i in range(size)), strict=False))


def similarity(sources: Sequence[str]) -> np.ndarray:
    """Jaccard similarity of every two sources, shape (n, n); 0 where both are too short to have a shingle."""
    columns: dict[tuple[str, ...], int] = {}
    rows = [[columns.setdefault(s, len(columns)) for s in shingles(source)] for source in sources]
    present = np.zeros((len(rows), max(1, len(columns))), dtype=np.float32)
    for i, row in enumerate(rows):
        present[i, row] = 1
    common = present @ present.T
    sizes = present.sum(axis=1)
    union = sizes[:, None] + sizes[None, :] - common
    return common / np.maximum(union, 1)


def near_duplicate_groups(sources: Mapping[str, str], *, threshold: float = THRESHOLD) -> dict[str, str]:
    """Group of every source: near-duplicates, and near-duplicates of those, share one.

    Parameters
    ----------
    sources : mapping of str to str
        Cleaned source by problem.
    threshold : float, optional
        Least Jaccard similarity of near-duplicates.

    Returns
    -------
    dict of str to str
        Group by problem: the first problem of the group, in order of name.
    """
    names = sorted(sources)
    close = similarity([sources[name] for name in names]) >= threshold
    parent = list(range(len(names)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in zip(*np.nonzero(np.triu(close, 1)), strict=True):
        a, b = sorted((root(int(i)), root(int(j))))
        parent[b] = a
    return {name: names[root(i)] for i, name in enumerate(names)}


def sizes_for(n: int) -> dict[str, int]:
    """How many of ``n`` problems go to each split: in the proportion 150 : 40 : 60, largest remainders rounded up.

    Examples
    --------
    >>> sizes_for(250)
    {'train': 150, 'calibration': 40, 'test': 60}
    """
    exact = [n * share / sum(SHARES) for share in SHARES]
    sizes = [int(x) for x in exact]
    for i in sorted(range(len(SPLITS)), key=lambda i: sizes[i] - exact[i])[: n - sum(sizes)]:
        sizes[i] += 1
    return dict(zip(SPLITS, sizes, strict=True))


def split_groups(groups: Mapping[str, str], strata: Mapping[str, Hashable]) -> dict[str, str]:
    """Split of every problem: sizes exactly as ``sizes_for`` says, each stratum about alike, no group in two splits.

    Large groups are placed first, each where its strata have the most room left; equals in the order of a content hash.

    Parameters
    ----------
    groups : mapping of str to str
        Group by problem.
    strata : mapping of str to hashable
        What should be spread evenly, by problem, for example its level.

    Returns
    -------
    dict of str to str
        ``train``, ``calibration`` or ``test`` by problem.

    Raises
    ------
    ValueError
        If a group is larger than any room left, so that the sizes cannot be met.
    """
    room = sizes_for(len(groups))
    members: dict[str, list[str]] = {}
    for problem in sorted(groups):
        members.setdefault(groups[problem], []).append(problem)
    counts: dict[Hashable, int] = {}
    for problem in groups:
        counts[strata[problem]] = counts.get(strata[problem], 0) + 1
    quota = {(s, k): n * room[k] / max(1, len(groups)) for s, n in counts.items() for k in SPLITS}
    result: dict[str, str] = {}
    for group in sorted(members, key=lambda g: (-len(members[g]), content_id("split", g))):
        problems = members[group]
        fits = [k for k in SPLITS if room[k] >= len(problems)]
        if not fits:
            raise ValueError(f"group {group!r} has {len(problems)} problems, more than any split has room for: {room}")
        chosen = max(fits, key=lambda k: (sum(quota[strata[p], k] for p in problems) / len(problems), room[k]))
        for problem in problems:
            result[problem] = chosen
            quota[strata[problem], chosen] -= 1
        room[chosen] -= len(problems)
    return result
