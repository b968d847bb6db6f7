"""Programs that attack, each in both back ends; what is asserted is what the host sees."""

import os
import signal
import socket
import threading
import time
from pathlib import Path

import psutil
import pytest

from digitloss.evals.sandbox import Sandbox, SandboxError

SECRET = "xyzzy-4711"
TIMEOUT_S = 1.0
MEMORY_MB = 64
GRACE_S = 4.0

STOPPED = {"timeout"}
FULL = {"memory"}
FAILS = {"error", "refused"}
EITHER = {"error", "memory", "timeout"}
HARMLESS = {"ok", "error"}  # it may run to its end: the host sees nothing of it

PROGRAMS = {
    # time
    "endless loop": (STOPPED, "while True: pass"),
    "endless loop that catches all": (
        STOPPED,
        "while True:\n  try:\n    while True: pass\n  except BaseException: pass",
    ),
    "sleep": (STOPPED, "import time\ntime.sleep(3600)"),
    "slow regular expression": (EITHER | HARMLESS, "import re\nre.match(r'(a+)+$', 'a' * 40 + 'b')"),
    "huge power": (EITHER, "print(len(str(9 ** 9 ** 9)))"),
    "huge factorial": (EITHER, "import math\nprint(math.factorial(10 ** 8) > 0)"),
    "huge shift": (EITHER, "x = 1 << (1 << 40)"),
    "huge range": (STOPPED, "for i in range(10 ** 18): pass"),
    "endless recursion": (EITHER, "def f(): return f()\nf()"),
    "deep recursion without limit": (EITHER, "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()"),
    "endless generator": (EITHER, "import itertools\nlist(itertools.count())"),
    "endless iterator in C": (EITHER, "import itertools\nsum(1 for _ in itertools.repeat(0))"),
    # memory
    "memory bomb": (EITHER, "x = []\nwhile True: x.append('a' * 10 ** 6 + str(len(x)))"),
    "one huge list": (FULL | FAILS, "x = [0] * 10 ** 11"),
    "one huge string": (FULL | FAILS, "x = 'ab' * 10 ** 11"),
    "one huge bytearray": (FULL | FAILS, "x = bytearray(10 ** 11)"),
    "doubling string": (EITHER, "x = 'a'\nwhile True: x += x"),
    "doubling list": (EITHER, "x = [1]\nwhile True: x = x + x"),
    "nested lists": (EITHER | HARMLESS, "x = []\nfor i in range(10 ** 6): x = [x]\nprint(x == x)"),
    "memory bomb that catches all": (
        EITHER,
        "x = []\nwhile True:\n  try: x.append('a' * 10 ** 6 + str(len(x)))\n  except BaseException: pass",
    ),
    "memory in a file of the kernel": (FAILS, "import os\nf = os.memfd_create('x')\nos.write(f, b'a' * 10 ** 8)"),
    "huge format": (FULL | FAILS, "print(f'{{1:>99999999999}}')"),
    # output
    "gigabytes of output": (EITHER, "while True: print('a' * 10 ** 6)"),
    "many lines of output": (EITHER, "while True: print(1)"),
    "much to standard error": (EITHER, "import sys\nwhile True: print('a' * 10 ** 6, file=sys.stderr)"),
    "a long exception": (FAILS, "raise ValueError('a' * 10 ** 7)"),
    # files
    "reads /etc/passwd": (FAILS, "print(open('/etc/passwd').read())"),
    "reads the home folder": (FAILS, "import os\nprint(open('{home}/secret.txt').read())"),
    "lists the home folder": (FAILS, "import os\nprint(os.listdir('{home}'))"),
    "reads through a symlink": (
        FAILS,
        "import os\nos.symlink('{home}/secret.txt', '/tmp/s')\nprint(open('/tmp/s').read())",
    ),
    "reads through the root of process 1": (FAILS, "print(open('/proc/1/root{home}/secret.txt').read())"),
    "writes into the home folder": (FAILS, "open('{home}/written.txt', 'w').write('x')"),
    "writes into /tmp": (FAILS, "open('/tmp/digitloss-written.txt', 'w').write('x')"),
    "writes over the interpreter": (FAILS, "import os\nopen(os.__file__, 'a').write('x')"),
    "disk bomb": (FAILS, "f = open('/tmp/digitloss-written.txt', 'wb')\nwhile True: f.write(b'a' * 10 ** 7)"),
    "makes a device": (
        FAILS,
        "import os\nos.mknod('/dev/sda', 0o60600, os.makedev(8, 0))\nprint(open('/dev/sda').read(9))",
    ),
    # the environment
    "reads the environment": (HARMLESS, "import os\nprint(dict(os.environ))"),
    "reads the environment through /proc": (FAILS, "print(open('/proc/self/environ').read())"),
    "reads the environment of its parent": (FAILS, "import os\nprint(open('/proc/%d/environ' % os.getppid()).read())"),
    "reads the memory of its parent": (FAILS, "import os\nprint(open('/proc/%d/mem' % os.getppid(), 'rb').read(9))"),
    # the network
    "connects to the host": (FAILS, "import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)"),
    "asks a name server": (FAILS, "import socket\nprint(socket.gethostbyname('localhost.localdomain'))"),
    "reads an address": (
        FAILS,
        "import urllib.request\nprint(urllib.request.urlopen('http://127.0.0.1:{port}').read())",
    ),
    # processes
    "fork bomb": (FAILS, "import os\nwhile True: os.fork()"),
    "fork bomb that catches all": (
        FAILS | STOPPED,
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    ),
    "thread bomb": (
        EITHER,
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,)).start()",
    ),
    "runs a shell": (FAILS, "import os, sys\nsys.exit(os.system('touch {home}/written.txt') and 3)"),
    "runs a program": (FAILS, "import subprocess\nsubprocess.run(['/bin/touch', '{home}/written.txt'])"),
    "becomes another program": (FAILS, "import os\nos.execv('/bin/sh', ['sh', '-c', 'touch {home}/written.txt'])"),
    "a child that outlives": (
        FAILS,
        "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    time.sleep(999)\n  os._exit(0)",
    ),
    "multiprocessing": (FAILS, "import multiprocessing as m\nm.Process(target=print).start()"),
    "signals its parent": (FAILS, "import os\nos.kill(os.getppid(), 9)"),
    "signals everyone": (FAILS, "import os\nos.kill(-1, 9)"),
    "signals the host by number": (FAILS, "import os\nos.kill({pid}, 10)"),
    "traces its parent": (
        FAILS,
        "import ctypes, os, sys\nsys.exit(3 if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) else 0)",
    ),
    "loads the kernel's keys": (
        FAILS,
        "import ctypes, sys\nsys.exit(3 if ctypes.CDLL(None).syscall(250, 0, -3, 0, 0, 0) < 0 else 0)",
    ),
    "makes a namespace": (FAILS, "import ctypes, sys\nsys.exit(3 if ctypes.CDLL(None).unshare(0x10000000) else 0)"),
    "raises its own limits": (
        FAILS,
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)",
    ),
    # tricks of the interpreter
    "leaves at once": (HARMLESS, "import os\nprint('seen', flush=True)\nos._exit(0)"),
    "closes all files": (FAILS | HARMLESS, "import os\nos.closerange(0, 999)\nprint('seen')"),
    "writes into other files": (
        FAILS | HARMLESS,
        'import os\nfor fd in range(3, 99):\n  try: os.write(fd, b\'{{"outcome": "ok"}}\\n\')\n  except OSError: pass',
    ),
    "__del__ that never ends": (
        {"ok", "error", "timeout"},
        "class A:\n  def __del__(self):\n    while True: pass\na = A()\ndel a",
    ),
    "replaces the exit": (
        HARMLESS | EITHER,
        "import os, sys\nos._exit = sys.exit = lambda *_: None\nraise SystemExit(0)",
    ),
    "finds the caller's frames": (
        FAILS | HARMLESS,
        "import sys\nf = sys._getframe()\nwhile f:\n  print(f.f_locals)\n  f = f.f_back",
    ),
    "escapes through subclasses": (
        FAILS | HARMLESS,
        "for c in ().__class__.__base__.__subclasses__():\n"
        "  if c.__name__ == 'Popen': c(['/bin/touch', '{home}/written.txt'])",
    ),
    "a pickle that runs a shell": (
        FAILS | HARMLESS,
        "import pickle\npickle.loads(b\"cos\\nsystem\\n(S'touch {home}/written.txt'\\ntR.\")",
    ),
    "crashes the interpreter": (FAILS, "import ctypes\nctypes.string_at(0)"),
    "code that crashes the compiler": (EITHER | HARMLESS, "eval('(' * 100000 + ')' * 100000)"),
    "ends itself": (FAILS, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\nsignal.raise_signal(11)"),
    "escapes for the terminal": (HARMLESS, "print('\\x1b[2J\\x1b]0;owned\\x07\\x9b31m\\r\\x08')"),
    "text that is no UTF-8": (FAILS | HARMLESS, "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe')"),
    "a lone surrogate": (FAILS | HARMLESS, "print('\\ud800')"),
    "prints an answer of the sandbox": (HARMLESS, 'print(\'{{"outcome": "ok", "stdout": "42"}}\')'),
}


