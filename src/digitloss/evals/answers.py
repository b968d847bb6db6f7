r"""The answer in what a model wrote, and whether it is right. Texts in, texts out: no file is read, no text is run.

    "... so she makes 9 * 2 = $18 a day.\n#### 18"      number   "18"
    "Therefore the roots are $\boxed{\frac{1}{2}}$."    math     "\frac{1}{2}"
    "Hence the answer is (C) 24 minutes."               choice   "C"

An output without an answer gives None. What a model marks as its answer counts: the last `\boxed{...}`, else the last
`#### ...`, else the last `The answer is ...` or `Answer: ...`. A number or formula that nothing marks is taken from the
end of the output, as the benchmarks do; an option is not, unless the last line names exactly one.
"""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

from digitloss.errors import unknown_name
from digitloss.evals import _quantities, _symbolic

Kind = Literal["number", "math", "choice"]
"""A number, a formula in LaTeX, or the letter of an option."""

MAX_OUTPUT = 100_000
"""Characters of an output that are read, from its end."""
MAX_FORMULA = 1_000
"""Characters of a formula; a longer one is no answer."""
MAX_NESTING = 20
"""Braces and brackets of a formula inside each other; a deeper one is no answer."""

_CUE = re.compile(
    r"(?:\b(?:the|final|correct|right|best|my|our)\s{1,9}(?:answer|option|choice)\b[^.\n:=]{0,60}?(?:\s{1,9}is\b|[:=])"
    r"|\b(?:correct|right|best)\s{1,9}one\s{1,9}is\b|\banswer\s{1,9}is\b|\bans(?:wer)?\b[*_. ]{0,9}[:=])[:*_\s]{0,9}",
    re.IGNORECASE,
)
_BOX = re.compile(r"\\f?box(?:ed)?\s{0,9}\{")
_SENTENCE_END = re.compile(r"(?<!\bapprox)(?<!\bRs)(?<!\b[Nn]o)[.!?](?:\s|$)|\n")
_HOPE = re.compile(r"\.?\s{1,9}I hope it is correct.*", re.DOTALL)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\\\[(.+?)\\\]|\\\((.+?)\\\)|(?<!\\)\$([^$\n]+?)(?<!\\)\$(?![0-9])", re.DOTALL)


class _Marked(NamedTuple):
    """What an output marks as its answer."""

    text: str
    is_exact: bool
    """Nothing but the answer: it was in a box."""


def extract(output: str, kind: Kind, *, is_cut: bool = False) -> str | None:
    r"""Find the answer in an output.

    Args:
        output: What the model wrote; of a longer one the last `MAX_OUTPUT` characters are read.
        kind: What the answer is.
        is_cut: Whether the output was cut off at the token limit: then only a marked answer counts.

    Returns:
        The number as written (`$1,234.50`), the formula without its marks (`\frac{1}{2}`) or the letter of the option;
        None for no answer.

    Raises:
        ValueError: Unknown kind.

    Example:
        >>> extract("She sold 3 boxes for $4 each, so 3 * 4 = $12.00 in all.", "number")
        '$12.00'
        >>> extract("A man walks to the shop.", "choice") is None
        True
    """
    find, _ = _rules(kind)
    output = output[-MAX_OUTPUT:]
    marked = _marked(output)
    return None if marked is None and is_cut else find(output, marked)


def equal(answer: str, gold: str, kind: Kind) -> bool:
    r"""Say whether an answer is right.

    - `number`: by value; each text must hold one number. `1,234.50`, `1234.5` and `1.2345e3` are equal. Currency signs
      and units are not compared. `50%` equals `0.5`, and `50` where the other has no percent sign. Integers must be
      equal. Otherwise two values agree within 1e-9 of the right one (binary arithmetic). Where the right one is no
      integer, they also agree if they do after rounding to the decimals of the one that has fewer, at least two, and
      are within 1/1000 of the right one: `583.33` equals `583.3333`, and `2/3` equals `0.6667`.
    - `math`: as numbers, or equal in their text but for spaces, sizes and units, or of one value to the math-verify
      package. A comparison that does not end within 0.7 seconds says no.
    - `choice`: the same letter.

    Args:
        answer: From `extract`.
        gold: The right answer.
        kind: What the answers are.

    Raises:
        ValueError: Unknown kind.
        MissingExtraError: A formula, without the math-verify package.

    Example:
        >>> equal("$1,234.50", "1234.5", "number"), equal("18", "18.5", "number")
        (True, False)
        >>> equal(r"\dfrac{1}{2}", r"\frac12", "math")
        True
    """
    _, compare = _rules(kind)
    return compare(answer, gold)


