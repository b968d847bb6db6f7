"""Digit Entropy Loss (DEL): a supervised entropy of the digit distribution, weighted by the digit's place.

    loss = u(place) * sum_c  p_c * BCE(z_c, [c = y]) * D(c, y)

z are the raw logits of the ten digits, p = softmax(z) over the ten, D = 1, and BCE(z, b) = softplus(z) - b z. The
paper's ablations are options: another criterion, a distance, another place weight.

Paper: Zheng, He, Wang, Li, Cheng, Zhang, "DEL: Digit Entropy Loss for Numerical Learning of Large Language Models",
arXiv 2605.20369.

Differs from the authors' code: a sum over classes and digits divided once by the count of the whole optimizer step,
not a mean over digits x 10 classes of each micro-batch; numbers never cross rows or ignored tokens; `.5` is a decimal;
tokens of several digits have a term for each digit. `place="released"` is the authors' place weight.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from digitloss._shapes import PerDigit
from digitloss.losses._base import AbstractDigitLoss, check_choice, check_positive
from digitloss.losses._parts import CRITERIA, DISTANCES, PLACE_WEIGHTS, Digits


@dataclass(frozen=True, kw_only=True)
class Loss(AbstractDigitLoss):
    """Digit Entropy Loss and its ablations.

    Example:
        >>> import digitloss as dl
        >>> dl.losses.load("digit_entropy", place="released")
        Loss(criterion='bce', distance='none', place='released', decimal_base=1.02)
    """

    default_alpha: ClassVar[float] = 0.1

    criterion: Literal["bce", "entropy", "probability"] = "bce"
    """How the distribution is optimised: p BCE (the paper's), -p log p (unsupervised), or p."""
    distance: Literal["none", "absolute", "squared"] = "none"
    """Factor of each class: 1 (the paper's), |c-y| (the target's own BCE then vanishes), or (c-y)^2."""
    place: Literal["continuous", "released", "integer", "none"] = "continuous"
    """Place weight: as the paper describes it, as the authors' code has it, integer places only, or 1."""
    decimal_base: float = 1.02
    """Decay of the weight with each decimal, at least 1 (the authors' value)."""

    def __post_init__(self) -> None:
        """Check the options."""
        check_choice("criterion", self.criterion, CRITERIA)
        check_choice("distance", self.distance, DISTANCES)
        check_choice("place", self.place, PLACE_WEIGHTS)
        check_positive("decimal_base", self.decimal_base)
        if self.decimal_base < 1:
            raise ValueError(
                f"decimal_base must be at least 1, got {self.decimal_base}: below 1 later decimals would weigh more"
            )
        if self.criterion == "probability" and self.distance == "none":
            raise ValueError(
                "criterion='probability' with distance='none' is constant, since probabilities sum to 1;"
                " choose distance='absolute' or 'squared', or another criterion"
            )

    def digit_loss(self, digits: Digits) -> PerDigit:
        """Loss of each digit, [M]."""
        cost = CRITERIA[self.criterion](digits) * DISTANCES[self.distance](digits.target)
        return PLACE_WEIGHTS[self.place](digits.place, digits.part_place, self.decimal_base) * cost.sum(-1)
