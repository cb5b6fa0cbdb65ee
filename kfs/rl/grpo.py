"""Training verbal answers by group-relative policy optimisation (GRPO), with TRL's trainer, our prompts and our rewards.

A prompt is answered several times; each answer is parsed as any reply is (``kfs.forecast.reply``), rewarded by the bin and the
distribution it states (``kfs.rl.reward``), and weighed against the others of its prompt. What cannot be parsed, a reply that
loops until its length ends it among them, has reward 0 and is counted. Groups whose answers all have one reward teach nothing and
are dropped: they weigh neither in the loss nor in its normalisation. Rollouts come from transformers on a CPU, or from vLLM on a
GPU, in this process (``colocate``) or behind an address (``server``); weights are synchronised by TRL.

TRL's own checkpoints are what a killed run goes on from. Nothing here is a readout: only verbal training tests the study's claim.

Source: arXiv 2605.31464 (hyperparameters); Shao et al., "DeepSeekMath" (GRPO, 2024); Yu et al., "DAPO" (the loss, 2025).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from kfs.errors import MissingDependencyError, SchemaError, TrainingError, unknown_name
from kfs.forecast.adapter import AdapterCard, write_adapter
from kfs.forecast.answer import Answer
from kfs.forecast.cache import pairs_digest
from kfs.forecast.local import Local
from kfs.forecast.query import Query
from kfs.pairs import Fold, family
from kfs.records import Forecast, Pair
from kfs.rl.examples import choose, labels, prompts_of, reference_of, require_pairs, training_pairs
from kfs.rl.options import TrainingOptions
from kfs.rl.progress import Outcome, Progress, scored, versions
from kfs.rl.reward import reward

ROLLOUTS = ("transformers", "vllm_colocate", "vllm_server")


@dataclass
class GrpoTraining(TrainingOptions):
    """Options of a run; the seed is the run's. Defaults are the study's where it states them."""

    method: Literal["grpo"] = "grpo"
    """Chosen as a group: train=..."""
    reward: Any = "exact_brier"
    """A name of ``kfs.rl.reward.REWARDS``, or weights of its parts."""
    max_tokens: int = 832
    """Longest prompt."""
    max_output_tokens: int = 400
    """Longest answer, thinking included."""
    group: int = 8
    """Answers a prompt, which are weighed against each other."""
    groups: int = 8
    """Prompts a step."""
    at_once: int = 8
    """Answers whose gradient is computed at once; divides ``group * groups``."""
    iterations: int = 20
    """Steps of the optimiser."""
    learning_rate: float = 4e-5
    """Constant, as in the study."""
    temperature: float = 1.0
    """Of the answers."""
    rank: int = 32
    """Rank of the adapters."""
    alpha: float = 32.0
    """Their scale is alpha / rank."""
    rollouts: Literal["transformers", "vllm_colocate", "vllm_server"] = "transformers"
    """What answers during training."""
    server_url: str = "http://127.0.0.1:8000"
    """Of ``trl vllm-serve``, for ``vllm_server``."""
    held_out: int = 64
    """Test pairs that are answered before and after."""
    checkpoint_every: int = 2
    """Steps between checkpoints."""

    counts: ClassVar[tuple[str, ...]] = (*TrainingOptions.counts, "max_output_tokens", "groups", "at_once", "iterations")
    amounts: ClassVar[tuple[str, ...]] = (*TrainingOptions.amounts, "temperature")

    def __post_init__(self):
        super().__post_init__()
        if self.rollouts not in ROLLOUTS:
            raise unknown_name("rollouts", self.rollouts, ROLLOUTS, "train.rollouts")
        if self.group < 2:
            raise SchemaError(f"train.group must be at least 2, found {self.group}")
        if (self.group * self.groups) % self.at_once:
            raise SchemaError(f"train.at_once: {self.at_once} does not divide group * groups = {self.group * self.groups}")


def rewards_of(which: Any, forecasts: Sequence[Forecast], pairs: Sequence[Pair]) -> list[float]:
    """Reward of each verbal answer; its stated bin, or where it states none its likeliest, beside its distribution."""
    bins, speedups = labels(pairs)
    found = reward(
        which,
        np.array([f.probabilities for f in forecasts]),
        bins,
        stated_bin=[f.stated_bin or f.predicted_bin or 1 for f in forecasts],
        speedup=speedups,
        group=[reference_of(p) for p in pairs],
        failed=[f.parse_failed for f in forecasts],
    )
    return found.tolist()


def train(
    options: GrpoTraining,
    fold: Fold,
    folder: Path,
    *,
    name: str = "grpo",
    seed: int = 0,
    store: Path | None = None,
    progress: bool = True,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Train an adapter, or go on with it; ``folder/adapter`` is there once the run is over, and not before.

    Parameters and errors are those of :func:`kfs.rl.readout.train`; nothing is stopped early, and no frozen layer is kept.
    """
    return _Run(options, fold, Path(folder), name, seed, progress, say).run()


