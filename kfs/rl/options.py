"""Options that every way of training has, their checks, and the adapters they describe."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kfs.errors import MissingDependencyError, SchemaError
from kfs.rl.reward import weights_of


@dataclass
class TrainingOptions:
    """Base of the options of a training method; the seed is the run's."""

    reward: Any = "brier"
    """A name of ``kfs.rl.reward.REWARDS``, or weights of its parts."""
    control: bool = False
    """Swap candidates' sources within their task and variant: what can then be learnt is not in the candidate."""
    model: str = "smollm2"
    """As for forecaster ``local``."""
    max_tokens: int = 768
    """Longest prompt."""
    examples: int = 2000
    """Training pairs, whole groups of a reference, even over tasks."""
    per_reference: int = 8
    """Pairs of a reference that are taken together, at most."""
    learning_rate: float = 5e-4
    """At its height."""
    clip: float = 1.0
    """Longest gradient."""
    layers: int | None = None
    """How many of the last layers get adapters; null for all."""
    rank: int = 8
    """Rank of the adapters."""
    alpha: float = 16.0
    """Their scale is alpha / rank."""
    targets: list[str] = field(default_factory=lambda: ["q_proj", "k_proj", "v_proj", "o_proj"])
    """Names of the linear maps that get one."""
    held_out: int = 240
    """Test pairs that are looked at before and after."""
    checkpoint_every: int = 10
    """Steps between checkpoints."""

    counts: ClassVar[tuple[str, ...]] = ("max_tokens", "examples", "per_reference", "rank", "held_out", "checkpoint_every")
    """Options that are 1 or more."""
    amounts: ClassVar[tuple[str, ...]] = ("learning_rate", "clip", "alpha")
    """Options that are above 0."""

    def __post_init__(self):
        weights_of(self.reward)
        for name in self.counts:
            if getattr(self, name) < 1:
                raise SchemaError(f"train.{name} must be at least 1, found {getattr(self, name)}")
        for name in self.amounts:
            if not 0 < getattr(self, name) < math.inf:
                raise SchemaError(f"train.{name} must be above 0, found {getattr(self, name)}")
        if not self.targets or (self.layers is not None and self.layers < 1):
            raise SchemaError("train.targets must name a map, and train.layers be 1 or more, or null")

    def trained_layers(self, model: Any) -> int:
        """How many layers of a model get adapters."""
        n = len(model.get_decoder().layers)
        return min(self.layers or n, n)

    def lora(self, model: Any) -> Any:
        """peft's configuration of the adapters."""
        try:
            from peft import LoraConfig
        except ImportError as error:
            raise MissingDependencyError("training needs peft: pip install -e '.[lm]' -c constraints.txt") from error
        n = len(model.get_decoder().layers)
        return LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            target_modules=list(self.targets),
            layers_to_transform=list(range(n - self.trained_layers(model), n)),
            task_type="CAUSAL_LM",
        )
