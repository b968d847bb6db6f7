"""Token texts as tensors: the kinds of their characters, their digits, and the classes that compete for each digit."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

NOTHING, OTHER, LETTER, POINT, SEPARATOR, DIGIT, ZERO = range(7)
"""Kinds of character. A zero is a digit: `kind >= DIGIT`."""

_SYMBOLS = "-olpsdz"  # one letter a kind, in the order above
_DIGIT = re.compile("[0-9]")


class Tables(NamedTuple):
    """The vocabulary as tensors of one device.

    There is one row a token and one for every other id, and one column a digit token and one for all others; those of
    the others come last.

    A *group* is the set of a family's tokens that agree on their first digits, up to and including one of them. The
    classes of a digit are up to ten groups: those that agree with its token before it.
    """

    characters: Int[Tensor, "rows C"]
    """Kind of each character that matters in each token, in order, then `NOTHING`."""
    column: Int[Tensor, " rows"]
    """Index of each token among the digit tokens; D where it holds no digit."""
    token_ids: Int[Tensor, " D"]
    """Id of each digit token, ascending."""
    value: Int[Tensor, "columns K"]
    """Value of each digit of each digit token, -1 where it has no such digit."""
    character: Int[Tensor, "columns K"]
    """Index of each digit in the token's row of `characters`, 0 where it has no such digit."""
    num_terms: Int[Tensor, " columns"]
    """Number of digits of each digit token that have at least two possible classes."""
    classes: Int[Tensor, "columns K 10"]
    """Group of each class of each digit, -1 where no token of the family is in that class."""
    member_column: Int[Tensor, " P"]
    """Digit token of each membership; P counts the members of all groups."""
    member_group: Int[Tensor, " P"]
    """Group of each membership, ascending."""
    num_members: Int[Tensor, " G"]
    """Number of tokens in each group."""

    @property
    def has_single_members(self) -> bool:
        """True where each group is one token, as in a vocabulary of one-digit tokens."""
        return len(self.member_group) == len(self.num_members)


def find_families(texts: Sequence[str | None]) -> dict[str, list[int]]:
    r"""Ids of the tokens of each pattern, where a pattern holds `\0` for a digit (a `#` may be text)."""
    families: dict[str, list[int]] = defaultdict(list)
    for token_id, text in enumerate(texts):
        if text and _DIGIT.search(text):
            families[_DIGIT.sub("\0", text)].append(token_id)
    return dict(families)


def build_tables(
    texts: Sequence[str | None],
    families: dict[str, list[int]],
    *,
    decimal_point: str | None,
    thousands_separator: str | None,
) -> Tables:
    """Tables of the tokens on the CPU."""
    kinds = _find_kinds(texts, decimal_point, thousands_separator)
    width = max(map(len, kinds))
    symbols = "".join(kind.ljust(width, _SYMBOLS[NOTHING]) for kind in [*kinds, _SYMBOLS[OTHER]])
    letters = torch.frombuffer(bytearray(symbols.encode("ascii")), dtype=torch.uint8)
    kind_of_letter = torch.zeros(128, dtype=torch.long)
    kind_of_letter[[ord(symbol) for symbol in _SYMBOLS]] = torch.arange(len(_SYMBOLS))

    token_ids = sorted(token_id for ids in families.values() for token_id in ids)
    column = torch.full((len(texts) + 1,), len(token_ids))
    column[token_ids] = torch.arange(len(token_ids))

    num_slots = max(pattern.count("\0") for pattern in families)
    digits = [[int(digit) for digit in _DIGIT.findall(texts[token_id] or "")] for token_id in token_ids]
    value = _padded([*digits, []], num_slots, -1)
    places = [[i for i, symbol in enumerate(kinds[token_id]) if symbol in "dz"] for token_id in token_ids]
    classes, members = _find_classes(families, dict(zip(token_ids, digits, strict=True)), num_slots)
    return Tables(
        characters=kind_of_letter[letters.long()].view(-1, width),
        column=column,
        token_ids=torch.tensor(token_ids),
        value=value,
        character=_padded([*places, []], num_slots, 0),
        num_terms=((classes >= 0).sum(-1) >= 2).sum(-1),
        classes=classes,
        member_column=column[[token_id for group in members for token_id in group]],
        member_group=torch.tensor([index for index, group in enumerate(members) for _ in group]),
        num_members=torch.tensor([len(group) for group in members]),
    )


def _find_kinds(texts: Sequence[str | None], decimal_point: str | None, thousands_separator: str | None) -> list[str]:
    """Kinds of the characters of each token, one symbol each, less what no reading can depend on."""
    kind_of = {
        ord(character): _kind(character, decimal_point, thousands_separator)
        for character in set().union(*(text for text in texts if text))
    }
    kinds = []
    for text in texts:
        kind = _SYMBOLS[OTHER] if text is None else text.translate(kind_of)
        kind = re.sub("(?<=[^dz])s|s(?=[^dz])", "o", kind)  # a separator beside something else than a digit
        kind = re.sub("p+(?=[ols])", "o", kind)  # points before neither digit nor point
        kind = re.sub("[ol]+(?=[ol])", "", kind)  # of other characters and letters only the last has a neighbour
        kinds.append(re.sub("p{3,}", "pp", kind))
    return kinds


def _kind(character: str, decimal_point: str | None, thousands_separator: str | None) -> str:
    if character.isascii() and character.isdigit():
        return "z" if character == "0" else "d"
    if character == decimal_point:
        return "p"
    if character == thousands_separator:
        return "s"
    # U+FFFD is a fragment of a character beyond ASCII; most of those that are split are letters
    return "l" if character.isalpha() or character == "\ufffd" else "o"


def _find_classes(
    families: dict[str, list[int]], digits: dict[int, list[int]], num_slots: int
) -> tuple[Int[Tensor, "columns K 10"], list[list[int]]]:
    """Classes of each digit of each digit token, and the token ids of each group."""
    row = {token_id: index for index, token_id in enumerate(sorted(digits))}
    classes = torch.full((len(digits) + 1, num_slots, 10), -1)
    members: list[list[int]] = []
    for pattern, ids in families.items():
        for slot in range(pattern.count("\0")):
            groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
            for token_id in ids:
                groups[tuple(digits[token_id][: slot + 1])].append(token_id)
            index = {prefix: len(members) + i for i, prefix in enumerate(groups)}
            members.extend(groups.values())
            for prefix, group in groups.items():
                alternatives = [index.get((*prefix[:-1], digit), -1) for digit in range(10)]
                classes[[row[token_id] for token_id in group], slot] = torch.tensor(alternatives)
    return classes, members


def _padded(rows: list[list[int]], width: int, filler: int) -> Int[Tensor, "columns K"]:
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])
