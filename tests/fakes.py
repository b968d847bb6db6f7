"""Small tokenizers and models made in memory."""

import string

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import digitloss as dl

DIGITS = list(string.digits)
CHARACTERS = [c for c in string.printable if c.isprintable() and not c.isdigit()]

FAMILIES = [
    "cl100k",
    "codellama",
    "deepseek_coder",
    "deepseek_llm",
    "deepseek_v3",
    "gemma3",
    "gpt2",
    "gpt_neox",
    "llama2",
    "llama3",
    "mistral_tekken",
    "mistral_v1",
    "mistral_v3",
    "o200k",
    "qwen2.5",
    "smollm2",
    "t5",
]
"""Folders of the real tokenizers."""


def _tokenizer(words, pattern, unknown="<unk>"):
    words = [unknown, "</s>", *words]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=unknown, eos_token="</s>", pad_token="</s>")


def one_digit_tokenizer():
    """One digit a token; ids of the digits neither contiguous nor in order."""
    return _tokenizer([*CHARACTERS[:5], *reversed(DIGITS), *CHARACTERS[5:]], ".")


def three_digit_tokenizer():
    """Up to three digits a token, taken from the left, as Llama-3 does."""
    numbers = [f"{n:0{width}}" for width in (1, 2, 3) for n in range(10**width)]
    return _tokenizer([*CHARACTERS, *numbers], r"[0-9]{1,3}|[^0-9]")


def space_prefix_tokenizer():
    """Up to two digits a token, with the space before them in the token, as GPT-2 does."""
    numbers = [f"{n:0{width}}" for width in (1, 2) for n in range(10**width)]
    return _tokenizer([*CHARACTERS, *numbers, *(f" {n}" for n in numbers)], r" ?[0-9]{1,2}|[^0-9]")


def no_digit_tokenizer():
    """Letters only."""
    return _tokenizer(list(string.ascii_letters), ".")


TOKENIZERS = {
    "one_digit": one_digit_tokenizer,
    "three_digit": three_digit_tokenizer,
    "space_prefix": space_prefix_tokenizer,
}


def letters_vocab():
    """Ten digits, '.', ',', ' ' and four letters; the ids of the digits are not in order."""
    return dl.NumberVocab.from_tokens(["a", *"7315", ".", *"920", ",", *"468", " ", "b", None, "c"])


def encode(vocab, text, ignored="_"):
    """Label row of a text with one token a character; `_` is an ignored label."""
    ids = {token: i for i, token in enumerate(vocab.tokens)}
    return torch.tensor([[-100 if c == ignored else ids[c] for c in text]])


def small_llama(vocab_size, *, seed=0, hidden_size=16, num_layers=1, tie=False):
    """A Llama that fits in a test."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=tie,
    )
    return LlamaForCausalLM(config)
