"""Tables, page and picture of `digitloss bench`, from its result file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from digitloss.report.pictures import COLORS
from digitloss.report.tables import Grid

_BASELINE = "cross_entropy"
_OURS, _OTHERS = "#009E73", "#999999"


def bench_grid(found: Mapping[str, Any]) -> Grid:
    """Figures of one setting, one row a case.

    Args:
        found: An entry of `settings` of what `results.json` of `digitloss bench` holds.
    """
    headings = ["case", "seconds", "time", "quartiles", "time, term", "memory"]
    rows = []
    for case, figures in found["summary"].items():
        time, term, memory = figures["time"], figures["time_of_term"], figures["memory"]
        rows.append(
            [
                case,
                f"{figures['seconds']:.3g}",
                "-" if time is None else f"{time['median']:.3f}",
                "-" if time is None else f"{time['low']:.3f} to {time['high']:.3f}",
                "-" if term is None else f"{term['median']:.3f}",
                "-" if memory is None else f"{memory:.2f}",
            ]
        )
    return Grid(headings, rows)


def bench_tables(results: Mapping[str, Any]) -> list[Table]:
    """Make the tables for the terminal, one a setting."""
    tables = []
    for found in results["settings"]:
        grid = bench_grid(found)
        table = Table(title=found["title"], box=SIMPLE_HEAD, pad_edge=False, title_justify="left")
        for index, heading in enumerate(grid.headings):
            table.add_column(heading, justify="right" if index else "left", overflow="fold")
        for row in grid.rows:
            table.add_row(*row)
        if found["left_out"]:
            table.caption = "left out: " + "; ".join(found["left_out"].values())
            table.caption_justify = "left"
        tables.append(table)
    return tables


def bench_page(results: Mapping[str, Any], command: str) -> str:
    """Make the page of Markdown: what was measured on what machine, and a table a setting."""
    machine, versions = results["machine"], results["versions"]
    parts = [
        "# Time and memory of losses",
        f"    {command}",
        f"{machine.get('gpu', machine['cpu'])}, {machine['cores']} cores, {machine['threads']} threads; "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + f". {results['rounds']} rounds.",
        "Time: forward and backward over that of plain cross-entropy (`F.cross_entropy` in float32 on all logits,"
        " shifted without a copy) in the same round, median and quartiles over rounds. Time, term: the same over the"
        " objective without a numeric term. Memory: what a call takes beyond its inputs, in multiples of the logits,"
        " their gradient included (on hidden states: without the gradients, over that of plain cross-entropy).",
        "![Time and memory](bench.png)",
    ]
    for found in results["settings"]:
        grid = bench_grid(found)
        lines = [grid.headings, ["---"] * len(grid.headings), *grid.rows]
        parts += [f"## {found['title'][0].upper()}{found['title'][1:]}"]
        parts += ["\n".join(f"| {' | '.join(line)} |" for line in lines)]
        parts += [f"Left out: {reason}." for reason in found["left_out"].values()]
        for case, errors in found["gradient_errors"].items():
            ours, full = errors["ours"], errors["full_logits"]
            parts.append(
                f"Gradients of {case} against float64: hidden states {ours['hidden']:.1e}, head {ours['head']:.1e}"
                f" (full logits in plain autograd: {full['hidden']:.1e}, {full['head']:.1e})."
            )
    return "\n\n".join(parts) + "\n"


def draw_bench(results: Mapping[str, Any], path: Path) -> None:
    """Draw time and memory of every case as multiples of plain cross-entropy, a row of panels for each setting.

    Where plain cross-entropy was not measured, time is in seconds.

    Args:
        results: What `results.json` of `digitloss bench` holds.
        path: Where the picture goes; its ending says the format.
    """
    shown = [found for found in results["settings"] if found["setting"]["path"] != "numbers"]
    alone = [found for found in results["settings"] if found["setting"]["path"] == "numbers"]
    heights = [0.9 + 0.34 * len(found["summary"]) for found in shown] + ([2.6] if alone else [])
    figure = Figure(figsize=(13, 1.1 + sum(heights)), dpi=110, layout="constrained")
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    for row, found in enumerate(shown):
        time = figure.add_subplot(grid[row, 0])
        if _BASELINE in found["summary"]:
            _draw_bars(time, found, "time", f"{found['title']}\ntime over plain cross-entropy, median and quartiles")
        else:
            _draw_bars(time, found, "seconds", f"{found['title']}\nseconds, median")
        if all(figures["memory"] is None for figures in found["summary"].values()):
            continue
        memory = figure.add_subplot(grid[row, 1])
        what = (
            "beyond the logits, in multiples of them"
            if found["setting"]["path"] == "logits"
            else "over plain cross-entropy"
        )
        _draw_bars(memory, found, "memory", f"\nmemory {what}")
        memory.set_yticklabels([])
    if alone:
        _draw_alone(figure.add_subplot(grid[len(shown), 0]), alone)
    figure.suptitle("What a step of each loss costs, forward and backward; less is better", fontsize=15)
    figure.savefig(path)


def _draw_bars(axes: Axes, found: Mapping[str, Any], figure: str, title: str) -> None:
    cases = list(found["summary"])
    for row, case in enumerate(cases):
        value = found["summary"][case][figure]
        if value is None:
            continue
        middle = value["median"] if figure == "time" else value
        color = COLORS.get(case.partition(":")[2], _OURS) if case.startswith("objective:") else _OTHERS
        axes.barh(row, middle, color=color, height=0.7)
        if figure == "time":
            axes.plot([value["low"], value["high"]], [row, row], color="black", linewidth=2, solid_capstyle="butt")
        axes.annotate(f" {middle:.2f}", (max(middle, value["high"] if figure == "time" else 0), row), va="center")
    axes.set_yticks(range(len(cases)), cases)
    axes.set_ylim(len(cases) - 0.4, -0.6)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.12)
    if figure != "seconds":
        axes.axvline(1, color="0.3", linewidth=0.8, linestyle="--")
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_alone(axes: Axes, alone: list[Mapping[str, Any]]) -> None:
    """Time a token of what has no baseline, by the number of tokens."""
    lengths = [found["setting"]["batch_size"] * found["setting"]["length"] for found in alone]
    for case in alone[0]["summary"]:
        times = [1e9 * found["summary"][case]["seconds"] / n for found, n in zip(alone, lengths, strict=True)]
        axes.plot(lengths, times, marker="o", color=_OURS)
        axes.set_title(f"{case}: time of a token, ns", loc="left", fontsize=10)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("tokens")
    axes.spines[["top", "right"]].set_visible(False)
