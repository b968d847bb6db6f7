"""Result files in, tables and pictures out. Nothing is computed here that the result files do not hold."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from digitloss.errors import missing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = {
    "cross_entropy": "#555555",
    "number_token": "#0072B2",
    "dist2": "#E69F00",
    "digit_entropy": "#D55E00",
}
"""One colour a loss, the same in every picture (Okabe and Ito's palette, told apart by colour-blind readers)."""

_OTHERS = ("#009E73", "#CC79A7", "#56B4E9", "#000000")


def comparison_table(results: Mapping[str, Any]) -> Table:
    """Make the table of a comparison.

    Args:
        results: What `results.json` of `digitloss compare` holds.

    Returns:
        A table with one row a loss.
    """
    runs = results["runs"]
    table = Table(
        title="Held-out problems, greedy answers",
        caption=_caption(runs),
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("loss", no_wrap=True)
    for heading in (
        "alpha",
        "exact\nmatch",
        "95 %\ninterval",
        "error\nmean",
        "error\nmedian",
        "no\nnumber",
        "digit\nnats",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        low, high = run["exact_match_interval"]
        table.add_row(
            run["loss"],
            f"{run['alpha']:g}" if run["alpha_applies"] else "-",
            f"{run['exact_match']:.1%}",
            f"{100 * low:.1f}-{100 * high:.1f}",
            _figure(run["mean_absolute_error"]),
            _figure(run["median_absolute_error"]),
            str(run["num_unparsed"]),
            f"{run['teacher_forced']['digit_token_entropy']:.3f}",
        )
    return table


def draw_comparison(results: Mapping[str, Any], path: Path) -> None:
    """Draw the picture of a comparison.

    Args:
        results: What `results.json` of `digitloss compare` holds.
        path: Where the picture goes; its ending says the format.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ModuleNotFoundError as error:
        raise missing_extra("the picture of a comparison", "report") from error
    runs = results["runs"]
    colors = _colors([run["loss"] for run in runs])
    figure = Figure(figsize=(14, 8.4), dpi=120, layout=ConstrainedLayoutEngine(hspace=0.08, wspace=0.06))
    panels = figure.subplots(2, 2)
    _draw_exact_match(panels[0, 0], runs, colors)
    _draw_errors(panels[0, 1], runs, colors)
    _draw_places(panels[1, 0], runs, colors)
    _draw_entropy(panels[1, 1], runs, colors)
    for axes in panels.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_fontsize(13)
        axes.title.set_fontweight("bold")
    settings = results["settings"]
    figure.suptitle(
        f"The same small model trained with {len(runs)} losses: same start, same batches, {settings['steps']:,} steps",
        fontsize=16,
    )
    figure.supxlabel(_caption(runs), fontsize=10, color="#555555")
    figure.savefig(path)


def _draw_exact_match(axes: "Axes", runs: Sequence[Mapping[str, Any]], colors: Mapping[str, str]) -> None:
    for row, run in enumerate(runs):
        share, (low, high) = run["exact_match"], run["exact_match_interval"]
        axes.plot([low, high], [row, row], color=colors[run["loss"]], linewidth=3, solid_capstyle="round")
        axes.plot(share, row, "o", color=colors[run["loss"]], markersize=11)
        axes.annotate(f"{share:.1%}", (share, row), (0, 10), textcoords="offset points", ha="center", fontsize=11)
    _name_rows(axes, runs)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    axes.set(title="Answers that are exactly right", xlabel="share of questions, 95 % interval over the questions")
    axes.grid(axis="x", color="0.9")


def _draw_errors(axes: "Axes", runs: Sequence[Mapping[str, Any]], colors: Mapping[str, str]) -> None:
    for row, run in enumerate(runs):
        mean, color = run["mean_absolute_error"], colors[run["loss"]]
        label = f"{_figure(mean)}   (median {_figure(run['median_absolute_error'])})"
        if mean:
            axes.plot(mean, row, "o", color=color, markersize=11)
        axes.annotate(label, (mean or 1.0, row), (0, 10), textcoords="offset points", ha="center", fontsize=11)
    _name_rows(axes, runs)
    means = [run["mean_absolute_error"] or 1.0 for run in runs]
    axes.set_xscale("log")
    axes.set_xlim(min(means) / 10, max(means) * 10)
    axes.set(
        title="How far the answers are off",
        xlabel="mean absolute error, log scale; one wild answer can move it far",
    )
    axes.grid(axis="x", color="0.9")


def _draw_places(axes: "Axes", runs: Sequence[Mapping[str, Any]], colors: Mapping[str, str]) -> None:
    places = [place for place, (_, num_all) in runs[0]["accuracy_by_place"].items() if num_all >= 20]
    for run in runs:
        shares = [run["accuracy_by_place"][place][0] / run["accuracy_by_place"][place][1] for place in places]
        axes.plot(range(len(places)), shares, "o-", color=colors[run["loss"]], linewidth=2, label=run["loss"])
    axes.set_xticks(range(len(places)), [_place_name(int(place)) for place in places])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set(title="Digits that are right, by place", xlabel="place of the digit in the exact answer", ylabel="share")
    axes.grid(axis="y", color="0.9")


def _draw_entropy(axes: "Axes", runs: Sequence[Mapping[str, Any]], colors: Mapping[str, str]) -> None:
    ends = []
    for run in runs:
        steps, entropy = run["curves"]["step"], run["curves"]["digit_token_entropy"]
        axes.plot(steps, entropy, color=colors[run["loss"]], linewidth=2)
        ends.append((entropy[-1], steps[-1], run["loss"]))
    _label_ends(axes, sorted(ends), colors)
    axes.set_ylim(bottom=0)
    axes.set(
        title="How sure the model is of its digits",
        xlabel="training step",
        ylabel="entropy of the ten digits (nats): 0 is sure",
    )
    axes.grid(axis="y", color="0.9")


def _label_ends(axes: "Axes", ends: Sequence[tuple[float, int, str]], colors: Mapping[str, str]) -> None:
    """Name the lines at their right ends, lowest first, pushed apart where they are close."""
    gap = 0.065 * axes.get_ylim()[1]
    last_step = ends[0][1]
    position = ends[0][0] - gap * (len(ends) - 1) / 2
    for value, step, name in ends:
        axes.annotate(
            name,
            (step, value),
            (last_step * 1.06, position),
            color=colors[name],
            fontsize=11,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colors[name], "linewidth": 0.8},
        )
        position = max(position + gap, value)
    axes.set_xlim(0, last_step * 1.35)
    axes.set_xticks([last_step * part // 4 for part in range(5)])


def _name_rows(axes: "Axes", runs: Sequence[Mapping[str, Any]]) -> None:
    axes.set_yticks(range(len(runs)), [run["loss"] for run in runs], fontsize=12)
    axes.set_ylim(len(runs) - 0.4, -0.7)
    axes.tick_params(axis="y", length=0)


def _colors(names: Sequence[str]) -> dict[str, str]:
    others = [name for name in names if name not in COLORS]
    return {**COLORS, **{name: _OTHERS[index % len(_OTHERS)] for index, name in enumerate(others)}}


def _caption(runs: Sequence[Mapping[str, Any]]) -> str:
    seeds = sorted({run["seed"] for run in runs})
    return (
        f"One training seed ({seeds[0]}): the intervals are over {runs[0]['num_questions']} questions and say nothing"
        " of other seeds. Errors are absolute, of answers that are numbers. Digit nats: entropy of the digits, given"
        " the right digits before."
    )


def _place_name(place: int) -> str:
    names = {0: "units", 1: "tens", 2: "hundreds", 3: "thousands"}
    return names.get(place, f"10^{place}" if place > 0 else f"decimal {-place}")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
