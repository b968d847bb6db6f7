"""A loss of a comparison as it is written on the command line.

    digit_entropy
    digit_entropy:distance=absolute,alpha=0.05
    again=cross_entropy:stream=1

In front of `=` stands a name of one's own; after `:` come options of the loss, and beside them `alpha`, `normalize` and
`stream`. Variants of one stream share starts and batches. Another stream has others, independent of them: the same loss
twice in two streams (an A/A comparison) shows what chance alone does.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from digitloss.errors import unknown_name
from digitloss.losses import AbstractDigitLoss, Objective, load, names
from digitloss.numbers import NumberVocab

_NAME = re.compile(r"(?:(?P<label>[\w.+-]+)=)?(?P<loss>[\w.+-]+)(?::(?P<options>[\w.+=,-]+))?")
_SEEDS_A_STREAM = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One loss with its options.

    Example:
        >>> variant = Variant.parse("flat=dist2:tau=4,alpha=0.3")
        >>> variant.label, variant.loss, dict(variant.options), variant.alpha
        ('flat', 'dist2', {'tau': 4.0}, 0.3)
    """

    label: str
    """Its name in tables and files: the whole text, or what stands before `=`."""
    loss: str
    """Name of the loss."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the loss's dataclass."""
    alpha: float | None = None
    """Weight of the numeric term; None: not given."""
    normalize: str = "tokens"
    """What the numeric sum is divided by."""
    stream: int = 0
    """Number of the stream of starts and batches."""

    @classmethod
    def parse(cls, text: str) -> "Variant":
        """Read a variant.

        Args:
            text: `[NAME=]LOSS[:OPTION=VALUE,...]`.

        Raises:
            ValueError: Another form, an unknown name or a value out of range.
        """
        match = _NAME.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"a loss is written [NAME=]LOSS[:OPTION=VALUE,...], got {text!r}")
        given: dict[str, Any] = {}
        for option in (match["options"] or "").split(",") if match["options"] else []:
            name, equals, value = option.partition("=")
            if not (name and equals and value):
                raise ValueError(f"options of a loss are written OPTION=VALUE, got {option!r} in {text!r}")
            if name in given:
                raise ValueError(f"option {name!r} is there twice in {text!r}")
            given[name] = _value(value)
        stream = given.pop("stream", 0)
        if not (isinstance(stream, float) and stream.is_integer() and stream >= 0) and stream != 0:
            raise ValueError(f"stream must be a whole number of at least 0, got {stream!r} in {text!r}")
        variant = cls(
            label=match["label"] or text.strip(),
            loss=match["loss"],
            alpha=given.pop("alpha", None),
            normalize=given.pop("normalize", "tokens"),
            stream=int(stream),
            options=given,
        )
        if variant.loss not in names():
            raise unknown_name("loss", variant.loss, names())
        digits = NumberVocab.from_tokens([*"0123456789"])
        variant.objective(digits, head=nn.Linear(1, 10, bias=False))  # checks all options
        return variant

    @property
    def takes_alpha(self) -> bool:
        """True for a term that is added with a weight."""
        return isinstance(load(self.loss, **self.options), AbstractDigitLoss)

    def objective(
        self, vocab: NumberVocab, *, head: Tensor | nn.Module, alpha: float | None = None, fused: bool = True
    ) -> Objective:
        """Make the objective.

        Args:
            vocab: What the tokens of the labels hold.
            head: The model's output head, for losses that read it.
            alpha: Weight of the numeric term; None: the variant's own, or else the loss's default.
            fused: As for `Objective`.
        """
        options: dict[str, Any] = {**self.options, "normalize": self.normalize}
        weight = self.alpha if alpha is None else alpha
        return Objective(vocab, self.loss, alpha=weight, head=head, fused=fused, **options)

    def seed(self, seed: int) -> int:
        """Return the seed of its start and batches for a seed of the comparison."""
        return seed + _SEEDS_A_STREAM * self.stream


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
