"""MixCE against numbers worked out by hand: q = .5, H = log 2, so loss = (eta + (1 - eta) / 2) log 2."""

import math

import pytest
import torch

import digitloss as dl


@pytest.mark.parametrize(("eta", "factor"), [(1.0, 1.0), (0.5, 0.75), (0.0, 0.5), (0.3, 0.65)])
def test_by_hand(eta, factor):
    logits = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log().requires_grad_()
    cross_entropy = -logits.log_softmax(-1)[:, 0]
    loss = cross_entropy + dl.losses.load("mixce", eta=eta).added_loss(cross_entropy, None)
    loss.sum().backward()
    assert loss.item() == pytest.approx(factor * math.log(2), rel=1e-12)
    # q carries no gradient: the gradient is the factor times that of cross-entropy, q - onehot
    expected = factor * torch.tensor([-0.5, 0.3, 0.2], dtype=torch.float64)
    torch.testing.assert_close(logits.grad[0], expected, rtol=1e-12, atol=1e-15)


def test_a_token_is_mixed_by_its_own_probability():
    """Two tokens of probability .5 and .25: not one factor from their mean, as in the DEL authors' copy."""
    vocab = dl.NumberVocab.from_tokens(["a", "b", "1", "2"])
    logits = torch.tensor([[[0.5, 0.25, 0.125, 0.125], [0.5, 0.25, 0.125, 0.125], [1.0, 1, 1, 1]]]).log()
    value = dl.Objective(vocab, "mixce")(logits, torch.tensor([[0, 0, 1]]))
    assert value.item() == pytest.approx((0.75 * math.log(2) + 0.625 * math.log(4)) / 2, rel=1e-6)


def test_eta_is_a_share():
    with pytest.raises(ValueError, match=r"eta must lie between 0 and 1, got 1.5"):
        dl.losses.load("mixce", eta=1.5)
