"""The verb ``kfs train``: compose a training run, find its pairs, train, and say what came of it.

A run lies in ``runs/train/<name>/<digest>``: checkpoint, curve, TensorBoard's events, and the adapter once it is over. The
digest covers options, seed and pairs; a killed run goes on, a finished one is not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kfs.errors import SchemaError, TrainingError, unknown_name
from kfs.records import atomic_write, content_id
from kfs.report.config import as_list, callers_path, compose_plain, convert_data, project_root
from kfs.report.schemas import CudaL1Data, StudyConfig, TrainConfig

if TYPE_CHECKING:
    from kfs.pairs import Fold
    from kfs.records import Pair

GROUPS = ("data", "train")
_SHOWN = ("half_brier", "crps", "accuracy", "ece", "entropy", "spearman", "reward", "parse_rate")
_EPILOG = """examples:
  kfs train train=readout_brier data=tiny          a few steps on a CPU, to see that it runs
  kfs train train=readout_brier data=cuda_l1 seed=1
  kfs train train=supervised data=embedded train.examples=500 train.epochs=1
  kfs train --config                               every key, its value and what it means

The adapter is in peft's form; use it with kfs forecast ... adapter=FOLDER, kfs study ... forecaster.local.adapter=FOLDER (or
forecaster.engine.adapter=FOLDER), or vllm serve --enable-lora --lora-modules NAME=FOLDER. Curves: tensorboard --logdir runs/train
"""


def compose_training(overrides: str | Sequence[str] = (), *, root: Path | None = None) -> TrainConfig:
    """Compose and check a training run's configuration.

    Parameters
    ----------
    overrides : str or sequence of str
        Hydra overrides, ``key=value``; groups are data and train.
    root : Path, optional
        Folder with ``conf/``; default the checkout.

    Raises
    ------
    UnknownNameError, SchemaError
        If a key, choice or value is wrong; lists what there is.
    """
    root, given = root or project_root(), as_list(overrides)
    plain = compose_plain("train", given, GROUPS, root, "kfs train")
    chosen = [o.partition("=")[2] for o in given if o.startswith("train=")]
    if chosen and not any(o.startswith("name=") for o in given):
        plain["name"] = chosen[-1]
    if not plain["name"].replace("_", "").replace("-", "").isalnum():
        raise SchemaError(f"name: found {plain['name']!r}; it names a folder, so letters, digits, - and _ alone")
    if plain["seed"] < 0:
        raise SchemaError(f"seed must be at least 0, found {plain['seed']}")
    return TrainConfig(**{**plain, "data": convert_data(plain["data"]), "train": _method(plain["train"])})


def _method(options: dict[str, Any]):
    """Options as the dataclass of their method, which checks them; a model's folder as the caller meant it."""
    from kfs.data import manifest
    from kfs.rl.grpo import GrpoTraining
    from kfs.rl.readout import ReadoutTraining

    kinds = {kind.method: kind for kind in (ReadoutTraining, GrpoTraining)}
    if options["method"] not in kinds:
        raise unknown_name("method", options["method"], kinds, "chosen with train=...")
    if options["model"] not in manifest.datasets():
        options = {**options, "model": callers_path(options["model"])}
    return kinds[options["method"]](**options)


def training_fold(config: TrainConfig) -> Fold:
    """Pairs to train on, to stop by and to be judged on: the data's own split, else by the tasks that are named."""
    from kfs.pairs import fixed_split
    from kfs.report import sources

    study = StudyConfig(study="train", data=config.data)
    pairs = sources.load_pairs(study, np.random.default_rng([study.seed, zlib.crc32(b"balance")]))
    if isinstance(config.data, CudaL1Data):
        return fixed_split(pairs)[0]
    return split_by_task(pairs, config.test_tasks, config.calibration_tasks)


