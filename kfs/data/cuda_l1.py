"""CUDA-L1: 250 KernelBench problems with sources written by a language model, and their runtime ratios on five GPUs.

A row holds one problem on one GPU: sources of four variants - eager (the reference), custom (LLM-written), graph (CUDA graph)
and cudnn - and how often the custom one is faster than eager, than torch.compile in two modes, than graph and than cudnn. Only
ratios were released, rounded to three decimals and without samples, so no pair's certainty is known. Sources are cleaned
before they enter a pair (kfs/data/clean.py). Traps of the files, all handled here: a custom source may be null, the text
``None``, or cut off (it cannot be what was timed); ratios above 20 are suspect of reward hacking, the authors say so;
torch.compile runs eager's own source, so its pairs are kept apart; custom sources were released only where at least as fast
as eager.

Source: Li et al., "CUDA-L1: Improving CUDA Optimization via Contrastive Reinforcement Learning" (arXiv 2507.14111);
deepreinforce-ai/CUDA-L1, optimized_cuda_code.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Literal

from kfs.data import manifest
from kfs.data.clean import clean_source
from kfs.data.duplicates import near_duplicate_groups, split_groups
from kfs.errors import DataError, SchemaError, unknown_name
from kfs.records import Pair, content_id
from kfs.speedup import STUDY_BINS

DATASET = "cuda_l1"
GPUS = ("3090", "a100", "h100", "h20", "l40")
VARIANTS = ("eager", "custom", "graph", "cudnn")
SUSPECT_RATIO = 20.0
Suspect = Literal["exclude", "include", "only"]

_CODE_COLUMNS = {"ref_code": "eager", "custom_code": "custom", "cuda_graph_code": "graph", "cudnn_code": "cudnn"}
_SCORE_COLUMNS = {
    "score_default": "eager",
    "score_torch_compile_default": "compile_default",
    "score_torch_compile_reduce_overhead": "compile_reduce_overhead",
    "score_cuda_graph": "graph",
    "score_cudnn": "cudnn",
}
_COLUMNS = ("level_id", "task_id", *_CODE_COLUMNS, *_SCORE_COLUMNS)


@dataclass(frozen=True)
class Row:
    """One problem on one GPU."""

    gpu: str
    level: int
    task: int
    sources: dict[str, str]
    """Source as released, by variant; only variants whose source is there."""
    times: dict[str, float]
    """Runtime relative to the custom variant, by variant; only those that were measured."""

    @property
    def pack(self) -> str:
        """Name of the problem, the same on every GPU."""
        return f"level{self.level}_problem{self.task}"


def read_rows(path: str | Path, *, gpu: str | None = None) -> list[Row]:
    """Read one file of JSON lines.

    Parameters
    ----------
    path : path
        A released file, or an excerpt of one.
    gpu : str, optional
        Which GPU its ratios are from; by default the file's name without suffix.

    Raises
    ------
    UnknownNameError
        If the GPU is not one of ``GPUS``.
    SchemaError
        If a line is not such a row; names file, line and column.
    """
    path = Path(path)
    gpu = gpu or path.stem
    if gpu not in GPUS:
        raise unknown_name("GPU of CUDA-L1", gpu, GPUS, "kfs/data/cuda_l1.py; a file's name without suffix, or gpu=")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    rows = []
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")  # not splitlines: U+2028 and U+0085 may stand in a string
    for number, line in enumerate(lines if lines != [""] else [], start=1):
        try:
            fields = json.loads(line)
        except json.JSONDecodeError as error:
            raise SchemaError(f"{path}, line {number}: not JSON ({error}); the file may be truncated") from error
        rows.append(_row(fields, gpu, f"{path}, line {number}"))
    if not rows:
        raise SchemaError(f"{path}: no rows")
    return rows


def _row(fields: object, gpu: str, where: str) -> Row:
    missing = [c for c in _COLUMNS if not isinstance(fields, dict) or c not in fields]
    if missing:
        raise SchemaError(f"{where}: column {missing[0]!r} is missing; a row has {', '.join(_COLUMNS)}")
    for column in ("level_id", "task_id"):
        if type(fields[column]) is not int:
            raise SchemaError(f"{where}, column {column!r}: found {fields[column]!r}, expected an integer")
    sources, times = {}, {}
    for column, variant in _CODE_COLUMNS.items():
        source = fields[column]
        if source is not None and not isinstance(source, str):
            raise SchemaError(f"{where}, column {column!r}: found {type(source).__name__}, expected text or null")
        if source is not None and source.strip() not in ("", "None"):
            sources[variant] = source
    if "eager" not in sources:
        raise SchemaError(f"{where}, column 'ref_code': no reference source")
    for column, variant in _SCORE_COLUMNS.items():
        score = fields[column]
        if score is not None and not isinstance(score, (int, float)):
            raise SchemaError(f"{where}, column {column!r}: found {score!r}, expected a number or null")
        if score is not None and math.isfinite(score) and score > 0:
            times[variant] = float(score)
    if times:
        times["custom"] = 1.0
    return Row(gpu, fields["level_id"], fields["task_id"], sources, times)


def load_rows(gpus: Iterable[str] | None = None, *, paths: Iterable[str | Path] | None = None) -> list[Row]:
    """Rows of several GPUs.

    Parameters
    ----------
    gpus : iterable of str, optional
        Which of the dataset's files to read; all five by default.
    paths : iterable of path, optional
        Read these files instead, each named after its GPU; for excerpts.

    Raises
    ------
    DataError
        If a file of the dataset is not on this machine; says which command fetches it.
    """
    if paths is None:
        names = tuple(gpus) if gpus is not None else GPUS
        for name in names:
            if name not in GPUS:
                raise unknown_name("GPU of CUDA-L1", name, GPUS, "kfs/data/cuda_l1.py")
        paths = [manifest.path(DATASET, f"optimized_cuda_code/{name}.json") for name in names]
    return [row for path in paths for row in read_rows(path)]


@lru_cache(maxsize=4096)
def _cleaned(source: str) -> tuple[str, str] | None:
    """Cleaned source and its kernel id; None if the source does not parse and so cannot be what was timed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # "\d" in somebody else's strings
        try:
            text = clean_source(source, must_parse=True)
        except (SyntaxError, ValueError):
            return None
    return text, content_id("python", text)


