"""The tables of a study's results: tidy DataFrames of forecasts, with bootstrap intervals from ``kfs.score``.

Metrics are defined in ``kfs.score``; this module decides which rows they see, in :func:`counted` and nowhere else: accuracy and
ECE count pairs whose label is not known to be uncertain, all others count every pair. A reply that could not be parsed is
wrong in every ``accuracy``. Pairs whose interval crosses a bin edge are reported apart, as subset ``uncertain``. Draws nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from kfs import score
from kfs.errors import SchemaError
from kfs.pairs import REFERENCE_SUBSETS
from kfs.records import Forecast, Pair, probability_matrix
from kfs.report.measured import pair_frame
from kfs.speedup import N_BINS, STUDY_BINS

PROBABILITIES = [f"p{i}" for i in range(1, N_BINS + 1)]
METRICS = {
    "accuracy": score.accuracy,
    "within_one": score.within_one,
    "half_brier": score.half_brier,
    "crps": score.crps,
    "ece": score.ece,
    "spearman": score.spearman,
}
LOSSES = ("half_brier", "crps", "ece")
EXACT = ("accuracy", "ece", "confusion")
"""What asks for the exact bin."""
MIN_SUBSET = 20
_CUT = re.compile(r"\b(?:reference|candidate) cut by (\d+) characters?\b")


@dataclass(frozen=True)
class Intervals:
    """How every interval of a study is made: the same resamples for every forecaster."""

    n_resamples: int
    level: float
    seed: int

    def options(self) -> dict:
        """Keyword arguments of ``kfs.score.bootstrap`` and ``paired_difference``."""
        return {"n_resamples": self.n_resamples, "level": self.level, "rng": np.random.default_rng([self.seed, 8])}

    def describe(self) -> str:
        """Kind of interval, for captions."""
        return f"{self.level:.0%} bootstrap intervals over tasks and kernels, {self.n_resamples} resamples"


def tidy(pairs: list[Pair], forecasts: Mapping[str, list[Forecast]], sample: Iterable[str] = ()) -> pd.DataFrame:
    """Forecasts beside what was measured, one row a forecast.

    Parameters
    ----------
    pairs : list of Pair
        Test pairs.
    forecasts : mapping of str to list of Forecast
        By forecaster; a forecaster may cover a part of the pairs.
    sample : iterable of str
        comparison_ids to mark in column ``in_sample``.

    Returns
    -------
    DataFrame
        Columns forecaster, comparison_id, pack, cluster, subset, within_variant, hardware, anchor_id, candidate_id, speedup,
        true_bin, certain, in_sample, repeat, parse_failed, p1 to p8, predicted_bin, confidence, expected_log2.

    Raises
    ------
    SchemaError
        If a forecast answers none of the pairs, or its bins are not those of the labels.
    """
    known = {p.comparison_id: i for i, p in enumerate(pairs)}
    facts = pair_frame(pairs)
    facts["in_sample"] = facts["comparison_id"].isin(set(sample))
    parts = []
    for name, answers in forecasts.items():
        stray = next((f.comparison_id for f in answers if f.comparison_id not in known), None)
        if stray is not None:
            raise SchemaError(f"forecaster {name!r}: forecast {stray!r} answers none of the {len(pairs)} test pairs")
        if rules := {f.bin_rule for f in answers} - {p.bin_rule for p in pairs}:
            raise SchemaError(f"forecaster {name!r} forecasts bins of rule {rules.pop()!r}, the pairs are labelled by another")
        part = facts.iloc[[known[f.comparison_id] for f in answers]].reset_index(drop=True)
        p = probability_matrix(answers)
        part.insert(0, "forecaster", name)
        part["repeat"] = [f.repeat for f in answers]
        part["parse_failed"] = np.array([f.parse_failed for f in answers], dtype=bool)
        part[PROBABILITIES] = p
        part["predicted_bin"] = score.predicted_bin(p) if len(p) else np.array([], dtype=int)
        part["confidence"] = p.max(axis=1) if len(p) else np.array([])
        part["expected_log2"] = STUDY_BINS.expected_log2_speedup(p)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def subsets(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Named groups of rows that tables are reported by: all, each subset, pairs of one variant, and uncertain labels apart."""
    found = {"all": pd.Series(True, index=frame.index)}
    for name in sorted(set(frame["subset"]) - {""}, key=lambda s: (s not in REFERENCE_SUBSETS, s)):
        found[name] = frame["subset"] == name
    found["within_variant"] = frame["within_variant"]
    found["uncertain"] = ~frame["certain"].fillna(True).astype(bool)
    return {
        name: rows for name, rows in found.items() if name == "all" or frame.loc[rows, "comparison_id"].nunique() >= MIN_SUBSET
    }


