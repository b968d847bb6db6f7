"""Measuring losses: time and memory of every loss against plain cross-entropy."""

from digitloss.bench.cases import Unavailable
from digitloss.bench.engine import run
from digitloss.bench.settings import PRESETS, Setting

__all__ = ["PRESETS", "Setting", "Unavailable", "run"]
