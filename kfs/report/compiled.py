"""What compiler facts add to a reader of code: ``boosted_facts`` against ``boosted``, on all pairs and where there are facts.

Facts are those the forecaster used, read from where it keeps them. Metrics and intervals are those of ``tables``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from kfs.records import Pair
from kfs.report import tables
from kfs.report.tables import Intervals

WITH, WITHOUT = "boosted_facts", "boosted"
SUBSETS = ("all", *tables.REFERENCE_SUBSETS)


def with_facts(pairs: Sequence[Pair]) -> set[str]:
    """comparison_ids of the pairs of which at least one kernel has compiler facts."""
    from kfs.forecast.compiled import has_facts

    return {p.comparison_id for p in pairs if any(has_facts(p))}


def headline(frame: pd.DataFrame, compiled: set[str], intervals: Intervals) -> pd.DataFrame:
    """The headline of both forecasters on the pairs of ``compiled``, all of them and those that start at the reference.

    Columns are those of :func:`kfs.report.tables.headline`; no rows where the forecaster with facts takes no part.
    """
    rows = _both(frame)
    rows = rows[rows["comparison_id"].isin(compiled)]
    return tables.headline(rows, intervals, {k: v for k, v in tables.subsets(rows).items() if k in SUBSETS})


def gain(frame: pd.DataFrame, compiled: set[str], intervals: Intervals) -> pd.DataFrame:
    """Paired differences, with facts minus without, in every metric but ECE.

    Parameters
    ----------
    frame : DataFrame
        From :func:`kfs.report.tables.tidy`.
    compiled : set of str
        From :func:`with_facts`.
    intervals : Intervals

    Returns
    -------
    DataFrame
        Columns of :func:`kfs.report.tables.paired` after ``pairs``: ``all``, or ``with facts`` for those of ``compiled``.
    """
    rows, metrics = _both(frame), tuple(m for m in tables.METRICS if m != "ece")
    parts = {"all": rows, "with facts": rows[rows["comparison_id"].isin(compiled)]}
    made = [
        tables.paired(part, WITH, intervals, metrics=metrics, only=SUBSETS).assign(pairs=name) for name, part in parts.items()
    ]
    table = pd.concat(made, ignore_index=True)
    return table[["pairs", *(c for c in table.columns if c != "pairs")]]


def _both(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the two forecasters; none unless both take part."""
    rows = frame[frame["forecaster"].isin((WITH, WITHOUT))]
    return rows if rows["forecaster"].nunique() == 2 else rows.iloc[:0]
