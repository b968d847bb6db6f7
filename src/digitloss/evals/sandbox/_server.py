"""What runs inside the sandbox: a Python that has imported much, and forks a child for each program.

It is given to the interpreter as a file and imports nothing of the package. Its first line of input is the setup, each
further one a request; each request is answered by one line. All are JSON:

    {"modules": [...], "filter": base64, "max_output": bytes}          answer: {"ready": true, "imported": [...]}
    {"program": text, "timeout_s": seconds, "memory_mb": megabytes}    answer: {"outcome", "stdout", "error", "seconds"}

In a PID namespace this process is process 1: no signal of a child reaches it, and with it dies every process of the
namespace. It cannot be traced. A child keeps no file descriptor but its own output, and the system calls that the
filter names are closed to it; the filter is the host's affair, and so are the files that are there.
"""

import base64
import contextlib
import ctypes
import gc
import importlib
import json
import mmap
import os
import resource
import selectors
import signal
import sys
import time
import traceback
from typing import Any, BinaryIO, NoReturn

OK, ERROR, MEMORY = 0, 1, 97  # exit statuses of a child
MAX_ERROR = 16_384
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 22, 38
SECCOMP_MODE_FILTER = 2
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def main() -> None:
    """Serve requests until the host closes its end."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _call(PR_SET_DUMPABLE, 0)
    setup = json.loads(requests.readline())
    imported = []
    for name in setup["modules"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
            imported.append(name)
    program_filter = _Filter(base64.b64decode(setup["filter"]))
    used = _address_space()
    gc.collect()
    gc.freeze()
    _answer(answers, {"ready": True, "imported": imported})
    for line in requests:
        request = json.loads(line)
        fds = (requests.fileno(), answers.fileno(), null)
        _answer(answers, _run(request, setup["max_output"], used, program_filter, fds))
        del request, line


def _answer(answers: BinaryIO, content: dict[str, Any]) -> None:
    answers.write(json.dumps(content).encode() + b"\n")
    answers.flush()


def _run(
    request: dict[str, Any], max_output: int, used: int, program_filter: "_Filter", fds: tuple[int, ...]
) -> dict[str, Any]:
    """Run a program in a child, and leave none of its processes behind."""
    start = time.monotonic()
    output, child_output = os.pipe()
    errors, child_errors = os.pipe()
    pid = os.fork()
    if pid == 0:
        for own, theirs in ((child_output, 1), (child_errors, 2)):
            os.dup2(own, theirs)
        os.closerange(3, max(*fds, child_errors) + 16)
        _be_child(request["program"], request["timeout_s"], used + request["memory_mb"] * 2**20, program_filter)
    os.close(child_output)
    os.close(child_errors)
    stdout, error, stopped = _read(output, errors, max_output, start + request["timeout_s"])
    status = _end(pid, start + request["timeout_s"], stopped)
    seconds = time.monotonic() - start
    outcome, reason = _outcome(status, stopped)
    text = error.decode(errors="replace").rstrip()
    if reason and reason not in text:
        text = f"{text}\n{reason}" if text else reason
    return {
        "outcome": outcome,
        "stdout": stdout.decode(errors="replace"),
        "error": "" if outcome == "ok" else text or "the program ended with status 1 and no word of why",
        "seconds": seconds,
    }


def _read(output: int, errors: int, max_output: int, deadline: float) -> tuple[bytes, bytes, str]:
    """Read both pipes to their ends, the deadline or the limit, and say what stopped it: "", "timeout" or "output"."""
    found = {output: bytearray(), errors: bytearray()}
    limit = {output: max_output, errors: MAX_ERROR}
    stopped = ""
    with selectors.DefaultSelector() as selector:
        for fd in found:
            selector.register(fd, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            ready = selector.select(max(left, 0))
            if not ready and left <= 0:
                stopped = "timeout"
                break
            for key, _ in ready:
                data = os.read(key.fd, 65_536)
                if not data:
                    selector.unregister(key.fd)
                    continue
                kept = found[key.fd]
                kept += data
                if len(kept) > limit[key.fd]:
                    if key.fd == output:
                        stopped = "output"
                        del kept[max_output:]
                    else:
                        del kept[:-MAX_ERROR]  # the end of a traceback says most
            if stopped or time.monotonic() > deadline:
                stopped = stopped or "timeout"
                break
    os.close(output)
    os.close(errors)
    return bytes(found[output]), bytes(found[errors]), stopped


def _end(pid: int, deadline: float, stopped: str) -> int:
    """Wait for the child, and end it and whatever it began; return its status."""
    status = None
    while not stopped and status is None and time.monotonic() < deadline:
        found, status_now = os.waitpid(pid, os.WNOHANG)  # it has closed its output: its end is near
        if found:
            status = status_now
        else:
            time.sleep(0.0005)
    while True:
        if os.getpid() == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        elif status is None:
            os.kill(pid, signal.SIGKILL)
        try:
            found, status_now = os.waitpid(-1, 0)
        except ChildProcessError:
            return signal.SIGKILL if status is None else status
        if found == pid:
            status = status_now


def _outcome(status: int, stopped: str) -> tuple[str, str]:
    if stopped == "timeout":
        return "timeout", "TimeoutError: the program ran longer than it may"
    if stopped == "output":
        return "error", "OutputError: the program wrote more than it may"
    code = os.waitstatus_to_exitcode(status)
    if code == OK:
        return "ok", ""
    if code == MEMORY or code == -signal.SIGKILL:
        return "memory", "MemoryError: the program used more memory than it may"
    if code == -signal.SIGXCPU:
        return "timeout", "TimeoutError: the program ran longer than it may"
    if code < 0:
        return "error", f"the program was ended by {signal.Signals(-code).name}"
    return "error", "" if code == ERROR else f"SystemExit: {code}"


def _be_child(program: str, timeout_s: float, address_space: int, program_filter: "_Filter") -> NoReturn:
    """Run a program and exit; never returns."""
    leave, write = os._exit, os.write
    memory_text = b"MemoryError: the program used more memory than it may\n"
    status = ERROR
    try:
        seconds = int(timeout_s) + 2
        for kind, limit in (
            (resource.RLIMIT_CPU, seconds),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NOFILE, 64),
            (resource.RLIMIT_AS, address_space),
        ):
            resource.setrlimit(kind, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write fails with an error
        sys.stdin = os.fdopen(os.open("/dev/null", os.O_RDONLY), encoding="utf-8")
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        program_filter.install()
        try:
            exec(compile(program, "<program>", "exec", dont_inherit=True), {"__name__": "__main__"})
            status = OK
        except SystemExit as stop:
            status = _status_of(stop)
        except MemoryError:
            status = MEMORY
        except BaseException as error:
            status = ERROR
            within = error.__traceback__ and error.__traceback__.tb_next  # without the frame of this function
            lines = traceback.format_exception(type(error), error, within)
            write(2, "".join(lines).encode(errors="backslashreplace")[-MAX_ERROR:])
        sys.stdout.flush()
    except MemoryError:
        status = MEMORY
    except BaseException as error:
        status = ERROR
        with contextlib.suppress(BaseException):
            write(2, f"{type(error).__name__}: {error}".encode(errors="backslashreplace")[-MAX_ERROR:])
    finally:
        if status == MEMORY:
            write(2, memory_text)
        leave(status)


def _status_of(stop: SystemExit) -> int:
    if stop.code is None or stop.code == 0:
        return OK
    if isinstance(stop.code, int):
        return (stop.code & 0xFF) or ERROR
    os.write(2, f"SystemExit: {stop.code}".encode(errors="backslashreplace")[:MAX_ERROR])
    return ERROR


class _Filter:
    """A seccomp filter, in memory since before the fork."""

    def __init__(self, code: bytes) -> None:
        class Program(ctypes.Structure):
            _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]

        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = Program(len(code) // 8, ctypes.addressof(self._code))

    def install(self) -> None:
        """Close the system calls to this process, for good."""
        _call(PR_SET_NO_NEW_PRIVS, 1)
        _call(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(self._program))


def _call(option: int, *values: object) -> None:
    given = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in values]
    if _prctl(option, *given, *[ctypes.c_ulong(0)] * (4 - len(given))):
        raise OSError(ctypes.get_errno(), f"prctl {option}: {os.strerror(ctypes.get_errno())}")


def _address_space() -> int:
    """Bytes of address space in use: the lowest limit under which one more page can be mapped, found by bisection."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 2**40
    while high - low > 2**20:
        middle = (low + high) // 2
        resource.setrlimit(resource.RLIMIT_AS, (middle, before[1]))
        try:
            mmap.mmap(-1, mmap.PAGESIZE).close()
            high = middle
        except (OSError, MemoryError):
            low = middle
    resource.setrlimit(resource.RLIMIT_AS, before)
    return high


if __name__ == "__main__":
    main()
