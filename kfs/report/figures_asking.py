"""Figures of what asking costs and changes: notebooks 06 and 09. In the style of ``style.py``; nothing is computed here."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from kfs.report.style import COLOURS, INK, SOFT, canvas, caption, colour, label_ends, plain, styled


@styled
def cost_and_gain(table: pd.DataFrame, name: str, kind: str) -> Figure:
    """Gain in half Brier of each prompt over the first, beside its tokens; from ``prompts.cost_and_gain``."""
    rows = table.iloc[1:].reset_index(drop=True)
    figure, axes = canvas(0.34 * len(rows) + 0.9, columns=2, sharey=True, width_ratios=(3, 2))
    y, shade = np.arange(len(rows)), colour(name)
    axes[0, 0].hlines(y, rows["gain_low"], rows["gain_high"], color=shade, lw=2.2, alpha=0.55)
    still = (rows["moved"] == 0).to_numpy()
    axes[0, 0].scatter(rows["gain"], y, s=30, facecolors=np.where(still, "white", shade), edgecolors=shade, zorder=3)
    axes[0, 0].axvline(0, color=INK, lw=0.9)
    axes[0, 0].set(
        yticks=y,
        yticklabels=[f"{r.prompt}  ({r.moved:.0%})" for r in rows.itertuples()],
        xlabel="gain: fall of half Brier (right of 0 is better)",
    )
    axes[0, 1].barh(y, rows["input_tokens"], 0.5, color=SOFT, alpha=0.45)
    axes[0, 1].axvline(table["input_tokens"].iloc[0], color=INK, lw=0.9, ls=":")
    axes[0, 1].set(xlabel="tokens of a prompt, mean")
    axes[0, 0].set_ylim(len(rows) - 0.5, -0.5)
    for ax in axes[0]:
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
    text = f"{name}, n = {table['n'].iloc[0]} pairs asked with every prompt; bars: paired {kind}. "
    text += "Dotted: the prompt as configured. In brackets: forecasts that changed at all."
    return caption(figure, f"{text} Hollow: no forecast changed." if still.any() else text)


@styled
def disguised(table: pd.DataFrame, name: str) -> Figure:
    """Expected speedup of each pair as it stands and in other words; from ``prompts.scatter``."""
    figure, axes = canvas(3.4, columns=2)
    low, high = table[["before", "after"]].min().min() - 0.2, table[["before", "after"]].max().max() + 0.2
    ax = axes[0, 0]
    ax.plot([low, high], [low, high], color=SOFT, lw=0.9, ls=":")
    ax.scatter(table["before"], table["after"], s=16, color=colour(name), alpha=0.7, linewidths=0)
    ax.set(xlim=(low, high), ylim=(low, high), xlabel="expected log2 speedup, as it stands", ylabel="in other words")
    ax = axes[0, 1]
    for column, shade, label in (("before", COLOURS["prior"], "as it stands"), ("after", colour(name), "in other words")):
        ax.scatter(table["measured"], table[column], s=16, color=shade, alpha=0.7, linewidths=0, label=label)
    ax.set(xlabel="measured log2 speedup", ylabel="expected log2 speedup")
    ax.legend(loc="upper left", fontsize=8, handletextpad=0.2)
    return caption(
        figure,
        f"{name}, n = {len(table)} pairs; no interval drawn. On the dotted line a forecast did not move when names, layout and "
        "comments changed and what is computed did not.",
    )


@styled
def throughput(table: pd.DataFrame) -> Figure:
    """How many a second, a bar for each forecaster and for measuring; from ``throughput.throughput``."""
    rows = table.sort_values("per_second", ascending=False).reset_index(drop=True)
    figure, axes = canvas(0.32 * len(rows) + 0.8)
    ax, y = axes[0, 0], np.arange(len(rows))
    shades = [INK if name == "measuring" else colour(name) for name in rows["what"]]
    ax.hlines(y, rows["per_second"].min() / 3, rows["per_second"], color=shades, lw=1.4, alpha=0.5)
    ax.scatter(rows["per_second"], y, color=shades, s=34, zorder=3)
    for i, value in enumerate(rows["per_second"]):
        ax.annotate(
            f"{value:,.0f}" if value >= 10 else f"{value:.2g}",
            (value, i),
            (7, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=SOFT,
        )
    ax.set_xscale("log")
    plain(ax.xaxis)
    ax.set(yticks=y, yticklabels=rows["what"], xlabel="a second, log scale (one process; more is better)")
    ax.set_xlim(rows["per_second"].min() / 3, rows["per_second"].max() * 4)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    return caption(figure, "Forecasts, and measurements where kfs made them, a second; means, no interval.")


@styled
def filtered_search(table: pd.DataFrame) -> Figure:
    """Share of the measuring time that is left when one of k candidates is measured; from ``throughput.filtered_search``."""
    figure, axes = canvas(3.0)
    ax = axes[0, 0]
    ends = []
    for name, rows in table.groupby("forecaster", sort=False):
        ax.plot(rows["considered"], rows["share"], color=colour(name), marker="o", ms=3.5)
        ends.append((rows["share"].iloc[-1], rows["considered"].iloc[-1], name, colour(name)))
    ks = np.array(sorted(table["considered"].unique()))
    ax.plot(ks, 1 / ks, color=SOFT, lw=0.9, ls=":")
    ax.set_xscale("log", base=2)
    plain(ax.xaxis)
    ax.set(xlabel="candidates considered for each one measured", ylabel="time, share of measuring them all", ylim=(0, None))
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    label_ends(ax, ends)
    return caption(
        figure, "Mean seconds of forecasts and measurements, no interval. Dotted: forecasts that cost nothing. Under 100% pays."
    )
