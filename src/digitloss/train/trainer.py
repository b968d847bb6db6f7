"""`transformers.Trainer` with an objective: the documented way to train with a numeric loss.

The Trainer's own count of items is not used. Target tokens and digits are counted here, over all micro-batches of the
optimizer step and all ranks, and every sum is divided by them once; so accumulation, ranks and padding change neither
value nor gradient. Evaluation sums over the whole set too: `eval_loss` does not depend on the evaluation batch size.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from digitloss.losses import Objective
from digitloss.losses._labels import unshifted
from digitloss.train._outputs import check_model, check_objective, read_logits
from digitloss.train._steps import CountedSteps, given_labels, refuse_other_losses


class NumericTrainer(CountedSteps):
    """`transformers.Trainer` that minimises an objective; all its other arguments are the Trainer's.

    Batches hold `input_ids` and `labels` (not shifted, -100 where no target) or `shift_labels`, and may hold
    `position_ids`, which restart at 0 where a packed sample starts. The log has, beside the Trainer's own figures,
    `cross_entropy`, `numeric_loss` (before alpha), `digit_token_entropy` (nats), `digit_accuracy` and `digit_density`
    (digits a target token), as sums over all steps since the last log and all ranks; evaluation has the same with its
    prefix.

    Args:
        objective: What to minimise.

    Raises:
        ValueError: An option of the Trainer that would replace the objective.
        TermNotCalledError: In the first step, where the loss was computed without the objective.
    """

    loss_is_scaled_for_ga = True  # the loss is divided once by the counts of the whole step

    def __init__(self, *args: Any, objective: Objective, **kwargs: Any):
        check_objective(objective)
        super().__init__(*args, **kwargs)
        refuse_other_losses(self)
        check_model(self.model)
        self.model_accepts_loss_kwargs = True  # what loss_is_scaled_for_ga says, for transformers before 5
        self._begin(objective, "NumericTrainer")

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        """Return the objective of a micro-batch, divided by the counts of the whole step while training."""
        labels, shift_labels = given_labels(inputs)
        rows = unshifted(labels, shift_labels)
        outputs = model(**{name: value for name, value in inputs.items() if name not in ("labels", "shift_labels")})
        logits = read_logits(outputs, rows.shape[1] - (shift_labels is not None))
        head = None
        if self.objective.loss.needs_head and self.objective.head is None:
            head = self.accelerator.unwrap_model(model).get_output_embeddings()
        counts = self._counts(model.training, logits.device)
        loss, reading = self.objective.measure(
            logits,
            labels,
            shift_labels=shift_labels,
            num_items_in_batch=counts[0],
            num_digits_in_batch=counts[1],
            position_ids=inputs.get("position_ids"),
            head=head,
        )
        self._record(reading, rows, counts)
        if counts[0] is not None:
            loss = loss * self.accelerator.num_processes  # the ranks' gradients are averaged
        return (loss, outputs) if return_outputs else loss

    def prediction_step(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Any, Any, Any]:
        """Evaluate a batch; shift_labels stand for missing labels, without which the Trainer computes no loss."""
        batch = dict(inputs)
        if batch.get("shift_labels") is not None:
            batch.setdefault("labels", batch["shift_labels"])
        return super().prediction_step(model, batch, prediction_loss_only, ignore_keys)
