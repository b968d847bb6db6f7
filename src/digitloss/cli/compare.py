"""Compare losses on built-in problems: same model, same start, same batches.

Example:
  digitloss compare --preset quick --out demo

Writes results.json (all figures, curves and answers) and comparison.png to the folder. An interrupted comparison goes
on where it stopped when the command is given again.
"""

import argparse
import dataclasses
import os
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--preset", default="quick", help="named settings: quick (default)")
    parser.add_argument("--losses", nargs="+", metavar="LOSS", help="losses, by name; default: those of the preset")
    parser.add_argument("--seed", type=int, help="seed of data, model and batches; default: the preset's")
    parser.add_argument("--steps", type=int, help="optimiser steps a loss; default: the preset's")
    parser.add_argument("--workers", type=int, help="losses trained at a time; default: the number of cores")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results; made where it is absent")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: small steps crawl where another program runs

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    from digitloss import compare, report
    from digitloss.errors import unknown_name

    if options.preset not in compare.PRESETS:
        raise unknown_name("preset", options.preset, compare.PRESETS)
    given = {"losses": tuple(options.losses) if options.losses else None, "seed": options.seed, "steps": options.steps}
    settings = dataclasses.replace(
        compare.PRESETS[options.preset], **{name: value for name, value in given.items() if value is not None}
    )
    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("gone"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting", total=1.0)
        results = compare.run(
            settings,
            options.out,
            lambda what, share: progress.update(task, description=what, completed=share),
            workers=min(len(settings.losses), options.workers or os.cpu_count() or 1),
        )
        progress.update(task, description="done", completed=1.0)
    picture = options.out / "comparison.png"
    report.draw_comparison(results, picture)
    console.print(report.comparison_table(results))
    console.print(f"all figures: {options.out / 'results.json'}\npicture:     {picture}", soft_wrap=True)
