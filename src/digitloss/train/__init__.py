"""Adapters that put an `Objective` into the trainers people use. Nothing here is imported before it is used."""

import importlib
from typing import TYPE_CHECKING, Any

from digitloss.errors import missing_extra

if TYPE_CHECKING:
    from digitloss.train.callback import NumericLossCallback
    from digitloss.train.hook import compute_loss_func
    from digitloss.train.trainer import NumericTrainer

__all__ = ["NumericLossCallback", "NumericTrainer", "compute_loss_func"]

_MODULES = {"NumericLossCallback": "callback", "NumericTrainer": "trainer", "compute_loss_func": "hook"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        raise missing_extra(name, "train") from error
