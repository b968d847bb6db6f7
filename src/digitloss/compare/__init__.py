"""A fair comparison of losses: the same model, start, batches and questions for each of them."""

from digitloss.compare.engine import run
from digitloss.compare.scores import Answer, score, wilson_interval
from digitloss.compare.settings import PRESETS, Settings

__all__ = ["PRESETS", "Answer", "Settings", "run", "score", "wilson_interval"]