def arrays(metric: str, rows: pd.DataFrame) -> dict[str, np.ndarray]:
    """What a metric of ``METRICS`` takes, from tidy rows."""
    truth = {"speedup": rows["speedup"].to_numpy()} if metric == "spearman" else {"true_bin": rows["true_bin"].to_numpy()}
    return {"probabilities": rows[PROBABILITIES].to_numpy(), **truth, "parse_failed": rows["parse_failed"].to_numpy()}


def counted(metric: str, rows: pd.DataFrame, subset: str = "all") -> pd.DataFrame:
    """Rows that a metric counts: for what asks for the exact bin, those whose label is not known to be uncertain.

    The one exception is the subset ``uncertain`` itself, which is reported so that everyone sees how it fares.
    """
    if metric not in EXACT or subset == "uncertain":
        return rows
    return rows[rows["certain"].fillna(True).astype(bool)]


def characters_cut(reasoning: str) -> int:
    """Characters of the two sources that a prompt left out, from the forecast's notes; 0 where they mention none.

    Examples
    --------
    >>> characters_cut("reference cut by 40 characters; candidate cut by 2 characters"), characters_cut("")
    (42, 0)
    """
    return sum(map(int, _CUT.findall(reasoning)))


def answers(forecasts: Mapping[str, list[Forecast]]) -> pd.DataFrame:
    """How many answers each forecaster gave, and for those that read a prompt, how much of the sources it left out.

    Returns
    -------
    DataFrame
        Columns forecaster, n, n_parse_failed, median_tokens (of a prompt), share_cut (prompts in which a source was cut),
        median_characters_cut (both sources together, over prompts that were cut); the last three NaN where nothing reads tokens.
    """
    table = []
    for name, given in forecasts.items():
        line = {"forecaster": name, "n": len(given), "n_parse_failed": sum(f.parse_failed for f in given)}
        read = [f for f in given if f.input_tokens is not None]
        cut = np.array([characters_cut(f.reasoning) for f in read])
        if len(read):
            line.update({"median_tokens": np.median([f.input_tokens for f in read]), "share_cut": (cut > 0).mean()})
            line["median_characters_cut"] = np.median(cut[cut > 0]) if cut.any() else 0.0
        table.append(line)
    columns = ["forecaster", "n", "n_parse_failed", "median_tokens", "share_cut", "median_characters_cut"]
    return pd.DataFrame(table, columns=columns)


def design(rows: pd.DataFrame) -> dict:
    """What the bootstrap resamples of tidy rows: tasks, then kernels."""
    return {
        "clusters": rows["cluster"].to_numpy(dtype=str),
        "kernels": (rows["anchor_id"].to_numpy(dtype=str), rows["candidate_id"].to_numpy(dtype=str)),
    }


