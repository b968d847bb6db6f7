"""What labels say of their target tokens, before any logit is read, and what each token then costs."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from digitloss._shapes import Labels, TokenLosses
from digitloss.losses._parts import Digits, entropy
from digitloss.numbers import NumberVocab, TokenDigits, find_digits
from digitloss.numbers._tables import Tables

IGNORED = -100
"""Label of a token that is no target, as in torch and transformers."""


class Terms(NamedTuple):
    """The objective token by token, before alpha and reduction: [B, S], 0 where the token is ignored.

    S = T - 1, or T for labels that are shifted already.
    """

    cross_entropy: TokenLosses
    """Nats."""
    numeric: TokenLosses
    """Sum over the token's digits; for a loss of the whole vocabulary, what it adds to cross-entropy."""
    num_digits: Int[Tensor, "B S"]
    """Digits of the token that get a term."""


class Reading(NamedTuple):
    """The terms of a batch and what the model believed about its digits: [B, S] each."""

    terms: Terms
    digit_entropy: TokenLosses
    """Sum over the token's digits of the entropy of the ten classes, in nats; no gradient."""
    num_correct: Int[Tensor, "B S"]
    """Digits of the token whose most probable class is the target."""


class Targets(NamedTuple):
    """Target tokens, [B, S] or any part of them flattened to [N]."""

    token: Int[Tensor, "*S"]
    """Id, a valid one where the token is ignored."""
    is_target: Bool[Tensor, "*S"]
    """False where the token is ignored."""
    found: TokenDigits
    """Its digits."""

    def flatten(self) -> "Targets":
        """Return the N = B * S targets in one row."""
        found = TokenDigits(*(part.flatten(0, 1) for part in self.found))
        return Targets(self.token.flatten(), self.is_target.flatten(), found)

    def part(self, where: slice) -> "Targets":
        """Return a part of flattened targets."""
        return Targets(self.token[where], self.is_target[where], TokenDigits(*(x[where] for x in self.found)))

    def with_none_behind(self, tables: Tables) -> "Targets":
        """Return [B, S + 1] targets whose last one of each row is ignored."""
        column, value, place, part_place = self.found
        others = column.new_full((len(column), 1), len(tables.token_ids))
        return Targets(
            F.pad(self.token, (0, 1)),
            F.pad(self.is_target, (0, 1), value=False),
            TokenDigits(
                torch.cat([column, others], 1),
                F.pad(value, (0, 0, 0, 1), value=-1),
                F.pad(place, (0, 0, 0, 1)),
                F.pad(part_place, (0, 0, 0, 1)),
            ),
        )


def find_targets(vocab: NumberVocab, labels: Labels, position_ids: Int[Tensor, "_ T"] | None) -> Targets:
    """Read labels [B, T] that are not shifted: the targets are those from position 1 on."""
    found = TokenDigits(*(part[:, 1:] for part in find_digits(vocab, labels, position_ids)))
    token = labels[:, 1:].long()
    return Targets(token.clamp(min=0), token != IGNORED, found)


def believed(
    digits: Digits, has_term: Bool[Tensor, " M"], targets: Targets
) -> tuple[Float[Tensor, " N"], Int[Tensor, " N"]]:
    """Entropy of each token's digits, and how many of them have the target as their most probable class."""
    is_correct = (digits.logits.argmax(-1) == digits.target).long()
    return (
        sum_over_digits(entropy(digits).sum(-1), has_term, targets),
        sum_over_digits(is_correct, has_term, targets),
    )


def sum_over_digits(values: Tensor, has_term: Bool[Tensor, " M"], targets: Targets) -> Tensor:
    """Sum over the digits of each token, 0 where it has none; connected to the graph either way."""
    return torch.where(has_term, values, 0).view(targets.found.value.shape).sum(-1)
