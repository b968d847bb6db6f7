"""Cross-entropy alone: the baseline, maximum likelihood.

    loss_t = -log softmax(logits_t)[y_t]

It adds nothing to the cross-entropy that every objective holds.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from digitloss.losses._base import AbstractVocabularyLoss


@dataclass(frozen=True, kw_only=True)
class Loss(AbstractVocabularyLoss):
    """Cross-entropy alone. It has no options.

    Example:
        >>> import digitloss as dl
        >>> dl.losses.load("cross_entropy")
        Loss()
    """

    adds_nothing: ClassVar[bool] = True

    def added_loss(
        self, cross_entropy: Float[Tensor, " N"], mean_cost: Float[Tensor, " N"] | None
    ) -> Float[Tensor, " N"]:
        """Return zeros, connected to the graph."""
        del mean_cost
        return torch.where(torch.zeros_like(cross_entropy, dtype=torch.bool), cross_entropy, 0.0)
