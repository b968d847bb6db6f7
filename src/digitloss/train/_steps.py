"""What the trainers with an objective share: the counts of whole optimizer steps, and metrics as exact sums."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer
from transformers.trainer_utils import EvalLoopOutput

from digitloss.losses import Objective
from digitloss.losses._labels import unshifted
from digitloss.losses._tokens import IGNORED, Reading
from digitloss.train._metrics import MetricSums, sums_of_rows
from digitloss.train._proof import TermCounter, TermProof, log_effective_weight


class CountedSteps(Trainer):
    """A Trainer that counts the target tokens and digits of each optimizer step, over micro-batches and ranks.

    The metrics of the log and of an evaluation are sums over all rows divided once, so they do not depend on the split.
    """

    objective: Objective

    def _begin(self, objective: Objective, adapter: str) -> None:
        """To be called when the Trainer is made."""
        self.objective = objective
        self._calls = TermCounter()
        self._has_logged_weight = False
        self._step_counts: Tensor | None = None
        self._train_sums = MetricSums(objective)
        self._eval_sums = MetricSums(objective)
        self.add_callback(TermProof(self._calls, adapter))

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
            labels = unshifted(*given_labels(batch))
            num_digits = self.objective.count_digits(labels)
            counts += torch.stack([(labels[:, 1:] != IGNORED).sum(), num_digits.sum()]).to(device)
        self._step_counts = self.accelerator.reduce(counts, "sum")
        return batches, num_items_in_batch

    def _counts(self, is_training: bool, device: torch.device) -> tuple[Tensor | None, Tensor | None]:
        """Target tokens and digits of the whole step while training."""
        counts = self._step_counts if is_training else None
        return (None, None) if counts is None else (counts[0].to(device), counts[1].to(device))

    def _record(self, reading: Reading, rows: Int[Tensor, "B T"], counts: tuple[Tensor | None, Tensor | None]) -> None:
        """Add what was read of a micro-batch to the metrics."""
        num_items, num_digits = counts
        sums = sums_of_rows(reading, rows)
        if num_items is not None and num_digits is not None:
            if not self._has_logged_weight:
                self._has_logged_weight = True
                log_effective_weight(self.objective, num_items, num_digits)
            self._train_sums.add(sums.sum(0))
        else:
            self._eval_sums.add(self.accelerator.gather_for_metrics(sums).sum(0))
        self._calls.num_calls += 1

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


def given_labels(batch: Mapping[str, Any]) -> tuple[Tensor | None, Tensor | None]:
    """Labels of a batch, or shifted ones where there are both."""
    labels, shift_labels = batch.get("labels"), batch.get("shift_labels")
    if shift_labels is not None:
        return None, torch.as_tensor(shift_labels)
    if labels is None:
        raise ValueError(
            f"the batch has no labels, only {sorted(batch)}: the collator must make them, with -100 where there is no"
            " target"
        )
    return torch.as_tensor(labels), None


def refuse_other_losses(trainer: Trainer) -> None:
    """Refuse what would replace the objective, or split what it reads."""
    name = type(trainer).__name__
    if trainer.compute_loss_func is not None:
        raise ValueError("pass either objective or compute_loss_func, not both")
    if trainer.label_smoother is not None:
        raise ValueError("label_smoothing_factor has no effect on an objective: leave it at 0")
    config = getattr(trainer.accelerator, "parallelism_config", None)
    for size in ("tp_size", "cp_size", "sp_size"):
        if getattr(config, size, 1) not in (None, 1):
            raise ValueError(
                f"{name} supports data parallelism (DDP, FSDP, ZeRO); got {size}={getattr(config, size)}, which splits"
                " rows or logits over ranks"
            )
