"""The label audit: what the released label rule does to the scores of forecasters who were told the study's bins.

Forecasts are read in three ways. *told*: against labels in the bins the prompt states. *released*: the same forecasts against
labels by the released rule, which lie one bin lower for most speedups between 0.25 and 2.83. *translated*: the forecasts moved to
the released bins, as by a forecaster that learnt the labels instead of its prompt, against the released labels. Beside the
study's forecasters stands ``perfect``, which knows every speedup and believes its prompt. Exact accuracy and ECE count pairs
whose label is sure, or not known to be unsure, by both rules, so that all three readings count the same.

Source of the two rules: ``kfs.speedup``.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from kfs.records import Pair
from kfs.report.style import BIN_COLOURS, INK, SOFT, canvas, caption, colour, plain, span, styled
from kfs.report.tables import PROBABILITIES, Intervals, headline, paired
from kfs.score import predicted_bin
from kfs.speedup import N_BINS, RELEASED_LABELS, STUDY_BINS

READINGS = ("told", "released", "translated")
PERFECT = "perfect"
METRICS = ("accuracy", "within_one", "half_brier", "crps", "ece")


def translation() -> np.ndarray:
    """Share of each told bin that lies in each released bin, by length in octaves, shape (8, 8); rows sum to 1.

    Examples
    --------
    >>> translation()[4].tolist(), translation()[6].round(2).tolist()  # told bins 5 and 7
    ([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.5, 0.0])
    """
    found = np.zeros((N_BINS, N_BINS))
    for told in range(1, N_BINS + 1):
        low, high = STUDY_BINS.bounds(told)
        if told in (1, N_BINS):  # open: all of it lies where its representative speedup does
            found[told - 1, RELEASED_LABELS.index(STUDY_BINS.representative[told - 1]) - 1] = 1.0
            continue
        for label in range(1, N_BINS + 1):
            left, right = RELEASED_LABELS.bounds(label)
            overlap = np.log2(min(high, right)) - np.log2(max(low, left, 1e-300))
            found[told - 1, label - 1] = max(0.0, overlap) / np.log2(high / low)
    return found


def rules() -> pd.DataFrame:
    """Edges of both rules: columns bin, name, told_low, told_high, released_low, released_high."""
    table = []
    for told, label in zip(STUDY_BINS.table(), RELEASED_LABELS.table(), strict=True):
        edges = {"told_low": told["low"], "told_high": told["high"], "released_low": label["low"], "released_high": label["high"]}
        table.append({"bin": told["bin"], "name": told["name"], **edges})
    return pd.DataFrame(table)


def moved(pairs: list[Pair]) -> pd.DataFrame:
    """How many pairs of each told bin have another label in the release.

    Returns
    -------
    DataFrame
        Columns told_bin, name, n, n_moved, share_moved (NaN without pairs), released_bins (those its pairs have there).
    """
    speedup = np.array([p.aggregated_speedup for p in pairs])
    told, label = STUDY_BINS.index(speedup), RELEASED_LABELS.index(speedup)
    table = []
    for row in STUDY_BINS.table():
        member = told == row["bin"]
        n, n_moved = int(member.sum()), int((label[member] != row["bin"]).sum())
        line = {
            "told_bin": row["bin"],
            "name": row["name"],
            "n": n,
            "n_moved": n_moved,
            "share_moved": n_moved / n if n else np.nan,
        }
        table.append({**line, "released_bins": " ".join(map(str, sorted(set(label[member].tolist()))))})
    return pd.DataFrame(table)


def perfect(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of a forecaster that knows every speedup and is sure of the bin its prompt gives it; one a pair."""
    rows = frame.drop_duplicates("comparison_id").copy()
    p = STUDY_BINS.one_hot(STUDY_BINS.index(rows["speedup"].to_numpy()))
    rows[PROBABILITIES] = p
    known = {"forecaster": PERFECT, "repeat": 0, "parse_failed": False, "predicted_bin": predicted_bin(p), "confidence": 1.0}
    return rows.assign(**known, expected_log2=STUDY_BINS.expected_log2_speedup(p))


def read(frame: pd.DataFrame, reading: str) -> pd.DataFrame:
    """Tidy rows with labels, their certainty and distributions as one of ``READINGS`` has them."""
    bins = STUDY_BINS if reading == "told" else RELEASED_LABELS
    rows = frame.assign(true_bin=bins.index(frame["speedup"].to_numpy()), certain=_certain(frame))
    if reading == "translated":
        p = rows[PROBABILITIES].to_numpy() @ translation()
        rows[PROBABILITIES] = p
        rows = rows.assign(predicted_bin=predicted_bin(p), confidence=p.max(axis=1))
    return rows


def _certain(frame: pd.DataFrame) -> pd.Series:
    """Whether a pair's interval lies inside one bin of each rule; unknown where no interval is."""
    known = frame[["speedup_low", "speedup_high"]].notna().all(axis=1).to_numpy()
    low, high = (np.where(known, frame[f"speedup_{end}"], 1.0) for end in ("low", "high"))
    one = lambda bins: bins.index(low) == bins.index(high)
    return frame["certain"].where(~known, pd.array(one(STUDY_BINS) & one(RELEASED_LABELS), dtype="boolean"))


