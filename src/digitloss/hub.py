"""Tokenizers and models by folder or hub name. No code of theirs is run; weights are safetensors."""

import hashlib
from pathlib import Path
from typing import Any

from digitloss.errors import ModelError, TokenizerError, missing_extra

try:
    import torch
    from safetensors import SafetensorError
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
except ModuleNotFoundError as error:
    raise missing_extra("loading tokenizers and models", "train") from error


def fingerprint(name: str) -> str:
    """Return what changes when the weights or the tokenizer of a model do: a hash of its files, or the hub's commit."""
    folder = Path(name)
    if not folder.is_dir():
        return str(getattr(AutoConfig.from_pretrained(name, trust_remote_code=False), "_commit_hash", None))
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".safetensors", ".json", ".model"):
            digest.update(path.name.encode())
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


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
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(
            f"{name!r} is neither a folder with a causal language model in safetensors nor a hub name that can be"
            f" loaded: {error}"
        ) from error
