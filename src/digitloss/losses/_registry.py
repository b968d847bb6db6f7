"""The folder is the registry: a loss is a file without a leading underscore that holds a dataclass `Loss`."""

import dataclasses
import importlib
import pkgutil
from pathlib import Path
from typing import Any

from digitloss.errors import unknown_name
from digitloss.losses._base import AbstractDigitLoss, AbstractVocabularyLoss


def names() -> list[str]:
    """Return the names of all losses, sorted.

    Example:
        >>> "digit_entropy" in names()
        True
    """
    folder = str(Path(__file__).parent)
    return sorted(module.name for module in pkgutil.iter_modules([folder]) if not module.name.startswith("_"))


def load(name: str, **options: Any) -> AbstractDigitLoss | AbstractVocabularyLoss:
    """Build a loss by name.

    Args:
        name: One of `names()`.
        options: Fields of the loss's dataclass; they are checked at once.

    Raises:
        ValueError: Unknown name, unknown option or a value out of range; the nearest name is offered.

    Example:
        >>> load("dist2", tau=2.0)
        Loss(tau=2.0, place='none')
    """
    if name not in names():
        raise unknown_name("loss", name, names())
    kind = importlib.import_module(f"digitloss.losses.{name}").Loss
    fields = [field.name for field in dataclasses.fields(kind)]
    for option in options:
        if option not in fields:
            raise unknown_name(f"option of {name}", option, fields or ["none"])
    loss: AbstractDigitLoss | AbstractVocabularyLoss = kind(**options)
    return loss
