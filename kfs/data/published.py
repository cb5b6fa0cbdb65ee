"""The study's released sets: evaluation pairs, predictions, training pool and discovery pairs, read as Pair and Forecast records.

Two sources: a folder with clones of the sets, ``<folder>/<set>/**/*.parquet`` or ``.jsonl`` (a clone without git-lfs holds
pointers and is refused); or HuggingFace through the ``datasets`` package, at a commit that the caller names. Labels are read as
they were released and must follow the released rule (``bin_rule`` "released"). Forecasts are in the study's bins, which is
what the forecasters were told: each is ``bin_rule`` "study", its predicted bin is the argmax of the renormalised
probabilities, and the bin the model stated apart is ``stated_bin``. Whoever compares the two chooses a rule first
(``kfs.pairs.relabelled``). What a model may well have said and nobody can use - too few bins, a sum far from 1 - is a counted
parse failure with its reason; what no reply gives - a bin 9, a negative probability - is an error that names the row.

Source: arXiv 2605.31464; HuggingFace user codezakh. Column names are those of the release.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from kfs.errors import DataError, MissingDependencyError, SchemaError, unknown_name
from kfs.records import Forecast, Pair, Record, content_id
from kfs.speedup import N_BINS, bin_rule

OWNER = "codezakh"
R = TypeVar("R", bound=Record)
LEAST_SUM, LARGEST_SUM = 0.5, 1.5
"""Sums of stated probabilities that are renormalised, as of any reply (``kfs.forecast.reply``)."""


@dataclass(frozen=True)
class ReleasedSet:
    """One released set: where it lies and which columns it has."""

    name: str
    """Repository under ``OWNER``, and folder of a clone."""
    config: str
    """The configuration that holds every row; empty where there is one only."""
    split: str
    columns: dict[str, str]
    """Released column to the field of our record it becomes; an empty field is needed but read apart."""


def _columns(text: str) -> dict[str, str]:
    """``theirs:ours`` columns; one name where both have it, ``theirs:`` where no field of ours takes it as it is."""
    return {theirs: ours if colon else theirs for theirs, colon, ours in (word.partition(":") for word in text.split())}


SETS = {
    "eval_set": ReleasedSet(
        "gpu-forecasters-eval-set",
        "combined",
        "eval",
        _columns(
            "comparison_id pack anchor_code candidate_code hardware aggregated_speedup true_bin "
            "source_id source_search internal_experiment"
        ),
    ),
    "predictions": ReleasedSet(
        "gpu-forecasters-eval-set-predictions",
        "combined",
        "predictions",
        _columns(
            "comparison_id pack surrogate_label repeat predicted_bin:stated_bin bin_probabilities: reasoning "
            "raw_probability_sum parse_failed parse_error input_tokens output_tokens elapsed_s"
        ),
    ),
    "training_pool": ReleasedSet(
        "gpu-forecasters-rl-training-pool",
        "",
        "train",
        _columns(
            "row_id:comparison_id pack anchor_code candidate_code aggregated_speedup relative_bin:true_bin "
            "pair_type:subset hardware source_id"
        ),
    ),
    "discovery_pairs": ReleasedSet(
        "gpu-forecasters-discovery-pairs",
        "",
        "pairs",
        _columns(
            "pair_id:comparison_id problem_id:pack benchmark_family:source_search parent_code:anchor_code "
            "child_code:candidate_code g_speedup:aggregated_speedup true_bin hardware parent_node_id: child_node_id: source_id"
        ),
    ),
}
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.\w+)")
_IDS = ("comparison_id", "pack", "source_id")
_TEXT = ("anchor_code", "candidate_code", "hardware", "surrogate_label")
_NUMBERS = ("aggregated_speedup", "true_bin", "repeat")
_OPTIONAL_NUMBERS = ("stated_bin", "input_tokens", "output_tokens", "elapsed_s", "raw_probability_sum")
"""Absent, or not a number, where a reply gave none."""
_COUNTS = ("repeat", "input_tokens", "output_tokens", "elapsed_s")
_LARGEST = 1e18
_OPTIONAL_TEXT = ("source_id", "source_search", "internal_experiment", "reasoning", "subset")
PARENT_TO_CHILD = "parent_to_child"
"""Subset of pairs whose anchor is the candidate's parent in a search."""