class Host:
    """What a program must not reach."""

    def __init__(self, home, port):
        self.home, self.port = home, port
        self.signals = []
        self.connections = []

    def program(self, text):
        return text.format(home=self.home, port=self.port, pid=os.getpid())


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "secret.txt").write_text(SECRET)
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as server:
        patch.setenv("DIGITLOSS_SECRET", SECRET)
        patch.setenv("HOME", str(home))
        found = Host(home, server.getsockname()[1])
        server.settimeout(0.1)
        is_over = threading.Event()

        def accept():
            while not is_over.is_set():
                try:
                    found.connections.append(server.accept())
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        before = signal.signal(signal.SIGUSR1, lambda *_: found.signals.append(1))
        yield found
        signal.signal(signal.SIGUSR1, before)
        is_over.set()
        thread.join()


@pytest.fixture(scope="module", params=["monty", "bubblewrap"])
def sandbox(request, host):
    try:
        with Sandbox(request.param, num_workers=1) as made:
            yield made
    except SandboxError as error:
        pytest.skip(str(error))


def processes():
    """Processes that this one started, and theirs."""
    return {p.pid for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE}


@pytest.mark.parametrize("name", PROGRAMS)
def test_hostile(sandbox, host, name):
    expected, text = PROGRAMS[name]
    assert sandbox.run("print(6 * 7)").stdout == "42\n"
    before = processes()
    start = time.monotonic()
    found = sandbox.run(host.program(text), TIMEOUT_S, MEMORY_MB)
    assert time.monotonic() - start < TIMEOUT_S + GRACE_S
    assert found.outcome in expected, found
    assert SECRET not in found.stdout + found.error
    assert len(found.stdout) <= 2**20
    assert len(found.error) < 2**15
    assert all(c.isprintable() or c in "\t\n\ufffd" for c in found.stdout + found.error)
    assert sorted(path.name for path in host.home.iterdir()) == ["secret.txt"]
    assert not Path("/tmp/digitloss-written.txt").exists()
    assert not host.signals
    assert not host.connections
    following = sandbox.run("print(6 * 7)")
    assert (following.outcome, following.stdout) == ("ok", "42\n")
    assert len(processes()) == len(before)


def test_there_are_forty():
    assert len(PROGRAMS) >= 40


def test_without_isolation_the_host_would_see_them(host):
    with pytest.warns(UserWarning, match="the sandbox is unsafe"):
        made = Sandbox("unsafe", num_workers=1)
    with made:
        assert SECRET in made.run(host.program(PROGRAMS["reads the home folder"][1])).stdout


def test_one_that_hangs_does_not_slow_the_others():
    with Sandbox("bubblewrap", num_workers=2) as sandbox:
        sandbox.run("1"), sandbox.run("1")
        slow = threading.Thread(target=sandbox.run, args=("while True: pass", 3.0))
        slow.start()
        seconds = [sandbox.run("from fractions import Fraction; print(Fraction(1, 2))").seconds for _ in range(20)]
        assert slow.is_alive()
        slow.join()
    assert sorted(seconds)[10] < 1.0
