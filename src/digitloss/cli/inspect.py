"""Show how the numbers of a text are read: token, digits, places, weights.

Example:
  digitloss inspect --tokenizer my-model "The total is 1,234.50 kg"

The tokenizer is a folder or a hub name. No code of the tokenizer's is run.
"""

import argparse

_OFF = "none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("text", help="what to read")
    parser.add_argument("--tokenizer", required=True, help="folder or hub name")
    parser.add_argument("--decimal-point", default=".", help="one character, or none (default: .)")
    parser.add_argument("--thousands-separator", default=",", help="one character, or none (default: ,)")
    parser.add_argument("--place", default="continuous", help="place weight of DEL (default: continuous)")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    import torch
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from digitloss.errors import unknown_name
    from digitloss.losses import PLACE_WEIGHTS
    from digitloss.numbers import NumberVocab, place_table

    if options.place not in PLACE_WEIGHTS:
        raise unknown_name("place", options.place, PLACE_WEIGHTS)
    from digitloss.hub import load_tokenizer

    tokenizer = load_tokenizer(options.tokenizer)
    vocab = NumberVocab.from_tokenizer(
        tokenizer,
        decimal_point=None if options.decimal_point == _OFF else options.decimal_point,
        thousands_separator=None if options.thousands_separator == _OFF else options.thousands_separator,
    )
    rows = place_table(vocab, tokenizer(options.text)["input_ids"])
    names = tokenizer.convert_ids_to_tokens([row.token_id for row in rows])

    table = Table()
    for heading in ("id", "token", "digits", "places", f"weights ({options.place})"):
        table.add_column(heading, justify="left" if heading == "token" else "right")
    for row, name in zip(rows, names, strict=True):
        places, part_places = (torch.tensor(x, dtype=torch.long) for x in (row.places, row.part_places))
        weights = PLACE_WEIGHTS[options.place](places, part_places, 1.02).tolist()
        shown = Text(name if row.text is None else repr(row.text))
        cells = (" ".join(map(str, row.digits)), " ".join(map(str, row.places)), " ".join(f"{w:.3g}" for w in weights))
        table.add_row(str(row.token_id), shown, *cells)
    console = Console()
    console.print(table)
    summary = vocab.describe()
    num_digits, num_tokens = sum(len(row.digits) for row in rows), sum(bool(row.digits) for row in rows)
    console.print(
        f"{num_digits} digits in {num_tokens} of {len(rows)} tokens; the tokenizer has {summary.num_digit_tokens} digit"
        f" tokens in {len(summary.families)} families, and {summary.num_lone_digits} digits of theirs get no term",
        soft_wrap=True,
        highlight=False,
    )
