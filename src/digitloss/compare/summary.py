"""What the runs of a comparison say together: means over seeds and differences to the baseline, with 95 % intervals.

Two kinds of chance are told apart. *By seed*: the interval of the mean over seeds (Student's t), for these questions.
*By question*: the interval of the mean over questions (Student's t), for these seeds; each question counts with its
mean over seeds. Differences are paired: a seed, or a question, with the same one of the baseline.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from scipy import stats

from digitloss.compare.scores import Answer, absolute_error, is_right

_FIGURES = ("exact_match", "mean_absolute_error", "median_absolute_error")
_CONFIDENCE = 0.95


def mean_interval(values: Sequence[float]) -> dict[str, Any]:
    """Mean of values with its 95 % interval: mean -+ t_{n-1} s / sqrt(n).

    Returns:
        `mean`, and `interval`, None for fewer than two values.

    Example:
        >>> mean_interval([1.0, 2.0, 3.0])  # t_2 = 4.3027, s = 1
        {'mean': 2.0, 'interval': [-0.48413771175, 4.48413771175]}
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return {"mean": mean, "interval": None}
    half = (
        float(stats.t.ppf((1 + _CONFIDENCE) / 2, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))
    )
    return {"mean": mean, "interval": [round(mean - half, 12), round(mean + half, 12)]}


def summarize(
    runs: Sequence[Mapping[str, Any]],
    questions: Sequence[Mapping[str, str]],
    *,
    labels: Sequence[str],
    seeds: Sequence[int],
    baseline: str,
) -> list[dict[str, Any]]:
    """Summarize runs.

    Args:
        runs: One for each label and seed.
        questions: The questions whose outputs the runs hold.
        labels: The variants, in the order of the summary.
        seeds: The seeds.
        baseline: The label to which the others are compared.

    Returns:
        For each label: `loss`, `alpha`, each figure as `mean`, `interval` and `by_seed`, `num_unparsed` of all seeds
        together, and, except for the baseline, `difference`: the figures less the baseline's, `by_seed` and
        `by_question`. An error is missing (None) where no answer was a number; a mean leaves it out and says over
        how many seeds it is.
    """
    table = {(run["loss"], run["seed"]): run for run in runs}
    rows = {label: [table[label, seed] for seed in seeds] for label in labels}
    return [
        {
            "loss": label,
            "alpha": rows[label][0]["alpha"],
            "num_unparsed": sum(run["num_unparsed"] for run in rows[label]),
            "num_answers": sum(run["num_questions"] for run in rows[label]),
            **{name: _over_seeds([run[name] for run in rows[label]]) for name in _FIGURES},
            "digit_token_entropy": _over_seeds(
                [run["teacher_forced"].get("digit_token_entropy") for run in rows[label]]
            ),
            "difference": None
            if label == baseline
            else {
                "by_seed": {name: _paired_seeds(rows[label], rows[baseline], name) for name in _FIGURES},
                "by_question": _paired_questions(rows[label], rows[baseline], questions),
            },
        }
        for label in labels
    ]


def _over_seeds(values: Sequence[float | None]) -> dict[str, Any]:
    there = [value for value in values if value is not None]
    mean = mean_interval(there) if there else {"mean": None, "interval": None}
    return {**mean, "by_seed": list(values)}


def _paired_seeds(runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    pairs = [(run[name], other[name]) for run, other in zip(runs, others, strict=True)]
    return _over_seeds([None if a is None or b is None else a - b for a, b in pairs])


def _paired_questions(
    runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], questions: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    right, errors = [], []
    for index, question in enumerate(questions):
        answers, theirs = (
            [Answer(**question, output=run["outputs"][index]) for run in side] for side in (runs, others)
        )
        right.append(statistics.fmean(map(is_right, answers)) - statistics.fmean(map(is_right, theirs)))
        mine, other = (_mean_error(side) for side in (answers, theirs))
        if mine is not None and other is not None:
            errors.append(mine - other)
    none = {"mean": None, "interval": None}
    return {
        "exact_match": {**mean_interval(right), "num_questions": len(right)},
        "absolute_error": {**(mean_interval(errors) if errors else none), "num_questions": len(errors)},
    }


def _mean_error(answers: Sequence[Answer]) -> float | None:
    """Mean error of the answers to one question; None where one of them is no number."""
    errors = [absolute_error(answer) for answer in answers]
    there = [error for error in errors if error is not None]
    return statistics.fmean(there) if len(there) == len(errors) else None
