"""Plain programs: Monty, an interpreter of Python in Rust that knows no files, no network and no other program."""

import re
import time
from contextlib import ExitStack

from pydantic_monty import CollectString, Monty, MontyCrashedError, MontyError

from digitloss.evals.sandbox._execution import MAX_OUTPUT, Execution, Outcome, make_execution

MODULES = frozenset(
    [
        "__future__",
        "asyncio",
        "collections",
        "datetime",
        "decimal",
        "functools",
        "itertools",
        "json",
        "math",
        "random",
        "re",
        "string",
        "sys",
        "time",
        "typing",
    ]
)
"""Modules that it has; a program that imports others is not plain."""

_IMPORT = re.compile(r"(?:^|[;:])\s*(?:from\s+([\w.]+)\s+import\b|import\s+([^;#\n]+))", re.MULTILINE)


def is_plain(program: str) -> bool:
    r"""Return True where a program imports only what Monty has, as far as its text shows.

    Example:
        >>> is_plain("import math\nprint(math.sqrt(4))"), is_plain("from sympy import symbols")
        (True, False)
    """
    found = set()
    for module, modules in _IMPORT.findall(program):
        names = [module] if module else [part.split()[0] for part in modules.split(",") if part.strip()]
        found |= {name.partition(".")[0] for name in names}
    return found <= MODULES


class PlainPool:
    """Worker processes of Monty."""

    def __init__(self, num_workers: int) -> None:
        self._stack = ExitStack()
        self._pool = self._stack.enter_context(Monty(max_processes=num_workers))

    def close(self) -> None:
        """End the workers."""
        self._stack.close()

    def run(self, program: str, timeout_s: float, memory_mb: int) -> Execution:
        """Run a program."""
        output = CollectString(max_bytes=MAX_OUTPUT)
        start = time.monotonic()
        outcome: Outcome = "ok"
        error = ""
        try:
            with self._pool.checkout(
                limits={
                    "max_feed_duration_secs": timeout_s,
                    "max_memory": memory_mb * 2**20,
                    "max_total_sleep_secs": timeout_s,
                },
                os_policy={"sleep_system_max": float("inf")},
                assert_message_annotations=False,
            ) as session:
                session.feed_run(program, print_callback=output)
        except MontyCrashedError as crash:
            outcome, error = "timeout" if crash.timed_out else "memory", str(crash)
        except MontyError as raised:
            inner = raised.exception()
            outcome = "timeout" if isinstance(inner, TimeoutError) else "error"
            error = f"{type(inner).__name__}: {inner}"
            if isinstance(inner, MemoryError):
                is_output = f"> {MAX_OUTPUT} bytes" in error  # the limit of the output that it collects
                outcome = "error" if is_output else "memory"
                error = "OutputError: the program wrote more than it may" if is_output else error
        return make_execution(outcome, output.output, error, time.monotonic() - start, "monty")
