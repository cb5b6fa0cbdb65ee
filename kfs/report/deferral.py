"""Recalibrated forecasts, and what rules for deferring would have done: tables from tidy rows.

Both learn from rows of other tasks than those they are applied to: the calibration split where pairs carry one; where one task
is left out at a time, the forecasts of all other tasks, each made by a forecaster that had not seen its task. There the
guarantees of ``kfs.forecast.decide`` hold approximately only, since those forecasters differ and have seen the task in question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from kfs import score
from kfs.forecast.decide import controlled, guaranteed, one_a_task
from kfs.forecast.recalibrate import RECALIBRATIONS, recalibrated
from kfs.report.tables import PROBABILITIES, Intervals, counted
from kfs.speedup import STUDY_BINS

RISKS = (0.05, 0.1, 0.2, 0.3)
DELTA = 0.1
RULES = ("conformal risk control", "guaranteed risk")


def parts(test: pd.DataFrame, calibration: pd.DataFrame | None) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Rows of one forecaster to be judged, each time with the rows to learn from."""
    if calibration is not None:
        yield test, calibration
        return
    for cluster in sorted(test["cluster"].unique()):
        yield test[test["cluster"] == cluster], test[test["cluster"] != cluster]


def mapped_name(name: str, how: str) -> str:
    """What a forecaster is called whose distributions are mapped."""
    return f"{name} + {how}"


def recalibrate(
    test: pd.DataFrame, calibration: pd.DataFrame | None, maps: Sequence[str] = tuple(RECALIBRATIONS)
) -> pd.DataFrame:
    """Tidy rows with recalibrated distributions; forecasters are named after the map, for example ``boosted + vector``.

    Parameters
    ----------
    test : DataFrame
        From ``kfs.report.tables.tidy``.
    calibration : DataFrame or None
        Rows of the calibration split; None where the other tasks of ``test`` serve.
    maps : sequence of str
        Keys of ``RECALIBRATIONS``.

    Returns
    -------
    DataFrame
        As ``test``, a block of rows for every forecaster and map; unparsed replies are left as they are. A forecaster whose
        calibration rows are all unparsed is left out.
    """
    made = []
    for name in test["forecaster"].unique():
        mine = test[test["forecaster"] == name]
        learn = calibration[calibration["forecaster"] == name] if calibration is not None else None
        folds = list(parts(mine, learn))
        for how in maps:
            with threadpool_limits(1):  # a fit of 16 numbers: threads would only wait for each other, ten times as long
                rows = [_mapped(judged, others, how) for judged, others in folds]
            if all(r is not None for r in rows):
                made.append(pd.concat(rows).assign(forecaster=mapped_name(name, how)))
    return pd.concat(made, ignore_index=True) if made else test.iloc[:0]


def _mapped(judged: pd.DataFrame, others: pd.DataFrame, how: str) -> pd.DataFrame | None:
    others, parsed = others[~others["parse_failed"]], ~judged["parse_failed"].to_numpy()
    if others.empty:
        return None
    p = judged[PROBABILITIES].to_numpy(copy=True)
    if parsed.any():
        p[parsed] = recalibrated(how, others[PROBABILITIES].to_numpy(), others["true_bin"].to_numpy(), p[parsed])
    moved = judged.copy()
    moved[PROBABILITIES] = p
    moved["predicted_bin"], moved["confidence"] = score.predicted_bin(p), p.max(axis=1)
    moved["expected_log2"] = STUDY_BINS.expected_log2_speedup(p)
    return moved


def deferral(
    test: pd.DataFrame, calibration: pd.DataFrame | None, intervals: Intervals, *, risks: Sequence[float] = RISKS
) -> pd.DataFrame:
    """What each guaranteed rule would have trusted, and how often it would have been wrong; labels that are uncertain left out.

    Returns
    -------
    DataFrame
        Columns forecaster, rule, risk (asked for), threshold (median over folds; infinite: trust nothing), coverage (share of
        pairs trusted, mean over tasks), wrong_and_trusted (share of all pairs, mean over tasks, what conformal risk control
        bounds) with low and high over tasks, wrong_of_trusted (what the other rule bounds), n (pairs), n_tasks, n_calibration
        (tasks learnt from).
    """
    table = []
    for name in test["forecaster"].unique():
        mine = counted("accuracy", test[test["forecaster"] == name])
        learn = None if calibration is None else counted("accuracy", calibration[calibration["forecaster"] == name])
        folds = [(rows, others) for rows, others in parts(mine, learn) if len(others)]
        for rule in RULES:
            for risk in risks:
                rng = np.random.default_rng([intervals.seed, 9])
                judged = [_judged(rows, others, rule, risk, rng) for rows, others in folds]
                if judged:
                    rows = pd.concat([rows for rows, _, _ in judged])
                    line = {"forecaster": name, "rule": rule, "risk": risk, "threshold": np.median([t for _, t, _ in judged])}
                    table.append({**line, **_outcome(rows, intervals), "n_calibration": max(n for _, _, n in judged)})
    ends = ["wrong_and_trusted", "wrong_and_trusted_low", "wrong_and_trusted_high", "wrong_of_trusted"]
    columns = ["forecaster", "rule", "risk", "threshold", "coverage", *ends, "n", "n_tasks", "n_calibration"]
    return pd.DataFrame(table, columns=columns)


def _judged(rows: pd.DataFrame, others: pd.DataFrame, rule: str, risk: float, rng) -> tuple[pd.DataFrame, float, int]:
    """Rows with columns ``trusted`` and ``bad`` (wrong and trusted), the threshold, and how many tasks it was chosen on."""
    confidence, wrong, task = _confidence(others), _wrong(others), others["cluster"].to_numpy(dtype=str)
    if rule == RULES[0]:
        found = controlled(confidence, wrong, task, risk)
    else:
        chosen = one_a_task(task, rng)
        found = guaranteed(confidence[chosen], wrong[chosen], risk, DELTA)
    trusted = found.trusts(_confidence(rows))
    return rows.assign(trusted=trusted, bad=trusted & _wrong(rows)), found.threshold, len(np.unique(task))


def _outcome(rows: pd.DataFrame, intervals: Intervals) -> dict[str, float]:
    by_task = rows.groupby("cluster")[["trusted", "bad"]].mean()
    found = score.bootstrap(score.mean, (by_task["bad"].to_numpy(dtype=float),), by_task.index.to_numpy(), **intervals.options())
    return {
        "coverage": by_task["trusted"].mean(),
        "wrong_and_trusted": found.estimate,
        "wrong_and_trusted_low": found.low,
        "wrong_and_trusted_high": found.high,
        "wrong_of_trusted": rows.loc[rows["trusted"], "bad"].mean(),
        "n": len(rows),
        "n_tasks": len(by_task),
    }


def _confidence(rows: pd.DataFrame) -> np.ndarray:
    return np.where(rows["parse_failed"], -1.0, rows["confidence"])


def _wrong(rows: pd.DataFrame) -> np.ndarray:
    return (rows["parse_failed"] | (rows["predicted_bin"] != rows["true_bin"])).to_numpy(dtype=bool)