def audit(frame: pd.DataFrame, intervals: Intervals) -> pd.DataFrame:
    """Scores of every forecaster, and of the perfect one, in each reading.

    Parameters
    ----------
    frame : DataFrame
        From ``kfs.report.tables.tidy``.
    intervals : Intervals

    Returns
    -------
    DataFrame
        Columns forecaster, reading, then each of ``METRICS`` with low and high, n, n_accuracy, n_parse_failed.
    """
    every = pd.concat([perfect(frame), frame], ignore_index=True)
    parts = []
    for reading in READINGS:
        rows = read(every, reading)
        table = headline(rows, intervals, {"all": pd.Series(True, index=rows.index)}, metrics=METRICS)
        table["subset"] = reading
        parts.append(table.rename(columns={"subset": "reading"}))
    table = pd.concat(parts, ignore_index=True)
    order = {name: i for i, name in enumerate(every["forecaster"].unique())}
    return table.sort_values("forecaster", key=lambda names: names.map(order), kind="stable", ignore_index=True)


def changes(frame: pd.DataFrame, intervals: Intervals) -> pd.DataFrame:
    """How much scores change from labels as told to labels as released, for the same forecasts, with paired intervals.

    Returns
    -------
    DataFrame
        Columns forecaster, metric, estimate (released minus told), low, high, excludes_zero, n.
    """
    every, table = pd.concat([perfect(frame), frame], ignore_index=True), []
    for name in every["forecaster"].unique():
        rows = every[every["forecaster"] == name]
        both = pd.concat([read(rows, reading).assign(forecaster=reading) for reading in ("released", "told")])
        found = paired(both, "released", intervals, metrics=METRICS[:3], only=("all",))
        table.append(found.assign(forecaster=name))
    columns = ["forecaster", "metric", "estimate", "low", "high", "excludes_zero", "n"]
    return pd.concat(table, ignore_index=True)[columns]


@styled
def rules_figure(table: pd.DataFrame) -> Figure:
    """Both rules over one axis of speedups; from :func:`rules`."""
    figure, axes = canvas(1.5)
    ax = axes[0, 0]
    for y, rule in enumerate(("told", "released")):
        for row in table.itertuples():
            low, high = np.clip([getattr(row, f"{rule}_low"), getattr(row, f"{rule}_high")], 1 / 8, 8)
            ax.barh(y, high - low, 0.72, low, color=BIN_COLOURS[row.bin - 1], edgecolor="white", linewidth=0.8)
            shade = "white" if row.bin in (1, 2, 7, 8) else INK
            ax.text(np.sqrt(low * high), y, str(row.bin), ha="center", va="center", fontsize=9, color=shade)
    ax.set_xscale("log", base=2)
    plain(ax.xaxis)
    ax.set_xticks(
        [0.125, 0.25, 0.5, 2**-0.5, 1, 2**0.5, 2, 2**1.5, 4, 8], ["⅛", "¼", "½", "0.71", "1", "1.41", "2", "2.83", "4", "8"]
    )
    ax.set(yticks=(0, 1), yticklabels=("told in the prompt", "released label"), xlim=(1 / 8, 8), xlabel="speedup (log scale)")
    ax.invert_yaxis()
    ax.grid(False)
    ax.tick_params(axis="y", length=0)
    text = "The eight bins by both rules. A speedup on an edge belongs to the lower bin as told, to the upper bin as released."
    return caption(figure, text)


@styled
def audit_figure(table: pd.DataFrame, kind: str) -> Figure:
    """Exact accuracy, within-one accuracy and half Brier in each reading, with intervals; from :func:`audit`."""
    names = list(dict.fromkeys(table["forecaster"]))
    panels = {"accuracy": "exact bin", "within_one": "within one bin", "half_brier": "half Brier"}
    marks = dict(zip(READINGS, ("o", "X", "v"), strict=True))
    figure, axes = canvas(0.5 * len(names) + 0.9, 1, len(panels), sharey=True)
    for ax, (metric, title) in zip(axes[0], panels.items(), strict=True):
        for row in table.itertuples():
            shade = INK if row.forecaster == PERFECT else colour(row.forecaster)
            y = names.index(row.forecaster) + 0.24 * (READINGS.index(row.reading) - 1)
            low, value, high = (getattr(row, f"{metric}{end}") for end in ("_low", "", "_high"))
            ax.plot([low, high], [y, y], color=shade, lw=1.6, alpha=0.5, solid_capstyle="butt")
            face = shade if row.reading == "told" else "white"
            ax.scatter(value, y, marker=marks[row.reading], s=28, facecolor=face, edgecolor=shade, zorder=3, clip_on=False)
        ax.set_title(title)
        ax.set(
            yticks=range(len(names)), yticklabels=names, xlabel="less is better" if metric == "half_brier" else "more is better"
        )
        ax.set_xlim(0, None if metric == "half_brier" else 1)
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    for ax in axes[0, :2]:
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes[0, 2].axvline(0.4375, color=SOFT, lw=0.8, ls=":")
    return caption(
        figure,
        "Filled dot: labels in the bins as told; cross: the same forecasts against released labels; triangle: forecasts "
        f"translated to the released bins. n = {span(table['n'])} forecasts a forecaster, exact bin counts "
        f"{span(table['n_accuracy'])}; bars: {kind}. Dotted: the uniform forecast.",
    )
