"""Number Token Loss: values by hand."""

import math

import pytest
import torch

import digitloss as dl
from fakes import encode, letters_vocab
from terms import numeric


def test_wasserstein_of_equal_logits():
    # mean distance to 7 over ten equal classes: (7+6+5+4+3+2+1+0+1+2) / 10
    assert numeric("a7", loss="number_token").tolist() == pytest.approx([3.1])


def test_mse_of_equal_logits():
    # the expected digit is 4.5
    assert numeric("a70", loss="number_token", form="mse").tolist() == pytest.approx([2.5**2, 4.5**2])


def test_half_on_each_side_is_no_error_for_mse_but_is_for_wasserstein():
    sides = {"4": 50.0, "6": 50.0}
    assert numeric("a5", sides, loss="number_token", form="mse").tolist() == pytest.approx([0.0], abs=1e-9)
    assert numeric("a5", sides, loss="number_token").tolist() == pytest.approx([1.0])


def test_equal_to_digit_entropy_with_the_same_parts():
    vocab = letters_vocab()
    labels = encode(vocab, "a12.5b7,468")
    logits = torch.randn(1, 11, len(vocab))
    parts = dl.Objective(vocab, criterion="probability", distance="absolute", place="none")
    expected = parts.terms(logits, labels).numeric
    assert torch.equal(dl.Objective(vocab, loss="number_token").terms(logits, labels).numeric, expected)


def test_published_weight():
    assert dl.Objective(letters_vocab(), loss="number_token").alpha == 0.3


def test_bad_form(shapes_unchecked):
    with pytest.raises(ValueError, match="unknown form 'was'"):
        dl.losses.load("number_token", form="was")


def test_confidently_wrong_is_finite_and_right():
    assert numeric("a0", {"9": 1e4}, loss="number_token").tolist() == pytest.approx([9.0])
    assert math.isfinite(numeric("a0", {"9": 1e30}, loss="number_token").item())