def problem_splits(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Near-duplicate group and split of every problem in ``rows``, by its pack.

    Depends on the reference sources alone. Any one whole file gives the split of all 250 problems (150, 40 and 60); an excerpt
    is split in the same proportion, and so not as its problems are in the whole.
    """
    sources, levels = {}, {}
    for row in rows:
        if row.pack not in sources:
            cleaned = _cleaned(row.sources["eager"])
            sources[row.pack] = cleaned[0] if cleaned else row.sources["eager"]
            levels[row.pack] = row.level
    groups = near_duplicate_groups(sources)
    splits = split_groups(groups, levels)
    return {pack: (groups[pack], splits[pack]) for pack in sources}


def is_suspect(speedup: float) -> bool:
    """Whether a ratio lies beyond 20 either way."""
    return speedup > SUSPECT_RATIO or speedup < 1 / SUSPECT_RATIO


def pairs(rows: Sequence[Row], *, suspect: Suspect = "exclude", subsets: Iterable[str] | None = None) -> list[Pair]:
    """Ordered pairs of a problem's variants on each GPU, with cleaned sources, near-duplicate groups and the fixed split.

    Pairs of two variants whose cleaned sources are the same are left out: no reader of code could tell their speedup.

    Parameters
    ----------
    rows : sequence of Row
        Of any GPUs; give whole files to get the split of the whole.
    suspect : {"exclude", "include", "only"}, optional
        What to do with speedups above 20 or below 1/20.
    subsets : iterable of str, optional
        Keep these only, each ``<anchor variant>_to_<candidate variant>``, for example ``eager_to_custom``.

    Returns
    -------
    list of Pair
        In the order of rows; ``certain`` is None, since no samples were released.
    """
    names = {f"{a}_to_{b}": (a, b) for a, b in permutations(VARIANTS, 2)}
    chosen = tuple(subsets) if subsets is not None else tuple(names)
    for name in chosen:
        if name not in names:
            raise unknown_name("subset of CUDA-L1", name, names, "kfs/data/cuda_l1.py")
    _check_suspect(suspect)
    wanted = [(n, *names[n]) for n in names if n in chosen]
    splits = problem_splits(rows)
    found = []
    for row in rows:
        for subset, anchor, candidate in wanted:
            if anchor not in row.times or candidate not in row.times:
                continue
            if anchor not in row.sources or candidate not in row.sources:
                continue
            a, b = _cleaned(row.sources[anchor]), _cleaned(row.sources[candidate])
            if a is None or b is None or a == b:
                continue
            found.append((row, subset, anchor, candidate, a, b))
    return _build(found, splits, suspect)


def compile_pairs(rows: Sequence[Row], *, suspect: Suspect = "exclude") -> list[Pair]:
    """Eager against torch.compile in its two modes, both ways: one source on both sides, two runtimes.

    Kept apart from ``pairs`` because reading code cannot tell them apart. Parameters as for ``pairs``.
    """
    _check_suspect(suspect)
    splits = problem_splits(rows)
    found = []
    for row in rows:
        source = _cleaned(row.sources["eager"])
        for mode in ("compile_default", "compile_reduce_overhead"):
            for anchor, candidate in (("eager", mode), (mode, "eager")):
                if source is not None and anchor in row.times and candidate in row.times:
                    found.append((row, f"{anchor}_to_{candidate}", anchor, candidate, source, source))
    return _build(found, splits, suspect)


def _check_suspect(suspect: str) -> None:
    if suspect not in ("exclude", "include", "only"):
        raise unknown_name("value of suspect", suspect, ("exclude", "include", "only"))


def _build(found: list[tuple], splits: dict[str, tuple[str, str]], suspect: Suspect) -> list[Pair]:
    """Pairs of the comparisons found, less those that ``suspect`` leaves out."""
    result = []
    for row, subset, anchor, candidate, (anchor_code, anchor_id), (candidate_code, candidate_id) in found:
        speedup = row.times[anchor] / row.times[candidate]
        if suspect != "include" and is_suspect(speedup) != (suspect == "only"):
            continue
        group, split = splits[row.pack]
        result.append(
            Pair(
                comparison_id=content_id(DATASET, row.gpu, row.pack, subset, anchor_id, candidate_id),
                pack=row.pack,
                anchor_code=anchor_code,
                candidate_code=candidate_code,
                hardware=row.gpu,
                aggregated_speedup=speedup,
                true_bin=STUDY_BINS.index(speedup),
                source_id=f"{DATASET}/{row.gpu}/{row.pack}",
                source_search="CUDA-L1",
                bin_rule="study",
                anchor_id=anchor_id,
                candidate_id=candidate_id,
                anchor_variant=anchor,
                candidate_variant=candidate,
                subset=subset,
                group=group,
                split=split,
            )
        )
    return result


def load_pairs(
    gpus: Iterable[str] | None = None,
    *,
    paths: Iterable[str | Path] | None = None,
    suspect: Suspect = "exclude",
    subsets: Iterable[str] | None = None,
) -> list[Pair]:
    """Read and pair in one call: ``load_rows`` then ``pairs``, with their parameters."""
    return pairs(load_rows(gpus, paths=paths), suspect=suspect, subsets=subsets)


def left_out(rows: Sequence[Row]) -> dict[str, int]:
    """How much ``pairs`` leaves out by default, and why.

    Returns
    -------
    dict of str to int
        ``suspect_pairs``; ``same_source_pairs``; ``sources_missing`` (measured, but the source is absent or reads ``None``);
        ``sources_cut`` (measured, but the source does not parse); ``rows_unmeasured``.
    """
    counts = dict.fromkeys(("suspect_pairs", "same_source_pairs", "sources_missing", "sources_cut", "rows_unmeasured"), 0)
    counts["suspect_pairs"] = len(pairs(rows, suspect="only"))
    for row in rows:
        counts["rows_unmeasured"] += not row.times
        measured = [v for v in VARIANTS if v in row.times]
        counts["sources_missing"] += sum(v not in row.sources for v in measured)
        cleaned = {v: _cleaned(row.sources[v]) for v in measured if v in row.sources}
        counts["sources_cut"] += sum(c is None for c in cleaned.values())
        counts["same_source_pairs"] += sum(cleaned[a] == cleaned[b] is not None for a, b in permutations(cleaned, 2))
    return counts
