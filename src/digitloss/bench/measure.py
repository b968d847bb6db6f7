"""How time, memory and gradient errors are measured: pairs in one process, each memory figure in one of its own."""

import multiprocessing
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from digitloss.bench.cases import Call, Inputs, make_call, make_inputs, make_vocab
from digitloss.bench.settings import Setting
from digitloss.losses import Objective

_TOKENS_OF_ERRORS = 256


def measure_seconds(
    calls: Mapping[str, Call], setting: Setting, rounds: int, report: Callable[[float], None]
) -> dict[str, list[float]]:
    """Seconds of each case, forward and backward, round by round.

    A round runs every case once, each round beginning with the next one, so that whatever slows the machine down for a
    while slows all of them.
    """
    inputs, names = make_inputs(setting), list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for index in range(-1, rounds):  # the first round warms up
        for offset in range(len(names)):
            name = names[(index + offset) % len(names)]
            elapsed = _call(calls[name], inputs)
            if index >= 0:
                seconds[name].append(elapsed)
            report(((index + 1) * len(names) + offset + 1) / ((rounds + 1) * len(names)))
    return seconds


def measure_memory(case: str, setting: Setting, num_threads: int) -> dict[str, int]:
    """Bytes of a case's inputs, of their gradients, and the most that a call took beyond the inputs."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_memory_here, case, setting, num_threads).result()


def measure_errors(case: str, setting: Setting) -> dict[str, dict[str, float]]:
    """Relative errors of a case's gradients on hidden states, and of those of full logits in plain autograd.

    Both against float64, of the same inputs, for the first 256 tokens.
    """
    short = replace(setting, batch_size=1, length=min(setting.length, _TOKENS_OF_ERRORS), cases=(case,))
    inputs, loss = make_inputs(short), case.partition(":")[2]
    wide = Inputs(
        inputs.labels,
        inputs.shift_labels,
        *(x.detach().double().requires_grad_() for x in (inputs.scores, inputs.head)),
    )
    plain = Objective(make_vocab(short), loss, fused=False)

    def of_full_logits(given: Inputs) -> Tensor:
        return plain(given.scores @ given.head.T, given.labels, head=given.head)

    expected = _gradients(of_full_logits, wide)
    found = {"ours": _gradients(make_call(case, short), inputs), "full_logits": _gradients(of_full_logits, inputs)}
    return {
        name: {
            of: float((got.double() - true).norm() / true.norm())
            for of, got, true in zip(("hidden", "head"), gradients, expected, strict=True)
        }
        for name, gradients in found.items()
    }


def _gradients(call: Call, inputs: Inputs) -> list[Tensor]:
    loss = call(inputs)
    assert loss is not None
    return list(torch.autograd.grad(loss, inputs.leaves))


def _call(call: Call, inputs: Inputs) -> float:
    for leaf in inputs.leaves:
        leaf.grad = None
    _wait(inputs)
    start = time.perf_counter()
    loss = call(inputs)
    if loss is not None:
        loss.backward()  # type: ignore[no-untyped-call]
    _wait(inputs)
    return time.perf_counter() - start


def _wait(inputs: Inputs) -> None:
    if inputs.labels.is_cuda:
        torch.cuda.synchronize(inputs.labels.device)


def _memory_here(case: str, setting: Setting, num_threads: int) -> dict[str, int]:
    torch.set_num_threads(num_threads)
    call, inputs = make_call(case, setting), make_inputs(setting)
    _call(call, make_inputs(replace(setting, batch_size=1, length=8)))
    peak = _peak_of_gpu if inputs.labels.is_cuda else _peak_of_process
    growth = peak(lambda: _call(call, inputs))
    return {
        "inputs": sum(x.nbytes for x in (inputs.scores, inputs.head)),
        "gradients": sum(x.nbytes for x in inputs.leaves),
        "growth": growth,
    }


def _peak_of_gpu(run: Callable[[], Any]) -> int:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    return torch.cuda.max_memory_allocated() - before


def _peak_of_process(run: Callable[[], Any]) -> int:
    Path("/proc/self/clear_refs").write_text("5")  # forget the largest size so far
    before = _memory_of_process("VmRSS")
    run()
    return _memory_of_process("VmHWM") - before


def _memory_of_process(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise LookupError(field)
