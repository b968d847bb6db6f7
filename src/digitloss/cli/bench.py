"""Measure losses: time and memory of every loss against plain cross-entropy.

Examples:
  digitloss bench --out bench
  digitloss bench --preset full --out bench-full
  digitloss bench --shape 8 1024 151936 --dtype bfloat16 --device cuda --out gpu
  digitloss bench --path hidden --shape 4 1024 151936 --cases cross_entropy objective:digit_entropy --out hidden

Each case runs forward and backward; all cases of a setting take turns in one process, round by round, and what is
reported is the median over rounds of the ratio to plain cross-entropy in the same round, with the quartiles. Each
memory figure is taken in a process of its own. Writes results.json, report.md and bench.png to the folder. An
interrupted measurement goes on where it stopped when the command is given again.

A case is cross_entropy (torch's, on all logits in float32: the baseline), objective:LOSS, autograd:LOSS (the same in
plain autograd), number_finding, or a peer: ntloss, and on hidden states linear_cross_entropy (torch's), liger and
cut_cross_entropy. A peer that cannot run here is left out, and the report says why.
"""

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from digitloss.bench import Setting

_OPTIONS = ("path", "hidden_size", "dtype", "device", "digits", "longest_token")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument("--preset", help="named settings: quick (default) or full")
    parser.add_argument("--path", help="logits (default) or hidden: losses of hidden states and head")
    parser.add_argument(
        "--shape", type=int, nargs=3, metavar=("B", "T", "V"), help="rows, tokens of a row, columns of the logits"
    )
    parser.add_argument("--hidden-size", type=int, help="columns of the head")
    parser.add_argument("--dtype", help="type of logits, or of hidden states and head")
    parser.add_argument("--device", help="cpu or cuda")
    parser.add_argument("--digits", type=float, help="share of the labels that are digit tokens")
    parser.add_argument("--longest-token", type=int, help="digits of the longest digit token")
    parser.add_argument("--cases", nargs="+", metavar="CASE", help="what to measure")
    parser.add_argument("--rounds", type=int, default=7, help="times that each case is run (default: 7)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch on a CPU (default: 2)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results; made where it is absent")


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    from rich.console import Console

    from digitloss import bench
    from digitloss.cli._progress import shown_progress
    from digitloss.errors import missing_extra

    try:
        from digitloss.report import bench as report
    except ModuleNotFoundError as error:
        raise missing_extra("the picture of digitloss bench", "report") from error

    settings = _settings(options)
    console = Console()
    with shown_progress(console) as show:
        results = bench.run(settings, options.out, rounds=options.rounds, num_threads=options.threads, progress=show)
    for table in report.bench_tables(results):
        console.print(table)
    report.draw_bench(results, options.out / "bench.png")
    command = shlex.join(["digitloss", *sys.argv[1:]])
    (options.out / "report.md").write_text(report.bench_page(results, command), encoding="utf-8")
    for what, name in (("figures", "results.json"), ("report", "report.md"), ("picture", "bench.png")):
        console.print(f"{what + ':':<9}{options.out / name}", soft_wrap=True, highlight=False)


def _settings(options: argparse.Namespace) -> "tuple[Setting, ...]":
    from digitloss.bench import PRESETS, Setting
    from digitloss.errors import unknown_name

    given = {name: getattr(options, name) for name in _OPTIONS if getattr(options, name) is not None}
    if options.shape is not None:
        given |= dict(zip(("batch_size", "length", "vocab_size"), options.shape, strict=True))
    if options.cases is not None:
        given["cases"] = tuple(options.cases)
    if options.preset is None and given:
        return (Setting(**given),)
    preset = options.preset or "quick"
    if preset not in PRESETS:
        raise unknown_name("--preset", preset, PRESETS)
    others = sorted(set(given) - {"device"})
    if others:
        raise ValueError(f"--preset brings its own settings: leave out {', '.join(others)}")
    return tuple(replace(setting, **given) for setting in PRESETS[preset])
