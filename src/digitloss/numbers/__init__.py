"""From target text to digits: which digits each token holds, and the place of each digit in its number."""

from digitloss.numbers.spans import TokenDigits, find_digits
from digitloss.numbers.table import TokenPlaces, place_table
from digitloss.numbers.vocab import Family, NumberVocab, VocabSummary

__all__ = ["Family", "NumberVocab", "TokenDigits", "TokenPlaces", "VocabSummary", "find_digits", "place_table"]