class _Run:
    def __init__(self, options: GrpoTraining, fold: Fold, folder: Path, name: str, seed: int, progress: bool, say):
        require_pairs(fold)
        self.options, self.name, self.seed, self.say, self._bars = options, name, seed, say, progress
        self.progress = Progress(folder)
        self.pairs = training_pairs(fold, options.examples, options.per_reference, control=options.control)
        self.test = choose(fold.test, options.held_out, options.per_reference, "test")
        self.local = Local(
            model=options.model,
            form="verbal",
            max_tokens=options.max_tokens,
            max_output_tokens=options.max_output_tokens,
            temperature=options.temperature,
            batch=8,
        )
        self.base = self.local.model_id()

    def run(self) -> Outcome:
        import torch

        try:
            return self._run()
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"out of memory ({str(error).splitlines()[0][:200]}); the last checkpoint is kept; lower train.at_once, "
                "train.max_tokens or train.max_output_tokens"
            ) from error
        finally:
            self.progress.close()

    def _run(self) -> Outcome:
        trainer = self._trainer()
        saved = (self.progress.folder / "trl").glob("checkpoint-*/trainer_state.json")
        steps = {int(p.parent.name.rpartition("-")[2]): p.parent for p in saved}
        last = max(steps, default=0)
        self.progress.rewind(last)
        if last:
            self.say(f"goes on after step {last} of {self.options.iterations}")
        if not self.progress.curve:
            self.progress.add(0, "test", self._held_out(trainer, "held-out before"))  # fresh adapters change nothing
        trainer.train(resume_from_checkpoint=str(steps[last]) if last else None)
        return self._finish(trainer)

    def _trainer(self):
        try:
            from datasets import Dataset
            from trl import GRPOConfig
        except ImportError as error:
            raise MissingDependencyError("train=grpo needs TRL: pip install -e '.[lm,train]' -c constraints.txt") from error
        from kfs.rl.dropping import DroppingTrainer

        o, model = self.options, self.local.load()
        gpu = self.local._device == "cuda"
        vllm = {"use_vllm": True, "vllm_mode": o.rollouts.partition("_")[2]} if o.rollouts != "transformers" else {}
        vllm |= {"vllm_server_base_url": o.server_url} if o.rollouts == "vllm_server" else {}
        arguments = GRPOConfig(
            output_dir=str(self.progress.folder / "trl"),
            seed=self.seed,
            per_device_train_batch_size=o.at_once,
            gradient_accumulation_steps=o.group * o.groups // o.at_once,
            num_generations=o.group,
            max_completion_length=o.max_output_tokens,
            temperature=o.temperature,
            max_steps=o.iterations,
            learning_rate=o.learning_rate,
            lr_scheduler_type="constant",
            max_grad_norm=o.clip,
            beta=0.0,
            save_steps=o.checkpoint_every,
            save_total_limit=2,
            logging_strategy="no",
            report_to="none",
            use_cpu=not gpu,
            bf16=gpu,
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
            disable_tqdm=not self._bars,
            remove_unused_columns=False,
            **vllm,
        )
        rows = [{"prompt": p.messages, "row": i} for i, p in enumerate(prompts_of(self.local, self.pairs))]
        tokeniser = self.local._tokeniser
        if not tokeniser.chat_template:
            raise TrainingError(f"{o.model}: GRPO trains chat models, and its tokeniser has no chat template; use another model")
        if tokeniser.pad_token is None:
            tokeniser.pad_token = tokeniser.eos_token or tokeniser.unk_token or tokeniser.convert_ids_to_tokens(0)
        tokeniser.padding_side = "left"
        return DroppingTrainer(
            model=model,
            reward_funcs=self._reward,
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokeniser,
            peft_config=o.lora(model),
        )

    def _reward(self, prompts, completions, completion_ids, row, trainer_state, **_) -> list[float]:
        """What TRL asks for: a reward an answer; figures of the step go to the curve."""
        pairs = [self.pairs[i] for i in row]
        forecasts = []
        for pair, completion, ids in zip(pairs, completions, completion_ids, strict=True):
            text = completion if isinstance(completion, str) else completion[0]["content"]
            why = "length" if len(ids) >= self.options.max_output_tokens else "stop"
            forecasts.append(Answer(text, finish_reason=why).forecast(Query.from_pair(pair), "grpo"))
        found = rewards_of(self.options.reward, forecasts, pairs)
        alike = [len(set(found[i : i + self.options.group])) == 1 for i in range(0, len(found), self.options.group)]
        more = {"output_tokens": np.mean([len(ids) for ids in completion_ids]), "dropped": np.mean(alike)}
        figures = verbal_figures(forecasts, pairs, found) | {name: float(value) for name, value in more.items()}
        self.progress.add(trainer_state.global_step + 1, "train", figures)
        return found

    def _held_out(self, trainer, what: str) -> dict[str, float]:
        """Figures of the held-out pairs as the model answers them now, each once."""
        self.local.__dict__["_model"] = trainer.accelerator.unwrap_model(trainer.model).eval()
        self.say(f"{what}: {len(self.test)} answers")
        forecasts = self.local.forecast([Query.from_pair(p) for p in self.test], progress=self._bars)
        return verbal_figures(forecasts, self.test, rewards_of(self.options.reward, forecasts, self.test))

    def _finish(self, trainer) -> Outcome:
        steps, model = trainer.state.global_step, trainer.accelerator.unwrap_model(trainer.model)
        self.progress.add(steps, "test", self._held_out(trainer, "held-out after"))
        figures = self.progress.before_and_after()
        asked = {"model": self.options.model, "form": "verbal", "max_tokens": self.options.max_tokens}
        card = AdapterCard(
            name=self.name,
            model=self.base,
            weights=self.local.weights_id(),
            asked=asked | {"max_output_tokens": self.options.max_output_tokens, "temperature": self.options.temperature},
            learnt=sorted(set(map(family, self.pairs))),
            training=asdict(self.options) | {"seed": self.seed},
            data=pairs_digest(self.pairs),
            steps=steps,
            figures=figures,
            versions=versions("torch", "transformers", "peft", "trl"),
        )

        def save(target: Path) -> None:
            model.save_pretrained(target)
            self.progress.copy_curve(target)

        return Outcome(write_adapter(self.progress.folder / "adapter", save, card), steps, figures)


def verbal_figures(forecasts: Sequence[Forecast], pairs: Sequence[Pair], rewards: Sequence[float]) -> dict[str, float]:
    """Reward, parse rate, and scores in which an answer that cannot be parsed counts as the uniform forecast."""
    failed = np.array([f.parse_failed for f in forecasts])
    found = {"reward": float(np.mean(rewards)), "parse_rate": float(1 - failed.mean())}
    return found | scored(np.array([f.probabilities for f in forecasts]), *labels(pairs), failed)
