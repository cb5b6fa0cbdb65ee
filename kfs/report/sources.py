"""Where a study's pairs come from: one small reader for each data source, its folds, and the digest of its content.

Reads records and public data through the rooms that own them; decides which pairs a study looks at and nothing about how they
are forecast or scored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from kfs.errors import DataError, SchemaError
from kfs.records import content_id
from kfs.report.config import config_digest, project_root
from kfs.report.provenance import code_digest, versions
from kfs.report.schemas import CudaL1Data, EmbeddedData, LiveData, PublishedData, StudyConfig

if TYPE_CHECKING:
    from kfs.data.published import Source
    from kfs.pairs import Comparison, Fold
    from kfs.records import Forecast, Hardware, Kernel, Measurement, Pair

    Records = tuple[list[Measurement], list[Kernel], Hardware]

T = TypeVar("T")
C = TypeVar("C", "Comparison", "Pair")


def records_folder(data: EmbeddedData) -> Path:
    """Folder of measured records a study reads: the one named, else the one that comes with kfs; a live study's are beneath.

    Raises
    ------
    DataError
        If a live study has not measured yet, or its folder holds the records of several machines.
    """
    from kfs.pairs import host_folder

    if isinstance(data, LiveData):
        machines = sorted(p.parent for p in live_folder(data).glob("*/complete.json"))
        if len(machines) != 1:
            found = ", ".join(p.name for p in machines) or "none"
            raise DataError(
                f"{live_folder(data)}: expected the finished records of one machine, found {found}; measure with "
                "`kfs study live`, or name a folder for each machine with data.folder=..."
            )
        return machines[0]
    return Path(data.folder) if data.folder else host_folder()


def live_folder(data: LiveData) -> Path:
    """Where a live study keeps records, a subfolder a machine."""
    return Path(data.folder) if data.folder else project_root() / "runs" / "live" / data.device


def released(data: PublishedData) -> Source:
    """Where a published study reads the released sets."""
    from kfs.data.published import Source

    revisions = {key: getattr(data, key) for key in ("eval_set", "predictions", "discovery_pairs")}
    return Source(data.folder, revisions)


def data_digests(config: StudyConfig) -> dict[str, str]:
    """sha256 of every data file a study reads, by name.

    Raises
    ------
    DataError
        If one is absent; names the command that brings it.
    """
    data = config.data
    if isinstance(data, CudaL1Data):
        from kfs.data import manifest

        found = {}
        for gpu in data.gpus:
            manifest.path("cuda_l1", f"{gpu}.json")
            found[f"cuda_l1/{gpu}.json"] = manifest.dataset("cuda_l1").file(f"{gpu}.json").sha256
        return found
    if isinstance(data, PublishedData):
        source = released(data)
        keys = ["eval_set", "predictions", *(["discovery_pairs"] if source.has("discovery_pairs") else [])]
        return {name: digest for key in keys for name, digest in source.digests(key).items()}
    folder = records_folder(data)
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in (".parquet", ".jsonl", ".json", ".yaml"))
    if not files:
        raise DataError(
            f"{folder} holds no measured records; name the folder that `kfs record` wrote for one host with data.folder=..."
        )
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def model_digests(config: StudyConfig) -> dict[str, str]:
    """Identity of the model behind each forecaster that has one.

    Raises
    ------
    DataError
        If a model is not here; names the command that fetches it, and how to do without.
    """
    from kfs.data import manifest
    from kfs.forecast import make

    found = {}
    for name in config.forecasters:
        forecaster = make(name, **config.forecaster[name])
        if not hasattr(forecaster, "model_id"):
            continue
        try:
            if forecaster.model in manifest.datasets():
                for file in manifest.dataset(forecaster.model).files:
                    manifest.path(forecaster.model, file.path)
            found[name] = forecaster.model_id()
        except DataError as error:
            raise DataError(
                f"forecaster {name!r} needs its model: {error}; or leave it out with forecaster.{name}=null"
            ) from error
    return found


def run_folder(config: StudyConfig, data: dict[str, str], runs: Path) -> Path:
    """``runs/<study>/<digest>``: the digest covers configuration and data."""
    return runs / config.study / config_digest(config, data)


def spread(items: Sequence[T], n: int | None) -> list[T]:
    """About ``n`` items, evenly spread over their order; all of them where ``n`` is None.

    Examples
    --------
    >>> spread("abcdef", 3)
    ['a', 'c', 'e']
    """
    if n is None or n >= len(items):
        return list(items)
    return [items[i * len(items) // n] for i in range(n)]


def _some_packs(packs: Iterable[tuple[str, str]], n: int | None) -> set[str]:
    """About ``n`` of the packs, given as (split, pack), spread over the packs of each split; all of them where ``n`` is None."""
    by_split: dict[str, list[str]] = {}
    for split, pack in sorted(set(packs)):
        by_split.setdefault(split, []).append(pack)
    total = sum(map(len, by_split.values()))
    share = lambda names: None if n is None else max(1, round(n * len(names) / total))
    return {pack for names in by_split.values() for pack in spread(names, share(names))}


def embedded_records(config: StudyConfig) -> Records:
    """Measurements, kernels and hardware of an embedded study, all tasks."""
    from kfs import pairs as rooms

    return rooms.embedded_records(records_folder(config.data))


def pairs_key(config: StudyConfig) -> str:
    """Digest of everything that decides which pairs there are: data, options, seed, the source that reads them, libraries."""
    data = sorted(data_digests(config).items())
    code = code_digest([__name__])
    return content_id(str(config.seed), repr(config.data), repr(data), code, repr(versions()), length=64)


def load_pairs(config: StudyConfig, rng: np.random.Generator, records: Callable[[], Records] | None = None) -> list[Pair]:
    """Every pair a study looks at, in a fixed order: all that start at the reference, the others balanced over bins by task.

    ``records`` gives what :func:`embedded_records` would read, to a caller that keeps them.
    """
    every, n = _load_pairs(config, rng, records), config.data.per_task
    if n is None:
        return every
    by_pack: dict[str, list[Pair]] = {}
    for p in every:
        by_pack.setdefault(p.pack, []).append(p)
    return [p for some in by_pack.values() for p in spread(some, n)]


def _load_pairs(config: StudyConfig, rng: np.random.Generator, records: Callable[[], Records] | None) -> list[Pair]:
    from kfs import pairs as rooms

    if isinstance(config.data, CudaL1Data):
        from kfs.data import cuda_l1

        every = cuda_l1.pairs(cuda_l1.load_rows(config.data.gpus))
        kept = _some_packs([(p.split, p.pack) for p in every], config.data.max_packs)
        return _balanced([p for p in every if p.pack in kept], config.data.per_bin, rng)
    if isinstance(config.data, PublishedData):
        from kfs.data import published

        # Labelled anew, in the bins the forecasters were told; the labels as released are the business of the label audit.
        every = rooms.relabelled(published.eval_pairs(released(config.data)))
        searched = {(p.anchor_id, p.candidate_id, p.hardware) for p in discovery_pairs(config)}
        of_search = lambda p: (p.anchor_id, p.candidate_id, p.hardware) in searched
        every = [p.model_copy(update={"subset": published.PARENT_TO_CHILD}) if of_search(p) else p for p in every]
        kept = _some_packs([("", p.pack) for p in every], config.data.max_packs)
        return _balanced([p for p in every if p.pack in kept], config.data.per_bin, rng)
    measurements, kernels, _ = records() if records else embedded_records(config)
    kept = _some_packs([("", m.task) for m in measurements], config.data.max_packs)
    asked = rooms.comparisons([m for m in measurements if m.task in kept], kernels)
    return [c.pair() for c in _balanced(asked, config.data.per_bin, rng)]


def _balanced(every: list[C], per_bin: int | None, rng: np.random.Generator) -> list[C]:
    """All that start at the reference, at most ``per_bin`` of the others in each bin of each pack; original order kept."""
    from kfs import pairs as rooms

    if per_bin is None:
        return every
    others = [i for i, p in enumerate(every) if p.subset not in rooms.REFERENCE_SUBSETS]
    dropped = set(others) - {others[i] for i in rooms.balanced([every[i] for i in others], per_bin, rng)}
    return [p for i, p in enumerate(every) if i not in dropped]


def released_forecasts(config: StudyConfig) -> dict[str, list[Forecast]]:
    """Answers of the released forecasters, by name: every repeat of every pair; none where the data holds no forecasts.

    Raises
    ------
    SchemaError
        If one has the name of a forecaster of ours that takes part.
    """
    if not isinstance(config.data, PublishedData):
        return {}
    from kfs.data import published

    source, found = released(config.data), {}
    for answer in published.predictions(source, published.eval_pairs(source)):
        found.setdefault(answer.surrogate_label, []).append(answer)
    if both := sorted(set(found) & set(config.forecasters)):
        raise SchemaError(f"{both[0]!r} is a released forecaster and one of ours; leave ours out with forecaster.{both[0]}=null")
    return dict(sorted(found.items()))


def discovery_pairs(config: StudyConfig) -> list[Pair]:
    """Released parent and child pairs, labelled in the study's bins; none where there are none at hand."""
    if not isinstance(config.data, PublishedData) or not (source := released(config.data)).has("discovery_pairs"):
        return []
    from kfs import pairs as rooms
    from kfs.data import published

    return rooms.relabelled(published.discovery_pairs(source))


def suspect_pairs(config: StudyConfig) -> list[Pair]:
    """Pairs left out because their ratio is beyond belief (above 20 or below 1/20); none where kfs measured itself."""
    if not isinstance(config.data, CudaL1Data):
        return []
    from kfs.data import cuda_l1

    return cuda_l1.pairs(cuda_l1.load_rows(config.data.gpus), suspect="only")


def left_out(config: StudyConfig) -> dict[str, int]:
    """What the data holds and no pair of the study shows, counted by why; empty where kfs measured itself."""
    if not isinstance(config.data, CudaL1Data):
        return {}
    from kfs.data import cuda_l1

    rows = cuda_l1.load_rows(config.data.gpus)
    return {**cuda_l1.left_out(rows), "compile_pairs": len(cuda_l1.compile_pairs(rows))}


def folds(config: StudyConfig, pairs: list[Pair]) -> list[Fold]:
    """Train, calibration and test pairs: the fixed split where pairs carry one, otherwise one task left out at a time."""
    from kfs import pairs as rooms

    return rooms.fixed_split(pairs) if isinstance(config.data, CudaL1Data) else rooms.leave_one_task_out(pairs)
