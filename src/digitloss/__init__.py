"""Numerical learning of language models: the Digit Entropy Loss and every loss that it is compared with."""

from importlib.metadata import version as _version

from digitloss import losses, train
from digitloss.losses import Objective, Terms
from digitloss.numbers import NumberVocab, place_table

__version__ = _version("digitloss")

__all__ = ["NumberVocab", "Objective", "Terms", "__version__", "losses", "place_table", "train"]
