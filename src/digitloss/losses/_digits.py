"""From the logits of the digit tokens to the ten classes of every digit, exact for tokens of several digits.

A token of several digits is read digit by digit. The classes of its k-th digit are groups of tokens: those of its
family that agree with it on the first k-1 digits, grouped by the k-th. The probability of a class given the token's
pattern and the digits before is the softmax of the groups' logsumexp. For one-digit tokens each group is one token.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from digitloss.losses._parts import Digits
from digitloss.numbers import TokenDigits
from digitloss.numbers._tables import Tables


def select_digits(
    tables: Tables, found: TokenDigits, token_logits: Float[Tensor, "N D"]
) -> tuple[Digits, Bool[Tensor, " M"]]:
    """Read the digits of N tokens, M = N * K, and say which of them have a term.

    Args:
        tables: The vocabulary on the device of the logits.
        found: Digits of the N target tokens, as `[B, T, K]` with B * T = N.
        token_logits: Logits of the digit tokens that predict each target token, float32 or wider.

    Returns:
        The digits, and True for each that is there and has at least two possible classes. Where it is False the logits
        are all 0 and carry no gradient.
    """
    mass, mean = _group_logits(tables, token_logits)
    classes = tables.classes[found.column.flatten()].flatten(1)
    exists = classes >= 0
    mass, mean = (x.gather(1, classes.clamp(min=0)).view(-1, 10) for x in (mass, mean))
    is_possible = exists.view(-1, 10) & (mass != -torch.inf)
    has_term = found.is_digit.flatten() & (is_possible.sum(-1) >= 2)
    lowest = torch.finfo(mass.dtype).min / 2
    mass, mean = (
        torch.where(has_term[:, None], torch.where(is_possible, x, lowest), torch.zeros_like(x)) for x in (mass, mean)
    )
    digits = Digits(
        logits=mass,
        token_logits=mean,
        is_possible=is_possible | ~has_term[:, None],
        target=found.value.flatten().clamp(min=0),
        place=torch.where(has_term, found.place.flatten(), 0),
        part_place=torch.where(has_term, found.part_place.flatten(), 0),
    )
    return digits, has_term


def _group_logits(
    tables: Tables, token_logits: Float[Tensor, "N D"]
) -> tuple[Float[Tensor, "N G"], Float[Tensor, "N G"]]:
    """Logsumexp of each group's logits, and the same less the log of the number of its possible tokens."""
    if tables.has_single_members:
        members = token_logits[:, tables.member_column]
        return members, members
    members = token_logits.T.contiguous().index_select(0, tables.member_column)  # whole rows are read and added
    size = (len(tables.num_members), len(token_logits))
    group = tables.member_group
    given = members.detach()
    peak = members.new_full(size, -torch.inf).scatter_reduce(0, group[:, None].expand_as(given), given, "amax")
    peak = torch.where(peak == -torch.inf, 0.0, peak)
    total = members.new_zeros(size).index_add(0, group, (members - peak.index_select(0, group)).exp())
    count = members.new_zeros(size).index_add(0, group, (given != -torch.inf).to(members.dtype))
    is_possible = count > 0
    mass = torch.where(is_possible, peak + torch.where(is_possible, total, 1.0).log(), -torch.inf)
    return mass.T, (mass - count.clamp(min=1).log()).T
