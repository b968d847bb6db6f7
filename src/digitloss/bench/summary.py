"""From seconds and bytes to ratios."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from digitloss.bench.settings import BASELINE

WITHOUT_TERM = "objective:cross_entropy"
"""The objective that a numeric term is added to."""


def summarize(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Ratios of each case: its time and memory over those of plain cross-entropy and of the objective without term.

    Args:
        found: What was measured of a setting: `setting`, `seconds` and `memory`.

    Returns:
        Of each case `time` and `time_of_term` (median, first and last quartile of the ratios of the rounds, or None),
        `memory` in multiples of the logits, or on hidden states of what plain cross-entropy takes, gradients left out
        (None where it was not measured), and `seconds`, the median.
    """
    setting, seconds, memory = found["setting"], found["seconds"], found["memory"]
    summary = {}
    for case, values in seconds.items():
        summary[case] = {
            "seconds": statistics.median(values),
            "time": _ratio(values, seconds.get(BASELINE)),
            "time_of_term": _ratio(values, seconds.get(WITHOUT_TERM)),
            "memory": _memory(setting["path"], memory, case),
        }
    return summary


def _memory(path: str, memory: Mapping[str, Mapping[str, int]], case: str) -> float | None:
    if case not in memory:
        return None
    if path == "logits":
        return memory[case]["growth"] / memory[case]["gradients"]  # logits and their gradient are of one size
    if BASELINE not in memory:
        return None
    ours, theirs = (memory[name]["growth"] - memory[name]["gradients"] for name in (case, BASELINE))
    return ours / theirs


def _ratio(values: Sequence[float], over: Sequence[float] | None) -> dict[str, float] | None:
    if over is None:
        return None
    ratios = [a / b for a, b in zip(values, over, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else 3 * ratios
    return {"median": middle, "low": low, "high": high}
