"""Digit Entropy Loss: values and gradients by hand, and its ablations."""

import math

import pytest
import torch

import digitloss as dl
from digitloss.losses._parts import PLACE_WEIGHTS
from fakes import encode, letters_vocab
from terms import numeric

LOG2 = math.log(2)


def test_equal_logits():
    # p = 1/10 and BCE(0, .) = log 2 for each of ten classes: sum = log 2, at places 1 and 0: u = 2 and 1
    assert numeric("a12").tolist() == pytest.approx([2 * LOG2, LOG2])


def test_two_classes_by_hand():
    # logits: 3 on the target '7', 1 on '2', 0 on the other eight
    total = math.exp(3) + math.exp(1) + 8
    softplus = {z: math.log1p(math.exp(z)) for z in (0, 1, 3)}
    expected = math.exp(3) / total * (softplus[3] - 3) + math.exp(1) / total * softplus[1] + 8 / total * softplus[0]
    assert numeric("a7", {"7": 3, "2": 1}).tolist() == pytest.approx([expected])


def test_distance_absolute_leaves_out_the_target():
    # sum_c p_c BCE_c |c - 7| with p = 1/10, BCE = log 2: log 2 / 10 * (7+6+5+4+3+2+1+0+1+2)
    assert numeric("a7", distance="absolute").tolist() == pytest.approx([LOG2 / 10 * 31])
    # squares: 49+36+25+16+9+4+1+0+1+4
    assert numeric("a7", distance="squared").tolist() == pytest.approx([LOG2 / 10 * 145])


def test_criterion_entropy():
    assert numeric("a7", criterion="entropy").tolist() == pytest.approx([math.log(10)])


def test_criterion_probability_needs_a_distance():
    assert numeric("a7", criterion="probability", distance="absolute").tolist() == pytest.approx([3.1])
    with pytest.raises(ValueError, match="is constant, since probabilities sum to 1"):
        dl.losses.load("digit_entropy", criterion="probability")


@pytest.mark.parametrize(
    ("place", "weights"),
    [
        ("continuous", [2, 1, 0, 1.02**-1, 1.02**-2, 1.02**-3]),
        ("released", [4, 2, 0, 1.02**-2, 1.02**-3, 1.02**-4]),
        ("integer", [2, 1, 0, 3, 2, 1]),
        ("none", [1, 1, 0, 1, 1, 1]),
    ],
)
def test_place_weights(place, weights):
    assert numeric("a12.345", place=place).tolist() == pytest.approx([w * LOG2 for w in weights])


def test_released_weights_as_the_reference_prints_them():
    places = torch.tensor([3, 2, 1, 0, -1, -2, -3, -4, -5, -6])
    weights = PLACE_WEIGHTS["released"](places, places, 1.02)
    assert weights.tolist() == pytest.approx(
        [8, 6, 4, 2, 0.96117, 0.94232, 0.92385, 0.90573, 0.88797, 0.87056], abs=1e-5
    )


def test_decimal_base():
    assert numeric(" .5", decimal_base=2.0).tolist() == pytest.approx([0, LOG2 / 2])


def test_gradient_of_a_confident_wrong_digit():
    # dL/dz_j = p_j (b_j - L) + p_j (sigmoid(z_j) - y_j)
    vocab = letters_vocab()
    labels = encode(vocab, "a7")
    logits = torch.zeros(1, 2, len(vocab), dtype=torch.float64)
    columns = [vocab.tokens.index(str(d)) for d in range(10)]
    logits[0, 0, columns[2]] = 4.0
    logits.requires_grad_()
    dl.Objective(vocab).terms(logits, labels).numeric.sum().backward()
    z = logits.detach()[0, 0, columns]
    p, y = z.softmax(0), torch.eye(10, dtype=torch.float64)[7]
    bce = torch.log1p(z.exp()) - y * z
    expected = p * (bce - (p * bce).sum()) + p * (z.sigmoid() - y)
    torch.testing.assert_close(logits.grad[0, 0, columns], expected)
    assert logits.grad[0, 1].abs().sum() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": "bse"}, "unknown criterion 'bse', did you mean 'bce'"),
        ({"distance": "abs"}, "unknown distance 'abs'"),
        ({"place": "continous"}, "unknown place 'continous', did you mean 'continuous'"),
        ({"decimal_base": 0.0}, "decimal_base must be a positive finite number, got 0.0"),
        ({"decimal_base": math.nan}, "decimal_base must be a positive finite number, got nan"),
    ],
)
def test_bad_options(shapes_unchecked, options, message):
    with pytest.raises(ValueError, match=message):
        dl.losses.load("digit_entropy", **options)
