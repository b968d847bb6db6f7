"""The losses, one file each: the file name is the loss's name everywhere. To add one, add a file."""

from digitloss.losses._base import AbstractDigitLoss, AbstractLoss, AbstractVocabularyLoss
from digitloss.losses._heads import Head
from digitloss.losses._objective import Objective
from digitloss.losses._parts import PLACE_WEIGHTS, Digits
from digitloss.losses._registry import load, names
from digitloss.losses._tokens import Terms

__all__ = [
    "PLACE_WEIGHTS",
    "AbstractDigitLoss",
    "AbstractLoss",
    "AbstractVocabularyLoss",
    "Digits",
    "Head",
    "Objective",
    "Terms",
    "load",
    "names",
]
