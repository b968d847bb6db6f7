"""`transformers.Trainer` with an objective: the documented way to train with a numeric loss.

The Trainer's own count of items is not used. Target tokens and digits are counted here, over all micro-batches of the
optimizer step and all ranks, and every sum is divided by them once; so accumulation, ranks and padding change neither
value nor gradient. Evaluation sums over the whole set too: `eval_loss` does not depend on the evaluation batch size.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer
from transformers.trainer_utils import EvalLoopOutput

from digitloss.losses import Objective
from digitloss.losses._labels import unshifted
from digitloss.losses._tokens import IGNORED
from digitloss.train._metrics import MetricSums, sums_of_rows
from digitloss.train._outputs import check_model, check_objective, read_logits
from digitloss.train._proof import TermCounter, TermProof, log_effective_weight


class NumericTrainer(Trainer):
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

    objective: Objective
    loss_is_scaled_for_ga = True  # the loss is divided once by the counts of the whole step

    def __init__(self, *args: Any, objective: Objective, **kwargs: Any):
        check_objective(objective)
        super().__init__(*args, **kwargs)
        _refuse_other_losses(self)
        check_model(self.model)
        self.objective = objective
        self.model_accepts_loss_kwargs = True  # what loss_is_scaled_for_ga says, for transformers before 5
        self._calls = TermCounter()
        self._has_logged_weight = False
        self._step_counts: Tensor | None = None
        self._train_sums = MetricSums(objective)
        self._eval_sums = MetricSums(objective)
        self.add_callback(TermProof(self._calls, "NumericTrainer"))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; metrics of an earlier training that was cut off are forgotten."""
        self._train_sums.reset()
        return super().train(*args, **kwargs)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | int | None]:
        """Fetch the micro-batches of an optimizer step and count their target tokens and digits over all ranks."""
        batches, num_items_in_batch = super().get_batch_samples(epoch_iterator, num_batches, device)
        counts = torch.zeros(2, dtype=torch.long, device=device)
        for batch in batches:
            labels = unshifted(*_labels(batch))
            num_digits = self.objective.count_digits(labels)
            counts += torch.stack([(labels[:, 1:] != IGNORED).sum(), num_digits.sum()]).to(device)
        self._step_counts = self.accelerator.reduce(counts, "sum")
        return batches, num_items_in_batch

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Mapping[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        """Return the objective of a micro-batch, divided by the counts of the whole step while training."""
        labels, shift_labels = _labels(inputs)
        rows = unshifted(labels, shift_labels)
        outputs = model(**{name: value for name, value in inputs.items() if name not in ("labels", "shift_labels")})
        logits = read_logits(outputs, rows.shape[1] - (shift_labels is not None))
        head = None
        if self.objective.loss.needs_head and self.objective.head is None:
            head = self.accelerator.unwrap_model(model).get_output_embeddings()
        counts = self._step_counts if model.training else None
        num_items, num_digits = (None, None) if counts is None else counts.to(logits.device)
        loss, reading = self.objective.measure(
            logits,
            labels,
            shift_labels=shift_labels,
            num_items_in_batch=num_items,
            num_digits_in_batch=num_digits,
            position_ids=inputs.get("position_ids"),
            head=head,
        )
        sums = sums_of_rows(reading, rows)
        if num_items is not None and num_digits is not None:
            if not self._has_logged_weight:
                self._has_logged_weight = True
                log_effective_weight(self.objective, num_items, num_digits)
            self._train_sums.add(sums.sum(0))
        else:
            self._eval_sums.add(self.accelerator.gather_for_metrics(sums).sum(0))
        self._calls.num_calls += 1
        if num_items is not None:
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

    def evaluation_loop(
        self,
        dataloader: DataLoader[Any],
        description: str,
        prediction_loss_only: bool | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> EvalLoopOutput:
        """Evaluate; the loss and the numeric metrics are sums over the whole set divided by its counts."""
        self._eval_sums.reset()
        output = super().evaluation_loop(
            dataloader, description, prediction_loss_only, ignore_keys, metric_key_prefix=metric_key_prefix
        )
        exact = {f"{metric_key_prefix}_{name}": value for name, value in self._eval_sums.metrics().items()}
        return output._replace(metrics={**(output.metrics or {}), **exact})

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the numeric metrics since the last log to the Trainer's training log."""
        if "loss" in logs:
            self._train_sums.reduce(self.accelerator)
            logs.update({name: value for name, value in self._train_sums.metrics().items() if name != "loss"})
            self._train_sums.reset()
        super().log(logs, start_time)


def _labels(batch: Mapping[str, Any]) -> tuple[Tensor | None, Tensor | None]:
    """Labels, or shifted ones where there are both."""
    labels, shift_labels = batch.get("labels"), batch.get("shift_labels")
    if shift_labels is not None:
        return None, torch.as_tensor(shift_labels)
    if labels is None:
        raise ValueError(
            f"the batch has no labels, only {sorted(batch)}: the collator must make them, with -100 where there is no"
            " target"
        )
    return torch.as_tensor(labels), None


def _refuse_other_losses(trainer: Trainer) -> None:
    if trainer.compute_loss_func is not None:
        raise ValueError("pass either objective or compute_loss_func, not both")
    if trainer.label_smoother is not None:
        raise ValueError("label_smoothing_factor has no effect on an objective: leave it at 0")
    config = getattr(trainer.accelerator, "parallelism_config", None)
    for name in ("tp_size", "cp_size", "sp_size"):
        if getattr(config, name, 1) not in (None, 1):
            raise ValueError(
                f"NumericTrainer supports data parallelism (DDP, FSDP, ZeRO); got {name}={getattr(config, name)}, which"
                " splits rows or logits over ranks"
            )
