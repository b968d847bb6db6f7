"""Means, intervals and paired differences, by hand."""

import math

import numpy as np
import pytest

from digitloss.compare import Answer, mean_interval, score, summarize


def test_the_interval_of_a_mean_by_hand():
    """Values 3, 5, 7, 9: mean 6, s = 2.582, t_3(.975) = 3.1824, half = 3.1824 * 2.582 / 2 = 4.1085."""
    found = mean_interval([3.0, 5.0, 7.0, 9.0])
    assert found["mean"] == 6
    assert found["interval"] == pytest.approx([6 - 4.1085, 6 + 4.1085], abs=5e-4)


def test_one_value_has_no_interval():
    assert mean_interval([2.0]) == {"mean": 2.0, "interval": None}


def test_the_interval_covers_the_mean_as_often_as_it_says():
    """An A/A comparison 4,000 times: paired differences of nothing, five seeds. Binomial s.e. of 95 %: .34 points."""
    differences = np.random.default_rng(0).normal(size=(4_000, 5))
    intervals = [mean_interval(list(row))["interval"] for row in differences]
    covered = np.mean([low <= 0 <= high for low, high in intervals])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4_000)


QUESTIONS = [{"kind": "sum", "question": f"q{i}", "gold": gold} for i, gold in enumerate(("1", "20", "300"))]
OUTPUTS = {
    ("cross_entropy", 0): ["1", "21", "x"],
    ("cross_entropy", 1): ["1", "20", "299"],
    ("dist2", 0): ["1", "20", "300"],
    ("dist2", 1): ["3", "20", "300"],
    ("emo", 0): ["x", "x", "x"],
    ("emo", 1): ["1", "20", "300"],
}


def run_of(loss, seed):
    outputs = OUTPUTS[loss, seed]
    answers = [Answer(**question, output=output) for question, output in zip(QUESTIONS, outputs, strict=True)]
    entropy = {"digit_token_entropy": 0.25 * (seed + 1)}
    return {"loss": loss, "seed": seed, "alpha": None, **score(answers), "teacher_forced": entropy, "outputs": outputs}


@pytest.fixture
def summary():
    runs = [run_of(*key) for key in OUTPUTS]
    return summarize(runs, QUESTIONS, labels=["dist2", "cross_entropy", "emo"], seeds=[0, 1], baseline="cross_entropy")


def test_figures_of_a_loss(summary):
    dist2, baseline, _ = summary
    assert [entry["loss"] for entry in summary] == ["dist2", "cross_entropy", "emo"]
    # exact match 1 and 2/3: mean 5/6, s = 1/sqrt(18), half = 12.7062 / sqrt(18) / sqrt(2) = 2.11770
    assert dist2["exact_match"]["by_seed"] == [1.0, pytest.approx(2 / 3)]
    assert dist2["exact_match"]["mean"] == pytest.approx(5 / 6)
    assert dist2["exact_match"]["interval"] == pytest.approx([5 / 6 - 2.1177, 5 / 6 + 2.1177], abs=5e-4)
    assert baseline["mean_absolute_error"]["by_seed"] == [0.5, pytest.approx(1 / 3)]
    assert baseline["num_unparsed"], baseline["num_answers"] == (1, 6)
    assert baseline["difference"] is None
    assert dist2["digit_token_entropy"]["mean"] == 0.375


def test_differences_are_paired_by_seed(summary):
    by_seed = summary[0]["difference"]["by_seed"]
    assert by_seed["exact_match"]["by_seed"] == pytest.approx([1 - 1 / 3, 2 / 3 - 2 / 3])
    assert by_seed["mean_absolute_error"]["by_seed"] == pytest.approx([0 - 1 / 2, 2 / 3 - 1 / 3])


def test_differences_are_paired_by_question(summary):
    by_question = summary[0]["difference"]["by_question"]
    # shares over seeds, dist2 1/2, 1, 1; cross-entropy 1, 1/2, 0: differences -1/2, 1/2, 1
    assert by_question["exact_match"]["mean"] == pytest.approx(1 / 3)
    assert by_question["exact_match"]["num_questions"] == 3
    half = 4.302653 * np.std([-0.5, 0.5, 1], ddof=1) / math.sqrt(3)
    assert by_question["exact_match"]["interval"] == pytest.approx([1 / 3 - half, 1 / 3 + half], abs=1e-5)
    # errors over seeds: 1 less 0, 0 less 1/2; the third question has an answer that is no number
    assert by_question["absolute_error"]["mean"] == pytest.approx((1 - 1 / 2) / 2)
    assert by_question["absolute_error"]["num_questions"] == 2


def test_a_seed_without_any_number_has_no_error(summary):
    emo = summary[2]
    assert emo["mean_absolute_error"]["by_seed"] == [None, 0.0]
    assert emo["mean_absolute_error"]["mean"] == 0
    assert emo["difference"]["by_seed"]["mean_absolute_error"]["by_seed"] == [None, pytest.approx(-1 / 3)]
    assert emo["difference"]["by_question"]["absolute_error"] == {"mean": None, "interval": None, "num_questions": 0}
