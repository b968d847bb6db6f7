"""Number Token Loss (NTL): how far the predicted digit is from the target, on average or as an average.

    wasserstein:  loss = sum_c p_c |c - y|                 (NTL-WAS, the paper's best)
    mse:          loss = (sum_c p_c c - y)^2               (NTL-MSE)

p = softmax over the ten digits. NTL-WAS is DEL with criterion p, distance |c - y| and place weight 1.

Paper: Zausinger et al., "Regress, Don't Guess", ICML 2025, arXiv 2411.02083; total = cross-entropy + 0.3 NTL.

Differs from the DEL authors' copy, which takes a mean over the ten classes (a tenth of this) and returns NaN where a
micro-batch has no digit; and from `ntloss`, whose default adds a term for the mass outside the digits.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from digitloss._shapes import PerDigit
from digitloss.losses._base import AbstractDigitLoss, check_choice
from digitloss.losses._parts import Digits, absolute_distance, probability


@dataclass(frozen=True, kw_only=True)
class Loss(AbstractDigitLoss):
    """Number Token Loss.

    Example:
        >>> import digitloss as dl
        >>> dl.losses.load("number_token", form="mse")
        Loss(form='mse')
    """

    default_alpha: ClassVar[float] = 0.3

    form: Literal["wasserstein", "mse"] = "wasserstein"
    """Expected distance to the target, or squared distance of the expected digit."""

    def __post_init__(self) -> None:
        """Check the options."""
        check_choice("form", self.form, ["wasserstein", "mse"])

    def digit_loss(self, digits: Digits) -> PerDigit:
        """Loss of each digit, [M]."""
        p = probability(digits)
        if self.form == "wasserstein":
            return (p * absolute_distance(digits.target)).sum(-1)
        expected = (p * torch.arange(10, device=p.device)).sum(-1)
        return (expected - digits.target).square()
