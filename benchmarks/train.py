"""What sharing prefixes and exact gradients are worth in training a readout, with SmolLM2 on this machine.

Run it from the repository root on an otherwise idle machine: ``python -m benchmarks.train [--parts shared gradient]``.

shared      Forward and backward over 8 candidates of a reference: prefixes shared, against each whole prompt by itself, as a
            plain training loop reads them. Both with adapters on the last 10 layers and on all. ``first`` reads everything;
            ``later`` has what the frozen layers made in memory, as in every epoch but the first.
            The floor is the share of tokens that no other prompt has.
gradient    The same examples, steps and adapters: the exact gradient of a score, the exact gradient of correctness, and bins
            drawn and weighed within their group (GRPO's special case). A step costs the same, so wall time is equal within the
            seconds shown; compared on half Brier of held-out tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from benchmarks.forecast import queries_of
from kfs.forecast.local import Local
from kfs.forecast.shared import Frozen, SharedReader, grouped
from kfs.report.training import compose_training, training_fold
from kfs.rl import readout
from kfs.rl.progress import read_curve


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    part: str
    name: str
    seconds: float
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""


def run_shared(repeats: int) -> list[Row]:
    """Seconds of a forward and backward over two references with 8 candidates each."""
    from peft import get_peft_model

    options = compose_training().train
    local = Local(max_tokens=768)
    prompts = [local.parts(local.prompt(q)) for q in queries_of(("softmax", "rmsnorm"), 8)]
    groups = [group for group, _ in grouped(prompts)]
    whole = sum(len(part) for p in prompts for part in p)
    alone = len(prompts[0][0]) + sum(g.tokens for g in groups)
    rows = []
    for layers in (options.layers, None):
        torch.manual_seed(0)
        base = local.load()
        layers = replace(options, layers=layers).trained_layers(base)
        model = get_peft_model(base, replace(options, layers=layers).lora(base))
        base, tokens = model.get_base_model(), torch.tensor(local.bin_tokens)
        frozen = Frozen()
        reader = SharedReader(base, layers, frozen=frozen)

        def plain(base=base, tokens=tokens, reader=reader):
            for p in prompts:
                (1 - reader.whole([p])[:, tokens].softmax(-1)[:, 3]).sum().backward()

        def shared(reader=reader, tokens=tokens):
            for _, logits in reader.steps(groups):
                (1 - logits[:, tokens].softmax(-1)[:, 3]).sum().backward()

        def first(frozen=frozen, shared=shared):
            frozen.clear()
            shared()

        gradients = []
        for what in (plain, first):
            model.zero_grad()
            what()
            gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
        apart = float((gradients[0] - gradients[1]).norm() / gradients[0].norm())
        assert apart < 1e-3, f"shared and plain gradients differ by {apart:.1e}"
        times = {what.__name__: [] for what in (plain, first, shared)}
        for _ in range(repeats):
            for what in (plain, first, shared):  # in turns, as the machine is not quiet for long
                begin = time.perf_counter()
                what()
                times[what.__name__].append(time.perf_counter() - begin)
        middle = {name: statistics.median(ts) for name, ts in times.items()}
        part = f"shared, {layers} layers"
        rows.append(Row(part, "whole prompts", middle["plain"], note=f"gradients agree to {apart:.0e}"))
        for name, said in (("first", "shared, first epoch"), ("shared", "shared, later epochs")):
            ratio = middle["plain"] / middle[name]
            rows.append(Row(part, said, middle[name], ratio, ">= 2", ratio >= 2, f"tokens {whole / alone:.2f} times fewer"))
    return rows


def run_gradient(examples: int) -> list[Row]:
    """Half Brier of held-out tasks after equal training."""
    config = compose_training(["data=embedded"])
    fold = training_fold(config)
    small = {"examples": examples, "calibration": 48, "held_out": 96, "evaluate_every": 1000, "patience": 99}
    contenders = {
        "exact gradient of half Brier": {"reward": "brier"},
        "exact gradient of correctness": {"reward": "exact"},
        "sampled correctness (GRPO)": {"reward": "exact", "learn": "sampled"},
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, changed in contenders.items():
            options = replace(config.train, **small, **changed)
            target = Path(folder) / name.replace(" ", "-")
            done = readout.train(options, fold, target, store=Path(folder) / "frozen", say=lambda text: None)
            seconds = sum(p.figures["seconds"] for p in read_curve(target) if p.split == "train")
            before, after = (done.figures[f"half_brier_{when}"] for when in ("before", "after"))
            rows.append(Row("gradient", name, seconds, note=f"held-out half Brier {before:.4f} to {after:.4f}"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=("shared", "gradient"), default=("shared", "gradient"))
    parser.add_argument("--repeats", type=int, default=3, help="shared: times each contender runs")
    parser.add_argument("--examples", type=int, default=96, help="gradient: training pairs")
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, torch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    rows = []
    for part in options.parts:
        made = run_shared(options.repeats) if part == "shared" else run_gradient(options.examples)
        for r in made:
            ratio = "" if r.ratio is None else f"{r.ratio:.2f}"
            print(f"{r.part:<20}{r.name:<32}{r.seconds:>9.2f} s{ratio:>8}  {r.target:<6}{_met(r.met):<8}{r.note}")
        rows += made
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(r) for r in rows], indent=1, default=float))


def _met(met: bool | None) -> str:
    return "" if met is None else "met" if met else "MISSED"


if __name__ == "__main__":
    main()
