"""Data: instruction files, and the built-in numeric problems."""

from digitloss.data._rows import read_rows
from digitloss.data.characters import character_tokenizer
from digitloss.data.examples import Example, TrainingRow, encode_examples, read_examples
from digitloss.data.problems import KINDS, Problem, generate_problems

__all__ = [
    "KINDS",
    "Example",
    "Problem",
    "TrainingRow",
    "character_tokenizer",
    "encode_examples",
    "generate_problems",
    "read_examples",
    "read_rows",
]