def split_by_task(pairs: Sequence[Pair], test: Sequence[str], calibration: Sequence[str]) -> Fold:
    """The pairs of the named tasks apart, all others to train on.

    Raises
    ------
    UnknownNameError
        If a named task is not in the data.
    TrainingError
        If a task is named twice.
    """
    from kfs.pairs import Fold

    packs = sorted({p.pack for p in pairs})
    for name in (*test, *calibration):
        if name not in packs:
            raise unknown_name("task of the data", name, packs, "test_tasks and calibration_tasks")
    if both := set(test) & set(calibration):
        raise TrainingError(f"{sorted(both)[0]!r} is named in test_tasks and in calibration_tasks; a task stands in one split")
    apart = {**dict.fromkeys(test, "test"), **dict.fromkeys(calibration, "calibration")}
    parts: dict[str, list[Pair]] = {"train": [], "calibration": [], "test": []}
    for p in pairs:
        parts[apart.get(p.pack, "train")].append(p)
    return Fold("held_out", **parts)


def run_folder(config: TrainConfig, fold: Fold, runs: Path) -> Path:
    """``runs/train/<name>/<digest>``."""
    from kfs.forecast.cache import pairs_digest

    options = json.dumps(dataclasses.asdict(config.train), sort_keys=True)
    pairs = pairs_digest(fold.train, fold.calibration, fold.test)
    return runs / "train" / config.name / content_id(options, str(config.seed), pairs, length=12)


def add_parser(subparsers) -> argparse.ArgumentParser:
    """Add the verb ``train`` to the ``kfs`` command line."""
    parser = subparsers.add_parser(
        "train",
        help="train a forecaster on measured pairs",
        description="Train an adapter of a language model on measured pairs; held-out tasks never take part.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("overrides", nargs="*", help="config overrides, key=value; groups: data, train")
    parser.add_argument("--config", action="store_true", help="print the composed configuration and stop")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the verb; the exit status."""
    config = compose_training(args.overrides)
    if args.config:
        from kfs.report.config import describe

        print(describe(config), end="")
        return 0
    folder, figures = train(config, runs=project_root() / "runs")
    print(summary(figures))
    print(f"adapter: {folder / 'adapter'}")
    return 0


def train(config: TrainConfig, *, runs: Path, progress: bool = True, say=None) -> tuple[Path, dict[str, float]]:
    """Run a training run, or what is left of it.

    Returns
    -------
    folder : Path
        The run's.
    figures : dict
        Held-out figures before and after.
    """
    from kfs.data.manifest import cache_folder
    from kfs.forecast.adapter import read_card
    from kfs.forecast.cache import one_at_a_time
    from kfs.rl import grpo, readout

    say = say or (lambda text: print(text, file=sys.stderr, flush=True))
    fold = training_fold(config)
    folder = run_folder(config, fold, runs)
    with one_at_a_time(folder.with_suffix(".lock")):
        if (folder / "adapter").is_dir():
            say(f"nothing to do: {folder} is finished")
            return folder, dict(read_card(folder / "adapter").figures)
        atomic_write(folder / "config.json", json.dumps(dataclasses.asdict(config), indent=1).encode())
        say(f"{config.name}, seed {config.seed}: {folder}")
        store = cache_folder() / "frozen"
        method = {"readout": readout.train, "grpo": grpo.train}[config.train.method]
        done = method(config.train, fold, folder, name=config.name, seed=config.seed, store=store, progress=progress, say=say)
    return folder, done.figures


def summary(figures: dict[str, float]) -> str:
    """Held-out figures before and after, a line each."""
    lines = [f"{'held-out':<14}{'before':>10}{'after':>10}"]
    for name in _SHOWN:
        values = [figures.get(f"{name}_{when}") for when in ("before", "after")]
        if name == "parse_rate" and values[0] is None:
            continue
        lines.append(f"{name.replace('_', ' '):<14}" + "".join(f"{'-' if v is None else format(v, '.4f'):>10}" for v in values))
    return "\n".join(lines)
