"""The process in which LaTeX is parsed and compared. It is run as a script, and nothing of the package is imported.

Each comparison runs in a child of its own, which is killed when its time or memory is used up, so that no input can
keep this process busy. A line of JSON in, `[gold, answer, seconds]`, a line out: true, false, or null where the child
did not end. Texts go to the LaTeX grammar alone: math-verify's reader of plain expressions calls `eval`.
"""

import contextlib
import gc
import json
import logging
import os
import resource
import select
import signal
import sys
from collections.abc import Iterator
from itertools import product
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify

_MEMORY = 2 * 1024**3  # bytes of address space
_LATEX = [LatexExtractionConfig()]
_TYPICAL = [
    (r"\frac{\sqrt{2}}{3}+(x+1)^{2}", r"x^2+2x+1+\frac{2}{3\sqrt{2}}"),
    (r"(1,2)\cup[3,\infty)", r"[3,\infty)\cup[1,2)"),
    (r"\{1,-2\}", "1,2"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1\\\frac{4}{2}\end{pmatrix}"),
    (r"-2\le x\le 7", "x\\in[-2,7]"),
    ("y=2x+1", "2x-y=-1"),
    ("3+2i", "3-2i"),
    (r"\text{even}", "odd"),
]
"""Comparisons that are made once before the first one asked for: they load and fill what all children then share."""


def are_equal(gold: str, answer: str) -> bool:
    """Say whether two LaTeX formulas have the same value."""
    parsed = [parse(f"${text}$", _LATEX, fallback_mode="no_fallback", parsing_timeout=None) for text in (gold, answer)]
    return any(
        verify(right, written, timeout_seconds=None, allow_set_relation_comp=True)
        for right, written in product(*parsed)
    )


def answer_in_child(gold: str, answer: str, seconds: float) -> bool | None:
    """Compare in a child process; None where it was killed or crashed."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        _compare_and_exit(gold, answer, sender)
    os.close(sender)
    is_ready = select.select([receiver], [], [], seconds)[0]
    result = os.read(receiver, 1) if is_ready else b""
    os.close(receiver)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return {b"1": True, b"0": False}.get(result)


def _compare_and_exit(gold: str, answer: str, sender: int) -> None:
    try:
        with contextlib.suppress(ValueError, OSError):  # some systems have no such limit; the time limit stays
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        os.write(sender, b"1" if are_equal(gold, answer) else b"0")
    finally:
        os._exit(0)


def serve(requests: Iterator[str], replies: Any) -> None:
    """Answer each line."""
    for line in requests:
        replies.write(json.dumps(answer_in_child(*json.loads(line))) + "\n")
        replies.flush()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - parsers print warnings
    for pair in _TYPICAL:
        are_equal(*pair)
    gc.freeze()
    serve(iter(sys.stdin.readline, ""), sys.stdout)
