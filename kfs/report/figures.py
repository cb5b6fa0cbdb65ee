"""The figures of a study, in the style of ``style.py``.

Each function takes a tidy DataFrame from ``tables`` or ``measured`` and returns a Figure whose label is its caption; none shows
anything. A table without rows gives a figure that says so. Estimates and intervals are drawn as the table has them; nothing
but places of marks, and the median bar of a strip, is computed here.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from kfs.report.style import (
    BIN_COLOURS,
    COLOURS,
    FAINT,
    INK,
    SOFT,
    canvas,
    caption,
    colour,
    label_ends,
    nothing,
    plain,
    span,
    styled,
)
from kfs.speedup import N_BINS, STUDY_BINS


@styled
def bins(counts: pd.DataFrame) -> Figure:
    """How many pairs lie in each speedup bin, a bar a subset; from ``measured.bin_counts``."""
    names = list(dict.fromkeys(counts["subset"]))
    figure, axes = canvas(0.42 * len(names) + 1.0)
    ax = axes[0, 0]
    for y, subset in enumerate(names):
        rows = counts[counts["subset"] == subset].sort_values("bin")
        left = 0.0
        for index, share in zip(rows["bin"], rows["share"], strict=True):
            ax.barh(y, share, 0.72, left, color=BIN_COLOURS[index - 1], edgecolor="white", linewidth=0.6)
            if share > 0.045:
                shade = "white" if index in (1, 2, 7, 8) else INK
                ax.text(left + share / 2, y, str(index), ha="center", va="center", fontsize=8, color=shade)
            left += share
        ax.text(1.01, y, f"n = {rows['n'].sum()}", va="center", fontsize=8, color=SOFT)
    ax.set(yticks=range(len(names)), yticklabels=names, xlim=(0, 1), xlabel="share of pairs")
    ax.invert_yaxis()
    ax.grid(False)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(PercentFormatter(1))
    edges = ", ".join(f"{row['bin']} {row['name']} ({row['interval']})" for row in STUDY_BINS.table())
    return caption(figure, f"Pairs by speedup bin and subset; counts, no interval. Bins: {edges}.")


@styled
def speedups(frame: pd.DataFrame, column: str, what: str) -> Figure:
    """Speedups of pairs, one strip for each value of ``column``; dashed lines are bin edges. From ``measured.pair_frame``."""
    names = sorted(frame[column].unique())
    figure, axes = canvas(0.36 * len(names) + 0.9)
    ax = axes[0, 0]
    certain = frame["certain"].fillna(True).astype(bool)
    for y, name in enumerate(names):
        member = (frame[column] == name).to_numpy()
        values = frame.loc[member].sort_values("speedup")
        # A fixed low-discrepancy offset instead of random jitter: the same rows give the same picture.
        offset = ((np.arange(len(values)) * 0.618034) % 1 - 0.5) * 0.55
        hollow = ~certain.loc[values.index].to_numpy()
        x = values["speedup"].to_numpy()
        size = 12 if len(values) < 100 else 5
        ax.scatter(x[~hollow], y + offset[~hollow], s=size, color=COLOURS["boosted"], alpha=0.6, linewidths=0)
        ax.scatter(x[hollow], y + offset[hollow], s=size, facecolors="none", edgecolors=COLOURS["local"], linewidths=0.8)
        ax.plot([np.median(x)] * 2, [y - 0.36, y + 0.36], color=INK, lw=1.4)
    for edge in STUDY_BINS.edges:
        ax.axvline(edge, color=SOFT, lw=0.6, ls=(0, (3, 3)), zorder=0)
    ax.set_xscale("log", base=2)
    plain(ax.xaxis)
    ax.set(
        yticks=range(len(names)), yticklabels=names, xlabel="speedup over the anchor (anchor time / candidate time, log scale)"
    )
    ax.invert_yaxis()
    ax.grid(False)
    text = f"{what}: one dot a pair, n = {len(frame)}; bar: median; dashed: bin edges; no interval drawn."
    if not certain.all():
        text += f" Hollow: the pair's interval crosses a bin edge ({(~certain).sum()} pairs)."
    return caption(figure, text)


@styled
def label_noise(table: pd.DataFrame, column: str) -> Figure:
    """Share of pairs near a bin edge and, where known, share whose bin is uncertain; from ``measured.label_noise``."""
    figure, axes = canvas(0.3 * len(table) + 0.95)
    ax = axes[0, 0]
    y = np.arange(len(table))
    ax.scatter(table["share_near_edge"], y, color=SOFT, s=26, label="within 5% of a bin edge")
    known = table["share_certain"].notna().any()
    if known:
        ax.scatter(1 - table["share_certain"], y, color=COLOURS["local"], s=26, marker="D", label="interval crosses a bin edge")
    ax.set(yticks=y, yticklabels=table[column], xlabel="share of pairs")
    ax.set_xlim(0, None)
    ax.margins(x=0.1)
    ax.invert_yaxis()
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=8.5, handletextpad=0.2)
    text = f"How sure the labels are, n = {table['n'].sum()} pairs; shares, no interval."
    return caption(
        figure, text if known else f"{text} These data hold ratios without samples: nobody can say how certain a bin is."
    )


@styled
def headline(table: pd.DataFrame, kind: str, *, subset: str = "all") -> Figure:
    """Accuracy, within-one accuracy, half Brier and Spearman of each forecaster with intervals; from ``tables.headline``."""
    panels = {
        "accuracy": "exact bin",
        "within_one": "within one bin",
        "half_brier": "half Brier",
        "spearman": "Spearman",
    }
    rows = table[table["subset"] == subset].reset_index(drop=True)
    if rows.empty:
        return nothing(f"no pair of subset {subset}")
    figure, axes = canvas(0.3 * len(rows) + 0.75, 1, len(panels), sharey=True)
    y = np.arange(len(rows))
    for ax, (metric, title) in zip(axes[0], panels.items(), strict=True):
        for i, row in rows.iterrows():
            shade = colour(row["forecaster"])
            ax.plot([row[f"{metric}_low"], row[f"{metric}_high"]], [i, i], color=shade, lw=2.2, solid_capstyle="butt", alpha=0.55)
            ax.scatter(row[metric], i, color=shade, s=30, zorder=3)
        ax.set_title(title)
        ax.set(yticks=y, yticklabels=rows["forecaster"], xlabel="less is better" if metric == "half_brier" else "more is better")
        ax.grid(axis="y", visible=False)
        ax.margins(x=0.12)
        ax.tick_params(axis="y", length=0)
    axes[0, 0].set_ylim(len(rows) - 0.5, -0.5)
    for ax in axes[0, :2]:
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes[0, 2].axvline(0.4375, color=SOFT, lw=0.8, ls=":")
    axes[0, 3].axvline(0.0, color=SOFT, lw=0.8, ls=":")
    return caption(
        figure,
        f"Subset {subset}, n = {span(rows['n'])} forecasts a forecaster; exact bin counts the {span(rows['n_accuracy'])} whose "
        f"label is not known to be uncertain; unparsed replies are wrong. Bars: {kind}. Dotted: uniform, no correlation.",
    )


@styled
def paired(table: pd.DataFrame, kind: str, *, subset: str = "all") -> Figure:
    """Differences to the other forecasters with paired intervals; from ``tables.paired``."""
    rows = table[table["subset"] == subset]
    if rows.empty:
        return nothing(f"no pair of subset {subset}")
    metrics = list(dict.fromkeys(rows["metric"]))
    first, others = rows["first"].iloc[0], list(dict.fromkeys(rows["second"]))
    figure, axes = canvas(0.3 * len(others) + 0.95, 1, len(metrics), sharey=True)
    for ax, metric in zip(axes[0], metrics, strict=True):
        part = rows[rows["metric"] == metric].set_index("second")
        for y, other in enumerate(others):
            if other not in part.index:
                continue
            row = part.loc[other]
            shade = colour(other)
            ax.plot([row["low"], row["high"]], [y, y], color=shade, lw=2.2, solid_capstyle="butt", alpha=0.55)
            ax.scatter(
                row["estimate"], y, s=30, facecolors=shade if row["excludes_zero"] else "white", edgecolors=shade, zorder=3
            )
        ax.axvline(0, color=INK, lw=0.9)
        side = "below" if metric in ("half_brier", "crps", "ece") else "above"
        ax.set_title(metric.replace("_", " "))
        ax.set(
            yticks=range(len(others)),
            yticklabels=[f"{first} − {other}" for other in others],
            xlabel=f"difference; {side} 0: {first} is better",
        )
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
    axes[0, 0].set_ylim(len(others) - 0.5, -0.5)
    text = f"Subset {subset}, n = {span(rows['n'])} forecasts; paired {kind}; hollow: the interval includes 0."
    return caption(figure, text)


@styled
def by_group(table: pd.DataFrame, metric: str, kind: str, *, what: str) -> Figure:
    """One metric for each task or GPU and forecaster; from ``tables.headline_by``."""
    groups, names = list(dict.fromkeys(table["subset"])), list(dict.fromkeys(table["forecaster"]))
    figure, axes = canvas(0.42 * len(groups) + 1.1)
    ax = axes[0, 0]
    spread = np.linspace(-0.3, 0.3, len(names)) if len(names) > 1 else [0.0]
    for name, shift in zip(names, spread, strict=True):
        rows = table[table["forecaster"] == name].set_index("subset").reindex(groups)
        y = np.arange(len(groups)) + shift
        ax.hlines(y, rows[f"{metric}_low"], rows[f"{metric}_high"], color=colour(name), lw=1.2, alpha=0.5)
        ax.scatter(rows[metric], y, color=colour(name), s=16, zorder=3, label=name)
    ax.set(yticks=range(len(groups)), yticklabels=groups, xlabel=metric.replace("_", " "))
    ax.set_ylim(len(groups) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    lines = -(-sum(len(name) + 2 for name in names) // 84)
    ax.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=-(-len(names) // lines),
        fontsize=8,
        handletextpad=0.1,
        columnspacing=0.9,
    )
    text = f"{metric.replace('_', ' ')} for each {what}, n = {span(table['n'])} forecasts; bars: {kind}"
    return caption(figure, f"{text}; within one task only kernels are resampled." if what == "task" else f"{text}.")


@styled
def reliability(table: pd.DataFrame, ece: pd.DataFrame) -> Figure:
    """Reliability diagrams, a panel a forecaster; from ``tables.reliability`` and ``tables.calibration``."""
    names = list(dict.fromkeys(table["forecaster"]))
    columns = min(4, len(names))
    lines = -(-len(names) // columns)
    figure, axes = canvas(1.9 * lines + 0.3, lines, columns, sharex=True, sharey=True)
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    for ax, name in zip(axes.flat, names, strict=False):
        rows = table[table["forecaster"] == name]
        score = ece[ece["forecaster"] == name].iloc[0]
        ax.plot([0, 1], [0, 1], color=SOFT, lw=0.8, ls=":")
        ax.plot(rows["confidence"], rows["share_right"], color=colour(name), lw=1.2, alpha=0.6)
        size = 8 + 90 * rows["n"] / rows["n"].sum()
        ax.scatter(rows["confidence"], rows["share_right"], s=size, color=colour(name), alpha=0.85, zorder=3)
        ax.set_title(name)
        ax.text(
            0.04,
            0.95,
            f"ECE {score['ece']:.3f}\n[{score['ece_low']:.3f}, {score['ece_high']:.3f}]",
            va="top",
            fontsize=7.5,
            color=SOFT,
        )
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        ax.xaxis.set_tick_params(labelbottom=True)
        ax.set_xlabel("stated probability")
    for ax in axes[:, 0]:
        ax.set_ylabel("share right")
    return caption(
        figure,
        f"Ten equal-width buckets; area of a dot: share of its forecaster's; n = {span(ece['n'])} forecasts whose label is not "
        f"known to be uncertain, of which {span(ece['n_parse_failed'])} unparsed are left out. Brackets: bootstrap interval of "
        "ECE over tasks and kernels, centred on its estimate.",
    )


@styled
def risk_coverage(curves: pd.DataFrame, n: int) -> Figure:
    """Risk of the most confident share of forecasts; from ``tables.risk_coverage``."""
    figure, axes = canvas(3.5)
    ax = axes[0, 0]
    ends = []
    for name in dict.fromkeys(curves["forecaster"]):
        rows = curves[(curves["forecaster"] == name) & (curves["coverage"] >= 0.05)]
        ax.plot(rows["coverage"], rows["risk"], color=colour(name), marker="o" if len(rows) < 8 else None, ms=3.5)
        ends.append((rows["risk"].iloc[-1], 1.0, name, colour(name)))
    ax.set(
        xlim=(0, 1),
        xlabel="coverage: share of pairs trusted to the forecast, most confident first",
        ylabel="mean absolute bin error (bins)",
    )
    ax.set_ylim(0, None)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    label_ends(ax, ends)
    return caption(
        figure,
        f"n = {n} pairs, from 5% coverage on. A useful confidence gives a rising line; equal confidences enter together.",
    )


@styled
def aurc(table: pd.DataFrame, kind: str) -> Figure:
    """AURC with intervals, between perfect and no knowledge of the errors; from ``tables.selective``."""
    figure, axes = canvas(0.32 * len(table) + 0.9)
    ax = axes[0, 0]
    for y, row in enumerate(table.itertuples()):
        shade = colour(row.forecaster)
        ax.plot([row.aurc_low, row.aurc_high], [y, y], color=shade, lw=2.2, solid_capstyle="butt", alpha=0.55)
        ax.scatter(row.aurc, y, color=shade, s=30, zorder=3)
        ax.scatter([row.aurc_oracle, row.risk_all], [y, y], color=SOFT, marker="|", s=90, lw=1.2)
    ax.set(
        yticks=range(len(table)),
        yticklabels=table["forecaster"],
        xlabel="area under the risk-coverage curve (bins, less is better)",
    )
    ax.set_ylim(len(table) - 0.5, -0.5)
    ax.set_xlim(0, None)
    ax.grid(axis="y", visible=False)
    return caption(
        figure,
        f"n = {table['n'].max()} forecasts; bars: {kind}. Ticks: with perfect knowledge of one's errors (left), "
        "and the error of trusting every forecast (right).",
    )


@styled
def recovery(curves: pd.DataFrame, pool: str) -> Figure:
    """Best found / best of pool against share measured; from ``tables.recovery``."""
    figure, axes = canvas(3.6)
    ax = axes[0, 0]
    names = list(dict.fromkeys(curves["forecaster"]))
    at = 0.1
    rows = curves[curves["forecaster"] == names[0]]
    ax.plot(rows["share"], rows["random"], color=INK, lw=1.4, ls="--")
    marks = [(np.interp(at, rows["share"], rows["random"]), "random order (exact)", INK)]
    for name in names:
        rows = curves[curves["forecaster"] == name]
        ax.plot(rows["share"], rows["found"], color=colour(name))
        marks.append((np.interp(at, rows["share"], rows["found"]), name, colour(name)))
    ax.axvline(at, color=SOFT, lw=0.8, ls=":")
    ax.axhline(0.8, color=SOFT, lw=0.8, ls=":")
    low = max(0.0, min(curves["found"].min(), curves["random"].min()) - 0.05)
    ax.set(
        xlim=(0, 1),
        ylim=(low, 1.02),
        xlabel="share of the pool measured, in the order of the forecast",
        ylabel="best speedup found / best of pool",
    )
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    key = [f"{name}  {value:.2f}" for value, name, _ in sorted(marks, reverse=True)]
    for i, ((_, _, shade), text) in enumerate(zip(sorted(marks, reverse=True), key, strict=True)):
        ax.text(0.985, 0.06 + 0.062 * (len(key) - 1 - i), text, transform=ax.transAxes, ha="right", fontsize=8.5, color=shade)
    ax.text(0.985, 0.06 + 0.062 * len(key), "found with 10% measured", transform=ax.transAxes, ha="right", fontsize=8, color=SOFT)
    first = curves.iloc[0]
    return caption(
        figure,
        f"Mean over {first['n_pools']:.0f} pools, {first['n']:.0f} kernels; a pool is {pool}. Dashed: exact expectation of a "
        "random order. Dotted: 10% measured, within 20% of the best. No interval drawn.",
    )


@styled
def recovery_by_pool(table: pd.DataFrame, name: str, share: float) -> Figure:
    """Best found / best of pool in each pool for one forecaster; from ``tables.recovery_by_pool``."""
    rows = table[table["forecaster"] == name].sort_values("found").reset_index(drop=True)
    if rows.empty:
        return nothing(f"{name} ranks no whole pool")
    figure, axes = canvas(0.3 * len(rows) + 0.8)
    ax = axes[0, 0]
    y = np.arange(len(rows))
    ax.hlines(y, rows["random"], rows["found"], color=FAINT, lw=2)
    ax.scatter(rows["random"], y, marker="|", s=110, color=INK, zorder=3)
    ax.scatter(rows["found"], y, s=34, color=colour(name), zorder=3)
    ax.axvline(0.8, color=SOFT, lw=0.8, ls=":")
    ax.set(
        yticks=y,
        yticklabels=rows["pool"],
        xlim=(0, 1.03),
        ylim=(-0.6, len(rows) - 0.4),
        xlabel="best speedup found / best of pool",
    )
    ax.grid(axis="y", visible=False)
    text = f"{name}, {share:.0%} of each pool measured, {len(rows)} pools; bar: exact expectation of a random order; no interval."
    return caption(figure, f"{text} Dotted: within 20% of the best.")


@styled
def confusion(table: pd.DataFrame) -> Figure:
    """Predicted against true bin for one forecaster; from ``tables.confusion``."""
    import seaborn as sns

    name = table["forecaster"].iloc[0]
    n_true = table.groupby("true_bin")["n_true"].first()
    if n_true.sum() == 0:
        return nothing(f"{name} answers no pair whose label is not known to be uncertain")
    share = table.pivot(index="true_bin", columns="predicted_bin", values="share").to_numpy()
    figure, axes = canvas(3.8)
    ax = axes[0, 0]
    words = [[f"{v:.0%}" if v >= 0.005 else "" for v in row] for row in share]
    sns.heatmap(share, vmin=0, vmax=1, cmap="Blues", annot=words, fmt="", annot_kws={"size": 7.5}, cbar=False, square=True, ax=ax)
    names = [f"{row['bin']} {row['name']}  (n = {n})" for row, n in zip(STUDY_BINS.table(), n_true, strict=True)]
    ax.set_xticks(np.arange(N_BINS) + 0.5, range(1, N_BINS + 1))
    ax.set_yticks(np.arange(N_BINS) + 0.5, names, rotation=0)
    ax.set(xlabel="predicted bin", ylabel="true bin")
    ax.grid(False)
    text = f"{name}: share of each true bin by predicted bin, n = {n_true.sum()} forecasts whose label is not known to be"
    unparsed = n_true.sum() - table["n"].sum()
    more = f" Unparsed replies stand in no column: {unparsed}." if unparsed else ""
    return caption(figure, f"{text} uncertain; no interval.{more}")


@styled
def recalibrated(table: pd.DataFrame, kind: str, *, subset: str = "all") -> Figure:
    """Half Brier and ECE of every forecaster as it is and recalibrated by each map; from ``tables.headline``."""
    rows = table[table["subset"] == subset]
    base, _, how = (rows["forecaster"] + " + as it is").str.partition(" + ").T.to_numpy()
    how = np.array([h.split(" + ")[0] for h in how])
    names, marks = list(dict.fromkeys(base)), {"as it is": "o", "temperature": "v", "vector": "s", "isotonic": "D"}
    figure, axes = canvas(0.62 * len(names) + 1.0, columns=2, sharey=True)
    for ax, metric, what in zip(axes[0], ("half_brier", "ece"), ("half Brier (less is better)", "ECE"), strict=True):
        for row, name, mark in zip(rows.itertuples(), base, how, strict=True):
            y = names.index(name) + 0.18 * (list(marks).index(mark) - 1.5)
            low, value, high = (getattr(row, f"{metric}{end}") for end in ("_low", "", "_high"))
            ax.plot([low, high], [y, y], color=colour(name), lw=1.6, alpha=0.5, solid_capstyle="butt")
            face = colour(name) if mark == "as it is" else "white"
            ax.scatter(value, y, marker=marks[mark], s=22, facecolor=face, edgecolor=colour(name), zorder=3)
        ax.set(xlabel=what, yticks=range(len(names)), yticklabels=names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.grid(axis="y", visible=False)
    axes[0, 0].axvline(0.4375, color=SOFT, ls=":", lw=1)
    return caption(
        figure,
        f"n = {span(rows['n'])} forecasts; bars: {kind}. Filled: as it is; triangle: temperature; square: vector scaling; "
        "diamond: isotonic map. Dotted: the uniform forecast.",
    )


@styled
def deferral(table: pd.DataFrame, kind: str) -> Figure:
    """Share wrong and trusted against the risk allowed, and the share trusted, for conformal risk control."""
    rows = table[table["rule"] == table["rule"].iloc[0]]
    figure, axes = canvas(3.3, columns=2)
    for i, (name, mine) in enumerate(rows.groupby("forecaster", sort=False)):
        x = mine["risk"] * (1 + 0.025 * (i - rows["forecaster"].nunique() / 2))
        shade = colour(name)
        axes[0, 0].vlines(x, mine["wrong_and_trusted_low"], mine["wrong_and_trusted_high"], color=shade, lw=1.4, alpha=0.5)
        axes[0, 0].scatter(x, mine["wrong_and_trusted"], color=shade, s=18, zorder=3)
        axes[0, 1].plot(mine["risk"], mine["coverage"], color=shade, marker="o", ms=3.5)
    limit = 1.15 * rows["risk"].max()
    axes[0, 0].plot([0, limit], [0, limit], color=SOFT, ls=":", lw=1)
    axes[0, 0].set(xlabel="risk allowed", ylabel="wrong and trusted, share of pairs", xlim=(0, limit), ylim=(0, None))
    axes[0, 1].set(xlabel="risk allowed", ylabel="trusted, share of pairs", xlim=(0, limit), ylim=(-0.02, 1))
    last = rows[rows["risk"] == rows["risk"].max()]
    label_ends(axes[0, 1], [(r.coverage, r.risk, r.forecaster, colour(r.forecaster)) for r in last.itertuples()])
    return caption(
        figure,
        f"Mean over {span(rows['n_tasks'])} tasks, thresholds by conformal risk control from {span(rows['n_calibration'])} other "
        f"tasks; bars: {kind.split(' over ')[0]} over tasks. Below the dotted line the promise was kept.",
    )
