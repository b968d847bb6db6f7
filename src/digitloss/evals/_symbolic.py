"""Formulas compared by value in a process of their own, within a time limit.

A comparison of LaTeX may run for ever or eat the memory, whatever its length, and no timer stops it inside a process.
So a worker process is started at the first call, and every comparison is a child of it that is killed at the limit.
This works from any thread; calls wait for each other. The worker ends with this process.
"""

import atexit
import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

from digitloss.errors import missing_extra

TIME_LIMIT = 0.7
"""Seconds for one comparison; the worker's start at the first call, a second or two, comes on top."""

_WORKER = Path(__file__).with_name("_symbolic_worker.py")


class _Worker:
    """The worker process of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def ask(self, gold: str, answer: str) -> bool | None:
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([gold, answer, TIME_LIMIT]) + "\n")
            process.stdin.flush()
            reply = process.stdout.readline()
        if not reply:
            raise RuntimeError(f"the process that compares formulas ended with status {process.wait()}")
        result: bool | None = json.loads(reply)
        return result

    def _started(self) -> "subprocess.Popen[str]":
        is_running = self._process is not None and self._owner == os.getpid() and self._process.poll() is None
        if self._process is None or not is_running:
            if importlib.util.find_spec("math_verify") is None:
                raise missing_extra("comparing formulas", "eval")
            self._owner = os.getpid()
            self._process = subprocess.Popen(  # -P: this folder is not searched for modules
                [sys.executable, "-P", str(_WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            atexit.register(_end, self._process, self._owner)
        return self._process


def _end(process: "subprocess.Popen[str]", owner: int) -> None:
    if owner == os.getpid():
        process.kill()
        process.communicate()


_WORKER_OF_THIS_PROCESS = _Worker()


def are_equal(gold: str, answer: str) -> bool:
    """Say whether two LaTeX formulas have the same value; False where that was not found within the limit.

    Raises:
        MissingExtraError: The math-verify package is absent.
    """
    return bool(_WORKER_OF_THIS_PROCESS.ask(gold, answer))
