"""Scores of written answers against exact ones. Answers are decimals and are compared by value."""

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]+)?|\.[0-9]+)")


class Answer(NamedTuple):
    """What a model wrote to a question."""

    kind: str
    question: str
    gold: str
    output: str


def score(answers: Sequence[Answer]) -> dict[str, Any]:
    """Score answers.

    Args:
        answers: At least one.

    Returns:
        `num_questions`; `exact_match`, the share of equal values, with its 95 % Wilson interval over the questions;
        `num_unparsed`, outputs that are no number: wrong, and left out of the errors; `mean_absolute_error` and
        `median_absolute_error` of the others (None where there is none); `accuracy_by_place`, for each place of the
        exact answers [right, all], where a digit that was not written is wrong; `exact_match_by_kind`, [right, all].
    """
    errors: list[Decimal] = []
    by_place: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    by_kind: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    num_right = 0
    for answer in answers:
        output = answer.output.strip()
        gold = Decimal(answer.gold)
        value = Decimal(output) if _NUMBER.fullmatch(output) else None
        is_right = value == gold
        num_right += is_right
        by_kind[answer.kind][0] += is_right
        by_kind[answer.kind][1] += 1
        if value is not None:
            errors.append(abs(value - gold))
        written = _digit_at_place(output) if value is not None else {}
        for place, digit in _digit_at_place(answer.gold).items():
            by_place[place][0] += written.get(place) == digit
            by_place[place][1] += 1
    return {
        "num_questions": len(answers),
        "exact_match": num_right / len(answers),
        "exact_match_interval": list(wilson_interval(num_right, len(answers))),
        "exact_match_by_kind": {kind: by_kind[kind] for kind in sorted(by_kind)},
        "num_unparsed": len(answers) - len(errors),
        "mean_absolute_error": float(statistics.mean(errors)) if errors else None,
        "median_absolute_error": float(statistics.median(errors)) if errors else None,
        "accuracy_by_place": {str(place): by_place[place] for place in sorted(by_place, reverse=True)},
    }


def wilson_interval(num_right: int, num_all: int, z: float = 1.959964) -> tuple[float, float]:
    """Score interval of a share (Wilson 1927), 95 % for the default z.

    With p = num_right / n: (p + z^2/2n -+ z sqrt(p (1 - p) / n + z^2/4n^2)) / (1 + z^2/n).

    Example:
        >>> low, high = wilson_interval(81, 263)  # Newcombe 1998, table I: .2553 to .3662
        >>> print(f"{low:.4f} {high:.4f}")
        0.2553 0.3662
    """
    share = num_right / num_all
    center = share + z * z / (2 * num_all)
    half = z * math.sqrt(share * (1 - share) / num_all + (z / (2 * num_all)) ** 2)
    scale = 1 + z * z / num_all
    return max(0.0, (center - half) / scale), min(1.0, (center + half) / scale)


def _digit_at_place(number: str) -> dict[int, str]:
    integer, _, decimals = number.lstrip("-").partition(".")
    places = {place: digit for place, digit in enumerate(reversed(integer))}
    places.update({-place: digit for place, digit in enumerate(decimals, 1)})
    return places
