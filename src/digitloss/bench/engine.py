"""Runs the measurements, setting by setting into `results.json`. What is there already is not measured again."""

import dataclasses
import json
import os
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from digitloss.bench.cases import Call, Unavailable, check_case, make_call
from digitloss.bench.measure import measure_errors, measure_memory, measure_seconds
from digitloss.bench.settings import Setting
from digitloss.bench.summary import summarize
from digitloss.errors import DatasetError

_PEERS = ("ntloss", "liger-kernel", "cut-cross-entropy")

Progress = Callable[[str, float], None]
"""Called with what is measured and the share of it that is done."""


def run(
    settings: Sequence[Setting],
    out: Path,
    *,
    rounds: int = 7,
    num_threads: int = 2,
    progress: Progress = lambda what, share: None,
) -> dict[str, Any]:
    """Measure settings, or those that are missing in the results.

    Args:
        settings: What to measure.
        out: Folder of `results.json`; made where it is absent.
        rounds: Times that each case is run.
        num_threads: Threads of torch on a CPU.
        progress: Called now and then.

    Returns:
        What `results.json` holds: `machine`, `versions`, `rounds`, and of each setting its seconds, bytes, gradient
        errors, what was left out and why, and a `summary` of ratios.

    Raises:
        DatasetError: The folder has results of another machine, of other versions or another number of rounds.
        ValueError: There is no such case.
        Unavailable: The device of a setting is not there, or memory cannot be measured on this system.
    """
    if rounds < 1 or num_threads < 1:
        raise ValueError(f"rounds and threads must be at least 1, got {rounds} and {num_threads}")
    for setting in settings:
        _check_device(setting)
        for case in setting.cases:
            check_case(case, setting)
    path = out / "results.json"
    results: dict[str, Any] = {"machine": _machine(settings, num_threads), "versions": _versions(), "rounds": rounds}
    results["settings"] = []
    if path.exists():
        results = _load(path, results)
    out.mkdir(parents=True, exist_ok=True)
    threads_before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        for setting in settings:
            described = _as_json(setting)
            if any(there["setting"] == described for there in results["settings"]):
                continue
            results["settings"].append(_measure(setting, rounds, num_threads, progress))
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(results, indent=1))
            partial.replace(path)
    finally:
        torch.set_num_threads(threads_before)
    return results


def _measure(setting: Setting, rounds: int, num_threads: int, progress: Progress) -> dict[str, Any]:
    calls: dict[str, Call] = {}
    left_out: dict[str, str] = {}
    for case in setting.cases:
        try:
            calls[case] = make_call(case, setting)
        except Unavailable as reason:
            left_out[case] = str(reason)
    if not calls:
        raise Unavailable("; ".join(left_out.values()))

    def report(share: float) -> None:
        progress(f"{setting.title}: time", share)

    seconds = measure_seconds(calls, setting, rounds, report)
    memory, errors = {}, {}
    for index, case in enumerate(calls):
        if setting.path != "numbers" and case != "number_finding":
            progress(f"{setting.title}: memory of {case}", index / len(calls))
            memory[case] = measure_memory(case, setting, num_threads)
        if setting.path == "hidden" and case.startswith("objective:"):
            progress(f"{setting.title}: gradients of {case}", index / len(calls))
            errors[case] = measure_errors(case, setting)
    found = {
        "setting": _as_json(setting),
        "title": setting.title,
        "seconds": seconds,
        "memory": memory,
        "gradient_errors": errors,
        "left_out": left_out,
    }
    return {**found, "summary": summarize(found)}


def _as_json(setting: Setting) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(setting)))
    return described


def _check_device(setting: Setting) -> None:
    if setting.device.startswith("cuda"):
        if not torch.cuda.is_available():
            raise Unavailable(f"{setting.device}: torch sees no GPU; measure with the device cpu")
    elif setting.device != "cpu":
        raise Unavailable(f"{setting.device}: expected the device cpu or cuda")
    elif platform.system() != "Linux":
        raise Unavailable(f"memory is measured on Linux only, this is {platform.system()}")


def _machine(settings: Sequence[Setting], num_threads: int) -> dict[str, Any]:
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    machine: dict[str, Any] = {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "threads": num_threads,
    }
    machine["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "")
    if any(setting.device.startswith("cuda") for setting in settings):
        machine["gpu"] = torch.cuda.get_device_name()
    return machine


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def _versions() -> dict[str, str]:
    versions = {"digitloss": version("digitloss"), "python": platform.python_version(), "torch": torch.__version__}
    for package in _PEERS:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _load(path: Path, expected: dict[str, Any]) -> dict[str, Any]:
    try:
        results: dict[str, Any] = json.loads(path.read_text())
        there = {name: results[name] for name in ("machine", "versions", "rounds", "settings")}
    except (ValueError, KeyError, TypeError) as error:
        raise DatasetError(f"{path}: expected the results of digitloss bench: {error}") from error
    for name in ("machine", "versions", "rounds"):
        if there[name] != expected[name]:
            raise DatasetError(
                f"{path} was measured with {name} {there[name]}, this is {expected[name]}: choose another folder"
            )
    return results
