"""TRL's GRPO trainer, less the groups that teach nothing. Imports TRL: import it where it is used."""

from __future__ import annotations

import math
from typing import Any

from trl import GRPOTrainer

from kfs.errors import TrainingError


class DroppingTrainer(GRPOTrainer):
    """Groups whose answers all have one reward are left out of the loss and of what it is divided by.

    Their advantages are 0 as they are; TRL still counts their tokens, which makes every other group's gradient smaller the more
    of them there are. A loss that is no number ends the run.
    """

    def _generate_and_score_completions(self, inputs):
        made = super()._generate_and_score_completions(inputs)
        alive = (made["advantages"].view(-1, self.num_generations) != 0).any(dim=1)
        rows = alive.repeat_interleave(self.num_generations)
        tokens = self.accelerator.gather(made["completion_mask"][rows].sum()).sum()
        made["num_items_in_batch"] = tokens.clamp(min=1)
        return made

    def training_step(self, *args: Any, **options: Any):
        loss = super().training_step(*args, **options)
        if not math.isfinite(float(loss)):
            raise TrainingError(
                f"step {self.state.global_step + 1}: the loss is {float(loss)}; the last checkpoint is kept; "
                "lower train.learning_rate"
            )
        return loss
