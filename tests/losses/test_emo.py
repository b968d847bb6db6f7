"""EMO against numbers worked out by hand.

Rows of the head, of unit length: (1, 0), (0, 1), (.6, .8). Probabilities .5, .3, .2; the target is token 0.

    H = log 2 = .693147;  cosines with the target: 1, 0, .6
    distance = 1 - .3 * 0 - .2 * .6 = .88
    d distance / d z_j = -q_j (c_j - sum q c), sum q c = .62:   -.19, .186, .004
    d H / d z = -.5, .3, .2
"""

import math

import pytest
import torch

import digitloss as dl
from fakes import encode, letters_vocab

HEAD = torch.tensor([[2.0, 0.0], [0.0, 0.5], [3.0, 4.0]], dtype=torch.float64)
DISTANCE = [-0.19, 0.186, 0.004]
CROSS_ENTROPY = [-0.5, 0.3, 0.2]


def added(head=HEAD, **options):
    logits = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log().requires_grad_()
    emo = dl.losses.load("emo", **options)
    rows = emo.cost_rows(head)
    costs = emo.token_costs(torch.tensor([0]), rows[:1] @ rows.T)
    cross_entropy = -logits.log_softmax(-1)[:, 0]
    loss = cross_entropy + emo.added_loss(cross_entropy, (logits.softmax(-1) * costs).sum(-1))
    loss.sum().backward()
    return loss.item(), logits.grad[0]


@pytest.mark.parametrize(
    ("options", "value", "of_distance", "of_cross_entropy"),
    [
        ({}, math.log(2), math.log(2) / 0.88 / 2, 0.5),
        ({"form": "emo2"}, 2 * 0.88, 1.0, 0.88 / math.log(2)),
        ({"max_ratio": 0.5}, (0.5 * 0.88 + math.log(2)) / 2, 0.25, 0.5),
        ({"form": "emo2", "max_ratio": 0.5}, 0.5 * math.log(2) + 0.88, 1.0, 0.5),
    ],
)
def test_by_hand(options, value, of_distance, of_cross_entropy):
    loss, gradient = added(**options)
    assert loss == pytest.approx(value, rel=1e-8)
    expected = [of_distance * d + of_cross_entropy * h for d, h in zip(DISTANCE, CROSS_ENTROPY, strict=True)]
    torch.testing.assert_close(gradient, torch.tensor(expected, dtype=torch.float64), rtol=1e-8, atol=1e-12)


def test_no_gradient_reaches_the_embeddings():
    head = HEAD.clone().requires_grad_()
    added(head)
    assert head.grad is None


def test_a_token_of_zeros_costs_one():
    """An embedding of length 0 has no direction: its cosine counts as 0."""
    head = HEAD.clone()
    head[2] = 0
    assert added(head, form="emo2")[0] == pytest.approx(2.0)


def batch():
    vocab = letters_vocab()
    labels = encode(vocab, "a12.5 b")
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 7, len(vocab), generator=generator)
    return vocab, logits, labels, torch.nn.Linear(4, len(vocab), bias=False)


def test_the_head_is_given_once_or_with_each_call_as_a_weight_or_a_module():
    vocab, logits, labels, head = batch()
    expected = dl.Objective(vocab, "emo", form="emo2")(logits, labels, head=head.weight)
    for given in (head, head.weight):
        assert dl.Objective(vocab, "emo", form="emo2", head=given)(logits, labels) == expected
        assert dl.Objective(vocab, "emo", form="emo2")(logits, labels, head=given) == expected


def test_current_rows_follow_the_head_and_frozen_rows_do_not():
    vocab, logits, labels, head = batch()
    current = dl.Objective(vocab, "emo", form="emo2", head=head)
    frozen = dl.Objective(vocab, "emo", form="emo2", rows="frozen", head=head)
    before = current(logits, labels)
    assert frozen(logits, labels) == before
    with torch.no_grad():
        head.weight.add_(torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(1)))
    assert current(logits, labels) != before
    assert frozen(logits, labels) == before
    assert frozen(logits, labels, head=head) == before


@pytest.mark.usefixtures("shapes_unchecked")
def test_errors():
    vocab, logits, labels, head = batch()
    with pytest.raises(ValueError, match=r"emo reads the output head: pass head=model.get_output_embeddings\(\)"):
        dl.Objective(vocab, "emo")(logits, labels)
    with pytest.raises(ValueError, match=r"rows='frozen'.* as it was before training: pass head="):
        dl.Objective(vocab, "emo", rows="frozen")
    with pytest.raises(ValueError, match=f"one row for each of the {len(vocab)} columns .*got a weight of shape"):
        dl.Objective(vocab, "emo", head=head.weight[:5])(logits, labels)
    with pytest.raises(TypeError, match=r"head must be a weight .* or a module that has one, got Identity"):
        dl.Objective(vocab, "emo", head=torch.nn.Identity())(logits, labels)
    with pytest.raises(ValueError, match="max_ratio must be a positive finite number, got 0"):
        dl.losses.load("emo", max_ratio=0)
    with pytest.raises(ValueError, match="unknown rows 'frozn', did you mean 'frozen'"):
        dl.losses.load("emo", rows="frozn")
    with pytest.raises(ValueError, match="emo replaces cross-entropy and takes no alpha"):
        dl.Objective(vocab, "emo", alpha=0.1)
