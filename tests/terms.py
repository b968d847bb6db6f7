"""The numeric term of a text, for values worked out by hand."""

import torch

import digitloss as dl
from fakes import encode, letters_vocab


def numeric(text, logits_of=None, vocab=None, loss="digit_entropy", **options):
    """Numeric term of each character of a text, all logits 0 but those given as {character: logit} at each place."""
    vocab = vocab or letters_vocab()
    labels = encode(vocab, text)
    logits = torch.zeros(1, len(text), len(vocab), dtype=torch.float64)
    for character, logit in (logits_of or {}).items():
        logits[..., vocab.tokens.index(character)] = logit
    return dl.Objective(vocab, loss=loss, **options).terms(logits, labels).numeric[0]
