"""Compare losses: same model, same starts, same batches, same questions.

Examples:
  digitloss compare --preset quick --out demo
  digitloss compare --losses cross_entropy digit_entropy:distance=absolute,alpha=0.05 --seeds 0-4 --out mine
  digitloss compare --model my-model --data problems.jsonl --losses cross_entropy digit_entropy --out tuned
  digitloss compare --losses cross_entropy again=cross_entropy:stream=1 --seeds 0-9 --out chance

The model learns built-in problems from scratch, or is a pretrained one that is fine-tuned on a data set. Writes
results.json (all figures, curves and outputs), report.md and comparison.png to the folder. An interrupted comparison
goes on where it stopped when the command is given again; losses and seeds can be added to a finished one.

A loss is written [NAME=]LOSS[:OPTION=VALUE,...]; beside the loss's own options there are alpha, normalize and stream
(variants of another stream have other starts and batches: the same loss twice shows what chance alone does).
"""

import argparse
import dataclasses
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from digitloss.compare import Settings

_OF_ALL = ("losses", "seeds", "alphas", "steps", "batch_size", "learning_rate")
_OF_TASK = ("num_test", "num_validation", "max_new_tokens")
_OF_MODEL = ("model", "tokenizer_name", "data", "data_config", "data_split", "num_rows")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--preset", help="named settings: quick (default without --model) or full")
    parser.add_argument("--losses", nargs="+", metavar="LOSS", help="losses; default: those of the preset")
    parser.add_argument("--seeds", type=_seeds, metavar="N,N|N-N", help="seeds of data, start and batches")
    parser.add_argument(
        "--alphas", type=_numbers, metavar="X,X", help="weights to choose from, on questions that the result leaves out"
    )
    parser.add_argument("--steps", type=int, help="optimiser steps of a run")
    parser.add_argument("--batch-size", type=int, help="rows of a step")
    parser.add_argument("--learning-rate", type=float, help="highest learning rate")
    parser.add_argument("--num-test", type=int, help="questions of the result")
    parser.add_argument("--num-validation", type=int, help="questions to choose alpha on")
    parser.add_argument("--max-new-tokens", type=int, help="longest answer, in tokens")
    parser.add_argument("--model", help="folder or hub name of a pretrained model")
    parser.add_argument(
        "--tokenizer", dest="tokenizer_name", metavar="TOKENIZER", help="folder or hub name; default: the model's"
    )
    parser.add_argument("--data", help="JSON, JSON-lines, CSV or Parquet file, or hub set, to fine-tune it on")
    parser.add_argument("--data-config", help="configuration of a hub set")
    parser.add_argument("--data-split", help="split of a hub set (default: train)")
    parser.add_argument("--rows", dest="num_rows", type=int, help="rows of the data to use; default: all")
    parser.add_argument(
        "--workers", type=int, help="runs at a time; default: the number of cores; 1 with --model or a GPU"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the results; made where it is absent")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: small steps crawl where another program runs

    from rich.console import Console

    from digitloss.cli._progress import shown_progress
    from digitloss.errors import missing_extra

    try:
        import transformers.utils.logging
        from torch.cuda import is_available

        from digitloss import compare
    except ModuleNotFoundError as error:
        raise missing_extra("digitloss compare", "train") from error
    try:
        from digitloss.report import pictures, tables
    except ModuleNotFoundError as error:
        raise missing_extra("the picture of a comparison", "report") from error

    settings = _settings(options)
    workers = options.workers
    if workers is None:
        workers = 1 if is_available() or options.model is not None else os.cpu_count() or 1
    if workers < 1:
        raise ValueError(f"--workers must be at least 1, got {workers}")
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    console = Console()
    with shown_progress(console) as show:
        results = compare.run(settings, options.out, show, workers=workers)
    console.print(tables.comparison_table(results))
    pictures.draw_comparison(results, options.out / "comparison.png")
    command = shlex.join(["digitloss", *sys.argv[1:]])
    (options.out / "report.md").write_text(tables.comparison_page(results, command), encoding="utf-8")
    for what, name in (("figures", "results.json"), ("report", "report.md"), ("picture", "comparison.png")):
        console.print(f"{what + ':':<9}{options.out / name}", soft_wrap=True, highlight=False)


def _settings(options: argparse.Namespace) -> "Settings":
    from digitloss import compare
    from digitloss.errors import unknown_name

    if (options.model is None) != (options.data is None):
        raise ValueError("--model and --data belong together: a pretrained model and what it is fine-tuned on")
    given = {name: value for name, value in vars(options).items() if value is not None}
    own, of_task, of_model = (
        {name: given[name] for name in names if name in given} for names in (_OF_ALL, _OF_TASK, _OF_MODEL)
    )
    if "losses" in own:
        own["losses"] = tuple(own["losses"])
    if options.model is not None:
        if options.preset is not None:
            raise ValueError("--preset is for the built-in problems: leave it out with --model")
        losses = {"losses": ("cross_entropy", "digit_entropy")}
        task = compare.FineTuning(**of_model, **of_task)
        return compare.Settings(**{**compare.FINE_TUNING, **losses, **own}, task=task)
    if of_model:
        names = [{"num_rows": "rows", "tokenizer_name": "tokenizer"}.get(name, name) for name in of_model]
        options_given = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise ValueError(f"the options {options_given} need --model and --data")
    preset = options.preset or "quick"
    if preset not in compare.PRESETS:
        raise unknown_name("preset", preset, compare.PRESETS)
    settings = compare.PRESETS[preset]
    return dataclasses.replace(settings, **own, task=dataclasses.replace(settings.task, **of_task))


def _seeds(text: str) -> tuple[int, ...]:
    seeds: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            seeds += range(int(first), int(last) + 1) if dash else [int(first)]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected seeds such as 0,3 or 0-4, got {text!r}") from error
    return tuple(seeds)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected numbers such as 0.1,0.3, got {text!r}") from error
