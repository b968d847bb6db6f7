"""The numeric term beside the fused cross-entropies of other libraries: together they are the objective."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import digitloss as dl
from architectures import labels_of, tiny
from digitloss.losses import Head
from fakes import letters_vocab


@pytest.mark.parametrize("package", ["liger_kernel", "cut_cross_entropy"])
def test_beside(package):
    """In a process of its own: Triton reads its environment when it is imported."""
    for module in ("triton", package):
        pytest.importorskip(module)
    script = Path(__file__).with_name("beside_fused.py")
    case = package.removesuffix("_kernel")
    subprocess.run([sys.executable, script, case], env={**os.environ, "TRITON_INTERPRET": "1"}, check=True, timeout=300)


@pytest.mark.parametrize("name", ["Qwen2", "Gemma2", "Cohere", "Granite", "FalconH1"])
def test_beside_the_fused_head_of_trl(name):
    """Models of five ways to make logits; the hidden states are taken as the model makes them, in one forward pass."""
    trl = pytest.importorskip("trl.trainer.utils")
    vocab, model = letters_vocab(), tiny(name)
    labels = labels_of(vocab)
    ids = labels.clamp(min=0)
    objective = dl.Objective(vocab, fused=False)
    expected = objective(model(input_ids=ids).logits, labels)
    expected.backward()
    gradients = {key: p.grad.clone() for key, p in model.named_parameters()}
    model.zero_grad()

    head = Head.from_model(model)
    trl.add_fused_lm_head(model)
    kept = []
    model.base_model.register_forward_hook(lambda module, inputs, output: kept.append(output.last_hidden_state))
    outputs = model(input_ids=ids, labels=labels, fused_lm_head=True)
    num_items = (labels[:, 1:] != -100).sum()
    term = objective.numeric_from_hidden(kept[0], head, labels, num_items_in_batch=num_items)
    loss = -outputs.log_probs.sum() / num_items + term
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert len(kept) == 1
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[key], rtol=1e-4, atol=2e-6)
