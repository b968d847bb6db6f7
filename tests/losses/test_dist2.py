"""DIST2Loss: values by hand."""

import math

import pytest

import digitloss as dl
from terms import numeric


def target_distribution(y, tau, classes=range(10)):
    weights = [math.exp(-((c - y) ** 2) / tau) for c in classes]
    return [w / sum(weights) for w in weights]


@pytest.mark.parametrize("tau", [1.0, 4.0])
def test_equal_logits(tau):
    # sum q log(q / (1/10)) = log 10 - H(q)
    q = target_distribution(7, tau)
    expected = math.log(10) + sum(x * math.log(x) for x in q)
    assert numeric("a7", loss="dist2", tau=tau).tolist() == pytest.approx([expected])


def test_a_prediction_equal_to_the_target_distribution_costs_nothing():
    logits = {str(c): -((c - 3) ** 2) / 2.0 for c in range(10)}
    assert numeric("a3", logits, loss="dist2", tau=2.0).tolist() == pytest.approx([0.0], abs=1e-9)


def test_the_target_distribution_is_renormalised_over_possible_digits():
    # only 2, 3 and 5 exist: log 3 - H(q) over the three
    vocab = dl.NumberVocab.from_tokens(["a", "2", "3", "5"])
    q = target_distribution(3, 1.0, classes=[2, 3, 5])
    expected = math.log(3) + sum(x * math.log(x) for x in q)
    assert numeric("a3", vocab=vocab, loss="dist2").tolist() == pytest.approx([expected])


def test_integer_place_weight():
    plain, weighted = (numeric("a12.5", loss="dist2", place=place).tolist() for place in ("none", "integer"))
    assert weighted == pytest.approx([2 * plain[0], plain[1], 0, plain[3]])


def test_published_weight():
    assert dl.Objective(dl.NumberVocab.from_tokens(["1", "2"]), loss="dist2").alpha == 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0.0}, "tau must be a positive finite number, got 0.0"),
        ({"tau": math.inf}, "tau must be a positive finite number, got inf"),
        ({"place": "released"}, "unknown place 'released'"),
    ],
)
def test_bad_options(shapes_unchecked, options, message):
    with pytest.raises(ValueError, match=message):
        dl.losses.load("dist2", **options)
