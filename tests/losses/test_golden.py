"""Values and gradients of the reference implementation."""

import json

import pytest
import torch

import digitloss as dl

NUM_CASES = 4


@pytest.fixture(scope="module")
def cases(shared):
    cases = json.loads((shared / "golden" / "reference_losses.json").read_text())
    assert len(cases) == NUM_CASES
    return cases


@pytest.fixture(params=range(NUM_CASES))
def case(request, cases):
    return cases[request.param]


def inputs(case):
    tokens = case["tokens"]
    if isinstance(tokens, dict):
        tokens = [tokens.get(str(i)) for i in range(max(map(int, tokens)) + 1)]
    logits = torch.tensor(case["logits"], requires_grad=True)
    return dl.NumberVocab.from_tokens(tokens), logits, torch.tensor(case["labels"])


def assert_gradient(value, logits, expected):
    (gradient,) = torch.autograd.grad(value, logits)
    expected = torch.tensor(expected)
    assert (gradient - expected).norm() <= 1e-5 * expected.norm()


def test_cross_entropy(case):
    vocab, logits, labels = inputs(case)
    value = dl.Objective(vocab, loss="cross_entropy")(logits, labels)
    assert value.item() == pytest.approx(case["cross_entropy"], rel=1e-5)


def test_digit_entropy_with_the_released_place_weight(case):
    vocab, logits, labels = inputs(case)
    terms = dl.Objective(vocab, loss="digit_entropy", place="released").terms(logits, labels)
    value = terms.numeric.sum() / (10 * terms.num_digits.sum())
    assert value.item() == pytest.approx(case["del_term"], rel=1e-5)
    assert_gradient(value, logits, case["del_term_grad"])


def test_number_token(case):
    vocab, logits, labels = inputs(case)
    terms = dl.Objective(vocab, loss="number_token").terms(logits, labels)
    value = terms.numeric.sum() / (10 * terms.num_digits.sum())
    assert value.item() == pytest.approx(case["ntl_was_mean_over_10_classes"], rel=1e-5)
    assert_gradient(value, logits, case["ntl_was_grad"])


def test_dist2_with_the_integer_place_weight(case):
    vocab, logits, labels = inputs(case)
    terms = dl.Objective(vocab, loss="dist2", place="integer").terms(logits, labels)
    per_digit = terms.numeric[terms.num_digits > 0]
    assert per_digit.tolist() == pytest.approx(case["dist2_per_digit"], rel=1e-5)
    assert_gradient(per_digit.sum(), logits, case["dist2_sum_grad"])
