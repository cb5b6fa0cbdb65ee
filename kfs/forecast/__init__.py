"""Forecasters: from a question about two kernels to a probability for each speedup bin.

A forecaster is a dataclass whose fields are its options. ``fit(train, calibration)`` returns it fitted (it does nothing
where nothing is learnt), ``forecast(queries)`` gives one Forecast a query, in order. ``FORECASTERS`` lists them by name,
``make`` builds one, ``run_folds`` fits and forecasts over folds with a cache. Deciding what to measure, and scoring, are not
done here.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfs.errors import unknown_name
from kfs.forecast.boosted import Boosted
from kfs.forecast.cache import AnswerCache, ForecastCache, code_version, library_versions, one_at_a_time, pairs_digest
from kfs.forecast.compiled import BoostedFacts
from kfs.forecast.endpoint import Endpoint
from kfs.forecast.engine import Engine
from kfs.forecast.language import LanguageModel
from kfs.forecast.local import Local
from kfs.forecast.prior import Prior
from kfs.forecast.query import Query
from kfs.forecast.rivals import AnchorOnly, CandidateOnly, CodeLength, VariantTable
from kfs.records import Forecast, content_id

if TYPE_CHECKING:
    from kfs.pairs import Fold

FORECASTERS: dict[str, type] = {
    kind.name: kind
    for kind in (Prior, VariantTable, AnchorOnly, CandidateOnly, CodeLength, Boosted, BoostedFacts, Local, Endpoint, Engine)
}


def make(name: str, **options: Any):
    """Build a forecaster.

    Parameters
    ----------
    name : str
        A key of ``FORECASTERS``.
    **options
        Fields of that forecaster's dataclass; the rest keep their defaults.

    Raises
    ------
    UnknownNameError
        If there is no such forecaster or option; lists those there are.

    Examples
    --------
    >>> make("prior", smoothing=2.0)
    Prior(smoothing=2.0)
    """
    if name not in FORECASTERS:
        raise unknown_name("forecaster", name, FORECASTERS, "kfs/forecast")
    kind = FORECASTERS[name]
    known = [f.name for f in fields(kind) if f.init]
    for option in options:
        if option not in known:
            raise unknown_name(f"option of forecaster {name!r}", option, known, "kfs/forecast")
    return kind(**options)


def run_folds(
    forecaster_name: str,
    options: Mapping[str, Any],
    folds: Sequence[Fold],
    *,
    cache_dir: str | Path,
    progress: bool = True,
    asked: Sequence[str] = ("test",),
) -> list[Forecast]:
    """Fit a forecaster on each fold and forecast the fold's test pairs.

    What is finished is kept under ``cache_dir`` by content: a second run reads it, a killed run computes only what is missing.
    A language model's answers lie in one file, by model, prompt, sampling and repeat. Of the others, chunks of forecasts are
    kept by forecaster, options, code, versions of the libraries that can change a number, and for those that learn the training
    and calibration pairs; a fold whose forecasts are all there is not fitted again. Of several processes that ask for the same,
    one works and the others wait for it.

    Parameters
    ----------
    forecaster_name : str
        A key of ``FORECASTERS``.
    options : mapping
        As for ``make``.
    folds : sequence of Fold
    cache_dir : path
        Folder for all forecasters' caches.
    progress : bool, optional
        Show a progress bar with the time that is left.
    asked : sequence of str, optional
        Splits of each fold to forecast: test, calibration or both.

    Returns
    -------
    list of Forecast
        Fold after fold, split after split, in the order of the pairs.
    """
    from tqdm.auto import tqdm

    forecaster = make(forecaster_name, **options)
    kind = type(forecaster)
    settings = json.dumps({f.name: getattr(forecaster, f.name) for f in fields(kind) if f.init}, sort_keys=True, default=str)
    if isinstance(forecaster, LanguageModel):
        with (
            one_at_a_time(Path(cache_dir) / "locks" / content_id(kind.name, settings)),
            contextlib.closing(AnswerCache(Path(cache_dir) / "answers.sqlite")) as answers,
        ):
            return forecaster.forecast_folds(folds, asked, progress=progress, cache=answers)
    modules = (kind.__module__, *getattr(kind, "reads", ()))  # what it imports, and what it calls by name
    code = f"{', '.join(map(code_version, modules))} with {library_versions(kind.libraries)}"
    found: list[Forecast] = []
    with tqdm(
        total=sum(len(getattr(f, split)) for f in folds for split in asked), desc=kind.name, unit="pair", disable=not progress
    ) as bar:
        for fold in folds:
            learnt_from = pairs_digest(fold.train, fold.calibration) if kind.learns else ""
            identity = content_id(kind.name, settings, code, learnt_from)
            queries = [Query.from_pair(p) for split in asked for p in getattr(fold, split)]
            with one_at_a_time(Path(cache_dir) / "locks" / identity):
                cache = ForecastCache(Path(cache_dir) / kind.name / identity)
                missing = [q for q in queries if cache.get(q) is None]
                bar.update(len(queries) - len(missing))
                if missing:
                    forecaster.fit(fold.train, fold.calibration)
                for chunk in _chunks(missing, kind.chunk_size):
                    cache.add(chunk, forecaster.forecast(chunk))
                    bar.update(len(chunk))
            found += [cache.get(q) for q in queries]
    return found


def _chunks(queries: Sequence[Query], size: int) -> Iterator[list[Query]]:
    """Queries in groups of at least ``size`` (but for the last), those with the same anchor together."""
    by_anchor: dict[tuple[str, ...], list[Query]] = {}
    for q in queries:
        by_anchor.setdefault((q.pack, q.hardware, q.anchor_code), []).append(q)
    chunk: list[Query] = []
    for group in by_anchor.values():
        chunk += group
        if len(chunk) >= size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