def _marked(output: str) -> _Marked | None:
    boxed = _boxed(output)
    if boxed is not None:
        return _Marked(boxed, is_exact=True)
    behind = output.rpartition("####")
    if behind[1]:
        return _Marked(behind[2].strip().partition("\n")[0], is_exact=False)
    cues = list(_CUE.finditer(output))
    return _Marked(output[cues[-1].end() :], is_exact=False) if cues else None


def _boxed(output: str) -> str | None:
    r"""Return what the last complete \boxed holds; nothing of one that is too long to be an answer."""
    end = len(output)
    while (start := max(output.rfind(r"\boxed", 0, end), output.rfind(r"\fbox", 0, end))) >= 0:
        end = start
        opening = _BOX.match(output, start)
        inside = opening.end() if opening else len(output)
        depth = 1
        for position in range(inside, len(output)):
            depth += {"{": 1, "}": -1}.get(output[position], 0)
            if depth == 0:
                return output[inside:position].strip()
            if position - start > MAX_FORMULA:
                return ""
    return None


# Numbers


def _find_number(output: str, marked: _Marked | None) -> str | None:
    if marked is None:
        number = _quantities.last(_quantities.plain(output))
        return number.text if number else None
    sentence = _quantities.plain(_SENTENCE_END.split(marked.text.lstrip())[0])
    for part in (sentence.rpartition("=")[2], sentence):
        for number in _quantities.find(part):
            return number.text
    return None


def _equal_numbers(answer: str, gold: str) -> bool:
    numbers = _quantities.only(answer), _quantities.only(gold)
    return numbers[0] is not None and numbers[1] is not None and _quantities.are_equal(numbers[0], numbers[1])


# Formulas


def _find_formula(output: str, marked: _Marked | None) -> str | None:
    if marked is None:
        formulas = _formulas(output)
        found = formulas[-1] if formulas else _find_number(output, None)
    elif marked.is_exact:
        found = marked.text
    else:
        text = _HOPE.sub("", marked.text.lstrip())
        formula = _FORMULA.match(text)
        sentence = formula[0] if formula else _SENTENCE_END.split(text)[0]
        formulas = _formulas(sentence)
        found = formulas[0] if len(formulas) == 1 else sentence
    return _formula(found or "")


def _formulas(text: str) -> list[str]:
    """What stands between marks of mathematics."""
    return [next(filter(None, found.groups())) for found in _FORMULA.finditer(text)]


def _formula(text: str) -> str | None:
    text = text.strip(" \n\t*").removesuffix(".").strip("$ ").strip()
    return text if text and len(text) <= MAX_FORMULA and _nesting(text) <= MAX_NESTING else None


def _nesting(text: str) -> int:
    depth = deepest = 0
    for mark in text:
        depth += (mark in "{[(") - (mark in "}])")
        deepest = max(deepest, depth)
    return deepest


_SIZES = re.compile(
    r"\\(?:left|right|displaystyle|[bB]igg?[lr]?)(?![A-Za-z])|(?<!\\)\\[!,;: ]"
    r"|\^\{?\\circ\}?|\\degree|\N{DEGREE SIGN}|\\?\$"
)
_WORDS = re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox)\s?\{([^{}]*)\}")
_UNIT = re.compile(r"(?<=[0-9}])\s*\\(?:text|mathrm|mbox)\s?\{[^{}]*\}(?:\^\{?[0-9]\}?)?$")
_ASSIGNED = re.compile(r"^[A-Za-z]\s?=\s?")
_NAMES = {
    "\\dfrac": "\\frac",
    "\\tfrac": "\\frac",
    "\N{MINUS SIGN}": "-",
    "\N{GREEK SMALL LETTER PI}": "\\pi ",
    "\N{INFINITY}": "\\infty ",
    "\N{LESS-THAN OR EQUAL TO}": "\\le ",
    "\N{GREATER-THAN OR EQUAL TO}": "\\ge ",
    "\N{MULTIPLICATION SIGN}": "\\times ",
    "\N{MIDDLE DOT}": "\\cdot ",
    "\N{UNION}": "\\cup ",
    "**": "^",
}
_ROOT = re.compile(r"(?:\N{SQUARE ROOT}|(?<![\\A-Za-z])sqrt)\s?(?:\(([^()]*)\)|([0-9]+|[a-z]))")


def _equal_formulas(answer: str, gold: str) -> bool:
    texts = [_formula(answer), _formula(gold)]
    if texts[0] is None or texts[1] is None:
        return False
    answer, gold = (_in_latex(text) for text in texts if text)
    if _bare(answer) == _bare(gold):
        return True
    names = {name[0] for name in map(_ASSIGNED.match, (answer, gold)) if name}
    numbers = _lone_number(answer), _lone_number(gold)
    if numbers[0] and numbers[1] and len(names) < 2:
        return _quantities.are_equal(numbers[0], numbers[1])
    return _symbolic.are_equal(gold, answer)


