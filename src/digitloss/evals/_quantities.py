r"""Numbers as people and models write them, read as exact fractions.

    "$1,234.50"   "1.2345e3"   "2 1/2"   "\frac{3}{4}"   "50%"   "$1.5 million"   "-7 km"

Text is matched, never run. A run of digits that is not one number (`1.2.3`, `12,34`, `5:30`, `12/05/2020`) is none, a
digit behind a letter (`x2`) or in an exponent of a unit (`m^2`) neither. Units are not read.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

MAX_LENGTH = 100
"""Characters of a number; longer ones are noise."""

_SIGNS = str.maketrans({"\N{MINUS SIGN}": "-", "\N{MULTIPLICATION SIGN}": "*", "\N{FRACTION SLASH}": "/"})
_VULGAR = re.compile("[\N{VULGAR FRACTION ONE QUARTER}-\N{VULGAR FRACTION THREE QUARTERS}\u2150-\u215e]")
_TERM = r"(?:\{\s*([0-9]{1,50})\s*\}|([0-9]))"
_LATEX = [  # pattern, what it is in plain text
    (re.compile(r"(?<!\\)\$(?! )([^$\n]{1,200}?)(?<![ \\])\$(?![0-9])"), r"\1"),
    (re.compile(r"(?<=[0-9])(?=\\[dtc]?frac)"), " "),
    (re.compile(r"\\[dtc]?frac\s{0,9}" + _TERM + r"\s{0,9}" + _TERM), r"\1\2/\3\4 "),
    (re.compile(r"\{,\}|\\!,|,\\!|(?<=[0-9])\\,(?=[0-9]{3})"), ","),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox|boxed|fbox)\b|[{}](?![0-9])"), " "),
    (re.compile(r"\\(?:times|cdot)\b"), "*"),
    (re.compile(r"\\([%$])"), r"\1"),
    (re.compile(r"\\[,;:! ()\[\]]|[\u00a0\u2009\u202f]"), " "),
    (re.compile(r"(?<=[0-9]) ?/ ?(?=[0-9])"), "/"),
    (re.compile(r"(?<![0-9)])(?<![0-9]\})[\^_]\{?-?[0-9]+"), " "),  # m^2, x_1
]
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_CURRENCY = r"(?:(?:US|CA|A)?[$\u20ac\u00a3\u00a5\u20b9]|USD|EUR|GBP|INR|Rs\.?)"
_CHUNK = re.compile(
    rf"""
    (?<![A-Za-z0-9_]) (?<![0-9][.,:/])
    (?P<minus> (?<!\)) - )? (?:{_CURRENCY}\ {{0,2}})? (?P<minus_behind> - )?
    (?: (?P<whole>[0-9]+) (?:\ {{1,3}}|-|\ and\ ) (?=[0-9]+/[0-9]+(?![0-9.,:/]*[0-9])) )?
    (?P<run> (?:(?<!\.)\.)? [0-9] (?: [0-9] | [.,:/](?=[0-9]) )* )
    (?: [eE](?P<exponent>[+-]?[0-9]{{1,2}})(?![0-9A-Za-z])
      | \ ?[*x]\ ?10\ ?\^\ ?\{{?(?P<power>[+-]?[0-9]{{1,2}})(?![0-9])\}}?
      | \^\{{?(?P<own_power>[0-9]{{1,2}})(?![0-9])\}}?
    )?
    (?:\ ?(?P<scale>thousand|million|billion|trillion)\b)?
    (?P<percent> \ ?(?:%|percent\b|per\ cent\b) )?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_DECIMAL = re.compile(r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.(?P<decimals>[0-9]+))?")


@dataclass(frozen=True)
class Quantity:
    """A number in a text."""

    text: str
    """As written, with its sign, currency and percent sign."""
    value: Fraction
    """Without regard to the percent sign."""
    num_decimals: int | None
    """Decimals written; None for a fraction, which is exact."""
    is_percent: bool


