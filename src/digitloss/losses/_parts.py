"""The parts of a digit loss: criterion, distance and place weight.

    loss of a digit = u(place) * sum over the ten classes c of  C_c * D(c, y)

Each part is a small function; the tables at the end of each section name them. Impossible classes have probability
exactly 0 and finite logits (see `Digits`), so every product with a probability leaves them out.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot, softplus

from digitloss._shapes import DigitLogits, DigitMask, DigitValues, PerDigit


class Digits(NamedTuple):
    """M digits of the target text with what the model predicts at their places. All float tensors: float32 or wider.

    An impossible class (no token of the family is in it, or all its logits are -inf) holds the lowest finite logit
    halved: its probability is exactly 0. What a criterion multiplies with a probability must not grow with that logit,
    or a scaled gradient overflows to 0 times infinity.
    """

    logits: DigitLogits
    """Logit of each class, so that softmax(logits) is the digit's probability given the token's pattern: the logsumexp
    of its tokens' logits, which for one-digit tokens is the token's own logit."""
    token_logits: DigitLogits
    """Logit of each class on the scale of one token: `logits` minus the log of the number of its possible tokens."""
    is_possible: DigitMask
    """True where the class can be predicted."""
    target: DigitValues
    """The digit of the target text, 0..9."""
    place: DigitValues
    """Power of ten of the digit in its number: units 0, tens 1, first decimal -1."""
    part_place: DigitValues
    """Place where a decimal point starts a new number: 12.345 has 1 0 and 2 1 0."""


# Criterion: per class, how the predicted digit distribution is optimised.


def probability(digits: Digits) -> DigitLogits:
    """C_c = p_c."""
    return digits.logits.softmax(-1)


def supervised_entropy(digits: Digits) -> DigitLogits:
    """C_c = p_c BCE(z_c, [c = y]), with BCE(z, b) = softplus(z) - b z on the raw logit of one token."""
    logits = torch.where(digits.is_possible, digits.token_logits, 0.0)
    return probability(digits) * (softplus(logits) - one_hot(digits.target, 10) * logits)


def entropy(digits: Digits) -> DigitLogits:
    """C_c = -p_c log p_c."""
    log_p = digits.logits.log_softmax(-1)
    return -log_p.exp() * torch.where(digits.is_possible, log_p, 0.0)


CRITERIA: Mapping[str, Callable[[Digits], DigitLogits]] = {
    "bce": supervised_entropy,
    "entropy": entropy,
    "probability": probability,
}

# Distance: per class, how far it is from the target.


def absolute_distance(target: DigitValues) -> DigitLogits:
    """D(c, y) = |c - y|."""
    return _difference(target).abs().float()


def squared_distance(target: DigitValues) -> DigitLogits:
    """D(c, y) = (c - y)^2."""
    return _difference(target).square().float()


def no_distance(target: DigitValues) -> DigitLogits:
    """D(c, y) = 1."""
    return torch.ones(*target.shape, 10, device=target.device)


def _difference(target: DigitValues) -> Tensor:
    return torch.arange(10, device=target.device) - target[:, None]


DISTANCES: Mapping[str, Callable[[DigitValues], DigitLogits]] = {
    "none": no_distance,
    "absolute": absolute_distance,
    "squared": squared_distance,
}

# Place weight: how much a digit counts by its place.


def continuous_weight(place: DigitValues, part_place: DigitValues, decimal_base: float) -> PerDigit:
    """U = i + 1 at place i >= 0 and decimal_base^i at i < 0: the curve that the paper describes."""
    del part_place
    return torch.where(place >= 0, place + 1.0, decimal_base ** place.clamp(max=0).float())


def released_weight(place: DigitValues, part_place: DigitValues, decimal_base: float) -> PerDigit:
    """U = 2 (i + 1) at place i >= 0 and decimal_base^-(k+1) at the k-th decimal: the authors' code."""
    del part_place
    return torch.where(place >= 0, 2.0 * (place + 1.0), decimal_base ** (place.clamp(max=0).float() - 1.0))


def integer_weight(place: DigitValues, part_place: DigitValues, decimal_base: float) -> PerDigit:
    """U = i + 1 at part place i: a decimal point starts a new number."""
    del place, decimal_base
    return part_place + 1.0


def no_weight(place: DigitValues, part_place: DigitValues, decimal_base: float) -> PerDigit:
    """U = 1."""
    del part_place, decimal_base
    return torch.ones_like(place, dtype=torch.float32)


PLACE_WEIGHTS: Mapping[str, Callable[[DigitValues, DigitValues, float], PerDigit]] = {
    "continuous": continuous_weight,
    "released": released_weight,
    "integer": integer_weight,
    "none": no_weight,
}
