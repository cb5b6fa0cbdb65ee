"""Where a study's pairs come from: one small reader for each data source, its folds, and the digest of its content.

Reads records and public data through the rooms that own them; decides which pairs a study looks at and nothing about how they
are forecast or scored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

import kfs
from kfs.errors import DataError
from kfs.records import content_id
from kfs.report.config import CudaL1Data, EmbeddedData, StudyConfig, config_digest

if TYPE_CHECKING:
    from kfs.pairs import Fold
    from kfs.records import Hardware, Kernel, Measurement, Pair

T = TypeVar("T")
FROM_REFERENCE = ("reference_to_candidate", "eager_to_custom")


def records_folder(config: EmbeddedData, root: Path) -> Path:
    """Folder of measured records an embedded study reads: the one named, else the only host's under ``data/records``.

    Raises
    ------
    DataError
        If there is none, or more than one to choose from.
    """
    if config.folder:
        return Path(config.folder).expanduser()
    base = root / "data" / "records"
    hosts = sorted(p for p in base.glob("host-*") if p.is_dir())
    if len(hosts) != 1:
        found = ", ".join(p.name for p in hosts) or "none"
        raise DataError(
            f"{base}: expected the records of one host, found {found}; check out data/records again, or measure some with "
            "`kfs record` and name their folder with data.folder=..."
        )
    return hosts[0]


def data_digests(config: StudyConfig, root: Path) -> dict[str, str]:
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
    folder = records_folder(data, root)
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in (".parquet", ".jsonl", ".json", ".yaml"))
    if not files:
        raise DataError(
            f"{folder} holds no measured records; name the folder that `kfs record` wrote for one host with data.folder=..."
        )
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def check_models(config: StudyConfig) -> None:
    """Refuse a study whose forecasters need model files that are not here, before anything runs.

    Raises
    ------
    DataError
        Naming the command that fetches them, and how to do without.
    """
    from kfs.data import manifest

    for name in config.forecasters:
        model = config.forecaster[name].get("model")
        if model in manifest.datasets():
            try:
                for file in manifest.dataset(model).files:
                    manifest.path(model, file.path)
            except DataError as error:
                raise DataError(
                    f"forecaster {name!r} needs its model: {error}; or leave it out with forecaster.{name}=null"
                ) from error


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


def _some_packs(pairs: list[Pair], n: int | None) -> list[Pair]:
    """Pairs of about ``n`` packs, spread over the packs of each split."""
    if n is None:
        return pairs
    by_split: dict[str, list[str]] = {}
    for split, pack in sorted({(p.split, p.pack) for p in pairs}):
        by_split.setdefault(split, []).append(pack)
    total = sum(map(len, by_split.values()))
    kept = {pack for packs in by_split.values() for pack in spread(packs, max(1, round(n * len(packs) / total)))}
    return [p for p in pairs if p.pack in kept]


def embedded_records(config: StudyConfig, root: Path) -> tuple[list[Measurement], list[Kernel], Hardware]:
    """Measurements, kernels and hardware of an embedded study, all tasks."""
    from kfs import pairs as rooms

    return rooms.embedded_records(records_folder(config.data, root))


def pairs_key(config: StudyConfig, root: Path) -> str:
    """Digest of everything that decides which pairs there are: the data, its options, the seed, and the source that reads it."""
    package = Path(kfs.__file__).parent
    files = [
        package / "records.py",
        package / "speedup.py",
        package / "pairs.py",
        *sorted((package / "data").glob("*.py")),
        Path(__file__),
    ]
    return content_id(
        str(config.seed),
        repr(config.data),
        repr(sorted(data_digests(config, root).items())),
        *(p.read_text() for p in files),
        length=64,
    )


def load_pairs(config: StudyConfig, root: Path, rng: np.random.Generator) -> list[Pair]:
    """Every pair a study looks at, in a fixed order: all that start at the reference, the others balanced over bins by task."""
    from kfs import pairs as rooms

    if isinstance(config.data, CudaL1Data):
        from kfs.data import cuda_l1

        every = cuda_l1.pairs(cuda_l1.load_rows(config.data.gpus))
    else:
        measurements, kernels, _ = embedded_records(config, root)
        every = rooms.from_measurements(measurements, kernels)
    every = _some_packs(every, config.data.max_packs)
    if config.data.per_bin is None:
        return every
    others = [p for p in every if p.subset not in FROM_REFERENCE]
    kept = {p.comparison_id for p in rooms.balance(others, config.data.per_bin, rng)}
    return [p for p in every if p.subset in FROM_REFERENCE or p.comparison_id in kept]


def suspect_pairs(config: StudyConfig) -> list[Pair]:
    """Pairs left out because their ratio is beyond belief (above 20 or below 1/20); none where kfs measured itself."""
    if not isinstance(config.data, CudaL1Data):
        return []
    from kfs.data import cuda_l1

    return cuda_l1.pairs(cuda_l1.load_rows(config.data.gpus), suspect="only")


def folds(config: StudyConfig, pairs: list[Pair]) -> list[Fold]:
    """Train, calibration and test pairs: the fixed split where pairs carry one, otherwise one task left out at a time."""
    from kfs import pairs as rooms

    return rooms.fixed_split(pairs) if isinstance(config.data, CudaL1Data) else rooms.leave_one_task_out(pairs)