def plain(text: str) -> str:
    """Return the text with typographic signs and the LaTeX of numbers in plain characters."""
    text = _VULGAR.sub(lambda found: " " + unicodedata.normalize("NFKC", found[0]), text).translate(_SIGNS)
    for pattern, replacement in _LATEX if any(mark in text for mark in "\\{^_/$\u00a0\u2009\u202f") else ():
        text = pattern.sub(replacement, text)
    return text


def find(text: str) -> Iterator[Quantity]:
    """Find the numbers of a plain text, from left to right."""
    for found in _CHUNK.finditer(text):
        quantity = _quantity(found)
        if quantity is not None:
            yield quantity


def last(text: str) -> Quantity | None:
    """Return the last number of a plain text; None where there is none."""
    chunks = reversed(list(_CHUNK.finditer(text)))
    return next(filter(None, map(_quantity, chunks)), None)


def only(text: str) -> Quantity | None:
    """Return the number of a text that holds one and no other; None of any other text.

    Example:
        >>> only("12.50 dollars").value
        Fraction(25, 2)
        >>> only("5 feet 3 inches") is None
        True
    """
    chunks = list(_CHUNK.finditer(plain(text))) if len(text) <= MAX_LENGTH else []
    return _quantity(chunks[0]) if len(chunks) == 1 else None


def are_equal(answer: Quantity, gold: Quantity) -> bool:
    """Say whether two numbers are equal by value, within the tolerances that `answers.equal` states."""
    if answer.is_percent == gold.is_percent:
        return _agree(answer, gold, answer.value, gold.value)
    hundredths = [Fraction(1), Fraction(1, 100)]  # 50% is 50 where the question asks for percent, and 0.5
    scaled = answer if answer.is_percent else gold
    return any(
        _agree(
            answer,
            gold,
            answer.value * (unit if scaled is answer else 1),
            gold.value * (unit if scaled is gold else 1),
        )
        for unit in hundredths
    )


def _agree(answer: Quantity, gold: Quantity, value: Fraction, right: Fraction) -> bool:
    if value == right:
        return True
    if value.denominator == 1 and right.denominator == 1:
        return False
    error = abs(value - right)
    if error <= abs(right) / 10**9:  # 0.1 + 0.2 in binary
        return True
    written = [count for count in (answer.num_decimals, gold.num_decimals) if count is not None]
    decimals = min(written, default=0)
    is_rounded = decimals >= 2 and error <= Fraction(1, 2 * 10**decimals)
    return right.denominator != 1 and is_rounded and error <= abs(right) / 1000


def _quantity(found: re.Match[str]) -> Quantity | None:
    if len(found[0]) > MAX_LENGTH:
        return None
    number = _fraction(found["whole"], found["run"]) if "/" in found["run"] else _decimal(found["run"])
    if number is None:
        return None
    value, num_decimals = number
    if found["own_power"]:
        value **= int(found["own_power"])
    exponent = int(found["exponent"] or found["power"] or 0) + _SCALES.get((found["scale"] or "").lower(), 0)
    if num_decimals is not None:
        num_decimals = max(0, num_decimals - exponent)
    value *= Fraction(10) ** exponent
    is_negative = bool(found["minus"]) != bool(found["minus_behind"])
    return Quantity(found[0].strip(), -value if is_negative else value, num_decimals, bool(found["percent"]))


def _decimal(run: str) -> tuple[Fraction, int] | None:
    found = _DECIMAL.fullmatch(run)
    return (Fraction(run.replace(",", "")), len(found["decimals"] or "")) if found else None


def _fraction(whole: str | None, run: str) -> tuple[Fraction, None] | None:
    parts = [_decimal(part) for part in run.split("/")]
    if len(parts) != 2 or parts[0] is None or parts[1] is None or parts[1][0] == 0:
        return None
    fraction = parts[0][0] / parts[1][0]
    if whole is None:
        return fraction, None
    return (int(whole) + fraction, None) if fraction < 1 else None
