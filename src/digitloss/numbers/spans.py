"""Numbers in label rows: the place of every digit, found on whole rows without a loop over tokens.

    tokens   "1"  ","  "234"  "."  "5"        places  3 . 2 1 0 . -1

The grammar, with `.` as the decimal point and `,` as the thousands separator:

- grouped integer: one to three digits that do not start with 0, then one or more times a separator and exactly three
  digits, with neither a digit nor a separator and a digit behind. Every other digit run is an integer of its own, as
  all of `1,234,56` are;
- decimal point: a point before a digit that either follows a digit, or follows neither letter, digit nor point;
- code: where a digit run has a point before it and a point with a digit behind it, all runs that points join to it are
  integers (versions, addresses, dates);
- everything else ends a number: signs, exponents, letters, spaces; after decimals a separator does too.

A number crosses neither the end of a row, nor an ignored label, nor the start of a packed sample.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from digitloss._shapes import Labels
from digitloss.numbers._tables import DIGIT, NOTHING, OTHER, POINT, SEPARATOR, ZERO
from digitloss.numbers.vocab import NumberVocab


class TokenDigits(NamedTuple):
    """The digits of each token of label rows, [B, T] or flattened.

    A token has up to K digits; where it has fewer, `is_digit` is False.
    """

    column: Int[Tensor, "*S"]
    """Index of the token among the digit tokens; D where it holds no digit."""
    value: Int[Tensor, "*S K"]
    """Value of each digit, -1 where there is none."""
    place: Int[Tensor, "*S K"]
    """Power of ten of each digit in its number: units 0, tens 1, first decimal -1."""
    part_place: Int[Tensor, "*S K"]
    """Place where a decimal point starts a new number: equal to `place` before the point; 0 for the last decimal."""

    @property
    def is_digit(self) -> Bool[Tensor, "*S K"]:
        """True where the token has that digit."""
        return self.value >= 0


def find_digits(vocab: NumberVocab, labels: Labels, position_ids: Int[Tensor, "B T"] | None = None) -> TokenDigits:
    """Find the digits of each token and their places.

    Args:
        vocab: What the tokens hold.
        labels: Token ids; negative ids and ids beyond the vocabulary hold no digit and end a number.
        position_ids: Positions of the tokens in their samples; a number never crosses a 0.

    Returns:
        Digits and places of each token, on the labels' device. No value is copied to the host.
    """
    tables = vocab.tables(labels.device)
    column = vocab.columns_of(labels)
    value = tables.value[column]

    kinds = tables.characters[vocab.rows_of(labels)]
    slot = tables.character[column]
    if position_ids is not None:
        border = torch.where(position_ids == 0, OTHER, NOTHING).expand(labels.shape)
        kinds = torch.cat([border[..., None], kinds], -1)
        slot = slot + 1
    place, part_place = (
        places.view(kinds.shape).gather(-1, slot) for places in _places_of_characters(kinds.flatten(1))
    )
    return TokenDigits(column, value, place, part_place)


def _places_of_characters(kinds: Int[Tensor, "B L"]) -> tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]:
    """Place and part place at every character (meaningless where it is no digit); `NOTHING` is skipped."""
    position = ((kinds != NOTHING).cumsum(1) - 1).clamp(min=0)
    end = kinds.shape[1]
    dense = torch.full_like(kinds[:, :1], OTHER).repeat(1, end + 1)
    dense.scatter_(1, torch.where(kinds != NOTHING, position, end), kinds)
    place, part_place = _places(dense[:, :end])
    return place.gather(1, position), part_place.gather(1, position)


def _places(kinds: Int[Tensor, "B L"]) -> tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]:
    """Place and part place of each digit of rows without gaps, by the grammar at the top."""
    before, after = _shift(kinds, 1, OTHER), _shift(kinds, -1, OTHER)
    is_digit = kinds >= DIGIT
    index = torch.arange(kinds.shape[1], device=kinds.device).expand_as(kinds)
    first, last = _extent(is_digit)

    joins = (kinds == POINT) & (before >= DIGIT) & (after >= DIGIT)
    leads = (kinds == POINT) & (after >= DIGIT) & ((before == OTHER) | (before == SEPARATOR))
    chain_first, chain_last = _extent(is_digit | joins)
    num_points = _count(joins, chain_first, chain_last) + (before.gather(1, chain_first) == POINT)
    is_code = (num_points >= 2) & is_digit
    follows_point = _shift(joins | leads, 1, False).gather(1, first) & is_digit

    links = (kinds == SEPARATOR) & (before >= DIGIT) & (after >= DIGIT) & ~_shift(follows_point, 1, False)
    group_first, group_last = _extent(is_digit | links)
    starts = is_digit & (index == first)
    length = last - first + 1
    misfits = starts & ((length != 3) | is_code)
    may_open = starts & (length <= 3) & (kinds != ZERO) & ~is_code & (last != group_last)
    opens = may_open & (_count(misfits, index, group_last) - misfits.long() == 0)
    is_grouped = is_digit & (_count(opens, group_first, index) > 0)

    num_later = _count(is_digit, index, group_last) - 1
    integer_place = torch.where(is_grouped, num_later, last - index)
    place = torch.where(follows_point & ~is_code, first - index - 1, integer_place)
    return place, integer_place


def _shift(values: Tensor, by: int, filler: int | bool) -> Tensor:
    """Move each row right (by=1) or left (by=-1) by one, filling the free end."""
    edge = torch.full_like(values[:, :1], filler)
    return torch.cat([edge, values[:, :-1]] if by > 0 else [values[:, 1:], edge], 1)


def _extent(inside: Bool[Tensor, "B L"]) -> tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]:
    """First and last index of the run of True that holds each position (meaningless outside of runs)."""
    end = inside.shape[1] - 1
    index = torch.arange(end + 1, device=inside.device).expand(inside.shape)
    first = torch.where(inside & ~_shift(inside, 1, False), index, 0).cummax(1).values
    last = torch.where(inside & ~_shift(inside, -1, False), index, end).flip(1).cummin(1).values.flip(1)
    return first, last


def _count(flags: Bool[Tensor, "B L"], first: Int[Tensor, "B L"], last: Int[Tensor, "B L"]) -> Int[Tensor, "B L"]:
    """Number of True from first to last, both included."""
    total = flags.cumsum(1)
    return total.gather(1, last) - total.gather(1, first) + flags.gather(1, first).long()
