"""What came of a program."""

import re
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "error", "timeout", "memory", "refused"]

MAX_OUTPUT = 2**20
"""Bytes that a program may write."""
MAX_ERROR = 2**14
"""Characters of the error that are kept: the last ones."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True, kw_only=True)
class Execution:
    """What came of a program."""

    outcome: Outcome
    """`ok`; `error`: it raised, exited with a status other than 0 or wrote too much; `timeout`; `memory`; `refused`:
    it was not run, and `error` says why."""
    stdout: str
    """What it wrote, also before it failed; control characters but tab and newline are replaced by U+FFFD."""
    error: str
    """The end of the traceback, or the reason; empty where the outcome is `ok`."""
    seconds: float
    """Wall-clock time of the program."""
    backend: str
    """Where it ran: `monty`, `bubblewrap`, `unsafe`, or empty where it did not."""


def make_execution(outcome: Outcome, stdout: str, error: str, seconds: float, backend: str) -> Execution:
    """Make what a program wrote safe to print."""
    stdout, error = (_CONTROL.sub("\ufffd", text.replace("\r\n", "\n")) for text in (stdout, error))
    return Execution(outcome=outcome, stdout=stdout, error=error.strip()[-MAX_ERROR:], seconds=seconds, backend=backend)


def refused(reason: str) -> Execution:
    """Say why a program was not run."""
    return make_execution("refused", "", reason, 0.0, "")
