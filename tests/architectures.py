"""Tiny models of real architectures, one for each way to make logits from hidden states."""

import torch
import transformers
from torch import nn

from fakes import encode

SIZES = {
    "vocab_size": 20,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS = {
    "Qwen2": {},
    "Llama": {},
    "Gemma2": {"final_logit_softcapping": 0.5},
    "Gemma3Text": {"final_logit_softcapping": None},
    "Cohere": {"logit_scale": 0.0625},
    "Granite": {"logits_scaling": 8.0},
    "HyperCLOVAX": {"logits_scaling": 3.0},
    "MiniCPM3": {
        "dim_model_base": 4,
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
        "num_key_value_heads": 2,
    },
    "FalconH1": {"lm_head_multiplier": 0.25, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8},
    "NanoChat": {"final_logit_softcapping": 0.7},
    "RecurrentGemma": {"logits_soft_cap": 0.4, "lru_width": 16},
    "Phi": {},
}


def tiny(name, **options):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **MODELS[name], **options})
    causal = f"{name.removesuffix('Text')}ForCausalLM"
    model = getattr(transformers, causal)(config)
    head = model.get_output_embeddings()
    nn.init.normal_(head.weight)  # so that scale, softcap and digits matter
    if head.bias is not None:
        nn.init.normal_(head.bias)
    return model


def labels_of(vocab):
    return torch.cat([encode(vocab, row) for row in ("a12.5 b_7,468", "_c3 b0.04a_92")])
