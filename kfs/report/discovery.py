"""Discovery: does a forecaster find the candidates that are faster than their anchor, as a search would ask of parent and child?

Scores are expected speedups; a reply that could not be parsed calls nothing faster and ranks last. Metrics are those of
``kfs.score.discovery``; tables and their figure.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from kfs import score
from kfs.data.published import PARENT_TO_CHILD
from kfs.pairs import REFERENCE_SUBSETS
from kfs.records import Pair
from kfs.report.style import SOFT, canvas, caption, colour, nothing, span, styled
from kfs.report.tables import Intervals, design, subsets

THRESHOLDS = (1.0, 1.1)
"""Faster at all, and faster by a gain worth having."""
METRICS = {"average_precision": score.average_precision, "precision": score.precision, "recall": score.recall}


def discovery(frame: pd.DataFrame, intervals: Intervals) -> pd.DataFrame:
    """Precision, recall and average precision of finding candidates that are faster than their anchor.

    Parameters
    ----------
    frame : DataFrame
        From ``kfs.report.tables.tidy``.
    intervals : Intervals

    Returns
    -------
    DataFrame
        Columns forecaster, subset (all; pairs that start at the reference; parent and child of a search), threshold, then
        average_precision, precision (NaN if nothing is called faster) and recall, each with low and high; prevalence (share of
        pairs that are faster: the average precision of knowing nothing), called (share called faster), n, n_parse_failed.
    """
    table = []
    for subset, member in subsets(frame).items():
        if subset not in ("all", *REFERENCE_SUBSETS, PARENT_TO_CHILD):
            continue
        for name in frame["forecaster"].unique():
            rows = frame[member & (frame["forecaster"] == name)]
            if rows.empty:
                continue
            scores = np.where(rows["parse_failed"], -np.inf, 2.0 ** rows["expected_log2"].round(12))
            speedup = rows["speedup"].to_numpy()
            for threshold in THRESHOLDS:
                given = {"score": scores, "speedup": speedup, "threshold": threshold}
                line = {"forecaster": name, "subset": subset, "threshold": threshold}
                for metric, function in METRICS.items():
                    found = score.bootstrap(function, given, **design(rows), **intervals.options())
                    line.update({metric: found.estimate, f"{metric}_low": found.low, f"{metric}_high": found.high})
                whole = score.discovery(scores, speedup, threshold)
                line.update({"prevalence": whole.prevalence, "called": whole.called, "n": len(rows)})
                table.append({**line, "n_parse_failed": int(rows["parse_failed"].sum())})
    ends = [f"{metric}{end}" for metric in METRICS for end in ("", "_low", "_high")]
    columns = ["forecaster", "subset", "threshold", *ends, "prevalence", "called", "n", "n_parse_failed"]
    return pd.DataFrame(table, columns=columns)


def searched(pairs: list[Pair]) -> pd.DataFrame:
    """Released parent and child pairs by benchmark family.

    Returns
    -------
    DataFrame
        Columns family, problems, n, median_speedup, and share_above_1 and share_above_1_1 of children faster than their parent.
    """
    columns = ["family", "problems", "n", "median_speedup", "share_above_1", "share_above_1_1"]
    rows = pd.DataFrame(
        [(p.source_search, p.pack, p.aggregated_speedup) for p in pairs], columns=["family", "problem", "speedup"]
    )
    table = []
    for family, mine in rows.groupby("family"):
        shares = [(mine["speedup"] > threshold).mean() for threshold in THRESHOLDS]
        table.append([family, mine["problem"].nunique(), len(mine), mine["speedup"].median(), *shares])
    return pd.DataFrame(table, columns=columns)


@styled
def discovery_figure(table: pd.DataFrame, kind: str, *, subset: str = "all") -> Figure:
    """Average precision of every forecaster against that of knowing nothing; from :func:`discovery`."""
    rows = table[table["subset"] == subset]
    if rows.empty:
        return nothing(f"no pair of subset {subset}")
    names = list(dict.fromkeys(rows["forecaster"]))
    figure, axes = canvas(0.3 * len(names) + 0.9, 1, len(THRESHOLDS), sharey=True)
    for ax, threshold in zip(axes[0], THRESHOLDS, strict=True):
        for row in rows[rows["threshold"] == threshold].itertuples():
            y, shade = names.index(row.forecaster), colour(row.forecaster)
            ends = [row.average_precision_low, row.average_precision_high]
            ax.plot(ends, [y, y], color=shade, lw=2.2, solid_capstyle="butt", alpha=0.55)
            ax.scatter(row.average_precision, y, color=shade, s=30, zorder=3)
            ax.scatter(row.prevalence, y, color=SOFT, marker="|", s=90, lw=1.2)
        ax.set_title(f"faster than {threshold:g} times the anchor")
        ax.set(yticks=range(len(names)), yticklabels=names, xlim=(0, 1), xlabel="average precision (more is better)")
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    text = f"Subset {subset}, n = {span(rows['n'])} forecasts a forecaster; bars: {kind}."
    return caption(figure, f"{text} Tick: share that is faster, which ranking at random would reach.")
