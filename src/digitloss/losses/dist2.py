"""DIST2Loss: divergence from a target distribution that falls with the squared distance from the target digit.

    loss = u(place) * sum_c q_c (log q_c - log p_c),    q = softmax_c(-(c - y)^2 / tau)

p = softmax over the ten digits; q is renormalised over the digits that are possible.

Paper: Chung et al., "Teaching Metric Distance to Discrete Autoregressive Language Models", arXiv 2503.02379;
total = cross-entropy + 0.1 DIST2.

Differs from the DEL authors' copies, of which one is a mean over the ten classes and the other is never reduced.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from digitloss._shapes import PerDigit
from digitloss.losses._base import AbstractDigitLoss, check_choice, check_positive
from digitloss.losses._parts import Digits, squared_distance


@dataclass(frozen=True, kw_only=True)
class Loss(AbstractDigitLoss):
    """DIST2Loss.

    Example:
        >>> import digitloss as dl
        >>> dl.losses.load("dist2", tau=2.0)
        Loss(tau=2.0, place='none')
    """

    default_alpha: ClassVar[float] = 0.1

    tau: float = 1.0
    """Temperature of the target distribution (the paper's value)."""
    place: Literal["none", "integer"] = "none"
    """Place weight: 1, or i + 1 at place i with a decimal point starting a new number (the DEL authors' copy)."""

    def __post_init__(self) -> None:
        """Check the options."""
        check_positive("tau", self.tau)
        check_choice("place", self.place, ["none", "integer"])

    def digit_loss(self, digits: Digits) -> PerDigit:
        """Loss of each digit, [M]."""
        closeness = -squared_distance(digits.target).to(digits.logits.dtype) / self.tau
        log_q = torch.where(digits.is_possible, closeness, torch.finfo(closeness.dtype).min / 2).log_softmax(-1)
        divergence = (log_q.exp() * (log_q - digits.logits.log_softmax(-1))).sum(-1)
        return divergence * (digits.part_place + 1.0) if self.place == "integer" else divergence
