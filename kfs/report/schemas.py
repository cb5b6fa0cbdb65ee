"""Schemas of what is configured: the only source of defaults, types and help. ``kfs.report.config`` composes and checks them.

The options of forecasters and of training methods are the fields of their own dataclasses.
"""
# ruff: noqa: RUF009 (option() is dataclasses.field with help)

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


def option(default: Any, help: str) -> Any:
    """A dataclass field with a default and one line of help."""
    metadata = {"help": help}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass
class DataConfig:
    """What every data source has."""

    source: str = option("embedded", "reader of the records: embedded, cuda_l1, live or published")
    max_packs: int | None = option(None, "keep about so many tasks or problems, evenly spread; null keeps all")
    per_bin: int | None = option(None, "at most so many pairs a bin and task, those from the reference aside; null keeps all")
    per_task: int | None = option(None, "at most so many pairs a task, evenly spread; null keeps all")


@dataclass
class EmbeddedData(DataConfig):
    """Kernels of the everyday and study tasks, measured by kfs on a CPU; records come with the repository."""

    source: str = option("embedded", "reader of the records")
    folder: str | None = option(None, "folder of another measuring campaign, one host's; null is that of data/records")
    per_bin: int | None = option(24, "at most so many pairs a bin and task, those from the reference aside; null keeps all")


@dataclass
class LiveData(EmbeddedData):
    """Kernels of the everyday and study tasks, measured when the study starts, on this machine."""

    source: str = option("live", "reader of the records")
    folder: str | None = option(None, "where records of this machine are kept; null is runs/live")
    device: str = option("cuda", "what measures: cuda (this GPU) or host (this CPU)")
    tasks: list[str] = option([], "tasks that are measured, at least three; empty for all")
    kernels: int | None = option(None, "at most so many kernels a task, the first of every family first; null measures all")
    child_pairs: int = option(4, "fresh pairs of processes a kernel, at least 3")


@dataclass
class CudaL1Data(DataConfig):
    """CUDA-L1: 250 KernelBench problems with LLM-written CUDA on five GPUs; speedup ratios only."""

    source: str = option("cuda_l1", "reader of the records")
    gpus: list[str] = option(["3090", "a100", "h100", "h20", "l40"], "GPUs whose ratios are used")


@dataclass
class PublishedData(DataConfig):
    """The released pairs and predictions: a folder of clones, or HuggingFace at a commit a set; neither is the default."""

    source: str = option("published", "reader of the records")
    folder: str | None = option(None, "folder that holds clones of the released sets, each under its own name")
    eval_set: str | None = option(None, "without a folder: commit of gpu-forecasters-eval-set, 40 hex digits")
    predictions: str | None = option(None, "without a folder: commit of gpu-forecasters-eval-set-predictions")
    discovery_pairs: str | None = option(None, "without a folder: commit of gpu-forecasters-discovery-pairs; null does without")


DATA = {"embedded": EmbeddedData, "cuda_l1": CudaL1Data, "live": LiveData, "published": PublishedData}


@dataclass
class BootstrapConfig:
    """Intervals: tasks are resampled, then kernels within a task."""

    n_resamples: int = option(1000, "bootstrap resamples behind every interval")
    level: float = option(0.95, "level of every interval")


@dataclass
class SampleConfig:
    """The fixed stratified sample slow forecasters run on; every forecaster is scored on it too."""

    size: int = option(240, "pairs in the sample, even over tasks and subsets")
    forecasters: list[str] = option(["local", "endpoint", "engine"], "forecasters that run on the sample only")


@dataclass
class PromptsConfig:
    """What notebook 06_prompts switches in the prompt of a language model."""

    size: int = option(12, "pairs that every prompt is asked for, a stratified part of the sample")
    options: list[str] = option(
        ["cases", "hardware", "light", "facts", "diff", "examples"], "prompt options to switch, one at a time; form too"
    )


@dataclass
class PricesConfig:
    """What an hour of a machine costs, for notebook 09_throughput; null where nobody says."""

    measuring_usd_per_hour: float | None = option(None, "price of the machine that measures")
    forecasting_usd_per_hour: float | None = option(
        None, "price of the machine that forecasts; hosted APIs have prices of their own"
    )


@dataclass
class StudyConfig:
    """Everything that decides what a study computes."""

    study: str = option("embedded", "name of the study")
    seed: int = option(0, "seed of every random choice")
    notebooks: list[str] = option(
        [
            "01_measurements",
            "02_accuracy",
            "03_calibration",
            "04_selective",
            "05_recovery",
            "06_prompts",
            "09_throughput",
            "10_label_audit",
        ],
        "notebooks to run, in order",
    )
    bootstrap: BootstrapConfig = option(BootstrapConfig, "intervals")
    sample: SampleConfig = option(SampleConfig, "the sample for slow forecasters")
    prompts: PromptsConfig = option(PromptsConfig, "notebook 06_prompts")
    prices: PricesConfig = option(PricesConfig, "notebook 09_throughput")
    data: Any = option(DataConfig, "where pairs come from")
    forecaster: Any = option(dict, "options of each forecaster that takes part; null leaves it out")

    @property
    def forecasters(self) -> list[str]:
        """Names of the forecasters that take part, in a fixed order."""
        return [name for name, options in self.forecaster.items() if options is not None]


@dataclass
class TrainConfig:
    """Everything that decides what a training run comes to."""

    name: str = option("readout_brier", "name of the run and its adapter; by default that of the train choice")
    seed: int = option(0, "seed of the adapters' start, the order of examples and what is drawn")
    test_tasks: list[str] = option(["cumsum", "fp8_quant", "rmsnorm"], "tasks held out, where the data has no split of its own")
    calibration_tasks: list[str] = option(["matmul_bias_gelu"], "tasks early stopping looks at, where the data has no split")
    data: Any = option(DataConfig, "where pairs come from")
    train: Any = option(dict, "options of the training method")
