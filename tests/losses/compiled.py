"""Compiled objectives against eager ones: `python compiled.py logits|numeric_term|hidden`."""

import sys

import torch
from torch._dynamo.testing import CompileCounterWithBackend

import digitloss as dl

ONE = dl.NumberVocab.from_tokens([*"0123456789", ".", ",", *"abcde"])
SEVERAL = dl.NumberVocab.from_tokens([*"0123456789", ".", ",", *"abcde", "12", "17", "345"])
NUM_COLUMNS, HIDDEN = 20, 4
SHAPES = ((2, 9), (3, 17), (4, 33))


def batch(rows, length):
    labels = torch.randint(0, 17, (rows, length))
    hidden = torch.randn(rows, length, HIDDEN, requires_grad=True)
    head = torch.randn(NUM_COLUMNS, HIDDEN, requires_grad=True)
    return labels, hidden, head


def compare(compiled, call, arguments, inputs):
    values = [run(*arguments) for run in (compiled, call)]
    torch.testing.assert_close(*values)
    gradients = [torch.autograd.grad(value, inputs) for value in values]
    assert any(gradient.abs().max() > 0 for gradient in gradients[1])
    torch.testing.assert_close(*gradients)


def logits():
    """One graph for all shapes."""
    objectives = [
        dl.Objective(SEVERAL),
        *(dl.Objective(ONE, name) for name in dl.losses.names() if name != "digit_entropy"),
    ]
    for objective in objectives:

        def call(logits, labels, head, objective=objective):
            return objective(logits, labels, head=head)

        torch._dynamo.reset()
        counter = CompileCounterWithBackend("aot_eager")
        compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=counter)
        for rows, length in SHAPES:
            labels, hidden, head = batch(rows, length)
            scores = (hidden @ head.T).detach().requires_grad_()
            compare(compiled, call, (scores, labels, head.detach()), [scores])
            if (rows, length) == SHAPES[0]:
                num_compilations = counter.frame_count
        assert counter.frame_count == num_compilations, "compiled anew for another shape"


def numeric_term():
    call = dl.Objective(ONE).numeric_from_hidden
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows, length in SHAPES:
        labels, hidden, head = batch(rows, length)
        compare(compiled, call, (hidden, head, labels), [hidden, head])


def hidden():
    """In a compiled model the one pass runs as it is, behind a graph break."""
    objective, layer = dl.Objective(ONE), torch.nn.Linear(HIDDEN, HIDDEN)

    def call(hidden, head, labels):
        return 2 * objective.from_hidden(layer(hidden), head, labels, chunk_size=4)

    compiled = torch.compile(call, dynamic=True, backend="aot_eager")
    for rows, length in SHAPES:
        labels, hidden, head = batch(rows, length)
        compare(compiled, call, (hidden, head, labels), [hidden, head, layer.weight])


if __name__ == "__main__":
    torch.manual_seed(0)
    {"logits": logits, "numeric_term": numeric_term, "hidden": hidden}[sys.argv[1]]()
