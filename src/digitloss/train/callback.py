"""The objective as the model's own loss function, set when training begins."""

from typing import Any

from torch import Tensor, nn
from transformers import TrainerControl, TrainerState, TrainingArguments

from digitloss.losses import Objective
from digitloss.losses._labels import unshifted
from digitloss.train._outputs import check_model, read_logits
from digitloss.train._proof import TermCounter, TermProof, log_weight_in_batch
from digitloss.train.hook import check_reduced


class NumericLossCallback(TermProof):
    """Sets `model.loss_function` to the objective when training begins, for trainers that only take callbacks.

    It works where the model computes the loss itself from full logits: `transformers.Trainer` and trainers built on it.
    Limits: no digit count (`normalize="digits"` is refused), no metrics in the log; `position_ids` only where the model
    hands them on to its loss function; a loss that reads the head takes the one given to the objective; `eval_loss` is
    the Trainer's mean over batches, so it depends on the evaluation batch size. The first step raises
    `TermNotCalledError` where the model's loss function is bypassed (TRL's SFTTrainer, Liger's fused forward, a
    `compute_loss_func` that is set too). The model keeps the loss function after training; `save_pretrained` does not
    store it.

    Args:
        objective: What to minimise.

    Raises:
        ValueError: The objective needs what a loss function does not get.

    Example:
        >>> import digitloss as dl
        >>> vocab = dl.NumberVocab.from_tokens([*"0123456789"])
        >>> callback = dl.train.NumericLossCallback(dl.Objective(vocab))
    """

    def __init__(self, objective: Objective):
        check_reduced(objective, "NumericLossCallback")
        self.objective = objective
        self._calls = TermCounter()
        super().__init__(self._calls, "NumericLossCallback")

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        **kwargs: object,
    ) -> None:
        """Set the loss function on the model itself, inside a PEFT wrapper where there is one."""
        super().on_train_begin(args, state, control)
        base: Any = model
        if hasattr(base, "get_base_model"):
            base = base.get_base_model()
        if not hasattr(base, "loss_function"):
            raise TypeError(
                f"{type(base).__name__} has no loss_function to set: NumericLossCallback needs a transformers model"
                " that computes its own loss; use NumericTrainer or compute_loss_func instead"
            )
        check_model(base)
        base.loss_function = self._loss_function

    def _loss_function(
        self,
        logits: Tensor,
        labels: Tensor | None = None,
        vocab_size: int | None = None,
        num_items_in_batch: int | Tensor | None = None,
        position_ids: Tensor | None = None,
        shift_labels: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        rows = unshifted(labels, shift_labels)
        if self._calls.num_calls == 0:
            log_weight_in_batch(self.objective, rows)
        self._calls.num_calls += 1
        return self.objective(
            read_logits({"logits": logits}, rows.shape[1] - (shift_labels is not None)),
            labels if shift_labels is None else None,
            shift_labels=shift_labels,
            num_items_in_batch=num_items_in_batch,
            position_ids=position_ids,
        )
