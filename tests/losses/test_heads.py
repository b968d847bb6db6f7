"""Heads of real architectures: the hidden-state path against the model's own logits, and what cannot be read."""

import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from torch import nn

import digitloss as dl
from architectures import MODELS, SIZES, labels_of, tiny
from digitloss.errors import ModelError
from digitloss.losses import Head
from fakes import letters_vocab

TRANSFORMS = {  # worked out by hand from the configurations above
    "Gemma2": (1.0, 0.5),
    "Cohere": (0.0625, None),
    "Granite": (0.125, None),
    "HyperCLOVAX": (3.0, None),
    "MiniCPM3": (0.25, None),
    "FalconH1": (0.25, None),
    "NanoChat": (1.0, 0.7),
    "RecurrentGemma": (1.0, 0.4),
}


def hidden_states(model, labels):
    found = []
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    hook = inner.base_model.register_forward_hook(lambda module, args, output: found.append(output.last_hidden_state))
    logits = model(input_ids=labels.clamp(min=0), use_cache=False).logits
    hook.remove()
    return found[0], logits


def compare(model, head, loss="digit_entropy"):
    """Value and gradients of all parameters, against the model's own logits."""
    vocab = letters_vocab()
    labels = labels_of(vocab)
    hidden, logits = hidden_states(model, labels)
    objective = dl.Objective(vocab, loss, head=model.get_output_embeddings())
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    values = [objective.from_hidden(hidden, head, labels, chunk_size=5), objective(logits, labels)]
    torch.testing.assert_close(*values, rtol=1e-5, atol=0)
    got, expected = (torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True) for value in values)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_the_transform_of_an_architecture(name):
    model = tiny(name)
    head = Head.from_model(model)
    assert (head.scale, head.softcap) == TRANSFORMS.get(name, (1.0, None))
    compare(model, head)


@pytest.mark.parametrize("tied", [False, True])
def test_tied_and_untied(tied):
    model = tiny("Llama", tie_word_embeddings=tied)
    assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == tied
    compare(model, Head.from_model(model))


@pytest.mark.parametrize("name", ["Gemma2", "Cohere", "Granite"])
def test_a_head_without_its_transform_is_noticed(name, monkeypatch):
    """What a model with a factor of an unknown name looks like."""
    model = tiny(name)
    monkeypatch.setattr("digitloss.losses._heads.read_transform", lambda config: (1.0, None))
    with pytest.raises(
        ModelError, match=rf"{name}ForCausalLM: hidden states times head.*do not give the model's logits"
    ):
        Head.from_model(model)


def test_a_model_that_does_something_else_with_its_logits_is_named():
    class Shifted(transformers.LlamaForCausalLM):
        def forward(self, *args, **kwargs):
            output = super().forward(*args, **kwargs)
            output.logits = output.logits + 1
            return output

    model = Shifted(transformers.LlamaConfig(**SIZES))
    with pytest.raises(ModelError, match="Shifted: hidden states"):
        Head.from_model(model)


def test_the_check_leaves_the_model_as_it_was():
    model = tiny("Llama").train()
    model.model.layers[0].eval()
    modes = [module.training for module in model.modules()]
    Head.from_model(model)
    assert [module.training for module in model.modules()] == modes
    assert not model.model._forward_hooks
    assert all(parameter.grad is None for parameter in model.parameters())


def test_half_precision_passes_the_check():
    Head.from_model(tiny("Gemma2").to(torch.bfloat16))
    model = tiny("Granite", logits_scaling=1.05).to(torch.bfloat16)
    forward = model.lm_head.forward
    model.lm_head.forward = lambda hidden: 1.05 * forward(hidden)
    with pytest.raises(ModelError, match=r"relative error 0\.0"):
        Head.from_model(model)


def lora(target="lm_head", **options):
    config = LoraConfig(r=2, lora_alpha=6, target_modules=[target], task_type="CAUSAL_LM", **options)
    return config


def with_random_updates(model):
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.filterwarnings("ignore:Model (has|with) `tie_word_embeddings")
@pytest.mark.parametrize("name", ["Llama", "Gemma2"])
@pytest.mark.parametrize("loss", ["digit_entropy", "emo"])
def test_lora_on_the_head(name, loss):
    model = with_random_updates(get_peft_model(tiny(name, tie_word_embeddings=False), lora()))
    head = Head.from_model(model)
    assert len(head.updates) == 1
    compare(model, head, loss)
    compare(model, model.get_output_embeddings() if name == "Llama" else head, loss)


