"""The losses, one file each: the file name is the loss's name everywhere. To add one, add a file."""

from digitloss.losses._base import AbstractDigitLoss, AbstractLoss, AbstractVocabularyLoss
from digitloss.losses._objective import Objective, Terms
from digitloss.losses._parts import PLACE_WEIGHTS, Digits
from digitloss.losses._registry import load, names

__all__ = [
    "PLACE_WEIGHTS",
    "AbstractDigitLoss",
    "AbstractLoss",
    "AbstractVocabularyLoss",
    "Digits",
    "Objective",
    "Terms",
    "load",
    "names",
]
