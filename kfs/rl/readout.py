"""Training a readout: the eight bin tokens are all there is to choose from, so a reward's expectation has an exact gradient.

Three ways to learn from a measured pair. ``score``: the expected reward of the readout's distribution is differentiated
directly; with a proper score this is direct optimisation of that score, and it is called that. ``sampled``: bins are drawn and
weighed by group-relative advantages (GRPO's special case of one token), for comparison; a drawn bin stands for the forecast that
is sure of it. ``supervised``: cross-entropy of the bin's token over the whole vocabulary, as instruction tuning does it.

Low-rank adapters (LoRA) on the last layers are trained; prompts of a reference share what they have in common
(``kfs.forecast.shared``). The weights kept are those with the lowest half Brier on the calibration split. Runs on a CPU; a
killed run goes on from its last checkpoint to the same curve. Held-out tasks are looked at before the first step and after the
last.

Source: arXiv 2605.31464 for the rewards; Hu et al., "LoRA" (2021); Shao et al., "DeepSeekMath" (GRPO, 2024).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from kfs.errors import SchemaError, TrainingError, unknown_name
from kfs.forecast.adapter import AdapterCard, write_adapter
from kfs.forecast.cache import pairs_digest
from kfs.forecast.local import Local
from kfs.pairs import Fold, family
from kfs.records import Pair
from kfs.rl.examples import choose, labels, prompts_of, reference_of, require_pairs, training_pairs
from kfs.rl.options import TrainingOptions
from kfs.rl.progress import Outcome, Progress, scored, versions
from kfs.rl.reward import reward

LEARNS = ("score", "sampled", "supervised")


@dataclass
class ReadoutTraining(TrainingOptions):
    """Options of a run; the seed is the run's."""

    method: Literal["readout"] = "readout"
    """Chosen as a group: train=..."""
    learn: Literal["score", "sampled", "supervised"] = "score"
    """Exact gradient of the expected reward, sampled bins, or cross-entropy of the bin's token."""
    epochs: float = 6.0
    """How often each example is seen."""
    batch: int = 16
    """Pairs a step, about: whole groups."""
    learning_rate: float = 3e-3
    """At its height."""
    warmup: float = 0.1
    """Share of the steps in which the learning rate rises; then it falls to 0 along a line."""
    layers: int | None = 3
    """How many of the last layers get adapters; null for all. A step costs in proportion; those below are computed once."""
    rank: int = 4
    """Rank of the adapters."""
    alpha: float = 8.0
    """Their scale is alpha / rank."""
    targets: list[str] = field(
        default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    )
    """Names of the linear maps that get one."""
    samples: int = 8
    """Bins drawn a pair where bins are sampled."""
    calibration: int = 240
    """Pairs of the calibration split that early stopping looks at."""
    evaluate_every: int = 20
    """Steps between looks at the calibration pairs; a short run has eight."""
    patience: int = 20
    """Looks without a lower half Brier after which the run ends."""

    counts: ClassVar[tuple[str, ...]] = (*TrainingOptions.counts, "batch", "calibration", "evaluate_every", "patience")
    amounts: ClassVar[tuple[str, ...]] = (*TrainingOptions.amounts, "epochs")

    def __post_init__(self):
        super().__post_init__()
        if self.learn not in LEARNS:
            raise unknown_name("way to learn", self.learn, LEARNS, "train.learn")
        if self.learn == "sampled" and self.samples < 2:
            raise SchemaError(f"train.samples: bins are compared within a group, so it takes 2 or more, found {self.samples}")
        if not 0 <= self.warmup < 1:
            raise SchemaError(f"train.warmup must lie in [0, 1), found {self.warmup}")


@dataclass
class _Set:
    """Pairs as the trainer reads them: groups of prompts, and what each pair's label is."""

    pairs: list[Pair]
    groups: list[tuple[Any, list[int]]]

    def of(self, rows: Sequence[int]) -> list[Pair]:
        return [self.pairs[i] for i in rows]