def headline(
    frame: pd.DataFrame,
    intervals: Intervals,
    by: Mapping[str, pd.Series] | None = None,
    *,
    metrics: Iterable[str] = tuple(METRICS),
) -> pd.DataFrame:
    """Every metric of every forecaster on every subset, each with its interval.

    Parameters
    ----------
    frame : DataFrame
        From :func:`tidy`.
    intervals : Intervals
    by : mapping of str to boolean Series, optional
        Rows of each subset; default :func:`subsets`.
    metrics : iterable of str, optional
        Some of ``METRICS``; default all.

    Returns
    -------
    DataFrame
        Columns forecaster, subset, then for each metric ``<metric>``, ``<metric>_low``, ``<metric>_high``; n, n_accuracy (rows
        that accuracy and ECE count; see :func:`counted`) and n_parse_failed.
    """
    by = subsets(frame) if by is None else by
    table = []
    for subset, member in by.items():
        for name in frame["forecaster"].unique():
            rows = frame[member & (frame["forecaster"] == name)]
            if rows.empty:
                continue
            line = {"forecaster": name, "subset": subset}
            for metric in metrics:
                line.update(_with_interval(metric, counted(metric, rows, subset), intervals))
            line.update({"n": len(rows), "n_accuracy": len(counted("accuracy", rows, subset))})
            table.append({**line, "n_parse_failed": int(rows["parse_failed"].sum())})
    ends = [f"{metric}{end}" for metric in metrics for end in ("", "_low", "_high")]
    return pd.DataFrame(table, columns=["forecaster", "subset", *ends, "n", "n_accuracy", "n_parse_failed"])


def _with_interval(metric: str, rows: pd.DataFrame, intervals: Intervals) -> dict[str, float]:
    if rows.empty:
        return {metric: np.nan, f"{metric}_low": np.nan, f"{metric}_high": np.nan}
    found = score.bootstrap(METRICS[metric], arrays(metric, rows), **design(rows), **intervals.options())
    return {metric: found.estimate, f"{metric}_low": found.low, f"{metric}_high": found.high}


def headline_by(frame: pd.DataFrame, column: str, intervals: Intervals) -> pd.DataFrame:
    """The headline for each value of ``column`` (pack or hardware) alone; the value stands in column ``subset``."""
    values = sorted(frame[column].unique())
    return headline(frame, intervals, {value: frame[column] == value for value in values})


def paired(
    frame: pd.DataFrame,
    first: str,
    intervals: Intervals,
    *,
    metrics: tuple[str, ...] = ("half_brier", "spearman"),
    only: tuple[str, ...] = ("all", *REFERENCE_SUBSETS, "within_variant"),
) -> pd.DataFrame:
    """Differences between ``first`` and every other forecaster on the same pairs, with paired intervals.

    Where one of the two answered a pair once and the other several times, its answer stands beside each of the other's; else
    their first answers are compared, their second, and so on.

    Returns
    -------
    DataFrame
        Columns first, second, subset, metric, estimate (first minus second), low, high, excludes_zero, better, n (rows that
        the metric counts).
    """
    columns = ["first", "second", "subset", "metric", "estimate", "low", "high", "excludes_zero", "better", "n"]
    mine = frame[frame["forecaster"] == first]
    table = []
    for second in [name for name in frame["forecaster"].unique() if name != first]:
        a, b = _side_by_side(mine, frame[frame["forecaster"] == second])
        if a.empty:
            continue
        for subset, member in subsets(a).items():
            if subset not in only:
                continue
            for metric in metrics:
                mine_used = counted(metric, a[member])
                if mine_used.empty:
                    continue
                found = score.paired_difference(
                    METRICS[metric],
                    arrays(metric, mine_used),
                    arrays(metric, b.loc[mine_used.index]),
                    **design(mine_used),
                    **intervals.options(),
                )
                excludes = found.excludes(0.0)
                gain = -found.estimate if metric in LOSSES else found.estimate
                better = (first if gain > 0 else second) if excludes else "neither"
                values = [found.estimate, found.low, found.high, excludes, better, len(mine_used)]
                table.append(dict(zip(columns, [first, second, subset, metric, *values], strict=True)))
    return pd.DataFrame(table, columns=columns)