def test_dropout_of_an_adapter_does_not_disturb_the_check():
    model = with_random_updates(get_peft_model(tiny("Llama"), lora(lora_dropout=0.5))).train()
    assert Head.from_model(model).updates[0].dropout.p == 0.5
    assert model.get_output_embeddings().lora_dropout["default"].training


def test_adapters_that_are_off_or_merged():
    model = with_random_updates(get_peft_model(tiny("Llama"), lora()))
    with model.disable_adapter():
        assert not Head.from_model(model).updates
    model.merge_adapter()
    assert not Head.from_model(model).updates


def test_several_adapters():
    model = get_peft_model(tiny("Llama"), lora())
    model.add_adapter("other", LoraConfig(r=1, target_modules=["lm_head"], task_type="CAUSAL_LM"))
    model.base_model.set_adapter(["default", "other"])
    with_random_updates(model)
    head = Head.from_model(model)
    assert [len(update.up.T) for update in head.updates] == [2, 1]
    compare(model, head)


def test_modules_to_save():
    model = get_peft_model(tiny("Llama"), lora("q_proj", modules_to_save=["lm_head"]))
    (trained,) = [p for name, p in model.named_parameters() if "lm_head.modules_to_save" in name]
    nn.init.normal_(trained)
    compare(model, Head.from_model(model))
    compare(model, model.get_output_embeddings())


@pytest.mark.filterwarnings("ignore:`lora_bias=True` was passed")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_dora": True}, r"variant of LoRA"),
        ({"lora_bias": True}, r"variant of LoRA"),
        ({"trainable_token_indices": {"lm_head": [1, 2]}}, r"trainable tokens"),
    ],
)
def test_adapters_that_cannot_be_read(options, message):
    target = "q_proj" if "trainable_token_indices" in options else "lm_head"
    model = get_peft_model(tiny("Llama"), lora(target, **options))
    with pytest.raises(ModelError, match=message):
        Head.from_model(model)
    with pytest.raises(ModelError, match=message):
        dl.Objective(letters_vocab()).from_hidden(
            torch.zeros(1, 3, 16), model.get_output_embeddings(), torch.zeros(1, 3, dtype=torch.long)
        )


def test_other_adapters_cannot_be_read():
    from peft import IA3Config

    model = get_peft_model(
        tiny("Llama"), IA3Config(target_modules=["lm_head"], feedforward_modules=[], task_type="CAUSAL_LM")
    )
    with pytest.raises(ModelError, match="adapter that is not LoRA"):
        Head.from_model(model)


def test_a_partitioned_head_is_named():
    """DeepSpeed ZeRO-3 leaves an empty parameter with a mark."""
    head = nn.Linear(16, 20, bias=False)
    head.weight.data = torch.empty(0)
    head.weight.ds_id = 3
    with pytest.raises(ModelError, match=r"ZeRO-3 has partitioned the head.*pass the model's logits"):
        dl.Objective(letters_vocab()).numeric_from_hidden(
            torch.zeros(1, 3, 16), head, torch.zeros(1, 3, dtype=torch.long)
        )


def test_what_is_no_head(shapes_unchecked):
    objective, hidden, labels = (
        dl.Objective(letters_vocab()),
        torch.zeros(1, 3, 16),
        torch.zeros(1, 3, dtype=torch.long),
    )
    with pytest.raises(TypeError, match=r"got the model LlamaForCausalLM: pass Head.from_model\(model\)"):
        objective.from_hidden(hidden, tiny("Llama"), labels)
    with pytest.raises(TypeError, match=r"expected a model with an output head .* got Linear"):
        Head.from_model(nn.Linear(2, 3))
    with pytest.raises(
        ValueError, match=r"floating-point weight \[V, H\], got torch.uint8 of shape \[20, 16\] \(a quant"
    ):
        objective.from_hidden(hidden, torch.zeros(20, 16, dtype=torch.uint8), labels)
    config = transformers.LlamaConfig(**SIZES)
    config.logit_scale = "inv_sqrt_d_model"
    with pytest.raises(ModelError, match=r"logit_scale=.inv_sqrt_d_model. in the configuration"):
        Head.from_model(transformers.LlamaForCausalLM(config))
