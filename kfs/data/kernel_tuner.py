"""Recorded tuning spaces: Kernel Tuner cache files (JSON, plain or gzip) as tables of configurations.

Reads what was measured and why a configuration failed; it neither predicts nor fills in anything. Traps handled here:

- A run that was killed leaves a file without its end. It is refused by name; ``keep_whole_lines=True`` keeps the
  configurations that are whole and says how many.
- First runs on the AMD W7800 stored each sample as a pair ``[0, t]``, so that the recorded mean was half the time: the second
  element is the sample. The released files are mended (their GB/s and GFLOP/s are not: those stay twice too high and are not
  read).
- On the W7800 the convolution kernel ignores ``use_shmem``: two configurations that differ in it alone are repeats of one
  measurement, and the column ``twin_of`` says so.

Source: Kernel Tuner (van Werkhoven, 2019), cache files of AutoTuningAssociation/benchmark_hub.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kfs.data import manifest
from kfs.errors import DataError, SchemaError, unknown_name

SPACES = ("kt_dedispersion", "kt_convolution_milo", "kt_convolution", "kt_gemm")
STATUS = {
    "CompilationFailedConfig": "compile_error",
    "RuntimeFailedConfig": "runtime_error",
    "InvalidConfig": "rejected",
}
"""What a failed configuration's error name means, in the statuses of ``kfs.records``."""
_FAILED_TIME_MS = 1e19
_IDLE_PARAMETERS = {("AMD Radeon PRO W7800", "convolution_kernel"): "use_shmem"}
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, eq=False)
class TuningSpace:
    """Every configuration of one kernel that was tried on one device."""

    kernel: str
    device: str
    problem_size: tuple[int, ...]
    parameters: tuple[str, ...]
    """Names of the tunable parameters, in the order of a configuration's key."""
    allowed: Mapping[str, tuple[Any, ...]]
    """Values of each parameter that were considered."""
    configurations: pd.DataFrame
    """One row a configuration, indexed by its key (values joined by commas): a column for each parameter, ``time_ms`` (mean;
    NaN where it failed), ``status`` (ok, compile_error, runtime_error, rejected), ``times_ms`` (tuple of every sample, empty
    where none was kept) and ``twin_of`` (key of the configuration it repeats, or "")."""
    source: str
    """File it was read from."""
    cut: str = ""
    """What is wrong with the file's end, where only its whole configurations were kept; else ""."""

    @property
    def measured(self) -> pd.DataFrame:
        """Configurations that ran."""
        return self.configurations[self.configurations["status"] == "ok"]

    @property
    def failures(self) -> dict[str, int]:
        """How many configurations ended in each status other than ok."""
        counts = self.configurations["status"].value_counts()
        return {str(k): int(n) for k, n in counts.items() if k != "ok"}


def load_space(name: str, device: str, *, keep_whole_lines: bool = False) -> TuningSpace:
    """Read a recorded space of the manifest.

    Parameters
    ----------
    name : str
        One of ``SPACES``.
    device : str
        File name without suffix, for example ``"RTX_3090"``.
    keep_whole_lines : bool, optional
        As for ``read_space``.

    Raises
    ------
    UnknownNameError
        If there is no such space or device; lists those there are.
    DataError
        If the file is not on this machine; says which command fetches it.
    """
    if name not in SPACES:
        raise unknown_name("tuning space", name, SPACES, "kfs/data/kernel_tuner.py")
    known = devices(name)
    if device not in known:
        raise unknown_name(f"device of {name}", device, known, "data/manifest.yaml")
    return read_space(manifest.path(name, known[device]), keep_whole_lines=keep_whole_lines)


def devices(name: str) -> dict[str, str]:
    """Devices a space was recorded on, and the manifest path of each one's file."""
    files = [f.path for f in manifest.dataset(name).files if f.path.endswith(".json.gz")]
    return {Path(f).name.split(".")[0]: f for f in files}


def read_space(path: str | Path, *, keep_whole_lines: bool = False) -> TuningSpace:
    """Read a Kernel Tuner cache file.

    Parameters
    ----------
    path : path
        JSON, plain or gzip (told by its first bytes).
    keep_whole_lines : bool, optional
        Accept a file whose end is missing, and keep the configurations that are whole; ``cut`` of the result says how many.

    Raises
    ------
    DataError
        If the file is absent, damaged, or truncated without ``keep_whole_lines``; names it and says what is wrong.
    SchemaError
        If it is not such a cache; names file, configuration and column.
    """
    path = Path(path)
    text, fault = _text(path)
    if fault is None:
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            if not _is_cut(text, error):
                raise DataError(f"{path}: not JSON at line {error.lineno} ({error.msg}); the file is damaged") from error
            fault = f"the text ends inside the cache, after {len(text)} characters"
    if fault is not None:
        content = _whole_entries(text)
        n = len(content["cache"]) if content else 0
        if not keep_whole_lines or not n:
            hint = f"; keep_whole_lines=True keeps its {n} whole configurations" if n else "; no configuration in it is whole"
            raise DataError(f"{path}: truncated: {fault}{hint}")
        fault = f"truncated: {fault}; kept {n} whole configurations"
    return _space(content, str(path), fault or "")


