"""Tables of a comparison: for the terminal, and as a page of Markdown."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

_MINUS = "\N{MINUS SIGN}"


class Grid(NamedTuple):
    """A table as text."""

    headings: list[str]
    rows: list[list[str]]


def result_grid(results: Mapping[str, Any]) -> Grid:
    """Figures of each loss: means over seeds with their 95 % intervals; over the questions where there is one seed.

    Args:
        results: What `results.json` of `digitloss compare` holds.
    """
    headings = ["loss", "alpha", "exact match", "95 %", "mean error", "95 %", "median error", "no number", "digit nats"]
    rows = []
    for entry in results["summary"]:
        exact, mean, median = (entry[f] for f in ("exact_match", "mean_absolute_error", "median_absolute_error"))
        low_high = exact["interval"] or _runs(results, entry["loss"])[0]["exact_match_interval"]
        rows.append(
            [
                entry["loss"],
                "-" if entry["alpha"] is None else f"{entry['alpha']:g}",
                f"{exact['mean']:.1%}",
                _range([100 * max(0.0, low_high[0]), 100 * min(1.0, low_high[1])], ".1f"),
                _figure(mean["mean"]),
                _range(mean["interval"], ".3g"),
                _figure(median["mean"]),
                f"{entry['num_unparsed']} of {entry['num_answers']:,}",
                _figure(entry["digit_token_entropy"]["mean"], ".3f"),
            ]
        )
    return Grid(headings, rows)


def difference_grid(results: Mapping[str, Any]) -> Grid:
    """Differences to the baseline with 95 % intervals, paired by seed and by question."""
    headings = [
        "loss",
        "exact match, points, by seed",
        "by question",
        "mean error, by seed",
        "error, by question",
    ]
    rows = []
    for entry in results["summary"]:
        if entry["difference"] is None:
            continue
        by_seed, by_question = entry["difference"]["by_seed"], entry["difference"]["by_question"]
        rows.append(
            [
                entry["loss"],
                _difference(by_seed["exact_match"], 100, ".1f"),
                _difference(by_question["exact_match"], 100, ".1f").strip("*"),
                _difference(by_seed["mean_absolute_error"], 1, ".3g"),
                _difference(by_question["absolute_error"], 1, ".3g").strip("*"),
            ]
        )
    return Grid(headings, rows)


def alpha_grid(results: Mapping[str, Any]) -> Grid:
    """Exact match on the validation questions for each candidate alpha; the one in brackets was chosen."""
    alphas = sorted({run["alpha"] for run in results["tuning"]})
    chosen = {entry["loss"]: entry["alpha"] for entry in results["summary"]}
    losses = list(dict.fromkeys(run["loss"] for run in results["tuning"]))
    share = {(run["loss"], run["alpha"]): f"{run['exact_match']:.1%}" for run in results["tuning"]}
    rows = [
        [loss, *(f"[{share[loss, a]}]" if a == chosen[loss] else share[loss, a] for a in alphas)] for loss in losses
    ]
    return Grid(["loss", *(f"alpha {alpha:g}" for alpha in alphas)], rows)


def kind_grid(results: Mapping[str, Any]) -> Grid:
    """Exact match by kind of question, over all seeds."""
    kinds = list(results["runs"][0]["exact_match_by_kind"])
    rows = []
    for entry in results["summary"]:
        shares = []
        for kind in kinds:
            counts = [run["exact_match_by_kind"][kind] for run in _runs(results, entry["loss"])]
            shares.append(sum(right for right, _ in counts) / sum(num_all for _, num_all in counts))
        rows.append([entry["loss"], *(f"{share:.0%}" for share in shares)])
    return Grid(["loss", *kinds], rows)


def comparison_table(results: Mapping[str, Any]) -> Table:
    """Make the table of a comparison for the terminal, one row a loss."""
    table = Table(
        title="Held-out questions, greedy answers",
        caption=f"{interval_note(results)} Points: exact match less that of {_baseline(results)}, paired.",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("loss", overflow="fold")
    for heading in (
        "alpha",
        "exact\nmatch",
        "95 %",
        "points to\nbaseline",
        "error\nmean",
        "error\nmedian",
        "no\nnumber",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    side = "by_seed" if len(results["settings"]["seeds"]) > 1 else "by_question"
    for row, entry in zip(result_grid(results).rows, results["summary"], strict=True):
        points = "-"
        if entry["difference"] is not None:
            found = entry["difference"][side]["exact_match"]
            half = "" if found["interval"] is None else f" ±{100 * (found['interval'][1] - found['mean']):.1f}"
            points = f"{100 * found['mean']:+.1f}{half}"
        table.add_row(*row[:3], row[3].replace(" to ", "-"), points, row[4], row[6], row[7].partition(" ")[0])
    return table


def interval_note(results: Mapping[str, Any]) -> str:
    """Say what the intervals are over."""
    seeds, num_questions = results["settings"]["seeds"], len(results["questions"]["test"])
    if len(seeds) == 1:
        return (
            f"One seed ({seeds[0]}): the intervals are over {num_questions} questions and say nothing of other seeds."
        )
    return f"Means over {len(seeds)} seeds with 95 % intervals; {num_questions} questions, the same for each."


def comparison_page(results: Mapping[str, Any], command: str) -> str:
    """Make the page of a comparison.

    Args:
        results: What `results.json` of `digitloss compare` holds.
        command: The command that made them.

    Returns:
        Markdown; it shows `comparison.png` of the same folder.
    """
    settings, baseline = results["settings"], _baseline(results)
    losses, seeds = results["summary"], settings["seeds"]
    several = len(seeds) > 1
    parts = [
        f"# {len(losses)} losses compared",
        _what_was_done(results),
        "![Exact match, absolute error, their differences to the baseline, accuracy by place and digit entropy]"
        "(comparison.png)",
        "## Figures",
        f"{interval_note(results)} Errors are absolute, of answers that are numbers; the others are counted. Digit nats"
        ": the entropy of the ten digits, given the right digits before.",
        _markdown(result_grid(results)),
    ]
    if len(losses) > 1:
        parts += [
            f"## Difference to `{baseline}`",
            f"Paired: each {'seed, or question,' if several else 'question'} with the same one of the baseline."
            " An interval by question holds the trained models fixed: it often leaves out 0 where another seed would"
            " not, so it is no evidence for a loss. In bold: 95 % intervals by seed that leave out 0; of twenty such"
            " intervals one does so by chance alone.",
            _markdown(difference_grid(results)),
        ]
    if results["tuning"]:
        parts += [
            "## Choice of alpha",
            f"Exact match on {len(results['questions']['validation'])} validation questions that the result does not"
            " use, one seed that it does not use either. The weight in brackets was taken.",
            _markdown(alpha_grid(results)),
        ]
    parts += ["## Exact match by kind of question", _markdown(kind_grid(results))]
    seconds = sum(run["seconds_per_step"] for run in [*results["runs"], *results["tuning"]]) * settings["steps"]
    versions = ", ".join(f"{name} {text}" for name, text in results["versions"].items())
    parts += [
        "## How it was made",
        f"    {command}",
        f"{len(results['runs']) + len(results['tuning'])} runs of {settings['steps']:,} steps, {seconds / 3600:.2f}"
        f" hours of training, each on one thread. Versions: {versions}.",
        f"```json\n{json.dumps(settings, indent=1)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _what_was_done(results: Mapping[str, Any]) -> str:
    settings = results["settings"]
    task, names = settings["task"], [entry["loss"] for entry in results["summary"]]
    seeds = settings["seeds"]
    if settings["task_kind"] == "problems":
        model = (
            f"A Llama of width {task['width']} and {task['layers']} layers learns {task['num_train']:,} built-in"
            " problems from scratch, one token a character"
        )
    else:
        model = f"`{task['model']}` is fine-tuned on `{task['data']}`"
    return (
        f"{model}, with each of {len(names)} losses and {len(seeds)} {'seeds' if len(seeds) > 1 else 'seed'}:"
        f" {settings['steps']:,} steps of {settings['batch_size']} rows. Losses of one seed have the same start and the"
        " same batches. Answers are greedy."
    )


def _baseline(results: Mapping[str, Any]) -> str:
    return next(str(entry["loss"]) for entry in results["summary"] if entry["difference"] is None)


def _runs(results: Mapping[str, Any], loss: str) -> list[Mapping[str, Any]]:
    return [run for run in results["runs"] if run["loss"] == loss]


def _markdown(grid: Grid) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    names = [[f"`{row[0]}`", *row[1:]] for row in grid.rows]
    return "\n".join([line(grid.headings), "|---" * len(grid.headings) + "|", *map(line, names)])


def _difference(figure: Mapping[str, Any], factor: float, form: str) -> str:
    if figure["mean"] is None:
        return "-"
    mean = f"{factor * figure['mean']:+{form}}".replace("-", _MINUS)
    if figure["interval"] is None:
        return mean
    low, high = (factor * end for end in figure["interval"])
    text = f"{mean} ({low:+{form}} to {high:+{form}})".replace("-", _MINUS)
    return f"**{text}**" if low > 0 or high < 0 else text


def _range(interval: Sequence[float] | None, form: str) -> str:
    return "-" if interval is None else f"{interval[0]:{form}} to {interval[1]:{form}}".replace("-", _MINUS)


def _figure(value: float | None, form: str = ".3g") -> str:
    return "-" if value is None else f"{value:{form}}"
