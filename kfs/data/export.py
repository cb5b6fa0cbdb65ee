"""Publish records: a folder with parquet files and a dataset card, ready to be put beside the released sets.

Writes Pair and Forecast records as they are; it neither uploads nor filters.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kfs.data.manifest import disk_error
from kfs.errors import DataError, SchemaError
from kfs.records import SCHEMA_VERSION, Forecast, Pair, Record, read_records, write_records
from kfs.speedup import bin_rule

_KINDS: dict[str, type[Record]] = {"pairs": Pair, "forecasts": Forecast}
_DEFAULT_SPLIT = {"pairs": "eval", "forecasts": "predictions"}
"""Names of the released sets' splits, for records that carry no split of their own."""

COLUMNS: dict[str, str] = {
    "schema_version": "version of the record's form",
    "comparison_id": "content id of the comparison",
    "pack": "task or problem; intervals are resampled over it",
    "anchor_code": "source of the reference side",
    "candidate_code": "source of the side whose speedup is asked for",
    "hardware": "what both ran on",
    "aggregated_speedup": "anchor runtime / candidate runtime, geometric mean over cases",
    "true_bin": "speedup bin, 1 to 8, by the rule below",
    "source_id": "where the measurement is from",
    "source_search": "search or collection it is from",
    "internal_experiment": "free label",
    "bin_rule": "rule that made the bins",
    "speedup_low": "lower end of the speedup's interval, where samples are known",
    "speedup_high": "upper end of the speedup's interval",
    "certain": "whether the interval lies inside one bin; empty where nobody knows",
    "anchor_id": "content id of the anchor's source",
    "candidate_id": "content id of the candidate's source",
    "anchor_variant": "label of the anchor's origin, for audits; not for forecasters",
    "candidate_variant": "label of the candidate's origin, for audits; not for forecasters",
    "subset": "group a table is reported by",
    "group": "near-duplicate problems share it, and a split",
    "split": "train, calibration or test",
    "language": "language of both sources, or of the candidate's where the anchor's is another",
    "anchor_language": "language of the anchor's source where it is not the candidate's",
    "surrogate_label": "name of the forecaster",
    "repeat": "number of the repetition, from 0",
    "predicted_bin": "most probable bin, the lower one on a tie",
    "bin_probabilities": "probability of each bin",
    "reasoning": "what a model said before its answer",
    "raw_probability_sum": "sum of the stated probabilities before renormalising",
    "parse_failed": "whether the reply could not be read",
    "parse_error": "why it could not",
    "input_tokens": "tokens read",
    "output_tokens": "tokens written",
    "elapsed_s": "seconds the forecast took",
    "stated_bin": "bin a model stated apart from its distribution",
}
"""What each column of a Pair or a Forecast holds, for the card."""


