"""The nouns that travel between rooms - Hardware, Kernel, Measurement, Pair, Forecast - on disk as they are in memory.

Frozen pydantic models with a schema version; parquet and jsonl both ways; content ids. ``Pair`` and ``Forecast`` keep the
column names of the released evaluation set and predictions (arXiv 2605.31464) and add what those lack. Summaries are not
stored where they can be computed later: a Measurement holds every raw sample.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, computed_field, model_validator

from kfs.errors import SchemaError
from kfs.speedup import N_BINS, bin_rule, most_likely_bin

SCHEMA_VERSION = 1

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Durations = Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=1)]
BinIndex = Annotated[int, Field(ge=1, le=N_BINS)]


def content_id(*parts: str, length: int = 16) -> str:
    """First ``length`` hex digits of the sha256 of the parts, joined by a NUL byte.

    Examples
    --------
    >>> content_id("python", "def kernel(x): return x")
    '784e33e232042418'
    """
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:length]


class Record(BaseModel):
    """Base of every record: immutable, no unknown fields, a schema version."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_enum_values=True)
    schema_version: Literal[1] = SCHEMA_VERSION

    @model_validator(mode="before")
    @classmethod
    def _drop_computed(cls, data: Any) -> Any:
        """Derived columns may stand in a file; they are computed again, never trusted."""
        if isinstance(data, dict) and cls.model_computed_fields:
            return {k: v for k, v in data.items() if k not in cls.model_computed_fields}
        return data


class Hardware(Record):
    """A processor kernels run on, as a forecaster is told about it and as measurements name it."""

    name: str
    """Short name used by records and conf/hardware, for example ``h100`` or ``host-amd-epyc``."""
    title: str = ""
    """Marketing name, for example ``NVIDIA H100 SXM5 80GB``."""
    vendor: str
    architecture: str
    """For example ``sm_90`` or ``x86-64-v3``."""
    kind: Literal["cpu", "gpu"]
    units: int | None = None
    """Streaming multiprocessors, compute units or cores."""
    memory_gb: float | None = None
    memory_bandwidth_gb_s: float | None = None
    cache_mb: float | None = None
    """Last-level cache."""
    peak_tflops: dict[str, float] = Field(default_factory=dict)
    """Dense peak by number format, for example ``{"fp32": 67.0}``."""
    clock_mhz: float | None = None
    driver: str | None = None
    sources: list[str] = Field(default_factory=list)
    """Where the figures come from."""


class Kernel(Record):
    """A kernel's source text. Its id is its content: language and source, nothing else."""

    language: Literal["python", "triton", "cuda", "opencl", "hip"]
    source: str
    entry: str = "kernel"
    """Name of the function that is called (CUDA C++: of the ``__global__`` function)."""
    task: str | None = None
    name: str | None = None
    """Where it came from, for people; never shown to a forecaster."""
    family: str | None = None
    """Algorithm or layout it is a variant of; never shown to a forecaster."""

    @computed_field
    @property
    def kernel_id(self) -> str:
        """First 16 hex digits of sha256 over language and source."""
        return content_id(self.language, self.source)


class Status(StrEnum):
    """How a measurement ended. Only ``ok`` carries samples that count."""

    OK = "ok"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    WRONG_OUTPUT = "wrong_output"
    TIMEOUT = "timeout"
    CRASH = "crash"
    OUT_OF_MEMORY = "out_of_memory"
    REJECTED = "rejected"
    IMPLAUSIBLE = "implausible"


class Block(Record):
    """Neighbouring calls of reference and candidate: one ratio."""

    case: str
    """Benchmark case the calls ran."""
    child_pair: int
    """Which pair of fresh processes made the calls, from 0."""
    reference_ns: Durations
    """Duration of every reference call, nanoseconds, in order."""
    candidate_ns: Durations
    """Duration of every candidate call, nanoseconds, in order."""
    reference_cpu_ns: int | None = None
    """CPU time of the reference's process over the request that made the calls, staging included, nanoseconds."""
    candidate_cpu_ns: int | None = None
    """CPU time of the candidate's process over the request that made the calls, staging included, nanoseconds."""
    reference_device_ns: list[int] = Field(default_factory=list)
    """GPU only: time between events around every reference call on the stream it was given, nanoseconds."""
    candidate_device_ns: list[int] = Field(default_factory=list)
    reference_elapsed_ns: int | None = None
    """GPU only: how long the judge waited for the request that made the calls, staging included, nanoseconds."""
    candidate_elapsed_ns: int | None = None
    state: str = ""
    """GPU only: clocks, temperature and throttle reasons after the block, as ``kfs.bench.nvml.State`` writes them."""


