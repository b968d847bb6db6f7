"""Run programs that a model wrote, outside this process.

A plain program, one that imports only what Monty has, runs in Monty: an interpreter of Python in worker processes,
without files, network or other programs. Monty is not all of Python, so a plain program that fails there is run again
where the others run: in CPython, in bubblewrap. There is no network, no file but the interpreter's and the system's
libraries, read-only, nothing of the environment, and no other process; seccomp refuses the system calls that start
processes or open sockets; memory, processor time, wall-clock time and output are limited. A process that has imported
sympy and numpy forks a child for each program.

What this does not protect against:

* faults of the kernel, of bubblewrap or of Monty: a program may reach what they expose;
* what a program learns from time or load, and from the processor (side channels);
* the processors: as many programs as there are workers may use all of them, each until its time is up;
* what is in the folders of the interpreter and in the system's libraries: keep no secret there;
* earlier programs: their text may linger in the memory of the worker that later ones are forked from;
* a wrong answer: a program may print whatever it likes.
"""

import atexit
import os
import threading
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Literal, get_args

from digitloss.errors import SandboxError, missing_extra, unknown_name
from digitloss.evals.sandbox._execution import Execution, Outcome, refused
from digitloss.evals.sandbox._isolated import IsolatedPool

try:
    from digitloss.evals.sandbox._plain import PlainPool, is_plain
except ImportError as error:
    if not (error.name or "").startswith("pydantic_monty"):
        raise
    raise missing_extra("the sandbox", "eval") from error

__all__ = ["Execution", "Outcome", "Sandbox", "SandboxError", "run"]

Mode = Literal["auto", "bubblewrap", "monty", "unsafe"]
MAX_PROGRAM = 2**20
"""Characters of the longest program."""


class Sandbox:
    r"""Warm workers that run programs; a context manager, and safe to use from several threads.

    Args:
        mode: `auto`: as the module says; `monty` or `bubblewrap`: that one only; `unsafe`: CPython without isolation,
            where a program can read the files of the user. It warns.
        num_workers: Programs that run at a time; None: one for each processor.

    Raises:
        SandboxError: What the mode asks for cannot be had here. With `auto` that shows when a program first needs
            CPython, as the outcome `refused`.

    Example:
        >>> from digitloss.evals.sandbox import Sandbox
        >>> with Sandbox("monty", num_workers=1) as sandbox:
        ...     [sandbox.run(program).stdout for program in ("print(2 ** 10)", "print(17 % 5)")]
        ['1024\n', '2\n']
    """

    def __init__(self, mode: Mode = "auto", *, num_workers: int | None = None) -> None:
        if mode not in get_args(Mode):
            raise unknown_name("mode", mode, get_args(Mode))
        if num_workers is not None and num_workers < 1:
            raise ValueError(f"num_workers must be at least 1, got {num_workers}")
        self.num_workers = num_workers or os.cpu_count() or 1
        self.mode = mode
        self._lock = threading.Lock()
        self._plain = PlainPool(self.num_workers) if mode in ("auto", "monty") else None
        self._isolated: IsolatedPool | None = None
        self._why_not = ""
        if mode == "unsafe":
            warnings.warn(
                "the sandbox is unsafe: programs can read the files of this user; they have limits, not walls",
                stacklevel=2,
            )
        if mode in ("bubblewrap", "unsafe"):
            self._isolated = IsolatedPool(self.num_workers, is_safe=mode != "unsafe")

    def run(self, program: str, timeout_s: float = 5.0, memory_mb: int = 512) -> Execution:
        """Run a program and return what came of it; a program cannot make this raise.

        Args:
            program: Its text, at most a million characters.
            timeout_s: Wall-clock time that it may take, in seconds.
            memory_mb: Memory that it may take beyond the interpreter's own, in megabytes.
        """
        if not (timeout_s > 0 and memory_mb >= 1):
            raise ValueError(f"expected a time and a memory above 0, got {timeout_s} s and {memory_mb} MB")
        reason = _why_no_program(program)
        if reason:
            return refused(reason)
        found = None
        if self._plain is not None and (self.mode == "monty" or is_plain(program)):
            found = self._plain.run(program, timeout_s, memory_mb)
            if found.outcome != "error" or self.mode == "monty":
                return found
        isolated = self._get_isolated()
        if isolated is not None:
            return isolated.run(program, timeout_s, memory_mb)
        return found or refused(f"the program needs CPython, which cannot be isolated here: {self._why_not}")

    def map(self, programs: Iterable[str], timeout_s: float = 5.0, memory_mb: int = 512) -> Iterator[Execution]:
        """Run programs side by side, and yield what came of each in their order."""
        with ThreadPoolExecutor(self.num_workers) as threads:
            yield from threads.map(lambda program: self.run(program, timeout_s, memory_mb), programs)

    def close(self) -> None:
        """End the workers."""
        for pool in (self._plain, self._isolated):
            if pool is not None:
                pool.close()

    def __enter__(self) -> "Sandbox":
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the workers."""
        self.close()

    def _get_isolated(self) -> IsolatedPool | None:
        with self._lock:
            if self._isolated is None and not self._why_not:
                try:
                    self._isolated = IsolatedPool(self.num_workers)
                except SandboxError as error:
                    self._why_not = str(error)
        return self._isolated


def _why_no_program(program: str) -> str:
    if not isinstance(program, str):
        raise TypeError(f"expected the text of a program, got {type(program).__name__}")
    if not program.strip():
        return "the program is empty"
    if len(program) > MAX_PROGRAM:
        return f"the program has {len(program):,} characters, of at most {MAX_PROGRAM:,}"
    if "\0" in program:
        return "the program holds a null character"
    try:
        program.encode()
    except UnicodeEncodeError as error:
        return f"the program is no text: {error}"
    return ""


_default: Sandbox | None = None
_default_lock = threading.Lock()


def run(program: str, timeout_s: float = 5.0, memory_mb: int = 512) -> Execution:
    r"""Run a program in a sandbox that this process keeps: `Sandbox.run` of one made with its defaults.

    Example:
        >>> from digitloss.evals import sandbox
        >>> execution = sandbox.run("from fractions import Fraction; print(Fraction(1, 3) + Fraction(1, 6))")
        >>> execution.outcome, execution.stdout
        ('ok', '1/2\n')
    """
    global _default
    with _default_lock:
        if _default is None:
            _default = Sandbox()
            atexit.register(_default.close)
    return _default.run(program, timeout_s, memory_mb)
