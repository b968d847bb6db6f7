"""The picture of a comparison, drawn with matplotlib from its result file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from digitloss.report.tables import interval_note

COLORS = {
    "cross_entropy": "#555555",
    "number_token": "#0072B2",
    "dist2": "#E69F00",
    "digit_entropy": "#D55E00",
    "emo": "#009E73",
    "mixce": "#CC79A7",
}
"""One colour a loss, the same in every picture (Okabe and Ito's palette, told apart by colour-blind readers)."""

_OTHERS = ("#56B4E9", "#000000", "#8C6D31", "#7B4FA3")
_GRID = "0.9"


def draw_comparison(results: Mapping[str, Any], path: Path) -> None:
    """Draw the picture of a comparison: six panels, every loss in one row or line of each.

    Args:
        results: What `results.json` of `digitloss compare` holds.
        path: Where the picture goes; its ending says the format.
    """
    losses = results["summary"]
    names = [entry["loss"] for entry in losses]
    colors = _colors(names)
    others = [entry for entry in losses if entry["difference"] is not None]
    baseline = next(entry["loss"] for entry in losses if entry["difference"] is None)
    height = 7.6 + 0.45 * max(0, len(losses) - 4)
    figure = Figure(figsize=(17, height), dpi=110, layout=ConstrainedLayoutEngine(hspace=0.07, wspace=0.05))
    panels = figure.subplots(2, 3)
    _draw_exact_match(panels[0, 0], results, colors)
    _draw_errors(panels[1, 0], losses, colors)
    for axes, seed_figure, question_figure, factor, title, unit in (
        (panels[0, 1], "exact_match", "exact_match", 100, "Exact match", "points; right of 0 is better"),
        (panels[1, 1], "mean_absolute_error", "absolute_error", 1, "Error", "absolute error; left of 0 is better"),
    ):
        _draw_differences(axes, others, colors, (seed_figure, question_figure), factor)
        axes.set(title=f"{title} less that of {baseline}", xlabel=f"difference in {unit}")
    _draw_places(panels[0, 2], results, colors)
    _draw_entropy(panels[1, 2], results, colors)
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(14)
        axes.title.set_fontweight("bold")
    num_steps = results["settings"]["steps"]
    figure.suptitle(
        f"One model trained with {len(losses)} losses: same starts, same batches, {num_steps:,} steps", fontsize=18
    )
    figure.supxlabel(f"{interval_note(results)} Small dots are seeds.", fontsize=11, color="#555555")
    figure.savefig(path)


def _draw_exact_match(axes: Axes, results: Mapping[str, Any], colors: Mapping[str, str]) -> None:
    losses = results["summary"]
    for row, entry in enumerate(losses):
        exact, color = entry["exact_match"], colors[entry["loss"]]
        interval = exact["interval"] or _runs(results, entry["loss"])[0]["exact_match_interval"]
        _interval(axes, row, exact["mean"], interval, color)
        if len(exact["by_seed"]) > 1:
            _seeds(axes, row, exact["by_seed"], color)
        _note(axes, exact["mean"], row, f"{exact['mean']:.1%}")
    _name_rows(axes, losses)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    axes.set(title="Answers that are exactly right", xlabel="share of the questions, 95 % interval")


def _draw_errors(axes: Axes, losses: Sequence[Mapping[str, Any]], colors: Mapping[str, str]) -> None:
    for row, entry in enumerate(losses):
        error, color = entry["mean_absolute_error"], colors[entry["loss"]]
        if error["mean"]:
            _interval(axes, row, error["mean"], error["interval"], color)
            _seeds(axes, row, [value for value in error["by_seed"] if value], color)
            _note(axes, error["mean"], row, f"{error['mean']:.3g}")
    _name_rows(axes, losses)
    axes.set(
        title="How far the answers are off",
        xlabel="mean absolute error, 95 % interval; one wild answer can move it far",
        xlim=(0, None),
    )


def _draw_differences(
    axes: Axes, others: Sequence[Mapping[str, Any]], colors: Mapping[str, str], figures: tuple[str, str], factor: float
) -> None:
    axes.axvline(0, color="0.4", linewidth=1)
    for row, entry in enumerate(others):
        color = colors[entry["loss"]]
        for side, figure, marker, offset in (
            ("by_seed", figures[0], "o", -0.13),
            ("by_question", figures[1], "s", 0.17),
        ):
            found = entry["difference"][side][figure]
            if found["mean"] is None or (side == "by_seed" and found["interval"] is None):
                continue
            mean, interval = factor * found["mean"], [factor * end for end in found["interval"] or ()]
            _interval(axes, row + offset, mean, interval, color, marker=marker, width=3.0 if side == "by_seed" else 1.5)
    _name_rows(axes, others)
    for marker, label in (("o", "by seed"), ("s", "by question")):
        axes.plot([], [], marker, color="0.4", label=label)
    axes.set_ylim(len(others) + 0.35, -0.7)
    axes.legend(loc="lower center", ncols=2, fontsize=10, frameon=False)


def _draw_places(axes: Axes, results: Mapping[str, Any], colors: Mapping[str, str]) -> None:
    counts = results["runs"][0]["accuracy_by_place"]
    places = [place for place, (_, num_all) in counts.items() if num_all >= 20]
    for entry in results["summary"]:
        sums = [
            np.sum([run["accuracy_by_place"][place] for run in _runs(results, entry["loss"])], axis=0)
            for place in places
        ]
        shares = [right / num_all for right, num_all in sums]
        axes.plot(range(len(places)), shares, "o-", color=colors[entry["loss"]], linewidth=2, label=entry["loss"])
    names = [_place_name(int(place)) for place in places]
    axes.set_xticks(range(len(places)), names, rotation=30, ha="right", rotation_mode="anchor")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set(title="Digits that are right, by place", xlabel="place of the digit in the right answer", ylabel="share")
    axes.grid(axis="y", color=_GRID)


def _draw_entropy(axes: Axes, results: Mapping[str, Any], colors: Mapping[str, str]) -> None:
    ends = []
    for entry in results["summary"]:
        curves = [run["curves"] for run in _runs(results, entry["loss"])]
        steps = curves[0]["step"]
        values = np.array([curve["digit_token_entropy"] for curve in curves], dtype=float).mean(axis=0)
        axes.plot(steps, values, color=colors[entry["loss"]], linewidth=2)
        ends.append((float(values[-1]), steps[-1], entry["loss"]))
    axes.set_ylim(bottom=0)
    _label_ends(axes, sorted(ends), colors)
    axes.set(
        title="How sure the model is of its digits",
        xlabel="training step",
        ylabel="entropy of the ten digits (nats): 0 is sure",
    )
    axes.grid(axis="y", color=_GRID)


def _interval(
    axes: Axes,
    row: float,
    mean: float,
    interval: Sequence[float] | None,
    color: str,
    *,
    marker: str = "o",
    width: float = 3.0,
) -> None:
    if interval:
        axes.plot(interval, [row, row], color=color, linewidth=width, solid_capstyle="round")
    axes.plot(mean, row, marker, color=color, markersize=10 if width > 2 else 6)


def _seeds(axes: Axes, row: float, values: Sequence[float], color: str) -> None:
    axes.plot(values, [row + 0.28] * len(values), "o", color=color, markersize=4, alpha=0.55, linewidth=0)


def _note(axes: Axes, x: float, row: float, text: str) -> None:
    axes.annotate(text, (x, row), (0, 9), textcoords="offset points", ha="center", fontsize=11)


def _label_ends(axes: Axes, ends: Sequence[tuple[float, int, str]], colors: Mapping[str, str]) -> None:
    """Name the lines at their right ends, lowest first, pushed apart where they are close."""
    gap = 0.062 * axes.get_ylim()[1]
    last_step = ends[0][1]
    positions = [ends[0][0]]
    for value, _, _ in ends[1:]:
        positions.append(max(positions[-1] + gap, value))
    shift = float(np.mean(positions) - np.mean([value for value, _, _ in ends]))
    shift = min(shift, positions[0] - gap / 2)
    for position, (value, step, name) in zip(positions, ends, strict=True):
        axes.annotate(
            name,
            (step, value),
            (last_step * 1.06, position - shift),
            color=colors[name],
            fontsize=11,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colors[name], "linewidth": 0.8},
        )
    axes.set_xlim(0, last_step * (1.12 + 0.021 * max(len(name) for _, _, name in ends)))
    axes.set_xticks(sorted({last_step * part // 4 for part in range(5)}))


def _name_rows(axes: Axes, losses: Sequence[Mapping[str, Any]]) -> None:
    axes.set_yticks(range(len(losses)), [entry["loss"] for entry in losses], fontsize=12)
    axes.set_ylim(len(losses) - 0.4, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=_GRID)


def _runs(results: Mapping[str, Any], loss: str) -> list[Mapping[str, Any]]:
    return [run for run in results["runs"] if run["loss"] == loss]


def _colors(names: Sequence[str]) -> dict[str, str]:
    others = [name for name in names if name not in COLORS]
    return {**COLORS, **{name: _OTHERS[index % len(_OTHERS)] for index, name in enumerate(others)}}


def _place_name(place: int) -> str:
    names = {0: "units", 1: "tens", 2: "hundreds", 3: "thousands"}
    return names.get(place, f"10^{place}" if place > 0 else f"decimal {-place}")