class Alone(Record):
    """Neighbouring calls of the reference with no candidate process about: the baseline's baseline."""

    case: str
    child_pair: int
    when: Literal["before", "after"]
    """Whether the candidate had not started yet, or was gone."""
    reference_ns: Durations
    """Duration of every call, nanoseconds, in order."""


class GraphTiming(Record):
    """Calls captured into one CUDA graph, each with inputs and outputs of its own, and replayed once."""

    case: str
    child_pair: int
    calls: int
    """Calls in the graph."""
    reference_ns: int | None = None
    """Replay over calls, nanoseconds; None where the reference cannot be captured."""
    candidate_ns: int | None = None


class Measurement(Record):
    """What a device found out about one kernel on one task: a verdict, and every raw sample behind the speedup.

    ``ok`` cannot be built without samples, nor anything else with a speedup.
    """

    task: str
    preset: str
    """Case preset: tiny, host or paper."""
    kernel_id: str
    reference_id: str
    task_id: str = ""
    """Content id of the task's definition: its cases, inputs and tolerance."""
    hardware: str
    status: Status
    stage: str | None = None
    """Where a kernel failed: admission, import, warmup, check, timing."""
    reason: str | None = None
    flags: list[str] = Field(default_factory=list)
    blocks: list[Block] = Field(default_factory=list)
    alone: list[Alone] = Field(default_factory=list)
    """The reference timed without the candidate, before and after each child pair."""
    graph: list[GraphTiming] = Field(default_factory=list)
    """GPU only: short kernels without the cost of launching them."""
    speedup: Positive | None = None
    """Reference runtime / candidate runtime, geometric mean over cases."""
    speedup_low: Positive | None = None
    speedup_high: Positive | None = None
    confidence: float | None = None
    """Level of the interval, for example 0.95."""
    log2_std_error: float | None = None
    """Standard error of log2 speedup over child pairs."""
    n_child_pairs: int = 0
    stop: Literal["certain", "budget"] | None = None
    """Why timing ended: the bin was certain, or the budget of child pairs was spent."""
    clock: str = "perf_counter_ns"
    harness: str
    """Version of the harness that measured."""
    environment: dict[str, str] = Field(default_factory=dict)
    measured_at: str | None = None
    """UTC time, ISO 8601."""
    seconds: float = 0.0
    """Wall time spent, compilation included."""
    first_call_ms: dict[str, float] = Field(default_factory=dict)
    """Duration of the import and of the first call of every case, milliseconds: compilation, not part of any sample."""

    @model_validator(mode="after")
    def _states_cannot_contradict(self) -> Measurement:
        numbers = (self.speedup, self.speedup_low, self.speedup_high)
        if self.status == Status.OK:
            if not self.blocks:
                raise ValueError("status 'ok' needs samples: blocks is empty")
            if None in (*numbers, self.confidence, self.log2_std_error) or self.n_child_pairs < 2:
                raise ValueError("status 'ok' needs a speedup with its interval, confidence, log2_std_error and two child pairs")
            if not self.speedup_low <= self.speedup <= self.speedup_high:
                raise ValueError(f"speedup {self.speedup} lies outside its interval {self.speedup_low} to {self.speedup_high}")
        elif any(n is not None for n in numbers):
            raise ValueError(f"status {self.status!r} cannot carry a speedup")
        elif not self.reason:
            raise ValueError(f"status {self.status!r} needs a reason")
        return self

    @computed_field
    @property
    def measurement_id(self) -> str:
        """Content id of what was measured on what: task, preset, kernel, reference, hardware, harness."""
        return content_id(self.task, self.preset, self.kernel_id, self.reference_id, self.hardware, self.harness)


