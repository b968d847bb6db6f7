"""Numeric metrics as sums: they add up over micro-batches, steps and ranks, and are divided when they are read."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from digitloss.losses import Objective
from digitloss.losses._tokens import IGNORED, Reading

_SUMS = ("num_items", "num_digits", "cross_entropy", "numeric", "digit_entropy", "num_correct")


def sums_of_rows(reading: Reading, labels: Int[Tensor, "B T"]) -> Float[Tensor, "B sums"]:
    """Sums of each row, in the order of `_SUMS`, without gradient."""
    cross_entropy, numeric, num_digits = reading.terms
    parts = (
        labels[:, 1:] != IGNORED,
        num_digits,
        cross_entropy,
        numeric,
        reading.digit_entropy,
        reading.num_correct,
    )
    dtype = torch.float32 if labels.device.type == "mps" else torch.float64
    return torch.stack([part.detach().to(dtype).sum(1) for part in parts], 1)


class MetricSums:
    """Sums of the metrics since the last reset."""

    def __init__(self, objective: Objective):
        self._objective = objective
        self._sums: Tensor | None = None

    def add(self, sums: Float[Tensor, " sums"]) -> None:
        """Add sums, on their device."""
        self._sums = sums if self._sums is None else self._sums + sums

    def reset(self) -> None:
        """Forget all sums."""
        self._sums = None

    def reduce(self, accelerator: Any) -> None:
        """Add up over ranks."""
        if self._sums is not None:
            self._sums = accelerator.reduce(self._sums, "sum")

    def metrics(self) -> dict[str, float]:
        """Return the metrics; those of digits are left out where there was no digit, all where there was no target."""
        if self._sums is None:
            return {}
        total = dict(zip(_SUMS, self._sums.tolist(), strict=True))
        num_items, num_digits = total["num_items"], total["num_digits"]
        if num_items == 0:
            return {}
        objective = self._objective
        num_terms = num_items if objective.is_normalized_by_tokens else max(num_digits, 1.0)
        metrics = {
            "loss": total["cross_entropy"] / num_items + objective.alpha * total["numeric"] / num_terms,
            "cross_entropy": total["cross_entropy"] / num_items,
            "numeric_loss": total["numeric"] / num_terms,
            "digit_density": num_digits / num_items,
        }
        if num_digits:
            metrics["digit_token_entropy"] = total["digit_entropy"] / num_digits
            metrics["digit_accuracy"] = total["num_correct"] / num_digits
        return metrics