def train(
    options: ReadoutTraining,
    fold: Fold,
    folder: Path,
    *,
    name: str = "readout",
    seed: int = 0,
    store: Path | None = None,
    progress: bool = True,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Train an adapter, or go on with it; ``folder/adapter`` is there once the run is over, and not before.

    Parameters
    ----------
    options : ReadoutTraining
    fold : Fold
        Training pairs, calibration pairs for early stopping, test pairs to be judged on; no task stands in two of them.
    folder : Path
        The run's; holds its checkpoint and curve.
    name : str, optional
        For the adapter's card.
    seed : int, optional
        Of the adapters' start, the order of examples and what is drawn; which pairs are taken does not depend on it.
    store : Path, optional
        Where outputs of the frozen layers are kept for other runs.
    progress : bool, optional
        Show progress bars.
    say : callable, optional
        Takes a line of text.

    Raises
    ------
    TrainingError
        If a split is empty, a loss or gradient is not finite, or memory does not suffice; names the step and what to change.
    """
    return _Run(options, fold, Path(folder), name, seed, store, progress, say).run()


class _Run:
    def __init__(self, options, fold: Fold, folder: Path, name: str, seed: int, store, progress: bool, say):
        require_pairs(fold)
        self.options, self.name, self.seed, self.say, self._bars = options, name, seed, say, progress
        self.progress = Progress(folder)
        train = training_pairs(fold, options.examples, options.per_reference, control=options.control)
        calibration = choose(fold.calibration, options.calibration, options.per_reference, "calibration")
        test = choose(fold.test, options.held_out, options.per_reference, "test")
        self.local = Local(model=options.model, max_tokens=options.max_tokens)
        self.base = self.local.model_id()
        self.train, self.calibration, self.test = map(self._set, (train, calibration, test))
        self.store = store

    def _set(self, pairs: list[Pair]) -> _Set:
        from kfs.forecast.shared import grouped

        parts = [self.local.parts(prompt) for prompt in prompts_of(self.local, pairs)]
        return _Set(pairs, grouped(parts, self.options.per_reference))

    def run(self) -> Outcome:
        import torch

        try:
            return self._run(torch)
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"out of memory ({str(error).splitlines()[0][:200]}); the last checkpoint is kept; lower train.per_reference, "
                "train.max_tokens or train.layers"
            ) from error
        finally:
            self.progress.close()

    def _run(self, torch) -> Outcome:
        state = self.progress.restore()
        torch.manual_seed(self.seed)
        self.model = self._adapted()
        self.weights = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        self.optimiser = torch.optim.AdamW(self.weights.values(), lr=self.options.learning_rate, weight_decay=0.0)
        plan = self._plan()
        self.tokens = torch.tensor(self.local.bin_tokens, device=self.reader.device)
        best, kept, since, step = math.inf, None, 0, 0
        if state:
            step, best, since, kept = state["step"], state["best"], state["since"], state["kept"]
            self._load(state["weights"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.say(f"goes on after step {step} of {len(plan)}")
        else:
            self.progress.add(0, "test", self.evaluate(self.test, "held-out before"))
            best = self._look(0)["half_brier"]
            kept = self._weights()
            self._checkpoint(0, best, since, kept)
        every = min(self.options.evaluate_every, max(len(plan) // 8, 1))
        with self._bar(total=len(plan), initial=step, desc="steps", unit="step") as bar:
            while step < len(plan) and since < self.options.patience:
                step += 1
                figures = self._step(plan[step - 1], step, len(plan))
                self.progress.add(step, "train", figures)
                if step % every == 0 or step == len(plan):
                    found = self._look(step)["half_brier"]
                    since = 0 if found < best else since + 1
                    if found < best:
                        best, kept = found, self._weights()
                if step % self.options.checkpoint_every == 0:
                    self._checkpoint(step, best, since, kept)
                bar.set_postfix_str(f"reward {figures['reward']:.3f}, calibration half Brier {best:.4f}", refresh=False)
                bar.update()
        return self._finish(kept, step)

    def _adapted(self):
        """The model with adapters in place, whose start depends on the seed alone."""
        from kfs.forecast.shared import Frozen, SharedReader

        base = self.local.load()
        config, trained = self.options.lora(base), self.options.trained_layers(base)
        from peft import get_peft_model

        try:
            model = get_peft_model(base, config)
        except ValueError as error:
            raise TrainingError(f"train.targets: {str(error).splitlines()[0]}") from error
        self.reader = SharedReader(model.get_base_model(), trained, frozen=Frozen(self.store), identity=self.local.layers_id())
        return model

    def _plan(self) -> list[list[int]]:
        """Groups of each step: every epoch in an order of its own, a step as many groups as make up a batch."""
        groups, steps = self.train.groups, []
        pairs = sum(len(rows) for _, rows in groups)
        left = self.options.epochs * pairs
        for epoch in range(math.ceil(self.options.epochs)):
            step: list[int] = []
            for g in np.random.default_rng([self.seed, epoch]).permutation(len(groups)):
                if left <= 0:
                    break
                step.append(int(g))
                left -= len(groups[g][1])
                if sum(len(groups[i][1]) for i in step) >= self.options.batch:
                    steps.append(step)
                    step = []
            if step:
                steps.append(step)
        return steps

    def _step(self, chosen: Sequence[int], step: int, total: int) -> dict[str, float]:
        """One step of the optimiser; figures of the pairs it looked at, as they were before it."""
        import torch

        begin, o = time.perf_counter(), self.options
        warm = max(round(o.warmup * total), 1)
        rate = o.learning_rate * min(step / warm, (total - step + 1) / max(total - warm, 1))
        for part in self.optimiser.param_groups:
            part["lr"] = rate
        self.optimiser.zero_grad(set_to_none=True)
        groups = [self.train.groups[i] for i in chosen]
        n = sum(len(rows) for _, rows in groups)
        by_group = {id(group): rows for group, rows in groups}
        draws = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        total_loss, seen, bins = 0.0, [], []
        for group, logits in self.reader.steps([group for group, _ in groups]):
            rows = by_group[id(group)]
            loss = self._loss(logits, rows, draws) / n
            loss.backward()
            total_loss += float(loss.detach())
            seen.append(logits.detach()[:, self.tokens].double().softmax(-1).cpu().numpy())
            bins += rows
        length = float(torch.nn.utils.clip_grad_norm_(self.weights.values(), o.clip))
        if not math.isfinite(total_loss) or not math.isfinite(length):
            raise TrainingError(
                f"step {step}: the loss is {total_loss} and its gradient {length}; the last checkpoint is kept; "
                "lower train.learning_rate, or look at the pairs of this step"
            )
        self.optimiser.step()
        found = _figures(np.concatenate(seen), self.train.of(bins), o.reward)
        seconds = time.perf_counter() - begin
        return found | {"loss": total_loss, "gradient": length, "learning_rate": rate, "seconds": seconds, "pairs": float(n)}

    def _loss(self, logits, rows: Sequence[int], draws):
        """Sum over pairs of what is to be made small."""
        import torch

        bins, speedups = labels(self.train.of(rows))
        which = torch.tensor(bins, device=logits.device) - 1
        if self.options.learn == "supervised":
            return torch.nn.functional.cross_entropy(logits.float(), self.tokens[which], reduction="sum")
        p = logits[:, self.tokens].float().softmax(-1)
        if self.options.learn == "score":
            return -reward(self.options.reward, p, bins, speedup=speedups).sum()
        drawn = torch.multinomial(p.detach().cpu(), self.options.samples, replacement=True, generator=draws).to(p.device)
        sure = np.eye(p.shape[1])
        gains = torch.stack(
            [
                torch.as_tensor(reward(self.options.reward, sure[drawn[:, k].cpu().numpy()], bins, speedup=speedups))
                for k in range(self.options.samples)
            ],
            dim=1,
        ).to(p)
        spread = gains.std(dim=1, keepdim=True)
        advantage = (gains - gains.mean(dim=1, keepdim=True)) / (spread + 1e-4) * (spread > 0)
        return -(advantage * p.log().gather(1, drawn)).mean(dim=1).sum()

    def _look(self, step: int) -> dict[str, float]:
        found = self.evaluate(self.calibration, f"calibration, step {step}")
        self.progress.add(step, "calibration", found)
        return found

    def evaluate(self, pairs: _Set, what: str) -> dict[str, float]:
        """Figures of a set as it is forecast now."""
        rows, made, mass = [], [], []
        begin = time.perf_counter()
        with self._bar(total=len(pairs.pairs), desc=what, unit="pair", leave=False) as bar:
            for group, mine in pairs.groups:
                logits = self.reader.logits(group).double()
                made.append(logits[:, self.tokens].softmax(-1).cpu().numpy())
                mass.append(logits.softmax(-1)[:, self.tokens].sum(-1).cpu().numpy())
                rows += mine
                bar.update(len(mine))
        found = _figures(np.concatenate(made), pairs.of(rows), self.options.reward)
        return found | {"mass": float(np.concatenate(mass).mean()), "seconds": time.perf_counter() - begin}

    def _weights(self) -> dict[str, Any]:
        return {n: p.detach().cpu().clone() for n, p in self.weights.items()}

    def _load(self, values: dict[str, Any]) -> None:
        import torch

        with torch.no_grad():
            for n, p in self.weights.items():
                p.copy_(values[n])

    def _checkpoint(self, step: int, best: float, since: int, kept: dict[str, Any]) -> None:
        state = {"step": step, "best": best, "since": since, "kept": kept, "weights": self._weights()}
        self.progress.save(state | {"optimiser": self.optimiser.state_dict()})

    def _finish(self, kept: dict[str, Any], step: int) -> Outcome:
        """Keep the best weights, rounded as they are saved, and look at the held-out pairs with them."""
        import torch

        half = {n: w.to(torch.bfloat16) for n, w in kept.items()}
        self._load({n: w.float() for n, w in half.items()})
        looks = self.progress.of("calibration", "half_brier")
        steps = min(looks, key=lambda x: x[1])[0]
        self.progress.add(step, "test", self.evaluate(self.test, "held-out after"))
        figures = self.progress.before_and_after()
        card = AdapterCard(
            name=self.name,
            model=self.base,
            weights=self.local.weights_id(),
            asked={"model": self.options.model, "form": "readout", "max_tokens": self.options.max_tokens},
            learnt=sorted(set(map(family, [*self.train.pairs, *self.calibration.pairs]))),
            training=asdict(self.options) | {"seed": self.seed},
            data=pairs_digest(self.train.pairs, self.calibration.pairs),
            steps=steps,
            figures=figures,
            versions=versions("torch", "transformers", "peft"),
        )

        def save(target: Path) -> None:
            for n, p in self.weights.items():
                p.data = half[n]
            self.model.save_pretrained(target)
            self.progress.copy_curve(target)

        return Outcome(write_adapter(self.progress.folder / "adapter", save, card), steps, figures)

    def _bar(self, **options):
        from tqdm.auto import tqdm

        return tqdm(disable=not self._bars, **options)


def _figures(p: np.ndarray, pairs: Sequence[Pair], which: Any) -> dict[str, float]:
    """Mean reward, and the figures every forecast has."""
    p, (bins, speedups) = p / p.sum(axis=1, keepdims=True), labels(pairs)
    found = reward(which, p, bins, speedup=speedups, group=[reference_of(x) for x in pairs])
    return {"reward": float(np.mean(found))} | scored(p, bins, speedups)
