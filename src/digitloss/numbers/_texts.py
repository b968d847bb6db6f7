"""The text that each token of a Hugging Face tokenizer adds, read behind an anchor.

Decoding an id alone loses what stands at the start of a text: Llama-2's lone `▁` becomes nothing, so that "3 4" would
read as "34". So each id is decoded behind an ordinary token (the anchor), whose own text is cut off again.
"""

import re
from collections.abc import Callable, Sequence, Set
from functools import partial
from typing import Any, Protocol, runtime_checkable

from digitloss.errors import TokenizerError

_RESERVED = re.compile(r"[\[<]\W?\w*[A-Za-z]{3,}\w*\d+\W?[\]>]")  # <unused7>  [PAD9]  <|reserved_token_1|>  [DOC_9]
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@runtime_checkable
class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer, fast or slow, that is read."""

    def __len__(self) -> int: ...
    def get_vocab(self) -> dict[str, int]: ...
    def decode(self, token_ids: Any, **kwargs: Any) -> Any: ...
    @property
    def all_special_ids(self) -> Sequence[int]: ...
    @property
    def added_tokens_decoder(self) -> dict[int, Any]: ...


def texts_in_context(tokenizer: Tokenizer) -> list[str | None]:
    """Text that each id adds behind other text.

    None where it has no readable text: special and unused ids, and the digits that added, reserved and byte-fallback
    tokens only seem to hold.
    """
    names = {token_id: name for name, token_id in tokenizer.get_vocab().items()}
    special, added = set(tokenizer.all_special_ids), set(tokenizer.added_tokens_decoder)
    decode = partial(tokenizer.decode, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    anchor, anchor_text = _find_anchor(decode, names, names.keys() - special - added)

    texts: list[str | None] = [None] * (max(names, default=-1) + 1)
    for token_id in names.keys() - special:
        text = decode([anchor, token_id])
        if not text.startswith(anchor_text):
            raise TokenizerError(
                f"token {token_id} ({names[token_id]!r}) cannot be read in context: behind {anchor_text!r} it decodes"
                f" to {text!r}. Pass the texts of the tokens yourself: NumberVocab.from_tokens(texts)"
            )
        text = text[len(anchor_text) :]
        is_byte = _BYTE.fullmatch(names[token_id]) is not None and text != names[token_id]
        if is_byte or token_id in added or _RESERVED.fullmatch(text.strip()):
            texts[token_id] = None if re.search("[0-9]", text) else text
        else:
            texts[token_id] = text
    return texts


def _find_anchor(decode: Callable[..., str], names: dict[int, str], ordinary: Set[int]) -> tuple[int, str]:
    """An ordinary token that reads as printable text without spaces, a lone `a` where there is one."""
    for token_id in sorted(ordinary, key=lambda token_id: (names[token_id] != "a", token_id)):
        text = decode([token_id])
        if text.isascii() and text.isprintable() and text.strip() == text != "":
            return token_id, text
    raise TokenizerError(f"no readable token among the {len(ordinary)} ordinary tokens of the tokenizer")
