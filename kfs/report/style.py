"""The one style of every figure: fixed sizes, a colour-blind palette, one colour a forecaster, captions, stable bytes.

Dates are stripped and ``svg.hashsalt`` is set, so unchanged data gives unchanged bytes. Knows nothing of what is drawn.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable
from functools import wraps

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

WIDTH = 7.2
"""Width of every figure, inches."""
DPI = 150
INK, SOFT, FAINT = "#222222", "#6b6b6b", "#d9d9d9"
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#ececec",
    "grid.linewidth": 0.7,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "kfs",
    "pdf.fonttype": 42,
}
# Okabe and Ito's palette, which the common colour blindnesses keep apart; code-blind rivals get the quieter ones.
COLOURS = {
    "prior": "#8c8c8c",
    "variant_table": "#E69F00",
    "anchor_only": "#56B4E9",
    "candidate_only": "#CC79A7",
    "code_length": "#B8A60A",
    "boosted": "#0072B2",
    "boosted_facts": "#009E73",
    "local": "#D55E00",
}
_MORE = ("#000000", "#7B3294", "#8C510A", "#01665E")
_SERIES = ("#009E73", *_MORE, "#E7298A", "#66A61E", "#A6761D", "#3F00FF", "#5E4FA2")
_ASSIGNED: dict[str, str] = {}
BIN_COLOURS = ("#8c2d04", "#d95f0e", "#fe9929", "#fed98e", "#c7e9f0", "#74b9d8", "#2b83ba", "#08466b")


def colour(name: str) -> str:
    """Colour of a forecaster, the same in every figure of every study.

    Examples
    --------
    >>> colour("boosted"), colour("mine") == colour("mine")
    ('#0072B2', True)
    """
    base, plus, _ = name.partition(" + ")
    if plus:  # recalibrated
        return to_hex([0.55 * c + 0.45 for c in to_rgb(colour(base))])
    return COLOURS.get(name) or _ASSIGNED.get(name) or _MORE[sum(name.encode()) % len(_MORE)]


def assign(names: Iterable[str]) -> None:
    """Give forecasters that a study's data brings with it a colour each, in order: more names than :func:`colour` keeps apart."""
    _ASSIGNED.update(zip(names, _SERIES, strict=False))


def render(figure: Figure) -> dict[str, bytes]:
    """A figure as ``png`` and ``pdf`` bytes, without dates: the same figure gives the same bytes."""
    out = {}
    with rc_context(STYLE):
        figure.draw_without_rendering()  # laid out once: a second pass would move things by a hair
        figure.set_layout_engine("none")
        for kind, metadata in (("png", {"Software": None}), ("pdf", {"CreationDate": None, "Producer": None, "Creator": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
            out[kind] = buffer.getvalue()
    return out


def styled(function):
    """Draw inside the style, whatever the caller's settings are; a table without rows gives a figure that says so."""

    @wraps(function)
    def inside(table, *args, **options):
        with rc_context({"backend": "agg"}), rc_context(STYLE):
            return nothing() if table.empty else function(table, *args, **options)

    return inside


def canvas(height: float, rows: int = 1, columns: int = 1, **options) -> tuple[Figure, np.ndarray]:
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def nothing(why: str = "no row of this run belongs here") -> Figure:
    """A figure of its caption alone."""
    figure, _ = canvas(0.4, subplot_kw={"visible": False})
    return caption(figure, f"Nothing to show: {why}.")


def caption(figure: Figure, text: str) -> Figure:
    """Put the caption under the axes and keep it as the figure's label."""
    figure.set_label(text)
    lines = textwrap.wrap(text, 114)
    height = figure.get_figheight() + 0.17 * len(lines) + 0.12
    figure.set_figheight(height)
    below = (0.17 * len(lines) + 0.1) / height
    figure.get_layout_engine().set(rect=(0, below, 1, 1 - below))
    figure.text(0.012, below - 0.02 / height, "\n".join(lines), va="top", fontsize=8, color=SOFT, linespacing=1.35)
    return figure


def span(counts: pd.Series) -> str:
    """One count, or the least and the largest."""
    return f"{counts.min()}" if counts.nunique() == 1 else f"{counts.min()} to {counts.max()}"


def plain(axis) -> None:
    """Ratios on a log axis as 0.25, 1, 4."""
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axis.set_minor_locator(NullLocator())


def label_ends(ax, ends: Iterable[tuple[float, float, str, str]]) -> None:
    """Names beside the ends of lines, moved apart where they would overlap."""
    low, high = ax.get_ylim()
    step = (high - low) * 0.052
    placed = []
    for y, x, text, shade in sorted(ends):
        at = max(y, placed[-1][0] + step) if placed else y
        placed.append((at, y, x, text, shade))
    over = placed[-1][0] - high if placed else 0
    if over > 0:  # push the whole upper cluster down
        for i in range(len(placed) - 1, -1, -1):
            limit = high if i == len(placed) - 1 else placed[i + 1][0] - step
            placed[i] = (min(placed[i][0], limit), *placed[i][1:])
    for at, y, x, text, shade in placed:
        ax.annotate(
            text,
            (x, y),
            (1.015, at),
            textcoords=ax.get_yaxis_transform(),
            color=shade,
            va="center",
            fontsize=8.5,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": FAINT, "lw": 0.7, "shrinkA": 0, "shrinkB": 0},
        )