def _lone_number(formula: str) -> _quantities.Quantity | None:
    """The number of a formula that is nothing else, but for a name in front and a unit behind."""
    text = _quantities.plain(_UNIT.sub("", _ASSIGNED.sub("", formula))).strip(" .{}")
    number = _quantities.only(text)
    return number if number and number.text == text else None


def _in_latex(text: str) -> str:
    for name, standard in _NAMES.items():
        text = text.replace(name, standard)
    return _ROOT.sub(r"\\sqrt{\1\2}", _SIZES.sub("", text))


def _bare(text: str) -> str:
    words = _WORDS.sub(r"\1", text)
    return re.sub(r"(?<![0-9])\s+|\s+(?![0-9])", "", words if words != text else text)


# Options

_LETTER = (
    r"[\s*_$({\[\"'`]{0,9}(?:\\(?:text|mathrm|mathbf|textbf)\s?\{)?[({\[]{0,3}(?P<letter>[A-Ja-j])(?![A-Za-z0-9'_])"
)
_NAMED = re.compile(r"\(?(?:option|choice|answer)?\s?" + _LETTER, re.IGNORECASE)
_PROSE_AFTER = re.compile(r"\s+(?!(?:is|was|because|since|as|and|with|which|for|from|that|by)\b)[a-z0-9$]")
_ANOTHER = re.compile(r"[)\]}*\s]{0,5}(?:,|/|&|\bor\b|\band\b)[\s(\[*]{0,5}[A-J](?![A-Za-z0-9'])")
_OPTION_MARK = re.compile(r"\(([A-J])\)|(?:^|\n)[\s*(]{0,9}([A-J])[).:](?=\s|\*)")
_ALONE = re.compile(r"[\W_]{0,9}(?:(?:option|choice)\s)?[\W_]{0,9}([A-Ja-j])[\W_]{0,9}", re.IGNORECASE)
_CORRECT = re.compile(r"(?<![A-Za-z])\(?([A-J])\)?\s(?:is|must\sbe)\s(?:the\s)?(?:correct|right|answer)\b")
_CHOSEN = re.compile(r"\b(?:it's|it\sis|it\smust\sbe|choose|pick|select)\s(?:option\s)?\(?([A-HJ])\)?[.!*\s]{0,9}$")


def _find_option(output: str, marked: _Marked | None) -> str | None:
    if marked is not None:
        return _named_option(marked.text)
    correct = set(_CORRECT.findall(output))
    if correct:
        return correct.pop() if len(correct) == 1 else None
    last = output.strip().rpartition("\n")[2]
    alone = _ALONE.fullmatch(last) or _CHOSEN.search(last)
    if alone:
        return alone[1].upper()
    in_last, in_all = ({first or second for first, second in _OPTION_MARK.findall(text)} for text in (last, output))
    starts_with_it = _OPTION_MARK.match(last) is not None
    return in_last.pop() if len(in_last) == 1 and (len(in_all) == 1 or not starts_with_it) else None


def _named_option(text: str) -> str | None:
    found = _NAMED.match(text)
    if found is None:
        return None
    letter, rest = found["letter"], text[found.end() :]
    is_bare = not re.search(r"[({\[*]\s*$", text[: found.start("letter")])
    is_word = letter in "AI" and _PROSE_AFTER.match(rest)
    is_variable = re.match(r"\s*[=^+<>]", rest) or (letter.islower() and re.match(r"\s+\S", rest))
    if (is_bare and (is_word or is_variable)) or _ANOTHER.match(rest):
        return None
    return letter.upper()


def _equal_options(answer: str, gold: str) -> bool:
    letters = _ALONE.fullmatch(answer[:MAX_FORMULA]), _ALONE.fullmatch(gold[:MAX_FORMULA])
    return letters[0] is not None and letters[1] is not None and letters[0][1].upper() == letters[1][1].upper()


_RULES: dict[str, tuple[Callable[[str, _Marked | None], str | None], Callable[[str, str], bool]]] = {
    "number": (_find_number, _equal_numbers),
    "math": (_find_formula, _equal_formulas),
    "choice": (_find_option, _equal_options),
}


def _rules(kind: str) -> tuple[Callable[[str, _Marked | None], str | None], Callable[[str, str], bool]]:
    if kind not in _RULES:
        raise unknown_name("kind of answer", kind, get_args(Kind))
    return _RULES[kind]
