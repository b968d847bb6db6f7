"""How the digits of token ids are read, token by token, as plain Python: for people and tests."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from digitloss.numbers.spans import find_digits
from digitloss.numbers.vocab import NumberVocab


class TokenPlaces(NamedTuple):
    """One token: its digits and the place of each."""

    token_id: int
    text: str | None
    """Text in context; None where the token has no readable text."""
    digits: tuple[int, ...]
    places: tuple[int, ...]
    """Power of ten of each digit: units 0, tens 1, first decimal -1."""
    part_places: tuple[int, ...]
    """Places where a decimal point starts a new number, as `place="integer"` of the losses counts."""


def place_table(vocab: NumberVocab, token_ids: Sequence[int] | Int[Tensor, " T"]) -> list[TokenPlaces]:
    """Read one row of token ids.

    Args:
        vocab: What the tokens hold.
        token_ids: One row of ids.

    Returns:
        One entry a token.

    Example:
        >>> vocab = NumberVocab.from_tokens(["1", "2", "5", ".", " kg"])
        >>> for token in place_table(vocab, [0, 1, 3, 2, 4]):
        ...     print(token.text, token.digits, token.places)
        1 (1,) (1,)
        2 (2,) (0,)
        . () ()
        5 (5,) (-1,)
         kg () ()
    """
    ids = torch.as_tensor(token_ids, dtype=torch.long)
    if ids.ndim != 1:
        raise ValueError(f"token_ids must be one row of ids, got shape {tuple(ids.shape)}")
    found = find_digits(vocab, ids[None])
    columns = zip(*(x[0].tolist() for x in (found.value, found.place, found.part_place)), strict=True)
    rows = []
    for token_id, (values, places, part_places) in zip(ids.tolist(), columns, strict=True):
        num_digits = sum(value >= 0 for value in values)
        text = vocab.tokens[token_id] if 0 <= token_id < len(vocab) else None
        rows.append(TokenPlaces(token_id, text, *(tuple(x[:num_digits]) for x in (values, places, part_places))))
    return rows
