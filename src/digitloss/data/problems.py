"""Short numeric problems with exact decimal answers, made from a seed.

    "pay 7.35 with 20:"  ->  "12.65"
    "3x - 1.5, x = 4:"   ->  "10.5"

Answers are computed by `decimal` in a context that refuses rounding: an inexact answer would raise, not slip through.
A question belongs to one split for ever, by a hash of its text, so no two splits share a question, whatever the seeds.
 What this file does not do: spoken language (the wording is fixed, one form a kind), and counting `2 + 3` and
`3 + 2` as one question.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation, localcontext
from random import Random
from typing import Literal, get_args

from digitloss.errors import unknown_name

Split = Literal["train", "validation", "test"]

_SHARES: dict[int, Split] = {0: "test", 1: "validation"}  # of the hash modulo 10; the other eight are for training
_MAX_REPEATS = 5_000  # draws without a new held-out question after which a kind counts as used up


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A question and its exact answer."""

    kind: str
    """One of `KINDS`."""
    question: str
    """Printable ASCII, at most 36 characters."""
    answer: str
    """Plain decimal: no exponent, no trailing zeros after the point, no trailing point, `-` if negative."""


def _sum(random: Random) -> tuple[str, Decimal]:
    first, second = _decimal(random, 10, 99), _decimal(random, 10, 99)
    return f"{_plain(first)} + {_plain(second)} =", first + second


def _difference(random: Random) -> tuple[str, Decimal]:
    first, second = _decimal(random, 10, 99), _decimal(random, 10, 99)
    return f"{_plain(first)} - {_plain(second)} =", first - second


def _product(random: Random) -> tuple[str, Decimal]:
    factors = [_decimal(random, 2, 39, places=random.randint(0, 2)), Decimal(random.randint(2, 9))]
    random.shuffle(factors)
    return f"{_plain(factors[0])} * {_plain(factors[1])} =", factors[0] * factors[1]


def _percentage(random: Random) -> tuple[str, Decimal]:
    percent, whole = 10 * random.randint(1, 9), _decimal(random, 2, 49, places=random.randint(0, 2))
    return f"{percent}% of {_plain(whole)} =", whole * percent / 100


def _change(random: Random) -> tuple[str, Decimal]:
    paid = random.choice((5, 10, 20))
    price = _decimal(random, 10, 100 * paid - 1, places=2)
    return f"pay {_plain(price)} with {paid}:", paid - price


def _average(random: Random) -> tuple[str, Decimal]:
    places = random.randint(0, 2)
    low, half_gap = _decimal(random, 2, 69, places=places), _decimal(random, 1, 4, places=places)
    numbers = [low, low + 2 * half_gap]
    random.shuffle(numbers)
    return f"mean of {_plain(numbers[0])}, {_plain(numbers[1])}:", low + half_gap


def _conversion(random: Random) -> tuple[str, Decimal]:
    source, target, factor = random.choice(_UNITS)
    amount = _decimal(random, 10, 999, places=random.randint(1, 2))
    return f"{_plain(amount)} {source} in {target}:", amount * Decimal(factor)


def _rate(random: Random) -> tuple[str, Decimal]:
    unit, hours = random.choice(("km", "l", "kg")), random.randint(2, 5)
    rate = _decimal(random, 2, 49, places=random.randint(0, 2))
    return f"{_plain(rate * hours)} {unit} in {hours} h: {unit}/h?", rate


def _linear(random: Random) -> tuple[str, Decimal]:
    slope, x, sign = random.randint(2, 5), random.randint(2, 5), random.choice("+-")
    constant = _decimal(random, 10, 99)
    value = slope * x + (constant if sign == "+" else -constant)
    return f"{slope}x {sign} {_plain(constant)}, x = {x}:", value


_UNITS = (
    ("km", "m", "1000"),
    ("m", "km", "0.001"),
    ("m", "cm", "100"),
    ("cm", "m", "0.01"),
    ("kg", "g", "1000"),
    ("g", "kg", "0.001"),
    ("l", "ml", "1000"),
    ("ml", "l", "0.001"),
)

_MAKERS: dict[str, Callable[[Random], tuple[str, Decimal]]] = {
    "sum": _sum,
    "difference": _difference,
    "product": _product,
    "percentage": _percentage,
    "change": _change,
    "average": _average,
    "conversion": _conversion,
    "rate": _rate,
    "linear": _linear,
}

KINDS: tuple[str, ...] = tuple(_MAKERS)
"""Names of the kinds of problem. A new kind is one function above and its line in the table."""


def generate_problems(
    num_problems: int, *, seed: int, split: Split = "train", kinds: Sequence[str] = KINDS
) -> list[Problem]:
    """Make problems of the given kinds, evenly mixed, in an order that the seed decides.

    Held-out problems of one call are distinct. Train problems are drawn freely and may repeat.

    Args:
        num_problems: How many, at least 1.
        seed: Same seed, same problems.
        split: No question is in two splits, whatever the seeds; one question in ten is a test question, and one in ten
            a validation question.
        kinds: Names from `KINDS`; a name given twice counts twice.

    Returns:
        `num_problems` problems; the counts of the kinds differ by at most one.

    Raises:
        ValueError: Unknown kind or split, no problems asked for, or more held-out problems than exist.

    Example:
        >>> [problem] = generate_problems(1, seed=0, kinds=["change"])
        >>> problem
        Problem(kind='change', question='pay 7.86 with 10:', answer='2.14')
    """
    _check(num_problems, split, kinds)
    random = Random(seed)
    order = [kinds[index % len(kinds)] for index in range(num_problems)]
    random.shuffle(order)
    seen: set[str] = set()
    problems: list[Problem] = []
    with localcontext(Context(prec=28, traps=[Inexact, InvalidOperation])):
        for kind in order:
            problem = _draw(random, kind, split, seen)
            if problem is None:
                raise ValueError(_used_up(kind, num_problems, [made.kind for made in problems].count(kind)))
            problems.append(problem)
            if split != "train":
                seen.add(problem.question)
    return problems


def _check(num_problems: int, split: str, kinds: Sequence[str]) -> None:
    if num_problems < 1:
        raise ValueError(f"num_problems must be at least 1, got {num_problems}")
    if split not in get_args(Split):
        raise unknown_name("split", split, get_args(Split))
    if not kinds:
        raise ValueError(f"kinds must name at least one kind, got none; choices: {', '.join(KINDS)}")
    for kind in kinds:
        if kind not in _MAKERS:
            raise unknown_name("kind of problem", kind, KINDS)


def _draw(random: Random, kind: str, split: Split, seen: set[str]) -> Problem | None:
    for _ in range(_MAX_REPEATS):
        question, answer = _MAKERS[kind](random)
        if _split_of(question) == split and question not in seen:
            return Problem(kind=kind, question=question, answer=_plain(answer))
    return None


def _split_of(question: str) -> Split:
    digest = hashlib.sha256(question.encode()).digest()
    return _SHARES.get(int.from_bytes(digest[:8], "big") % 10, "train")


def _used_up(kind: str, num_problems: int, num_found: int) -> str:
    return (
        f"num_problems must not exceed the distinct held-out problems that exist: got {num_problems}, but kind {kind!r}"
        f" was used up after {num_found}; ask for fewer problems or for more kinds"
    )


def _decimal(random: Random, low: int, high: int, *, places: int = 1) -> Decimal:
    return Decimal(random.randint(low, high)).scaleb(-places)


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"
