"""Forecasts per second and per dollar against measurements per second: tables.

Seconds of a language model are those its answers took when they were computed, one after another in its own process or, behind an
endpoint, while others were in flight. Forecasters that learn are timed here, on new sources, after a fit on a few pairs. Prices
are the user's; without one there is no figure in dollars.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from kfs.forecast import make
from kfs.forecast.query import Query
from kfs.pairs import Fold
from kfs.records import Forecast, Measurement, Pair
from kfs.report.prompts import is_language_model
from kfs.report.schemas import StudyConfig

N_LEARNT, N_TIMED = 200, 200
PER = 3600.0
MEASURING = "measuring"


def answering(config: StudyConfig, names: Iterable[str]) -> list[str]:
    """Forecasters whose answers carry the seconds they took: language models, and those that came with the data."""
    return [name for name in names if name not in config.forecasters or is_language_model(name)]


def seconds_of_learners(config: StudyConfig, folds: Sequence[Fold], names: Iterable[str]) -> dict[str, tuple[float, int]]:
    """Seconds a forecast takes that asks no model, features of sources included: mean over test pairs of the first fold, and n.

    Every candidate is a source nobody has seen; anchors are as often the same as in the pairs. Fits are not counted.
    """
    fold = folds[0]
    found = {}
    for name in names:
        queries = [Query.from_pair(p.model_copy(update=sources)) for p, sources in _never_seen(fold.test[:N_TIMED])]
        forecaster = make(name, **config.forecaster[name])
        forecaster.fit(fold.train[:: max(1, len(fold.train) // N_LEARNT)], fold.calibration[:N_LEARNT])
        begin = time.perf_counter()
        forecaster.forecast(queries)
        found[name] = (time.perf_counter() - begin) / len(queries), len(queries)
    return found


def _never_seen(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, dict[str, str]]]:
    """Pairs with sources that end in blanks of their own, so that nothing remembered of them is used."""
    blanks = lambda: "\n" + format(secrets.randbits(64), "064b").translate({48: " ", 49: "\t"}) + "\n"
    anchors: dict[str, str] = {}
    for p in pairs:
        anchor = anchors.setdefault(p.anchor_code, p.anchor_code + blanks())
        yield p, {"anchor_code": anchor, "candidate_code": p.candidate_code + blanks()}


def throughput(
    config: StudyConfig,
    asked: Mapping[str, list[Forecast]],
    learners: Mapping[str, tuple[float, int]],
    measurements: Sequence[Measurement],
) -> pd.DataFrame:
    """One row a forecaster, and one for measuring where the study's kernels were measured by kfs.

    Parameters
    ----------
    config : StudyConfig
        Prices, and options of the forecasters.
    asked : mapping of str to list of Forecast
        Forecasts of :func:`answering` forecasters, with the seconds and tokens they took.
    learners : mapping of str to (float, int)
        Seconds a forecast of the others, and how many were timed.
    measurements : sequence of Measurement

    Returns
    -------
    DataFrame
        Columns what, seconds (mean of one), seconds_median, per_second, input_tokens, output_tokens (means; NaN where nothing
        reads tokens), usd_per_1000 (NaN where no price is known), per_measurement (forecasts in the time of a measurement), n.
    """
    prices, table = config.prices, []
    for name, (seconds, n) in learners.items():
        usd = 1000 * seconds * prices.forecasting_usd_per_hour / PER if prices.forecasting_usd_per_hour is not None else np.nan
        table.append({"what": name, "seconds": seconds, "usd_per_1000": usd, "n": n})
    for name, answers in asked.items():
        seconds = np.array([np.nan if f.elapsed_s is None else f.elapsed_s for f in answers])
        tokens = {c: np.mean([getattr(f, c) or 0 for f in answers]) for c in ("input_tokens", "output_tokens")}
        usd = _usd_per_1000(config, name, tokens, seconds)
        line = {"what": name, "seconds": np.nanmean(seconds), "seconds_median": np.nanmedian(seconds), **tokens}
        table.append({**line, "usd_per_1000": usd, "n": len(answers)})
    if measurements:
        seconds = np.array([m.seconds for m in measurements])
        usd = 1000 * seconds.mean() * prices.measuring_usd_per_hour / PER if prices.measuring_usd_per_hour is not None else np.nan
        line = {"what": MEASURING, "seconds": seconds.mean(), "seconds_median": np.median(seconds), "usd_per_1000": usd}
        table.append({**line, "n": len(measurements)})
    columns = ["what", "seconds", "seconds_median", "per_second", "input_tokens", "output_tokens", "usd_per_1000"]
    frame = pd.DataFrame(table, columns=[*columns, "per_measurement", "n"])
    frame["per_second"] = 1 / frame["seconds"]
    one = frame.loc[frame["what"] == MEASURING, "seconds"]
    frame["per_measurement"] = float(one.iloc[0]) / frame["seconds"] if len(one) else np.nan
    numbers = [c for c in frame.columns if c not in ("what", "n")]
    return frame.astype(dict.fromkeys(numbers, float))


def _usd_per_1000(config: StudyConfig, name: str, tokens: Mapping[str, float], seconds: np.ndarray) -> float:
    """By the tokens where an endpoint's prices are stated, else by the hour of the machine, where that is."""
    options = config.forecaster.get(name) or {}
    a, b = options.get("usd_per_million_input"), options.get("usd_per_million_output")
    if a is not None and b is not None:
        return (tokens["input_tokens"] * a + tokens["output_tokens"] * b) / 1000
    if config.prices.forecasting_usd_per_hour is not None and name in config.forecasters and name != "endpoint":
        return 1000 * float(np.nanmean(seconds)) * config.prices.forecasting_usd_per_hour / PER
    return float("nan")


def filtered_search(table: pd.DataFrame, considered: Sequence[int] = (1, 2, 4, 8, 16)) -> pd.DataFrame:
    """Cost of considering ``k`` candidates for each one measured, over the cost of measuring all of them.

    Returns
    -------
    DataFrame
        Columns forecaster, considered (candidates for one measured), seconds (for one measured candidate, forecasts included),
        share (of the seconds that measuring all ``considered`` takes); empty where nothing was measured.
    """
    measuring = table.loc[table["what"] == MEASURING, "seconds"]
    rows = []
    for row in table[table["what"] != MEASURING].itertuples() if len(measuring) else ():
        for k in considered:
            seconds = float(measuring.iloc[0]) + (k * row.seconds if k > 1 else 0.0)
            rows.append({"forecaster": row.what, "considered": k, "seconds": seconds, "share": seconds / (k * measuring.iloc[0])})
    return pd.DataFrame(rows, columns=["forecaster", "considered", "seconds", "share"])


def prices_said(config: StudyConfig, asked: Iterable[str]) -> str:
    """A sentence on what prices the table knows."""
    said = []
    for key in ("measuring_usd_per_hour", "forecasting_usd_per_hour"):
        value = getattr(config.prices, key)
        said.append(f"`prices.{key}` is " + ("not stated" if value is None else f"{value:g} USD"))
    for name in asked:
        if (value := (config.forecaster.get(name) or {}).get("usd_per_million_input")) is not None:
            said.append(f"`{name}` takes {value:g} USD for a million tokens in")
    return "; ".join(said) + "."
