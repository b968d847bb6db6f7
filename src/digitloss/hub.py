"""Tokenizers and models by folder or hub name. No code of theirs is run; weights are safetensors."""

from typing import Any

from digitloss.errors import ModelError, TokenizerError, missing_extra

try:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ModuleNotFoundError as error:
    raise missing_extra("loading tokenizers and models", "train") from error


def load_tokenizer(name: str) -> Any:
    """Load a tokenizer.

    Args:
        name: Folder or hub name.

    Raises:
        TokenizerError: It cannot be loaded.
    """
    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise TokenizerError(
            f"{name!r} is neither a folder with a tokenizer nor a hub name that can be loaded: {error}"
        ) from error


def load_model(name: str) -> Any:
    """Load a causal language model in float32.

    Args:
        name: Folder or hub name; the weights must be safetensors.

    Raises:
        ModelError: It cannot be loaded.
    """
    try:
        return AutoModelForCausalLM.from_pretrained(
            name, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{name!r} is neither a folder with a causal language model in safetensors nor a hub name that can be"
            f" loaded: {error}"
        ) from error