def _side_by_side(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of two forecasters that answer the same pairs, in the same order."""
    number = lambda rows: rows.sort_values("repeat", kind="stable").groupby("comparison_id").cumcount()
    keys = [
        pd.DataFrame({"pair": rows["comparison_id"], "answer": number(rows), "row": np.arange(len(rows))})
        for rows in (first, second)
    ]
    once = [not (k["answer"] > 0).any() for k in keys]
    joined = keys[0].merge(keys[1], on="pair" if any(once) else ["pair", "answer"], how="inner")
    return tuple(rows.iloc[joined[f"row_{end}"]].reset_index(drop=True) for rows, end in ((first, "x"), (second, "y")))


def clear_differences(table: pd.DataFrame, subset: str = "all") -> str:
    """A sentence on a table from :func:`paired`: for which differences the interval excludes 0, among how many."""
    rows = table[(table["subset"] == subset) & table["estimate"].notna()]
    said = [
        f"{r.first} − {r.second} in {r.metric.replace('_', ' ')} {r.estimate:+.3f} "
        f"[{r.low:+.3f}, {r.high:+.3f}], better: {r.better}"
        for r in rows[rows["excludes_zero"].astype(bool)].itertuples()
    ]
    found = "; ".join(said) or "none"
    return f"the paired interval excludes 0 for {len(said)} of {len(rows)} comparisons, each at its own level: {found}"


def reliability(frame: pd.DataFrame) -> pd.DataFrame:
    """Confidence and share right by bucket of the predicted bin's probability, of the rows and replies that ECE counts."""
    table = []
    for name in frame["forecaster"].unique():
        rows = counted("ece", frame[frame["forecaster"] == name])
        if rows.empty:
            continue
        for low, high, n, confidence, right in zip(*score.reliability(**arrays("ece", rows)), strict=True):
            if n > 0:
                line = {"low": low, "high": high, "n": int(n), "confidence": confidence, "share_right": right}
                table.append({"forecaster": name, **line})
    return pd.DataFrame(table, columns=["forecaster", "low", "high", "n", "confidence", "share_right"])


def calibration(frame: pd.DataFrame, intervals: Intervals) -> pd.DataFrame:
    """How far stated probabilities are from what comes true, for each forecaster.

    Returns
    -------
    DataFrame
        Columns forecaster, ece, ece_low, ece_high, overconfidence (confidence - share_right), confidence (mean probability of
        the predicted bin) and share_right, both over parsed replies as ECE is; accuracy, the same but for unparsed replies,
        which are wrong; n (rows whose label is not known to be uncertain) and n_parse_failed among them.
    """
    table = []
    for name in frame["forecaster"].unique():
        rows = counted("ece", frame[frame["forecaster"] == name])
        parsed = rows[~rows["parse_failed"]]
        line = {"forecaster": name, **_with_interval("ece", rows, intervals), "confidence": parsed["confidence"].mean()}
        line["share_right"] = (parsed["predicted_bin"] == parsed["true_bin"]).mean()
        line["overconfidence"] = line["confidence"] - line["share_right"]
        line["accuracy"] = score.accuracy(**arrays("accuracy", rows)) if len(rows) else np.nan
        table.append({**line, "n": len(rows), "n_parse_failed": int(rows["parse_failed"].sum())})
    columns = ["forecaster", "ece", "ece_low", "ece_high", "overconfidence", "confidence", "share_right", "accuracy", "n"]
    return pd.DataFrame(table, columns=[*columns, "n_parse_failed"])


def confusion(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Pairs of one forecaster by true and predicted bin, all 64 cells, over the rows that accuracy counts.

    Returns
    -------
    DataFrame
        Columns forecaster, true_bin, predicted_bin, n, n_true (pairs of the true bin, those without a usable reply among them)
        and share (n / n_true): the diagonal's n over all pairs is the accuracy.
    """
    rows = counted("confusion", frame[frame["forecaster"] == name])
    parsed = rows[~rows["parse_failed"]]
    counts = np.zeros((N_BINS, N_BINS), dtype=int)
    np.add.at(counts, (parsed["true_bin"].to_numpy() - 1, parsed["predicted_bin"].to_numpy() - 1), 1)
    total = np.bincount(rows["true_bin"] - 1, minlength=N_BINS)[:, None] * np.ones(counts.shape, dtype=int)
    share = np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)
    true_bin, predicted_bin = (1 + np.indices(counts.shape)).reshape(2, -1)
    columns = {"true_bin": true_bin, "predicted_bin": predicted_bin, "n": counts.ravel(), "n_true": total.ravel()}
    return pd.DataFrame({"forecaster": name, **columns, "share": share.ravel()})


def _losses(rows: pd.DataFrame) -> np.ndarray:
    """Absolute bin error of each row."""
    return score.bin_error_per_row(**arrays("half_brier", rows))


def _confidence(rows: pd.DataFrame) -> np.ndarray:
    return score.max_probability(rows[PROBABILITIES].to_numpy(), parse_failed=rows["parse_failed"].to_numpy())


def risk_coverage(frame: pd.DataFrame, *, points: int = 100) -> pd.DataFrame:
    """Mean absolute bin error of the most confident share of forecasts, for each forecaster; at most ``points`` steps each.

    Forecasts of equal confidence enter together: a curve starts where its first block ends.
    """
    table = []
    for name in frame["forecaster"].unique():
        rows = frame[frame["forecaster"] == name]
        curve = score.risk_coverage(_losses(rows), _confidence(rows))
        wanted = np.searchsorted(curve.coverage, np.linspace(0, 1, points + 1)[1:] - 1e-9)
        for i in np.unique(np.minimum(wanted, len(curve.coverage) - 1)):
            table.append(
                {"forecaster": name, "coverage": curve.coverage[i], "risk": curve.risk[i], "threshold": curve.threshold[i]}
            )
    return pd.DataFrame(table, columns=["forecaster", "coverage", "risk", "threshold"])


def selective(frame: pd.DataFrame, intervals: Intervals, *, coverages: tuple[float, ...] = (0.25, 0.5)) -> pd.DataFrame:
    """AURC of absolute bin error with its interval, what no and perfect knowledge of the errors would give, risk at coverages."""
    at = {f"risk_at_{100 * share:.0f}": share for share in coverages}
    table = []
    for name in frame["forecaster"].unique():
        rows = frame[frame["forecaster"] == name]
        losses, confidence = _losses(rows), _confidence(rows)
        found = score.bootstrap(score.aurc, (losses, confidence), **design(rows), **intervals.options())
        curve = score.risk_coverage(losses, confidence)
        line = {"forecaster": name, "aurc": found.estimate, "aurc_low": found.low, "aurc_high": found.high}
        line.update({"risk_all": losses.mean(), "aurc_oracle": score.aurc(losses, -losses)})
        line.update({column: curve.risk[np.searchsorted(curve.coverage, share - 1e-9)] for column, share in at.items()})
        table.append({**line, "n": len(rows)})
    return pd.DataFrame(table, columns=["forecaster", "aurc", "aurc_low", "aurc_high", "risk_all", "aurc_oracle", *at, "n"])


def pools(frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Rows that form pools of kernels worth choosing among, with column ``pool``, and what a pool is in words.

    Measured tasks: the kernels of one task against its reference. CUDA-L1 has three or four kernels a problem, too few to choose
    among, so a pool is the custom kernels of every problem on one GPU, against eager PyTorch.
    """
    if (frame["subset"] == "reference_to_candidate").any():
        rows = frame[frame["subset"] == "reference_to_candidate"]
        return rows.assign(pool=rows["pack"]), "the kernels of one task, against its reference"
    rows = frame[frame["subset"] == "eager_to_custom"]
    return rows.assign(pool=rows["hardware"]), "the custom kernels of all held-out problems on one GPU, against eager PyTorch"


def independent(rows: pd.DataFrame) -> bool:
    """Whether no task stands in two pools. Pools that share tasks repeat one another; resampling them would promise too much."""
    return bool((rows.groupby("cluster")["pool"].nunique() <= 1).all())


def recovery(frame: pd.DataFrame, *, shares: np.ndarray | None = None) -> pd.DataFrame:
    """Best found / best of pool against share measured, mean over pools, with the exact expectation of a random order.

    Returns
    -------
    DataFrame
        Columns forecaster, share, found, random, n_pools, n (kernels in all pools).
    """
    rows, _ = pools(frame)
    shares = np.linspace(0.02, 1.0, 50) if shares is None else shares
    table = []
    for name in rows["forecaster"].unique():
        mine = rows[rows["forecaster"] == name]
        curve = _recovery(mine, shares).mean()
        for share, found, random in zip(curve.share, curve.found, curve.random, strict=True):
            line = {"share": share, "found": found, "random": random, "n_pools": mine["pool"].nunique(), "n": len(mine)}
            table.append({"forecaster": name, **line})
    return pd.DataFrame(table, columns=["forecaster", "share", "found", "random", "n_pools", "n"])


def _recovery(rows: pd.DataFrame, shares):
    order = np.where(rows["parse_failed"], -np.inf, rows["expected_log2"].round(12))
    return score.recovery(order, rows["speedup"].to_numpy(), rows["pool"].to_numpy(), shares=shares)


def recovery_at(frame: pd.DataFrame, share: float, intervals: Intervals) -> pd.DataFrame:
    """Recovery with ``share`` of each pool measured, with an interval over pools, and how often it is within 20% of the best.

    Returns
    -------
    DataFrame
        Columns forecaster, share, random, found and gain (found - random) with low and high, within_20_percent (share of
        pools), n_pools. Intervals are NaN for a single pool, and where pools are not :func:`independent`.
    """
    rows, _ = pools(frame)
    resample = independent(rows)
    table = []
    for name in rows["forecaster"].unique():
        at = _recovery(rows[rows["forecaster"] == name], [share]).at(share)
        pool = np.arange(len(at.found))
        line = {"forecaster": name, "share": share, "random": at.random.mean()}
        for key, values in (("found", at.found), ("gain", at.found - at.random)):
            line[key] = values.mean()
            if resample and len(pool) > 1:
                interval = score.bootstrap(score.mean, (values,), pool, **intervals.options())
                line.update({f"{key}_low": interval.low, f"{key}_high": interval.high})
        table.append({**line, "within_20_percent": (at.found >= 0.8).mean(), "n_pools": len(pool)})
    measured = [f"{key}{end}" for key in ("found", "gain") for end in ("", "_low", "_high")]
    return pd.DataFrame(table, columns=["forecaster", "share", "random", *measured, "within_20_percent", "n_pools"])


def recovery_by_pool(frame: pd.DataFrame, share: float) -> pd.DataFrame:
    """Recovery with ``share`` measured in every pool: columns forecaster, pool, found, random."""
    rows, _ = pools(frame)
    table = []
    for name in rows["forecaster"].unique():
        result = _recovery(rows[rows["forecaster"] == name], [share])
        for pool, found, random in zip(result.pools, result.at(share).found, result.at(share).random, strict=True):
            table.append({"forecaster": name, "pool": pool, "found": found, "random": random})
    return pd.DataFrame(table, columns=["forecaster", "pool", "found", "random"])


def readable(table: pd.DataFrame, *, digits: int = 3) -> pd.DataFrame:
    """A table for reading: an estimate and its interval in one column, numbers rounded, absent ones a dash."""
    out = {}
    for column in table.columns:
        if column.endswith(("_low", "_high")) or (column in ("low", "high") and "estimate" in table):
            continue
        low, high = ("low", "high") if column == "estimate" else (f"{column}_low", f"{column}_high")
        if low in table:
            triples = zip(table[column], table[low], table[high], strict=True)
            out[column] = [
                _number(v, digits) + ("" if np.isnan(a) else f" [{_number(a, digits)}, {_number(b, digits)}]")
                for v, a, b in triples
            ]
        elif pd.api.types.is_float_dtype(table[column]):
            out[column] = [_number(v, digits) for v in table[column]]
        else:
            out[column] = table[column].tolist()
    return pd.DataFrame(out)


def _number(value: float, digits: int) -> str:
    return "–" if pd.isna(value) else f"{value:.{digits}f}"
