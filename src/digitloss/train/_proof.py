"""What every adapter does in the first step: prove that the term was called, and log how much it weighs."""

import logging
from typing import Any

from jaxtyping import Int
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from digitloss.errors import TermNotCalledError
from digitloss.losses import AbstractDigitLoss, Objective
from digitloss.losses._tokens import IGNORED

logger = logging.getLogger("digitloss")


class TermCounter:
    """Counts the calls of a term."""

    def __init__(self) -> None:
        self.num_calls = 0


class TermProof(TrainerCallback):
    """Raises after the first micro-batch of training if the term was not called in it."""

    def __init__(self, counter: TermCounter, adapter: str):
        self._counter = counter
        self._adapter = adapter
        self._num_calls_before: int | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Forget an earlier training."""
        self._num_calls_before = None

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Remember the number of calls before the first step; an evaluation may have come before it."""
        if self._num_calls_before is None:
            self._num_calls_before = self._counter.num_calls

    def on_substep_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Check after a micro-batch."""
        self._check()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Check after a step."""
        self._check()

    def _check(self) -> None:
        if self._counter.num_calls == self._num_calls_before:
            raise TermNotCalledError(
                f"the first training step ran without the numeric term of {self._adapter}: something computes the loss"
                " without it. Known causes: use_liger_kernel=True or another fused cross-entropy, a trainer of its own"
                " loss (TRL's SFTTrainer), an overridden compute_loss, a loss_function set later by other code."
            )


def log_effective_weight(objective: Objective, num_items: int | Tensor, num_digits: int | Tensor) -> None:
    """Log what a digit's term weighs beside a token's cross-entropy, from the counts of the first step."""
    if not isinstance(objective.loss, AbstractDigitLoss):
        return
    density = int(num_digits) / max(int(num_items), 1)
    weight = objective.alpha * (density if objective.is_normalized_by_tokens else 1.0)
    logger.info(
        "%s: alpha %g, %.3f digits a target token, normalize=%r: the mean digit term weighs %.4g beside the mean"
        " cross-entropy of a token",
        objective.loss.name,
        objective.alpha,
        density,
        objective.normalize,
        weight,
    )


def log_weight_in_batch(objective: Objective, labels: Int[Tensor, "B T"]) -> None:
    """Log the same from the labels of one batch."""
    log_effective_weight(objective, (labels[:, 1:] != IGNORED).sum(), objective.count_digits(labels).sum())
