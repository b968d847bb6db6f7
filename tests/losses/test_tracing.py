"""No host reads and no shapes that depend on data: fake tensors and the compiler."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import digitloss as dl
from fakes import letters_vocab

NUM_COLUMNS, HIDDEN = 20, 4


@pytest.fixture(params=["one", "several"])
def vocab(request):
    if request.param == "one":
        return letters_vocab()
    return dl.NumberVocab.from_tokens([*letters_vocab().tokens, "12", "17"])


def batch(rows, length):
    labels = torch.randint(0, 17, (rows, length))
    labels[:, 0] = -100
    hidden = torch.randn(rows, length, HIDDEN, requires_grad=True)
    head = torch.randn(NUM_COLUMNS, HIDDEN, requires_grad=True)
    return labels, hidden, head


def run_every_path(objective, labels, hidden, head):
    """Value and gradients of the paths of an objective."""
    logits = (hidden @ head.T).detach().requires_grad_()
    weights = {"loss_weights": torch.ones(labels.shape), "position_ids": torch.arange(labels.shape[1])[None]}
    values = [
        objective(logits, labels, head=head, num_items_in_batch=7, **weights),
        objective.from_hidden(hidden, head, labels, chunk_size=3, num_items_in_batch=labels.sum().abs(), **weights),
    ]
    if isinstance(objective.loss, dl.losses.AbstractDigitLoss):
        values.append(objective.numeric_from_hidden(hidden, head, labels))
    return [
        (value, *torch.autograd.grad(value, [logits] if i == 0 else [hidden, head])) for i, value in enumerate(values)
    ]


@pytest.mark.parametrize("name", dl.losses.names())
def test_fake_tensors(shapes_unchecked, vocab, name):
    """A fake tensor refuses to be read."""
    objective = dl.Objective(vocab, name)
    with FakeTensorMode(allow_non_fake_inputs=True):  # the tables of the vocabulary are real
        results = run_every_path(objective, *batch(2, 9))
    for value, *gradients in results:
        assert value.shape == ()
        assert {tuple(gradient.shape) for gradient in gradients} <= {(2, 9, 20), (2, 9, 4), (20, 4)}
    run_every_path(objective, *batch(2, 9))  # nothing fake was kept


@pytest.mark.parametrize("case", ["logits", "numeric_term", "hidden"])
def test_compiled_equals_eager(case):
    """In a process of its own, where annotations are not checked: the compiler cannot read those checks."""
    script = Path(__file__).with_name("compiled.py")
    subprocess.run([sys.executable, script, case], check=True, timeout=300)
