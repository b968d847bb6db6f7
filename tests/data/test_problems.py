"""The answers are worked out a second time: the question is read back from its text and computed with fractions."""

import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import pytest

from digitloss.data.problems import KINDS, Problem, generate_problems

_NUMBER = r"(\d+(?:\.\d+)?)"
_PER_METRE_OR_KILOGRAM_OR_LITRE = {
    "km": Fraction(1, 1000),
    "m": Fraction(1),
    "cm": Fraction(100),
    "kg": Fraction(1),
    "g": Fraction(1000),
    "l": Fraction(1),
    "ml": Fraction(1000),
}
_SAME_QUANTITY = ({"km", "m", "cm"}, {"kg", "g"}, {"l", "ml"})


def _convert(amount: str, source: str, target: str) -> Fraction:
    assert any({source, target} <= units for units in _SAME_QUANTITY)
    return Fraction(amount) * _PER_METRE_OR_KILOGRAM_OR_LITRE[target] / _PER_METRE_OR_KILOGRAM_OR_LITRE[source]


def _linear(slope: str, sign: str, constant: str, x: str) -> Fraction:
    return Fraction(slope) * Fraction(x) + Fraction(sign + constant)


READ: dict[str, tuple[str, Callable[..., Fraction]]] = {
    "sum": (rf"{_NUMBER} \+ {_NUMBER} =", lambda a, b: Fraction(a) + Fraction(b)),
    "difference": (rf"{_NUMBER} - {_NUMBER} =", lambda a, b: Fraction(a) - Fraction(b)),
    "product": (rf"{_NUMBER} \* {_NUMBER} =", lambda a, b: Fraction(a) * Fraction(b)),
    "percentage": (rf"{_NUMBER}% of {_NUMBER} =", lambda a, b: Fraction(a) * Fraction(b) / 100),
    "change": (rf"pay {_NUMBER} with {_NUMBER}:", lambda price, paid: Fraction(paid) - Fraction(price)),
    "average": (rf"mean of {_NUMBER}, {_NUMBER}:", lambda a, b: (Fraction(a) + Fraction(b)) / 2),
    "conversion": (rf"{_NUMBER} (\w+) in (\w+):", _convert),
    "rate": (rf"{_NUMBER} (\w+) in {_NUMBER} h: \2/h\?", lambda a, unit, hours: Fraction(a) / Fraction(hours)),
    "linear": (rf"{_NUMBER}x ([+-]) {_NUMBER}, x = {_NUMBER}:", _linear),
}


def _recompute(problem: Problem) -> Fraction:
    pattern, compute = READ[problem.kind]
    match = re.fullmatch(pattern, problem.question)
    assert match, problem
    return compute(*match.groups())


def test_there_are_at_least_eight_kinds_and_each_is_read_back() -> None:
    assert len(KINDS) >= 8
    assert set(KINDS) == set(READ)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_answers_are_exact(kind: str, split: str) -> None:
    problems = generate_problems(100, seed=3, split=split, kinds=[kind])
    assert [Fraction(problem.answer) for problem in problems] == [_recompute(problem) for problem in problems]
    assert {problem.kind for problem in problems} == {kind}


def test_answers_do_not_depend_on_the_callers_decimal_context() -> None:
    expected = generate_problems(200, seed=0)
    with localcontext() as context:
        context.prec = 2
        assert generate_problems(200, seed=0) == expected
        assert context.prec == 2


def test_answers_and_operands_are_canonical() -> None:
    for problem in generate_problems(5_000, seed=0):
        assert re.fullmatch(r"-?(0|[1-9]\d*)(\.\d*[1-9])?", problem.answer), problem
        assert problem.answer != "-0"
        for operand in re.findall(_NUMBER, problem.question):
            assert operand == f"{Decimal(operand).normalize():f}", problem


def test_questions_and_answers_are_short_ascii() -> None:
    for problem in generate_problems(5_000, seed=0):
        assert re.fullmatch(r"[ -~]{1,36}", problem.question), problem
        assert problem.question == problem.question.strip()
        assert len(problem.answer) <= 8, problem