class Pair(Record):
    """An anchor kernel, a candidate kernel, and the candidate's measured speedup over the anchor: one question with its answer.

    The first ten fields are the columns of the released evaluation set.
    """

    comparison_id: str
    pack: str
    """Task or problem: the unit intervals are resampled over."""
    anchor_code: str
    candidate_code: str
    hardware: str
    aggregated_speedup: Positive
    """Anchor runtime / candidate runtime, geometric mean over cases."""
    true_bin: BinIndex
    source_id: str = ""
    source_search: str = ""
    internal_experiment: str = ""
    bin_rule: Literal["study", "released"] = "study"
    """Rule that made ``true_bin``; one table never mixes two."""
    speedup_low: Positive | None = None
    speedup_high: Positive | None = None
    certain: bool | None = None
    """Whether the interval lies inside one bin; None where nobody knows."""
    anchor_id: str = ""
    """Kernel id of the anchor."""
    candidate_id: str = ""
    anchor_variant: str = ""
    """Label of the anchor's origin, for code-blind rivals and audits; never in a prompt or a feature."""
    candidate_variant: str = ""
    subset: str = ""
    """Group a table is reported by, for example ``eager_to_custom``."""
    group: str = ""
    """Problems with the same group are near-duplicates and share a split."""
    split: Literal["", "train", "calibration", "test"] = ""
    language: str = "python"
    anchor_language: str = ""
    """Language of the anchor's source where it is not ``language``, which then is the candidate's alone."""

    @model_validator(mode="after")
    def _label_follows_rule(self) -> Pair:
        expected = bin_rule(self.bin_rule).index(self.aggregated_speedup)
        if self.true_bin != expected:
            found = f"true_bin {self.true_bin} contradicts aggregated_speedup {self.aggregated_speedup}"
            raise ValueError(f"{found}: the {self.bin_rule!r} rule gives {expected}")
        return self


class BinProbability(BaseModel):
    """One entry of a stated distribution."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    bin: BinIndex
    p: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Forecast(Record):
    """A forecaster's answer for one pair: a probability for each of the eight bins, or a counted failure to answer.

    The first twelve fields are the columns of the released predictions.
    """

    comparison_id: str
    pack: str
    surrogate_label: str
    """Name of the forecaster."""
    repeat: int = 0
    predicted_bin: BinIndex | None = None
    """Argmax of the probabilities, the lower bin on a tie."""
    bin_probabilities: list[BinProbability] = Field(default_factory=list)
    reasoning: str = ""
    raw_probability_sum: float | None = None
    """Sum before renormalising; 1 for forecasters that cannot state another."""
    parse_failed: bool = False
    parse_error: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    elapsed_s: float | None = None
    stated_bin: BinIndex | None = None
    """Bin a model stated apart from its distribution."""
    bin_rule: Literal["study", "released"] = "study"

    @model_validator(mode="after")
    def _states_cannot_contradict(self) -> Forecast:
        if self.parse_failed:
            if self.bin_probabilities or self.predicted_bin is not None:
                raise ValueError("a forecast with parse_failed carries no distribution")
            if not self.parse_error:
                raise ValueError("parse_failed needs parse_error")
            return self
        if [b.bin for b in self.bin_probabilities] != list(range(1, N_BINS + 1)):
            found = [b.bin for b in self.bin_probabilities]
            raise ValueError(f"bin_probabilities must list bins 1 to {N_BINS} in order, found {found}")
        p = self.probabilities
        if not math.isclose(p.sum(), 1.0, abs_tol=1e-6):
            raise ValueError(f"bin_probabilities sum to {p.sum():.6g}; renormalise first and keep raw_probability_sum")
        if self.predicted_bin != most_likely_bin(p):
            raise ValueError(f"predicted_bin {self.predicted_bin} is not the most likely bin {most_likely_bin(p)}")
        return self

    @property
    def probabilities(self) -> np.ndarray:
        """Distribution, shape (8,); uniform where the reply could not be parsed."""
        if self.parse_failed:
            return np.full(N_BINS, 1 / N_BINS)
        return np.array([b.p for b in self.bin_probabilities])

    @classmethod
    def from_probabilities(cls, comparison_id: str, pack: str, surrogate_label: str, probabilities, **fields) -> Forecast:
        """Build a forecast from eight non-negative numbers; renormalises and keeps the raw sum.

        Parameters
        ----------
        probabilities : array-like of shape (8,)
            Non-negative and finite with a positive sum.
        **fields
            Any other field of the record.
        """
        raw = np.asarray(probabilities, dtype=float)
        if raw.shape != (N_BINS,) or not np.isfinite(raw).all() or (raw < 0).any() or raw.sum() <= 0:
            raise ValueError(f"need {N_BINS} non-negative finite probabilities with a positive sum, found {raw.tolist()}")
        p = raw / raw.sum()
        return cls(
            comparison_id=comparison_id,
            pack=pack,
            surrogate_label=surrogate_label,
            predicted_bin=most_likely_bin(p),
            bin_probabilities=[BinProbability(bin=i + 1, p=min(1.0, float(v))) for i, v in enumerate(p)],
            raw_probability_sum=float(raw.sum()),
            **fields,
        )


R = TypeVar("R", bound=Record)


def _one_rule(records: Sequence[Record], path: str) -> None:
    rules = {r.bin_rule for r in records if hasattr(r, "bin_rule")}
    if len(rules) > 1:
        raise SchemaError(f"{path}: rows follow several bin rules ({', '.join(sorted(rules))}); write one table a rule")


def parse_rows(model: type[R], rows: Iterable[dict[str, Any]], source: str = "rows") -> list[R]:
    """Build records from dictionaries.

    Raises
    ------
    SchemaError
        Naming the source, the row (from 0), the column, what was found and what was allowed.
    """
    records = []
    for i, row in enumerate(rows):
        try:
            records.append(model.model_validate(row))
        except ValidationError as error:
            first = error.errors()[0]
            column = ".".join(str(x) for x in first["loc"]) or "(the whole row)"
            found = f"; found {str(first['input'])[:80]!r}" if first["loc"] else ""
            unknown = first["type"] == "extra_forbidden"
            known = f"; columns of {model.__name__}: {', '.join(model.model_fields)}" if unknown else ""
            raise SchemaError(f"{source}, row {i}, column {column!r}: {first['msg']}{found}{known}") from error
    _one_rule(records, source)
    return records


def atomic_write(path: str | os.PathLike, data: bytes) -> None:
    """Write a file so that a reader, or a kill, sees the old bytes or the new ones and nothing between."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def to_jsonl(records: Iterable[Record]) -> str:
    """Records as JSON lines."""
    return "".join(r.model_dump_json() + "\n" for r in records)