def read_any(path: str | Path) -> tuple[str, list[Record]]:
    """Records of a parquet or jsonl file, and their kind: ``"pairs"`` or ``"forecasts"``.

    Raises
    ------
    DataError
        If there is no such file.
    SchemaError
        If it holds neither kind.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file; give a .parquet or .jsonl file of Pair or Forecast records")
    columns = _column_names(path)
    for kind, mark in (("forecasts", "surrogate_label"), ("pairs", "anchor_code")):
        if mark in columns:
            return kind, list(read_records(_KINDS[kind], path))
    raise SchemaError(f"{path}: holds neither Pair nor Forecast records; found columns {', '.join(sorted(columns)) or 'none'}")


def _column_names(path: Path) -> set[str]:
    """Column names of the first row; an unknown suffix or a damaged file is left for read_records to name."""
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return set(pq.read_schema(path).names)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"{path}: not a readable parquet file ({error}); write it again") from error
    if path.suffix != ".jsonl":
        raise SchemaError(f"{path}: unknown record format {path.suffix!r}; known: .parquet, .jsonl")
    with open(path, encoding="utf-8") as lines:
        first = next(lines, "")
    try:
        row = json.loads(first or "{}")
    except json.JSONDecodeError as error:
        raise SchemaError(f"{path}, row 0: not JSON ({error}); the file may be truncated") from error
    return set(row) if isinstance(row, dict) else set()


def export(
    inputs: Sequence[str | Path],
    folder: str | Path,
    *,
    licence: str,
    title: str = "Kernel speedup forecasts",
    provenance: str = "",
) -> Path:
    """Write records as a publishable folder: ``<kind>/<split>.parquet`` and ``README.md``.

    Parameters
    ----------
    inputs : sequence of path
        Parquet or jsonl files of Pair and Forecast records; files of one kind are joined.
    folder : path
        Where to; must not exist, or be empty. It appears whole or not at all.
    licence : str
        Licence of the data, as its card states it, for example ``"MIT"``.
    title : str, optional
        Heading of the card.
    provenance : str, optional
        Where the records come from; the sources named in them are listed besides.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    DataError
        If an input is absent, the folder holds something already, or the disk is full.
    SchemaError
        If an input holds other records, or bin rules are mixed.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} is not empty; name a new folder, nothing was written")
    records: dict[str, list[Record]] = {}
    for path in inputs:
        kind, rows = read_any(path)
        records.setdefault(kind, []).extend(rows)
    rules = sorted({r.bin_rule for rows in records.values() for r in rows})
    if len(rules) != 1:
        raise SchemaError(f"rows follow several bin rules ({', '.join(rules)}); export one rule a folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        written: dict[str, dict[str, int]] = {}
        for kind, rows in records.items():
            splits = _by_split(kind, rows)
            for split, members in splits.items():
                write_records(members, scratch / kind / f"{split}.parquet")
            written[kind] = {split: len(members) for split, members in splits.items()}
        card = _card(records, written, rules[0], licence=licence, title=title, provenance=provenance)
        (scratch / "README.md").write_text(card, encoding="utf-8")
        scratch.chmod(0o755)
        if folder.exists():
            folder.rmdir()
        scratch.replace(folder)
    except OSError as error:
        if not isinstance(error, DataError) and (full := disk_error(error, folder.parent, 0)) is not None:
            raise full from error
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _by_split(kind: str, rows: list[Record]) -> dict[str, list[Record]]:
    splits: dict[str, list[Record]] = {}
    for row in rows:
        splits.setdefault(getattr(row, "split", "") or _DEFAULT_SPLIT[kind], []).append(row)
    return dict(sorted(splits.items()))


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def _card(
    records: dict[str, list[Record]],
    written: dict[str, dict[str, int]],
    rule: str,
    *,
    licence: str,
    title: str,
    provenance: str,
) -> str:
    """The dataset card: front matter a hub reads, then counts, columns, bins and provenance for people."""
    front = ["---", f"license: {json.dumps(licence.lower())}", f"pretty_name: {json.dumps(title)}", "configs:"]
    for kind, splits in written.items():
        front += [f"- config_name: {kind}", "  data_files:"]
        for split in splits:
            front += [f"  - split: {split}", f"    path: {kind}/{split}.parquet"]
    parts = ["\n".join([*front, "---"]) + "\n", f"# {title}\n", f"Licence: {licence}\n", "## Rows\n"]
    parts.append(_table(["records", "split", "rows"], [[k, s, n] for k, splits in written.items() for s, n in splits.items()]))
    for kind, rows in records.items():
        label = "true_bin" if kind == "pairs" else "predicted_bin"
        for column in (label, "hardware", "subset", "surrogate_label"):
            counts = Counter(v for r in rows if (v := getattr(r, column, None)) not in (None, ""))
            if counts:
                parts.append(_table([f"{kind}: {column}", "rows"], sorted(counts.items())))
        failed = sum(getattr(r, "parse_failed", False) for r in rows)
        if failed:
            parts.append(f"{failed} forecasts could not be parsed and carry no distribution.\n")
    for kind in records:
        parts.append(f"## Columns of {kind}\n")
        parts.append(_table(["column", "meaning"], [[f"`{c}`", COLUMNS[c]] for c in _KINDS[kind].model_fields]))
    bins = bin_rule(rule)
    parts.append(f"## Bins\n\nRule `{rule}`, {bins.closed}-closed; S is the anchor's runtime over the candidate's.\n")
    parts.append(_table(["bin", "name", "speedup"], [[b["bin"], b["name"], b["interval"]] for b in bins.table()]))
    parts.append("## Provenance\n")
    sources = sorted({s for rows in records.values() for r in rows if (s := getattr(r, "source_search", ""))})
    if provenance:
        parts.append(provenance.strip() + "\n")
    if sources:
        parts.append(f"Sources named in the rows: {', '.join(sources)}.\n")
    parts.append(f"Written by `kfs data export`, record schema {SCHEMA_VERSION}.\n")
    return "\n".join(parts)