@dataclass(frozen=True)
class Source:
    """Where the released sets are read from: a folder of clones, or HuggingFace at one commit a set.

    Parameters
    ----------
    folder : path, optional
        Holds a folder for each set, under the set's own name.
    revisions : mapping of str to str
        Without a folder: commit of each set, 40 hex digits, by key of ``SETS``. There is no default.
    """

    folder: str | Path | None = None
    revisions: Mapping[str, str | None] | None = None

    def has(self, key: str) -> bool:
        """Whether this source offers a set at all; reading it may still fail."""
        if self.folder is not None:
            return (Path(self.folder) / SETS[key].name).is_dir()
        return bool((self.revisions or {}).get(key))

    def digests(self, key: str) -> dict[str, str]:
        """What identifies a set's content: sha256 of each of its files, or its commit.

        Raises
        ------
        DataError
            If it is not here, or no commit is named; says what to do.
        """
        name = _set(key).name
        if self.folder is None:
            return {f"{OWNER}/{name}": self._revision(key)}
        found = _files(SETS[key], Path(self.folder))
        return {str(p.relative_to(self.folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in found}

    def rows(self, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every row of a set as it was released, each with where it stands.

        Raises
        ------
        DataError
            As for :meth:`digests`.
        SchemaError
            If a file is not readable or a column is missing; names file, row and column.
        MissingDependencyError
            If HuggingFace is asked and ``datasets`` is not installed.
        """
        released = _set(key)
        rows = self._hub_rows(key) if self.folder is None else _folder_rows(released, Path(self.folder))
        count = 0
        for where, row in rows:
            missing = [c for c in released.columns if not isinstance(row, dict) or c not in row]
            if missing:
                found = f"found columns {', '.join(map(str, row))}" if isinstance(row, dict) else f"found {type(row).__name__}"
                raise SchemaError(f"{where}: column {missing[0]!r} is missing; {found}; needed: {', '.join(released.columns)}")
            count += 1
            yield where, row
        if not count:
            raise SchemaError(f"{released.name}: no rows; fetch the set again")

    def _revision(self, key: str) -> str:
        name, revision = SETS[key].name, (self.revisions or {}).get(key)
        url = f"https://huggingface.co/datasets/{OWNER}/{name}"
        if not revision:
            raise DataError(
                f"the released set {name} is neither in a folder nor pinned. Clone it (git lfs install; git clone {url}) and "
                f"name the folder that holds the clone, data.folder=FOLDER; or pin its commit, data.{key}=COMMIT, which "
                f"`git ls-remote {url} HEAD` tells"
            )
        if not re.fullmatch(r"[0-9a-f]{40}", str(revision)):
            raise DataError(
                f"{key}: revision {revision!r} is no commit of 40 hex digits; `git ls-remote {url} HEAD` tells today's"
            )
        return revision

    def _hub_rows(self, key: str) -> Iterator[tuple[str, dict[str, Any]]]:
        released, revision = SETS[key], self._revision(key)
        try:
            import datasets
        except ImportError as error:
            raise MissingDependencyError(
                "reading the released sets from HuggingFace needs the package `datasets`: pip install datasets; "
                "a folder of clones needs nothing (data.folder=FOLDER)"
            ) from error
        address = f"{OWNER}/{released.name}"
        try:
            table = datasets.load_dataset(address, released.config or None, split=released.split, revision=revision)
        except Exception as error:  # of the library, the hub or the network; all mean that there is no table
            raise DataError(
                f"{address} at {revision[:12]}: HuggingFace gave no split {released.split!r} ({str(error)[:300]}); "
                "check the commit and the network, or clone the set and name its folder"
            ) from error
        for i, row in enumerate(table):
            yield f"{address}@{revision[:12]}, row {i}", row


def _set(key: str) -> ReleasedSet:
    if key not in SETS:
        raise unknown_name("released set", key, SETS, "kfs/data/published.py")
    return SETS[key]


def _files(released: ReleasedSet, folder: Path) -> list[Path]:
    """The files that hold every row of a set once: those of its all-embracing configuration, else of its split."""
    root = folder / released.name
    if not root.is_dir():
        raise DataError(
            f"{folder}: no folder {released.name}; clone it there: git lfs install; "
            f"git clone https://huggingface.co/datasets/{OWNER}/{released.name}"
        )
    every = sorted(p for p in root.rglob("*") if p.suffix in (".parquet", ".jsonl") and p.is_file())
    every = [p for p in every if not any(part.startswith(".") for part in p.relative_to(root).parts)]
    named = lambda paths, word: [p for p in paths if word and any(x.startswith(word) for x in p.relative_to(root).parts)]
    whole = named(every, released.config)
    chosen = named(whole or every, released.split) or whole
    if not chosen:
        wanted = " or ".join(filter(None, (released.config, released.split)))
        found = ", ".join(str(p.relative_to(root)) for p in every[:5]) or "none"
        raise DataError(f"{root}: no .parquet or .jsonl file or folder whose name begins with {wanted}; found {found}")
    _all_shards(root, chosen)
    return chosen


def _all_shards(root: Path, files: Sequence[Path]) -> None:
    """Raise where files that count themselves, ``-00000-of-00003``, are not all there."""
    shards: dict[str, dict[int, set[int]]] = {}
    for path in files:
        if match := _SHARD.fullmatch(str(path.relative_to(root))):
            shards.setdefault(match[1] + match[4], {}).setdefault(int(match[3]), set()).add(int(match[2]))
    for name, totals in shards.items():
        (total, found), *others = totals.items()
        if others or found != set(range(total)):
            there = "; ".join(f"{len(found)} of {total}" for total, found in totals.items())
            raise DataError(f"{root}: the set {name} is not whole, found {there} files; fetch it again (git pull; git lfs pull)")


def _folder_rows(released: ReleasedSet, folder: Path) -> Iterator[tuple[str, Any]]:
    for path in _files(released, folder):
        for i, row in enumerate(_parquet(path) if path.suffix == ".parquet" else _jsonl(path)):
            yield f"{path}, row {i}", row


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, partitioning=None).to_pylist()
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        with open(path, "rb") as file:
            pointer = file.read(40).startswith(b"version https://git-lfs")
        remedy = "it is a git-lfs pointer: run `git lfs pull` in the clone" if pointer else "fetch it again"
        raise SchemaError(f"{path}: not a readable parquet file ({error}); {remedy}") from error


def _jsonl(path: Path) -> Iterator[Any]:
    try:
        text = path.read_text(encoding="utf-8").rstrip("\n")
    except UnicodeDecodeError as error:
        raise SchemaError(f"{path}: not UTF-8 text ({error}); fetch it again") from error
    for i, line in enumerate(text.split("\n") if text else []):  # not splitlines: U+2028 may stand in a string
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:  # no JSON, a number of thousands of digits, brackets without end
            raise SchemaError(f"{path}, row {i}: not JSON ({error}); the file may be truncated, or a git-lfs pointer") from error


def _fields(released: ReleasedSet, where: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of our record that are columns of theirs; ids and names are text, other absent text is empty."""
    fields = {ours: row[theirs] for theirs, ours in released.columns.items() if ours}
    for theirs, ours in released.columns.items():
        value = fields.get(ours)
        if ours in _IDS and type(value) is int:
            value = str(value)
        if ours in _OPTIONAL_TEXT and value is None:
            value = ""
        if ours in _OPTIONAL_NUMBERS and isinstance(value, float) and math.isnan(value):
            value = None
        number = type(value) in (int, float) and abs(value) < _LARGEST
        if not number and (ours in _NUMBERS or (ours in _OPTIONAL_NUMBERS and value is not None)):
            raise SchemaError(f"{where}, column {theirs!r}: found {str(value)[:80]!r}, expected a number")
        if number and ours in _COUNTS and value < 0:
            raise SchemaError(f"{where}, column {theirs!r}: found {value!r}, expected 0 or more")
        if ours in (*_IDS, *_OPTIONAL_TEXT, *_TEXT) and not isinstance(value, str):
            raise SchemaError(f"{where}, column {theirs!r}: found {str(value)[:80]!r}, expected text")
        if ours in ("comparison_id", "pack", *_TEXT) and not value.strip():
            raise SchemaError(f"{where}, column {theirs!r}: is empty, expected text")
        if ours:
            fields[ours] = value
    return fields


def _build(make: Callable[..., R], released: ReleasedSet, where: str, **fields: Any) -> R:
    """A record, or an error that names the row and the column as the release has it."""
    try:
        return make(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        theirs = {ours: name for name, ours in released.columns.items()}
        ours = str(first["loc"][0]) if first["loc"] else ""
        fault = f"column {theirs.get(ours, ours)!r}: {first['msg']}, found {str(first['input'])[:80]!r}" if ours else first["msg"]
        raise SchemaError(f"{where} ({fields['comparison_id']!r}): {fault}") from error


def _pairs(source: Source, key: str, rule: str, **fixed: str) -> Iterator[tuple[dict[str, Any], Pair]]:
    """Every row of a set with the pair it becomes."""
    released, seen = SETS[key], {}
    for where, row in source.rows(key):
        fields = _fields(released, where, row)
        first = seen.setdefault(fields["comparison_id"], where)
        if first != where:
            raise SchemaError(f"{where}: id {fields['comparison_id']!r} stands in {first} already; each pair has one row")
        ids = {f"{side}_id": content_id("python", fields[f"{side}_code"]) for side in ("anchor", "candidate")}
        yield row, _build(Pair, released, where, **fields, **ids, **fixed, bin_rule=rule, group=fields["pack"])


def eval_pairs(source: Source) -> list[Pair]:
    """The evaluation set, labels as released.

    Kernel ids are those of the sources' content, so that intervals know which pairs share a kernel; certainty is unknown, since
    no samples were released.

    Raises
    ------
    DataError
        If the set is not at hand; says how to bring or to pin it.
    SchemaError
        If a row is wrong - a column is missing, a label contradicts its speedup, an id comes twice - naming file and row.
    """
    return [pair for _, pair in _pairs(source, "eval_set", "released", split="test")]


def training_pool(source: Source, *, rule: Literal["released", "study"] = "released") -> list[Pair]:
    """The pool that reinforcement learning drew from, as train pairs; ``relative_bin`` is the label, ``pair_type`` the subset.

    Parameters
    ----------
    source : Source
    rule : {"released", "study"}, optional
        Rule that ``relative_bin`` follows; every row is checked against it.

    Raises
    ------
    DataError, SchemaError
        As for :func:`eval_pairs`.
    """
    return [pair for _, pair in _pairs(source, "training_pool", bin_rule(rule).name, split="train")]


def discovery_pairs(source: Source) -> list[Pair]:
    """Parent (anchor) and child (candidate) of searches, labels as released; ``g_speedup`` is the speedup.

    Problems are packs, benchmark families stand in ``source_search``, and ``internal_experiment`` says which nodes of the search
    they were, as ``<parent> -> <child>``.

    Raises
    ------
    DataError, SchemaError
        As for :func:`eval_pairs`.
    """
    fixed = {"split": "test", "subset": PARENT_TO_CHILD}
    return [
        pair.model_copy(update={"internal_experiment": f"{row['parent_node_id']} -> {row['child_node_id']}"})
        for row, pair in _pairs(source, "discovery_pairs", "released", **fixed)
    ]


def predictions(source: Source, pairs: Sequence[Pair]) -> list[Forecast]:
    """The released forecasters' answers, one record a row, in the order of the file.

    Parameters
    ----------
    source : Source
    pairs : sequence of Pair
        The evaluation set they answer.

    Returns
    -------
    list of Forecast
        In the study's bins; ``surrogate_label`` is the forecaster, ``repeat`` which of its answers.

    Raises
    ------
    DataError
        If the set is not at hand.
    SchemaError
        If a row answers no pair, repeats an answer, or holds a distribution that no model can have stated; names file and row.
        If a forecaster does not answer every pair equally often.
    """
    released, packs, seen, found = SETS["predictions"], {p.comparison_id: p.pack for p in pairs}, {}, []
    for where, row in source.rows("predictions"):
        fields = _fields(released, where, row)
        answers, pack = fields["comparison_id"], fields["pack"]
        if answers not in packs:
            raise SchemaError(f"{where}: comparison_id {answers!r} is none of the {len(packs)} pairs of {SETS['eval_set'].name}")
        if pack != packs[answers]:
            raise SchemaError(f"{where} ({answers!r}), column 'pack': found {pack!r}, but the pair's is {packs[answers]!r}")
        answer = _forecast(released, where, fields, row["bin_probabilities"])
        first = seen.setdefault((answers, answer.surrogate_label, answer.repeat), where)
        if first != where:
            raise SchemaError(
                f"{where} ({answers!r}): repeat {answer.repeat} of {answer.surrogate_label!r} stands in {first} already"
            )
        found.append(answer)
    _answered_alike(found, len(packs))
    return found


def _answered_alike(answers: Sequence[Forecast], n_pairs: int) -> None:
    """Raise where a forecaster left a pair out, or answered one more often than another: scores would be of other pairs."""
    times: dict[str, Counter[str]] = {}
    for answer in answers:
        times.setdefault(answer.surrogate_label, Counter())[answer.comparison_id] += 1
    for label, found in times.items():
        least, most = (end(found.items(), key=lambda x: x[1]) for end in (min, max))
        if len(found) < n_pairs or least[1] < most[1]:
            odd = f"{least[0]!r} {least[1]} times and {most[0]!r} {most[1]} times" if least[1] < most[1] else "each as often"
            raise SchemaError(
                f"{SETS['predictions'].name}: {label!r} answers {len(found)} of {n_pairs} pairs, {odd}; expected every pair as "
                "often as any other; fetch the set again"
            )


def _forecast(released: ReleasedSet, where: str, fields: dict[str, Any], given: Any) -> Forecast:
    """The record of one row."""
    failed, error, raw_sum = (fields.pop(k) for k in ("parse_failed", "parse_error", "raw_probability_sum"))
    if not isinstance(failed, bool):
        raise SchemaError(
            f"{where} ({fields['comparison_id']!r}), column 'parse_failed': found {failed!r}, expected true or false"
        )
    if failed:
        fields["stated_bin"], reason = None, error or "no reason was released"
    else:
        stated = _stated(f"{where} ({fields['comparison_id']!r})", given)
        reason = _unusable(stated)
    if reason:
        return _build(Forecast, released, where, **fields, parse_failed=True, parse_error=reason)
    p = [stated.get(b, 0.0) for b in range(1, N_BINS + 1)]
    answer = _build(Forecast.from_probabilities, released, where, **fields, probabilities=p)
    return answer.model_copy(update={"raw_probability_sum": float(raw_sum)}) if raw_sum is not None and raw_sum > 0 else answer


def _unusable(stated: Mapping[int, float]) -> str | None:
    """Why probabilities that a model may have stated give no distribution; the same rules as for any reply."""
    total, missing = sum(stated.values()), N_BINS - len(stated)
    if not LEAST_SUM <= total <= LARGEST_SUM:
        return f"the probabilities sum to {total:.4g}, allowed are {LEAST_SUM} to {LARGEST_SUM}"
    if missing and abs(total - 1) > 0.02:
        return f"{missing} of {N_BINS} bins have no probability and the others sum to {total:.4g}"
    return None


def _stated(where: str, given: Any) -> dict[int, float]:
    """Probability of each bin that a row lists; an error where no reply can have given it."""
    place = f"{where}, column 'bin_probabilities'"
    if not isinstance(given, list) or not all(isinstance(x, dict) and {"bin", "p"} <= set(x) for x in given):
        raise SchemaError(f"{place}: found {str(given)[:80]}, expected a list of {{bin, p}}; mark the row parse_failed if none")
    stated: dict[int, float] = {}
    for x in given:
        which, p = x["bin"], x["p"]
        if type(which) is not int or not 1 <= which <= N_BINS:
            raise SchemaError(f"{place}: found bin {which!r}, allowed are 1 to {N_BINS}")
        if which in stated:
            raise SchemaError(f"{place}: bin {which} is listed twice")
        if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p < _LARGEST:
            raise SchemaError(f"{place}: bin {which} has p = {p!r}, allowed is a finite number of 0 or more")
        stated[which] = float(p)
    return stated
