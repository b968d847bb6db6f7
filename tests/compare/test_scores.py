"""Scores by hand."""

from decimal import Decimal

import pytest

from digitloss.compare import Answer, score
from digitloss.compare.scores import number_in

ANSWERS = [
    Answer("sum", "1 + 1.5", "2.5", "2.50"),  # equal by value
    Answer("sum", "100 + 5", "105", "5"),  # off by 100; the tens and hundreds were not written
    Answer("sum", "1 - 4", "-3", "3"),  # off by 6, the digit is right
    Answer("rate", "0.1 * 5", "0.5", "x"),  # no number
    Answer("rate", "1 * 7", "7.0", " 8.25 "),  # off by 1.25
]


def test_scores_by_hand():
    scores = score(ANSWERS)
    assert scores["num_questions"] == 5
    assert scores["exact_match"] == 1 / 5
    assert scores["exact_match_by_kind"] == {"rate": [0, 2], "sum": [1, 3]}
    assert scores["num_unparsed"] == 1
    assert scores["mean_absolute_error"] == (0 + 100 + 6 + 1.25) / 4
    assert scores["median_absolute_error"] == (1.25 + 6) / 2
    # units: 2 of 2.5, 5 of 105, 3 are right, 0 of 0.5 and 7 are not; first decimal: 5 of 2.5 right, 5 of 0.5 not
    assert scores["accuracy_by_place"] == {"2": [0, 1], "1": [0, 1], "0": [3, 5], "-1": [1, 2]}


def test_no_number_at_all():
    scores = score([Answer("sum", "1", "1", ""), Answer("sum", "1", "1", "one"), Answer("sum", "1", "1", "1.2.3")])
    assert scores["num_unparsed"] == 3
    assert scores["mean_absolute_error"] is None
    assert scores["median_absolute_error"] is None


@pytest.mark.parametrize(
    ("gold", "wrong", "right"),
    [
        ("[110, 250]", "[9, 250]", "[110,250]"),
        ("12:30", "11:30", "12:30"),
        ("1/2", "3/2", "1/2"),
        ("3 apples and 4 pears", "9 apples and 4 pears", "3 apples and  4 pears"),
        ("1e-07", "7", "0.0000001"),
        ("2 + 2 = 4 #### 4", "2 + 3 #### 5", "4"),
    ],
)
def test_all_of_a_right_answer_counts(gold, wrong, right):
    assert score([Answer("data", "q", gold, wrong)])["exact_match"] == 0
    assert score([Answer("data", "q", gold, right)])["exact_match"] == 1


def test_an_answer_in_words_is_compared_word_by_word():
    scores = score([Answer("data", "q", "the left  one", "the left one\n"), Answer("data", "q", "left", "right 4")])
    assert scores["exact_match"] == 1 / 2
    assert scores["num_unparsed"] == 0
    assert scores["mean_absolute_error"] is None
    assert scores["accuracy_by_place"] == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12.5", "12.5"),
        ("-3", "-3"),
        ("5-3", "3"),
        ("(4)-2", "2"),
        ("x = -.5", "-.5"),
        ("1,234.50", "1234.50"),
        ("007", "7"),
        ("It costs $3.", "3"),
        ("1 + 1 = 2\n#### 2", "2"),
        ("#### 1 box of 12", "12"),
        ("1.2.3", None),
        ("12,34", None),
        ("9 #### none", None),
        ("none", None),
        ("1e3", "1e3"),
        ("1e999999999", None),
        ("9" * 101, None),
        ("", None),
        ("\N{ARABIC-INDIC DIGIT THREE}", None),
    ],
)
def test_numbers_in_texts(text, number):
    assert number_in(text) == (None if number is None else Decimal(number))


def test_a_long_output_is_read_at_once():
    assert number_in("-" * 100_000 + "1," * 100_000 + "9" * 100_000) is None
    assert number_in("9" * 100_000) is None


@pytest.mark.parametrize(
    ("right", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_is_wilsons_as_published(right, total, low, high):
    """Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    answers = [Answer("sum", "q", "1", "1" if index < right else "2") for index in range(total)]
    assert score(answers)["exact_match_interval"] == pytest.approx((low, high), abs=5e-5)
