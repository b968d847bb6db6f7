"""Trains one small model with each loss and asks it held-out problems; figures go to `results.json`, loss by loss.

An interrupted comparison goes on with the losses that are not in the file yet.
"""

import dataclasses
import json
import multiprocessing
import platform
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers

from digitloss.compare.settings import Settings
from digitloss.compare.trial import run_trial
from digitloss.errors import DatasetError

Progress = Callable[[str, float], None]
"""Called with what is going on and the share of the whole comparison that is done."""


def run(
    settings: Settings, out: Path, progress: Progress = lambda what, share: None, workers: int = 1
) -> dict[str, Any]:
    """Run a comparison, or what is missing of it.

    Each loss is trained on one thread, so that the figures do not depend on the number of cores.

    Args:
        settings: What to do.
        out: Folder of `results.json`; made where it is absent.
        progress: Called now and then.
        workers: Losses trained at a time, each in a process of its own; 1: all in this process.

    Returns:
        What `results.json` holds: `settings`, `versions`, and `runs` with the scores, curves and answers of each loss.

    Raises:
        DatasetError: The folder has results of other settings, or results that cannot be read.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    path = out / "results.json"
    results = _load(path, settings)
    out.mkdir(parents=True, exist_ok=True)
    done = {entry["loss"] for entry in results["runs"]} & set(settings.losses)
    pending = [name for name in settings.losses if name not in done]

    def report(names: Sequence[str], share: float) -> None:
        progress(", ".join(names), (len(done) + share) / len(settings.losses))

    def order(entry: dict[str, Any]) -> int:
        name = entry["loss"]
        return settings.losses.index(name) if name in settings.losses else len(settings.losses)

    for entry in (_in_processes if workers > 1 else _in_this_process)(settings, pending, report, workers):
        results["runs"].append(entry)
        results["runs"].sort(key=order)
        _save(path, results)
    return results


def _in_this_process(
    settings: Settings, names: Sequence[str], report: Callable[[Sequence[str], float], None], workers: int
) -> Iterator[dict[str, Any]]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for index, name in enumerate(names):

            def report_one(share: float, index: int = index, name: str = name) -> None:
                report([name], index + share)

            yield run_trial(settings, name, report_one)
    finally:
        torch.set_num_threads(num_threads)


def _in_processes(
    settings: Settings, names: Sequence[str], report: Callable[[Sequence[str], float], None], workers: int
) -> Iterator[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    shares = context.Array("d", len(names))
    with ProcessPoolExecutor(workers, context, _start_worker, (shares,)) as pool:
        futures = {pool.submit(_run_in_worker, settings, name, index) for index, name in enumerate(names)}
        while futures:
            finished, futures = wait(futures, timeout=0.5, return_when=FIRST_COMPLETED)
            now: list[float] = shares[:]
            report([name for name, share in zip(names, now, strict=True) if 0 < share < 1] or ["starting"], sum(now))
            yield from (future.result() for future in finished)


_shares: Any = None  # in a worker: the share of each loss that is done, read by the parent


def _start_worker(shares: Any) -> None:
    global _shares
    _shares = shares
    torch.set_num_threads(1)


def _run_in_worker(settings: Settings, name: str, index: int) -> dict[str, Any]:
    def report(share: float) -> None:
        _shares[index] = share

    return run_trial(settings, name, report)


def _load(path: Path, settings: Settings) -> dict[str, Any]:
    """Results so far, checked to be of the same settings and versions; other losses' results are kept."""
    fresh = {
        "settings": json.loads(json.dumps(dataclasses.asdict(settings))),
        "versions": {
            "digitloss": version("digitloss"),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "runs": [],
    }
    if not path.exists():
        return fresh
    try:
        found = json.loads(path.read_text())
        old, runs = {**found["settings"], **found["versions"]}, list(found["runs"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DatasetError(f"{path}: not the results of a comparison ({error!r}); choose another --out") from error
    new = {**fresh["settings"], **fresh["versions"]}
    different = sorted(name for name in old.keys() | new.keys() if name != "losses" and old.get(name) != new.get(name))
    if different:
        changes = ", ".join(f"{name} {old.get(name)!r} there, {new.get(name)!r} now" for name in different)
        raise DatasetError(f"{path}: holds results of other settings ({changes}); choose another --out or remove it")
    return {**fresh, "runs": runs}


def _save(path: Path, results: dict[str, Any]) -> None:
    """Write whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1))
    part.replace(path)
