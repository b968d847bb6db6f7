"""The two kinds of loss. A loss is a frozen dataclass of its options whose one method is a pure function of tensors.

It returns nats per token or per digit, float32 or wider, and never reduces, shifts, masks or sees a tokenizer: that is
the objective's work (`_objective.py`).
"""

import abc
import math
import numbers
from collections.abc import Iterable
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from digitloss._shapes import PerDigit
from digitloss.errors import unknown_name
from digitloss.losses._parts import Digits


class AbstractLoss:
    """What both kinds share. Subclass `AbstractDigitLoss` or `AbstractVocabularyLoss` instead."""

    needs_head: ClassVar[bool] = False
    """True where the loss reads the head's weight [V, H]."""

    has_detached_factor: ClassVar[bool] = False
    """True where a factor of the loss carries no gradient by definition: its gradient is not that of its value."""

    @property
    def keeps_head(self) -> bool:
        """True where the loss reads the head's weight as it was when the objective was made."""
        return False

    @property
    def name(self) -> str:
        """The name of the file that holds the loss; of its class, for a loss from outside the package."""
        folder, _, file = type(self).__module__.rpartition(".")
        return file if folder == __package__ else type(self).__name__


class AbstractDigitLoss(AbstractLoss, abc.ABC):
    """A term on digits, added to cross-entropy with weight alpha; it is 0 where a token holds no digit."""

    default_alpha: ClassVar[float]
    """Weight of the term where the user gives none."""

    @abc.abstractmethod
    def digit_loss(self, digits: Digits) -> PerDigit:
        """Loss of each of M digits, [M], in nats times the units of the loss's distance and place weight."""


class AbstractVocabularyLoss(AbstractLoss, abc.ABC):
    """A loss on the whole vocabulary at every target token, which replaces cross-entropy.

    It is a function of the token's cross-entropy and, where it gives every token a cost, of the mean of those costs
    under the model.
    """

    adds_nothing: ClassVar[bool] = False
    """True where it is cross-entropy itself."""

    def cost_rows(self, head: Float[Tensor, "V H"]) -> Tensor:
        """Make of the head's weight, once a batch, the rows whose products `token_costs` reads."""
        return head

    def token_costs(
        self, target: Int[Tensor, " N"], products: Float[Tensor, "N V"] | None
    ) -> Float[Tensor, "N V"] | None:
        """Return the cost of every token of the vocabulary for each target, without gradient; None where there is none.

        Args:
            target: Token ids; a valid id where the token is ignored.
            products: Of the target's cost row with that of every token, given where `needs_head`; free to overwrite.
        """
        return None

    @abc.abstractmethod
    def added_loss(
        self, cross_entropy: Float[Tensor, " N"], mean_cost: Float[Tensor, " N"] | None
    ) -> Float[Tensor, " N"]:
        """What the loss adds to the cross-entropy of each token, [N] in nats; ignored tokens may hold any finite value.

        Args:
            cross_entropy: Cross-entropy of each token, float32 or wider.
            mean_cost: Mean of the token costs under the model's distribution, where there are costs.
        """


def check_choice(option: str, value: str, choices: Iterable[str]) -> None:
    """Raise ValueError where the value of an option is not among its choices."""
    choices = list(choices)
    if value not in choices:
        raise unknown_name(option, value, choices)


def check_number(option: str, value: object) -> None:
    """Raise TypeError where the value of an option is not a number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{option} must be a number, got {value!r}")


def check_positive(option: str, value: float) -> None:
    """Raise ValueError where the value of an option is not a positive finite number."""
    check_number(option, value)
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{option} must be a positive finite number, got {value}")


def check_share(option: str, value: float) -> None:
    """Raise ValueError where the value of an option is not between 0 and 1."""
    check_number(option, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{option} must lie between 0 and 1, got {value}")
