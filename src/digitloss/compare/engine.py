"""Runs a comparison: trains one model for each loss and seed, run by run into `results.json`.

Alphas are chosen first, where candidates are given: on validation questions, with a seed that no result uses. An
interrupted comparison goes on with the runs that are not in the file yet.
"""

import dataclasses
import json
import multiprocessing
import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock, Timeout

from digitloss.compare.settings import TUNING_SEED, Settings
from digitloss.compare.summary import summarize
from digitloss.compare.trial import Trial, run_trial
from digitloss.errors import DatasetError

Progress = Callable[[str, float], None]
"""Called with what is going on and the share of the whole comparison that is done."""


def run(
    settings: Settings, out: Path, progress: Progress = lambda what, share: None, workers: int = 1
) -> dict[str, Any]:
    """Run a comparison, or what is missing of it.

    Each run is trained on one thread, so that the figures do not depend on the number of cores. A folder that holds a
    comparison with other losses or seeds, but the same settings otherwise, is extended: none of its runs is lost.

    Args:
        settings: What to do.
        out: Folder of `results.json`; made where it is absent.
        progress: Called now and then.
        workers: Runs at a time, each in a process of its own; 1: all in this process.

    Returns:
        What `results.json` holds: `settings`, `versions`, `questions`, `tuning` and `runs` (scores, curves and outputs
        of each), and `summary`, as `summarize` returns it.

    Raises:
        DatasetError: The folder has results of other settings, or results that cannot be read.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    path = out / "results.json"
    settings, results = _load(path, settings)
    out.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(path.with_suffix(".lock"), timeout=0):
            return _run(settings, path, results, progress, workers)
    except Timeout as error:
        raise DatasetError(f"{out}: another comparison is writing to this folder") from error


def _run(settings: Settings, path: Path, results: dict[str, Any], progress: Progress, workers: int) -> dict[str, Any]:
    tuning = [
        Trial(variant, TUNING_SEED, alpha, "validation")
        for variant in settings.variants
        if settings.is_tuned(variant)
        for alpha in settings.alphas
    ]
    num_trials = len(tuning) + len(settings.variants) * len(settings.seeds)
    num_done = 0
    for name, trials in (("tuning", tuning), ("runs", None)):
        trials = _result_trials(settings, results["tuning"]) if trials is None else trials
        there = {_key(name, run["loss"], run["seed"], run["alpha"]) for run in results[name]}
        pending = [t for t in trials if _key(name, t.variant.label, t.seed, t.alpha) not in there]
        num_done += len(trials) - len(pending)

        def report(what: str, share: float, done: int = num_done) -> None:
            progress(what, (done + share) / num_trials)

        for finished in (_in_processes if workers > 1 else _in_this_process)(settings, pending, report, workers):
            results[name].append(finished)
            _save(path, results)
        num_done += len(pending)
        order = {_key(name, t.variant.label, t.seed, t.alpha): index for index, t in enumerate(trials)}
        results[name].sort(key=lambda run: order[_key(name, run["loss"], run["seed"], run["alpha"])])
    results["summary"] = summarize(
        results["runs"],
        results["questions"]["test"],
        labels=[variant.label for variant in settings.variants],
        seeds=settings.seeds,
        baseline=settings.baseline,
    )
    _save(path, results)
    return results


def chosen_alpha(tuning: Sequence[dict[str, Any]], label: str) -> float:
    """Return the candidate with the most right answers, the lower one of equals."""
    candidates = [run for run in tuning if run["loss"] == label]
    alpha: float = max(candidates, key=lambda run: (run["exact_match"], -run["alpha"]))["alpha"]
    return alpha


def _result_trials(settings: Settings, tuning: Sequence[dict[str, Any]]) -> list[Trial]:
    alphas = {
        variant.label: chosen_alpha(tuning, variant.label)
        for variant in settings.variants
        if settings.is_tuned(variant)
    }
    return [
        Trial(variant, seed, alphas.get(variant.label), "test")
        for seed in settings.seeds
        for variant in settings.variants
    ]


def _key(name: str, label: str, seed: int, alpha: float | None) -> tuple[Any, ...]:
    return (label, seed, alpha) if name == "tuning" else (label, seed)


def _what(trial: Trial) -> str:
    alpha = "" if trial.alpha is None else f", alpha {trial.alpha:g}"
    return f"{trial.variant.label}{alpha}, " + (
        "choosing alpha" if trial.split == "validation" else f"seed {trial.seed}"
    )


def _in_this_process(
    settings: Settings, trials: Sequence[Trial], report: Callable[[str, float], None], workers: int
) -> Iterator[dict[str, Any]]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for index, trial in enumerate(trials):

            def report_one(share: float, index: int = index, trial: Trial = trial) -> None:
                report(_what(trial), index + share)

            yield run_trial(settings, trial, report_one)
    finally:
        torch.set_num_threads(num_threads)


def _in_processes(
    settings: Settings, trials: Sequence[Trial], report: Callable[[str, float], None], workers: int
) -> Iterator[dict[str, Any]]:
    """Yield each run as it ends; where one fails the others are finished first, so that nothing is lost."""
    context = multiprocessing.get_context("spawn")
    shares = context.Array("d", max(len(trials), 1))
    failed: list[Future[dict[str, Any]]] = []
    pool = ProcessPoolExecutor(workers, context, _start_worker, (shares,))
    try:
        futures = {pool.submit(_run_in_worker, settings, trial, index) for index, trial in enumerate(trials)}
        while futures:
            finished, futures = wait(futures, timeout=0.5, return_when=FIRST_COMPLETED)
            now: list[float] = shares[: len(trials)]
            running = [_what(trial) for trial, share in zip(trials, now, strict=True) if 0 < share < 1]
            report("; ".join(running) or "starting", sum(now))
            failed += [future for future in finished if future.exception()]
            yield from (future.result() for future in finished if not future.exception())
    except BaseException:  # interrupted: what is not saved yet is given up at once, and raised again
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
    for future in failed:
        future.result()


_shares: Any = None  # in a worker: the share of each run that is done, read by the parent


def _start_worker(shares: Any) -> None:
    global _shares
    _shares = shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_in_worker(settings: Settings, trial: Trial, index: int) -> dict[str, Any]:
    def report(share: float) -> None:
        _shares[index] = share

    return run_trial(settings, trial, report)


def _load(path: Path, settings: Settings) -> tuple[Settings, dict[str, Any]]:
    """Results so far, checked to be of the same settings, questions and versions, and the settings of them together."""
    if not path.exists():
        return settings, _fresh(settings)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        old, there = found["settings"], {**found["settings"], **found["versions"]}
        losses, seeds = tuple(old["losses"]), tuple(old["seeds"])
        runs = {
            name: [run for run in found[name] if {"loss", "seed", "alpha", "outputs"} <= run.keys()]
            for name in ("tuning", "runs")
        }
        if any(len(runs[name]) < len(found[name]) for name in runs):
            raise KeyError("a run without loss, seed, alpha or outputs")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{path}: not the results of a comparison ({error!r}); choose another --out") from error
    together = dataclasses.replace(
        settings,
        losses=(*losses, *(loss for loss in settings.losses if loss not in losses)),
        seeds=tuple(sorted({*seeds, *settings.seeds})),
    )
    fresh = _fresh(together)
    now = {**fresh["settings"], **fresh["versions"], **fresh["fingerprints"], "questions": fresh["questions"]}
    there.update(found.get("fingerprints", {}))
    asked = found.get("questions") or {}
    there["questions"] = {split: asked[split] for split in asked if split in fresh["questions"]}
    now["questions"] = {split: fresh["questions"][split] for split in fresh["questions"] if split in asked}
    different = sorted(
        name
        for name in there.keys() | now.keys()
        if name not in ("losses", "seeds") and there.get(name) != now.get(name)
    )
    if different:
        changes = "; ".join(
            name if name == "questions" else f"{name} {there.get(name)!r} there, {now.get(name)!r} now"
            for name in different
        )
        raise DatasetError(f"{path}: holds results of other settings ({changes}); choose another --out or remove it")
    return together, {**fresh, **runs}


def _fresh(settings: Settings) -> dict[str, Any]:
    splits = ["test", *(["validation"] if any(map(settings.is_tuned, settings.variants)) else [])]
    return {
        "settings": {
            **json.loads(json.dumps({**_fields(settings), "task": _fields(settings.task)})),
            "task_kind": settings.task.kind,
        },
        "versions": {
            "digitloss": version("digitloss"),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        },
        "fingerprints": settings.task.fingerprints(),
        "questions": {
            split: [question._asdict() for question in settings.task.questions(split)]  # type: ignore[arg-type]
            for split in splits
        },
        "tuning": [],
        "runs": [],
    }


def _fields(value: Any) -> dict[str, Any]:
    """Fields of a dataclass, not followed into."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.name != "task"}


def _save(path: Path, results: dict[str, Any]) -> None:
    """Write whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1), encoding="utf-8")
    part.replace(path)
