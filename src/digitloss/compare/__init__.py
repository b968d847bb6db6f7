"""A fair comparison of losses: the same model, start, batches and questions for each of them."""

from digitloss.compare.engine import run
from digitloss.compare.scores import Answer, score
from digitloss.compare.settings import FINE_TUNING, PRESETS, Settings
from digitloss.compare.summary import mean_interval, summarize
from digitloss.compare.tasks import FineTuning, ProblemTask
from digitloss.compare.variants import Variant

__all__ = [
    "FINE_TUNING",
    "PRESETS",
    "Answer",
    "FineTuning",
    "ProblemTask",
    "Settings",
    "Variant",
    "mean_interval",
    "run",
    "score",
    "summarize",
]
