"""Programs a second in the sandbox, and the way that it is often done: `python benchmarks/sandbox.py`.

Prints the table of docs/sandbox.md: the median over rounds, in which the ways take turns.
"""

import argparse
import multiprocessing
import statistics
import time

from digitloss.evals.sandbox import Sandbox

PLAIN = """
def solution():
    eggs = 16
    eaten = 3 + 4
    price = 2
    return (eggs - eaten) * price

print(solution())
"""
SYMPY = """
from sympy import Eq, solve, symbols
x, y = symbols("x y")
print(solve([Eq(x + y, 35), Eq(2 * x + 4 * y, 94)], [x, y]))
"""
ANSWERS = {PLAIN: "18\n", SYMPY: "{x: 23, y: 12}\n"}


def in_sandbox(mode, program, count, num_workers):
    with Sandbox(mode, num_workers=num_workers) as sandbox:
        list(sandbox.map([program] * num_workers))  # warm
        start = time.perf_counter()
        found = list(sandbox.map([program] * count))
        seconds = time.perf_counter() - start
    assert all(x.stdout == ANSWERS[program] for x in found), found[0]
    return count / seconds


def child(program, found):
    printed = []
    exec(program, {"print": lambda *values: printed.append(" ".join(map(str, values)) + "\n")})
    found["stdout"] = "".join(printed)


def in_new_processes(program, count):
    """A manager and a process for each program, one after the other, without isolation."""
    context = multiprocessing.get_context("fork")
    start = time.perf_counter()
    for _ in range(count):
        with context.Manager() as manager:
            found = manager.dict()
            process = context.Process(target=child, args=(program, found))
            process.start()
            process.join(5)
            assert found["stdout"] == ANSWERS[program]
    return count / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    ways = {
        "plain programs, Monty": lambda: in_sandbox("auto", PLAIN, 2000, arguments.workers),
        "plain programs, CPython in bubblewrap": lambda: in_sandbox("bubblewrap", PLAIN, 200, arguments.workers),
        "programs with sympy, CPython in bubblewrap": lambda: in_sandbox("auto", SYMPY, 100, arguments.workers),
        "plain programs, a new manager and process each": lambda: in_new_processes(PLAIN, 20),
        "programs with sympy, a new manager and process each": lambda: in_new_processes(SYMPY, 5),
    }
    found = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, measure in ways.items():
            found[name].append(measure())
    print("| way | programs a second | lowest | highest |\n|---|---|---|---|")
    for name, rates in found.items():
        print(f"| {name} | {statistics.median(rates):,.0f} | {min(rates):,.0f} | {max(rates):,.0f} |")


if __name__ == "__main__":
    main()
