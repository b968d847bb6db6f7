"""A tokenizer of printable ASCII characters, one token each, so one digit per token.

    "-12.5"  ->  "-", "1", "2", ".", "5"

It is built in memory, reads no file and knows nothing else: any other character is an error, not a lost token.
"""

import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# The names of the special tokens are not ASCII, so that no ASCII text can spell one.
_PAD, _EOS = "\N{SYMBOL FOR NULL}", "\N{SYMBOL FOR END OF TRANSMISSION}"


def character_tokenizer() -> "PreTrainedTokenizerFast":
    """Build the tokenizer: 95 printable ASCII characters, a padding and an end-of-text token.

    No token is added in front or behind, and decoding gives back every text exactly, spaces included.

    Example:
        >>> tokenizer = character_tokenizer()
        >>> tokenizer.tokenize("x = 1.5")
        ['x', ' ', '=', ' ', '1', '.', '5']
        >>> tokenizer.decode(tokenizer("x = 1.5")["input_ids"])
        'x = 1.5'
        >>> len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id
        (97, 0, 1)
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    printable = sorted(set(string.printable) - set(string.whitespace) | {" "})
    vocabulary = {token: index for index, token in enumerate([_PAD, _EOS, *printable])}
    characters = Tokenizer(models.WordLevel(vocabulary))
    characters.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    characters.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=characters, pad_token=_PAD, eos_token=_EOS, clean_up_tokenization_spaces=False
    )