def _text(path: Path) -> tuple[str, str | None]:
    """Text of a file, and what is wrong with its end (None if nothing)."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    if not raw:
        raise DataError(f"{path}: truncated: the file is empty")
    fault = None
    if raw[:2] == _GZIP_MAGIC:
        try:
            raw = gzip.decompress(raw)
        except EOFError:
            found = len(raw)
            raw = zlib.decompressobj(wbits=31).decompress(raw)
            fault = f"the gzip stream ends early, after {found} bytes"
        except (zlib.error, gzip.BadGzipFile) as error:
            raise DataError(f"{path}: damaged: {error}; fetch it again") from error
    try:
        return raw.decode("utf-8", errors="ignore" if fault else "strict"), fault
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: damaged: not UTF-8 text at byte {error.start}") from error


def _is_cut(text: str, error: json.JSONDecodeError) -> bool:
    """Whether a text stopped being JSON because it stops, and not because of a fault in its middle."""
    longest_word = len("-Infinity")
    return error.msg.startswith("Unterminated string") or error.pos >= len(text.rstrip()) - longest_word


def _whole_entries(text: str) -> dict[str, Any] | None:
    """The cache with the configurations that are whole; None if even its head is not."""
    opening = re.search(r'"cache"\s*:\s*\{', text)
    if opening is None:
        return None
    try:
        content = json.loads(text[: opening.end()] + "}}")
    except json.JSONDecodeError:
        return None
    decoder, cursor = json.JSONDecoder(), opening.end()
    key = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*(?=\{)')
    while (match := key.match(text, cursor)) is not None:
        try:
            entry, cursor = decoder.raw_decode(text, match.end())
        except json.JSONDecodeError:
            break
        content["cache"][json.loads(match[1])] = entry
    return content


def _space(content: Any, source: str, cut: str) -> TuningSpace:
    """Build the table from a parsed cache."""
    for name in ("kernel_name", "tune_params_keys", "cache"):
        if not isinstance(content, dict) or name not in content:
            raise SchemaError(f"{source}: {name!r} is missing; not a Kernel Tuner cache file")
    parameters = tuple(content["tune_params_keys"])
    rows, index = [], []
    for key, entry in content["cache"].items():
        where = f"{source}, configuration {key!r}"
        if not isinstance(entry, dict) or (missing := [p for p in parameters if p not in entry]):
            raise SchemaError(f"{where}: parameter {missing[0] if isinstance(entry, dict) else parameters[0]!r} is missing")
        rows.append([*(entry[p] for p in parameters), *_outcome(entry, where)])
        index.append(key)
    table = pd.DataFrame(rows, columns=[*parameters, "time_ms", "status", "times_ms"], index=pd.Index(index, name="key"))
    device, kernel = content.get("device_name") or Path(source).name.split(".")[0], content["kernel_name"]
    table["twin_of"] = _twins(table, parameters, _IDLE_PARAMETERS.get((device, kernel)))
    return TuningSpace(
        kernel=kernel,
        device=device,
        problem_size=tuple(np.atleast_1d(content.get("problem_size", ())).tolist()),
        parameters=parameters,
        allowed={k: tuple(v) for k, v in content.get("tune_params", {}).items()},
        configurations=table,
        source=source,
        cut=cut,
    )


def _outcome(entry: dict[str, Any], where: str) -> tuple[float, str, tuple[float, ...]]:
    """Mean time in ms, status and samples of one configuration."""
    time = entry.get("time")
    if isinstance(time, str):
        if time not in STATUS:
            raise SchemaError(f"{where}, column 'time': unknown failure {time!r}; known: {', '.join(STATUS)}")
        return math.nan, STATUS[time], ()
    samples = entry.get("times") or []
    paired = bool(samples) and all(isinstance(s, list) and len(s) == 2 for s in samples)
    values = tuple(s[1] for s in samples) if paired else tuple(samples)
    numbers = (time, *values)
    if not all(isinstance(v, (int, float)) and math.isfinite(v) and v > 0 for v in numbers):
        bad = next(v for v in numbers if not (isinstance(v, (int, float)) and math.isfinite(v) and v > 0))
        raise SchemaError(f"{where}: {bad!r} is not a time; expected positive milliseconds or a failure: {', '.join(STATUS)}")
    if time >= _FAILED_TIME_MS:  # old versions marked every failure with 1e20
        return math.nan, "rejected", ()
    return (float(np.mean(values)) if paired else float(time)), "ok", tuple(float(v) for v in values)


def _twins(table: pd.DataFrame, parameters: tuple[str, ...], idle: str | None) -> list[str]:
    """Key of the first configuration equal in all but an idle parameter, for those that are not first; else ""."""
    if idle is None or table.empty:
        return [""] * len(table)
    first: dict[tuple, str] = {}
    others = [p for p in parameters if p != idle]
    keys = list(zip(table.index, table[others].itertuples(index=False, name=None), strict=True))
    return ["" if first.setdefault(values, key) == key else first[values] for key, values in keys]
