"""Scores of written answers against right ones. Numbers are decimals and are compared by value."""

import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from scipy.stats import binomtest

_CHUNK = re.compile(r"(?:(?<![\w)])-)?[0-9.,]*[0-9](?:[eE][+-]?[0-9]+)?")
_NUMBER = re.compile(r"-?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?")
_MAX_LENGTH = 100  # characters of a number: longer ones are noise, whose errors no mean survives


class Answer(NamedTuple):
    """What a model wrote to a question."""

    kind: str
    question: str
    gold: str
    output: str


def number_in(text: str) -> Decimal | None:
    """Return the last number of a text, or of what stands behind its last `####`; None where it is not one number.

    Example:
        >>> number_in("7 boxes of 1,200 are 8,400. #### 8,400.0 kg")
        Decimal('8400.0')
        >>> number_in("version 1.2.3") is None
        True
    """
    chunks = _CHUNK.findall(text.rpartition("####")[2])
    if not chunks or len(chunks[-1]) > _MAX_LENGTH or not _NUMBER.fullmatch(chunks[-1]):
        return None
    return Decimal(chunks[-1].replace(",", ""))


def right_number(gold: str) -> Decimal | None:
    """Return the number of a right answer: of one that holds a single number, or a `####`; None of any other.

    Lists, boxes, times and fractions are no single number: they are compared as texts.

    Example:
        >>> right_number("8 apples"), right_number("12:30"), right_number("[110,250]"), right_number("3 + 4 #### 7")
        (Decimal('8'), None, None, Decimal('7'))
    """
    is_single = len(_CHUNK.findall(gold)) == 1 and "[" not in gold
    return number_in(gold) if is_single or "####" in gold else None


def is_right(answer: Answer) -> bool:
    """Say whether an answer is right: by value where the right one is a number, else by its text without spaces."""
    gold = right_number(answer.gold)
    if gold is None:
        return "".join(answer.output.split()) == "".join(answer.gold.split())
    return number_in(answer.output) == gold


def absolute_error(answer: Answer) -> float | None:
    """Return how far an answer is off; None where it or the right one is no number."""
    gold, value = right_number(answer.gold), number_in(answer.output)
    return None if gold is None or value is None else float(abs(value - gold))


def score(answers: Sequence[Answer]) -> dict[str, Any]:
    """Score answers.

    Args:
        answers: At least one.

    Returns:
        `num_questions`; `exact_match`, the share of right answers, with its 95 % Wilson interval over the questions;
        `num_unparsed`, outputs without a number where the right answer is one: wrong, and left out of the errors;
        `mean_absolute_error` and `median_absolute_error` of the others (None where there is none); `accuracy_by_place`,
        for each place of the right numbers [right, all], where a digit that was not written is wrong;
        `exact_match_by_kind`, [right, all].
    """
    by_place: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    by_kind: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    num_unparsed = 0
    for answer in answers:
        by_kind[answer.kind][0] += is_right(answer)
        by_kind[answer.kind][1] += 1
        gold, value = right_number(answer.gold), number_in(answer.output)
        if gold is None:
            continue
        num_unparsed += value is None
        written = {} if value is None else _digit_at_place(value)
        for place, digit in _digit_at_place(gold).items():
            by_place[place][0] += written.get(place) == digit
            by_place[place][1] += 1
    errors = [error for error in map(absolute_error, answers) if error is not None]
    num_right = sum(right for right, _ in by_kind.values())
    interval = binomtest(num_right, len(answers)).proportion_ci(method="wilson")
    return {
        "num_questions": len(answers),
        "exact_match": num_right / len(answers),
        "exact_match_interval": [float(interval.low), float(interval.high)],
        "exact_match_by_kind": {kind: by_kind[kind] for kind in sorted(by_kind)},
        "num_unparsed": num_unparsed,
        "mean_absolute_error": statistics.fmean(errors) if errors else None,
        "median_absolute_error": statistics.median(errors) if errors else None,
        "accuracy_by_place": {str(place): by_place[place] for place in sorted(by_place, reverse=True)},
    }


def _digit_at_place(number: Decimal) -> dict[int, str]:
    integer, _, decimals = f"{abs(number):f}".partition(".")
    places = {place: digit for place, digit in enumerate(reversed(integer))}
    places.update({-place: digit for place, digit in enumerate(decimals.rstrip("0"), 1)})
    return places
