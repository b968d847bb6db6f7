"""The numeric term beside a fused cross-entropy against the objective: `beside_fused.py liger|cut_cross_entropy`.

On a CPU, Triton interprets the kernels of Liger where TRITON_INTERPRET=1 (but for a softcap, which it cannot read), and
cut-cross-entropy runs what it compiles where its kernels cannot run.
"""

import sys

import torch
import torch.nn.functional as F

import digitloss as dl
from digitloss.losses import Head

VOCAB = dl.NumberVocab.from_tokens(["a", *"7315", ".", *"920", ",", *"468", " ", "b", None, "c"])
TEXTS = ("a12.5 b7,468", "c3 b0.04a,92")
PROMPT = 3  # tokens whose labels are masked
LOSSES = ("digit_entropy", "number_token", "dist2")  # the others replace cross-entropy


def liger(hidden, weight, shift_labels, softcap):
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    loss = LigerFusedLinearCrossEntropyLoss(reduction="sum", softcap=softcap)
    return loss(weight, hidden.flatten(0, 1), shift_labels.flatten())


def cut_cross_entropy(hidden, weight, shift_labels, softcap):
    from cut_cross_entropy import linear_cross_entropy

    options = {"softcap": softcap, "reduction": "sum", "impl": "torch_compile"}
    return linear_cross_entropy(hidden, weight, shift_labels, **options)


def check(fused, loss, softcap):
    torch.manual_seed(0)
    labels = torch.tensor([[VOCAB.tokens.index(c) for c in text] for text in TEXTS])
    labels[:, :PROMPT] = -100
    hidden = torch.randn(*labels.shape, 16, requires_grad=True)
    weight = torch.randn(len(VOCAB), 16, requires_grad=True)
    objective = dl.Objective(VOCAB, loss, fused=False)
    logits = hidden @ weight.T
    expected = objective(logits if softcap is None else softcap * torch.tanh(logits / softcap), labels)

    shift_labels = F.pad(labels[:, 1:], (0, 1), value=-100)
    num_items = (shift_labels != -100).sum()
    head = Head(weight, softcap=softcap)
    term = objective.numeric_from_hidden(hidden, head, labels, num_items_in_batch=num_items)
    assert term.abs() > 1e-3
    found = fused(hidden, weight, shift_labels, softcap) / num_items + term
    torch.testing.assert_close(found, expected)
    leaves = [hidden, weight]
    gradients = torch.autograd.grad(found, leaves)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, leaves), rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    fused, softcaps = {"liger": (liger, [None]), "cut_cross_entropy": (cut_cross_entropy, [None, 2.0])}[sys.argv[1]]
    for loss in LOSSES:
        for softcap in softcaps:
            check(fused, loss, softcap)
