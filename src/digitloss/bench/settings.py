"""What is measured: shapes and types, and the cases that are run against each other on them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch

import digitloss.losses as losses
from digitloss.errors import unknown_name

PATHS = ("logits", "hidden", "numbers")
DTYPES = ("float32", "bfloat16", "float16")
BASELINE = "cross_entropy"
"""`F.cross_entropy` in float32 on all logits; on hidden states, after the product that makes them."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Inputs of one measurement and its cases.

    A case is `cross_entropy` (torch's, the baseline), `objective:LOSS`, `autograd:LOSS` (the objective in plain
    autograd, on logits), `number_finding`, or a peer: `ntloss`, `linear_cross_entropy` (torch's), `liger`,
    `cut_cross_entropy` (on hidden states).
    """

    path: Literal["logits", "hidden", "numbers"] = "logits"
    """From logits, from hidden states, or finding numbers alone."""
    batch_size: int = 4
    length: int = 512
    vocab_size: int = 32000
    """Columns of the logits."""
    hidden_size: int = 896
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = "cpu"
    digits: float = 0.15
    """Share of the labels that are digit tokens."""
    longest_token: int = 1
    """Digits of the longest digit token; 3: 1,110 digit tokens, as Llama-3 has."""
    cases: tuple[str, ...] = (BASELINE, *(f"objective:{name}" for name in losses.names()))

    def __post_init__(self) -> None:
        """Check the options."""
        for option, value, choices in (("path", self.path, PATHS), ("dtype", self.dtype, DTYPES)):
            if value not in choices:
                raise unknown_name(option, value, choices)
        for option in ("batch_size", "length", "hidden_size", "longest_token"):
            if getattr(self, option) < 1:
                raise ValueError(f"{option} must be at least 1, got {getattr(self, option)}")
        if not 0 <= self.digits <= 1:
            raise ValueError(f"digits must lie between 0 and 1, got {self.digits}")
        if self.longest_token > 4:
            raise ValueError(f"longest_token must be at most 4, got {self.longest_token}")
        if self.vocab_size <= self.num_digit_tokens:
            raise ValueError(
                f"vocab_size must be more than the {self.num_digit_tokens} digit tokens, got {self.vocab_size}"
            )
        if not self.cases:
            raise ValueError("expected at least one case, got none")

    @property
    def num_digit_tokens(self) -> int:
        """Tokens of one digit up to the longest."""
        return sum(10**length for length in range(1, self.longest_token + 1))

    @property
    def torch_dtype(self) -> torch.dtype:
        """Type of logits, or of hidden states and head."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def title(self) -> str:
        """What it is, in a line."""
        if self.path == "numbers":
            return f"finding numbers in {self.batch_size * self.length:,} tokens"
        shape = [self.batch_size, self.length, self.vocab_size]
        of = f"logits {shape}" if self.path == "logits" else f"hidden states {[*shape[:2], self.hidden_size]}"
        to = "" if self.path == "logits" else f" to {self.vocab_size:,} columns"
        tokens = "" if self.longest_token == 1 else f", {self.num_digit_tokens:,} digit tokens"
        return f"{of}{to}, {self.dtype}, {self.device}{tokens}"


_OBJECTIVES = tuple(f"objective:{name}" for name in losses.names())
_SMALL = Setting(cases=(BASELINE, *_OBJECTIVES, "autograd:emo", "number_finding", "ntloss"))
_LARGE = replace(_SMALL, batch_size=2, length=1024, vocab_size=151936)
_HIDDEN = Setting(
    path="hidden",
    batch_size=4,
    length=1024,
    vocab_size=151936,
    cases=(BASELINE, "objective:cross_entropy", "objective:digit_entropy", "linear_cross_entropy"),
)

PRESETS: Mapping[str, tuple[Setting, ...]] = {
    "quick": (Setting(batch_size=2, length=256, cases=_SMALL.cases),),
    "full": (
        _SMALL,
        replace(_SMALL, dtype="bfloat16", cases=(BASELINE, *_OBJECTIVES)),
        Setting(
            batch_size=2,
            vocab_size=128256,
            longest_token=3,
            cases=(BASELINE, "objective:cross_entropy", "objective:digit_entropy"),
        ),
        *(
            Setting(path="numbers", batch_size=1, length=length, cases=("number_finding",))
            for length in (1_000, 10_000, 100_000, 1_000_000)
        ),
        _HIDDEN,
        # no plain cross-entropy: the bfloat16 product that makes all logits takes a CPU minutes
        replace(_HIDDEN, dtype="bfloat16", cases=("objective:cross_entropy", "objective:digit_entropy")),
        _LARGE,
        replace(_LARGE, dtype="bfloat16", cases=(BASELINE, *_OBJECTIVES)),
    ),
}