def _arrow_safe(value: Any) -> Any:
    """Parquet has no empty struct: dictionaries travel as JSON text."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value


def write_records(records: Sequence[R], path: str | os.PathLike) -> Path:
    """Write records of one kind to ``.parquet`` or ``.jsonl``, atomically.

    Raises
    ------
    SchemaError
        If the suffix is neither, there are no records, kinds are mixed, or rows follow two bin rules.
    """
    path, records = Path(path), list(records)
    if not records:
        raise SchemaError(f"{path}: no records to write")
    if len({type(r) for r in records}) > 1:
        raise SchemaError(f"{path}: records of several kinds: {', '.join(sorted({type(r).__name__ for r in records}))}")
    _one_rule(records, str(path))
    if path.suffix == ".jsonl":
        atomic_write(path, to_jsonl(records).encode())
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [{k: _arrow_safe(v) for k, v in r.model_dump().items()} for r in records]
        table = pa.Table.from_pylist(rows)
        table = table.replace_schema_metadata({"kfs_record": type(records[0]).__name__, "kfs_schema": str(SCHEMA_VERSION)})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", compression_level=19)
        atomic_write(path, sink.getvalue().to_pybytes())
    else:
        raise SchemaError(f"{path}: unknown record format {path.suffix!r}; known: .parquet, .jsonl")
    return path


def read_records(model: type[R], path: str | os.PathLike) -> list[R]:
    """Read records from ``.parquet`` or ``.jsonl``.

    Raises
    ------
    SchemaError
        If the file does not hold such records; names file, row and column.
    """
    path = Path(path)
    if path.suffix == ".jsonl":
        rows = []
        for i, line in enumerate(path.read_text(encoding="utf-8").rstrip("\n").split("\n")):  # not splitlines: U+2028 is text
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise SchemaError(f"{path}, row {i}: not JSON ({error}); the file may be truncated") from error
    elif path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path)
        except pa.ArrowInvalid as error:
            raise SchemaError(f"{path}: not a readable parquet file ({error}); fetch or write it again") from error
        kind = (table.schema.metadata or {}).get(b"kfs_record", model.__name__.encode()).decode()
        if kind != model.__name__:
            raise SchemaError(f"{path}: holds {kind} records, not {model.__name__}")
        rows = table.to_pylist()
        texts = [n for n, f in model.model_fields.items() if str(f.annotation).startswith("dict")]
        for row in rows:
            for name in texts:
                if isinstance(row.get(name), str):
                    row[name] = json.loads(row[name])
    else:
        raise SchemaError(f"{path}: unknown record format {path.suffix!r}; known: .parquet, .jsonl")
    return parse_rows(model, rows, str(path))


def probability_matrix(forecasts: Sequence[Forecast]) -> np.ndarray:
    """Distributions of forecasts, shape (n, 8), in order; uniform where parsing failed."""
    return np.array([f.probabilities for f in forecasts]).reshape(-1, N_BINS)
