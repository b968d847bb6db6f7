"""Which digits, decimal points and thousands separators each token of a tokenizer holds.

    "-12.5"  ->  other, digit 1, digit 2, point, digit 5      pattern "-##.#"

Tokens of one pattern (the text with every digit replaced by `#`) are a *family*: they are each other's alternatives,
and only they compete for a digit. A token of several digits is read from left to right: its k-th digit competes with
the k-th digits of the family's tokens that agree with it before.

The tokenizer is read, never changed. What this file does not do: find numbers in a text (`spans.py`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from digitloss.errors import TokenizerError
from digitloss.numbers._tables import Tables, build_tables, find_families
from digitloss.numbers._texts import Tokenizer, texts_in_context


@dataclass(frozen=True, kw_only=True)
class Family:
    """Tokens of one pattern, as `NumberVocab.describe` counts them."""

    pattern: str
    """Text of its tokens with `#` for each digit."""
    num_digits: int
    """Digits in each token."""
    num_tokens: int
    """Tokens of the family."""
    num_holes: int
    """Texts of the pattern that are no token."""
    num_lone_digits: int
    """Digits of its tokens that have fewer than two possible classes; they get no numeric term."""


@dataclass(frozen=True, kw_only=True)
class VocabSummary:
    """What `NumberVocab.describe` counts. Its text is a table for people."""

    num_tokens: int
    """Ids of the tokenizer."""
    families: tuple[Family, ...]
    """Largest first."""

    @property
    def num_digit_tokens(self) -> int:
        """Tokens that hold a digit."""
        return sum(family.num_tokens for family in self.families)

    @property
    def num_lone_digits(self) -> int:
        """Digits of the vocabulary that have fewer than two possible classes; they get no numeric term."""
        return sum(family.num_lone_digits for family in self.families)

    def __str__(self) -> str:
        """Return the summary as a table."""
        width = max(7, *(len(repr(family.pattern)) for family in self.families))
        lines = [
            f"{self.num_digit_tokens} of {self.num_tokens} tokens hold digits; families: {len(self.families)}",
            f"{'pattern':<{width}}  tokens  holes  lone digits",
        ]
        lines += [
            f"{family.pattern!r:<{width}}  {family.num_tokens:>6}  {family.num_holes:>5}  {family.num_lone_digits:>11}"
            for family in self.families
        ]
        return "\n".join(lines)


class NumberVocab:
    """The digits, decimal points and thousands separators of each token of a tokenizer.

    Made by `from_tokenizer` or `from_tokens`; it keeps texts and small tables, not the tokenizer.

    Example:
        >>> vocab = NumberVocab.from_tokens(["1", "2", "3", ".", " ", "12", "13"])
        >>> print(vocab.describe())
        5 of 7 tokens hold digits; families: 2
        pattern  tokens  holes  lone digits
        '#'           3      7            0
        '##'          2     98            2
    """

    def __init__(self, tokens: Iterable[str | None], *, decimal_point: str | None, thousands_separator: str | None):
        _check_mark("decimal_point", decimal_point)
        _check_mark("thousands_separator", thousands_separator)
        if decimal_point is not None and decimal_point == thousands_separator:
            raise ValueError(
                f"decimal_point and thousands_separator must differ, got {decimal_point!r} for both;"
                " None switches one of them off"
            )
        self.tokens = tuple(tokens)
        """Text that each id adds in context; None where it has no readable text."""
        for token_id, text in enumerate(self.tokens):
            if text is not None and not isinstance(text, str):
                raise TypeError(f"tokens must be texts or None, got {text!r} for id {token_id}")
        self.decimal_point = decimal_point
        """The character before the decimals, or None."""
        self.thousands_separator = thousands_separator
        """The character between groups of three digits, or None."""
        self._families = find_families(self.tokens)
        if not self._families:
            raise TokenizerError(
                f"no digit tokens: looked for the ASCII digits 0-9 in the texts of {len(self.tokens)} tokens and found"
                " none (digits of special, added, byte-fallback and reserved tokens do not count)."
                " A numeric loss needs a tokenizer whose ordinary tokens spell numbers."
            )
        with torch.inference_mode(False):  # tables that were made in inference mode could not be trained with
            tables = build_tables(
                self.tokens, self._families, decimal_point=decimal_point, thousands_separator=thousands_separator
            )
        self._tables = {tables.column.device: tables}
        self.largest_digit_id = int(tables.token_ids[-1])
        """Largest id of a token that holds a digit: the logits of a model need at least one column more."""

    @classmethod
    def from_tokenizer(
        cls, tokenizer: Tokenizer, *, decimal_point: str | None = ".", thousands_separator: str | None = ","
    ) -> "NumberVocab":
        """Read a Hugging Face tokenizer, fast or slow. It is not changed.

        Args:
            tokenizer: The tokenizer that makes the labels.
            decimal_point: The character before the decimals; None where numbers have none.
            thousands_separator: The character between groups of three digits; None where numbers have none.

        Raises:
            TokenizerError: No ordinary token holds a digit, or a token cannot be read in context.
        """
        if isinstance(tokenizer, list | tuple | str):
            raise TypeError(
                f"expected a tokenizer, got a {type(tokenizer).__name__}: pass a list of texts to from_tokens, and load"
                " a name with AutoTokenizer.from_pretrained first"
            )
        texts = texts_in_context(tokenizer)
        return cls(texts, decimal_point=decimal_point, thousands_separator=thousands_separator)

    @classmethod
    def from_tokens(
        cls, tokens: Iterable[str | None], *, decimal_point: str | None = ".", thousands_separator: str | None = ","
    ) -> "NumberVocab":
        """Read a plain list: `tokens[id]` is the text that the token adds.

        Args:
            tokens: The texts, with a leading space where a token has one; None where an id is unused or special.
            decimal_point: The character before the decimals; None where numbers have none.
            thousands_separator: The character between groups of three digits; None where numbers have none.

        Raises:
            TokenizerError: No token holds a digit.
        """
        return cls(tokens, decimal_point=decimal_point, thousands_separator=thousands_separator)

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self.tokens)

    def describe(self) -> VocabSummary:
        """Count the families, their holes, and the digits that fewer than two classes compete for."""
        tables = self.tables()
        num_lone = (tables.value >= 0).sum(-1) - tables.num_terms
        families = [
            Family(
                pattern=pattern.replace("\0", "#"),
                num_digits=pattern.count("\0"),
                num_tokens=len(ids),
                num_holes=10 ** pattern.count("\0") - len({self.tokens[token_id] for token_id in ids}),
                num_lone_digits=int(num_lone[tables.column[ids]].sum()),
            )
            for pattern, ids in self._families.items()
        ]
        return VocabSummary(
            num_tokens=len(self),
            families=tuple(sorted(families, key=lambda family: (-family.num_tokens, family.pattern))),
        )

    def rows_of(self, token_ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
        """Row of each id in the tables; ids that are no tokens share the last one."""
        return torch.where((token_ids >= 0) & (token_ids < len(self)), token_ids, len(self))

    def columns_of(self, token_ids: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
        """Index of each id among the digit tokens; all others share the last one."""
        return self.tables(token_ids.device).column[self.rows_of(token_ids)]

    def tables(self, device: torch.device | str = "cpu") -> Tables:
        """Return the vocabulary as tensors of a device; they are copied there once (fake ones are not kept)."""
        key = torch.device(device)
        if key in self._tables:
            return self._tables[key]
        on_cpu = self._tables[torch.device("cpu")]
        with torch.inference_mode(False):
            tables = Tables(*(table.to(key) for table in on_cpu))
        if type(tables.column) is Tensor:
            self._tables[key] = tables
        return tables


def _check_mark(name: str, mark: str | None) -> None:
    if mark is None:
        return
    if not isinstance(mark, str) or len(mark) != 1 or mark.isalnum():
        raise ValueError(f"{name} must be None or one character that is neither letter nor digit, got {mark!r}")