def test_most_answers_have_decimals_and_some_are_integers_or_negative() -> None:
    answers = [problem.answer for problem in generate_problems(5_000, seed=0)]
    share = sum("." in answer for answer in answers) / len(answers)
    assert 0.5 < share < 0.95
    assert any(answer.startswith("-") for answer in answers)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_seed_decides_everything(split: str) -> None:
    first = generate_problems(300, seed=1, split=split)
    assert generate_problems(300, seed=1, split=split) == first
    assert generate_problems(300, seed=2, split=split) != first


def test_the_same_problems_on_every_machine_and_in_every_process() -> None:
    questions = [problem.question for problem in generate_problems(3, seed=0, split="test")]
    assert questions == ["6.1 + 4.8 =", "0.7 * 8 =", "4.7 - 3.3 ="]


def test_no_two_splits_share_a_question() -> None:
    train = {problem.question for seed in range(3) for problem in generate_problems(8_000, seed=seed)}
    held_out = [
        {p.question for seed in range(10, 14) for p in generate_problems(900, seed=seed, split=split)}
        for split in ("validation", "test")
    ]
    assert len(train) > 8_000
    assert min(map(len, held_out)) > 900
    assert not train & held_out[0]
    assert not train & held_out[1]
    assert not held_out[0] & held_out[1]


@pytest.mark.parametrize("split", ["validation", "test"])
def test_about_one_question_in_ten_is_held_out_for_each(split: str) -> None:
    kind = ["sum"]
    train = {problem.question for problem in generate_problems(20_000, seed=0, kinds=kind)}
    held_out = {problem.question for problem in generate_problems(700, seed=0, split=split, kinds=kind)}
    assert 0.085 < len(held_out) / (len(train) / 0.8) < 0.125


@pytest.mark.parametrize("split", ["validation", "test"])
def test_held_out_problems_are_distinct(split: str) -> None:
    problems = generate_problems(900, seed=5, split=split)
    assert len({problem.question for problem in problems}) == 900


@pytest.mark.parametrize("num_problems", [1, 9, 100, 905])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_kinds_are_balanced(num_problems: int, split: str) -> None:
    counts = Counter(problem.kind for problem in generate_problems(num_problems, seed=0, split=split))
    assert counts.total() == num_problems
    assert max(counts.values()) - min(counts[kind] for kind in KINDS) <= 1


def test_kinds_are_mixed() -> None:
    kinds = [problem.kind for problem in generate_problems(900, seed=0)]
    repeats = sum(kind == following for kind, following in pairwise(kinds))
    assert 50 < repeats < 150  # 100 expected by chance, 0 in a cycle, 891 in blocks


def test_only_the_kinds_asked_for() -> None:
    problems = generate_problems(100, seed=0, kinds=["rate", "sum"])
    assert Counter(problem.kind for problem in problems) == {"rate": 50, "sum": 50}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_problems": 0}, "num_problems must be at least 1, got 0"),
        ({"num_problems": -4}, "got -4"),
        ({"kinds": ["sum", "precentage"]}, "'precentage', did you mean 'percentage'"),
        ({"kinds": []}, "at least one kind, got none"),
        ({"split": "tests"}, "'tests', did you mean 'test'"),
    ],
)
def test_impossible_requests(shapes_unchecked, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        generate_problems(**{"num_problems": 10, "seed": 0, **arguments})


def test_more_test_problems_than_exist() -> None:
    with pytest.raises(ValueError, match=r"got 2000, but kind 'rate' was used up after \d+; ask for fewer"):
        generate_problems(2_000, seed=0, split="test", kinds=["rate"])


def test_train_problems_may_be_more_than_exist() -> None:
    problems = generate_problems(5_000, seed=0, kinds=["percentage"])
    assert len({problem.question for problem in problems}) < len(problems) == 5_000


def test_how_many_test_questions_have_a_twin_in_training() -> None:
    """`b + a` of a test question may be trained on: about one in five, as the comparison page says."""
    train = {problem.question for problem in generate_problems(60_000, seed=0)}
    test = [problem.question for problem in generate_problems(1_000, seed=0, split="test")]
    swapped = [re.sub(rf"({_NUMBER})( [+*] |, )({_NUMBER})", r"\4\3\1", question) for question in test]
    num_twins = sum(twin != question and twin in train for question, twin in zip(test, swapped, strict=True))
    assert 150 < num_twins < 280
