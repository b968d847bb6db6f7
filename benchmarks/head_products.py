"""What was tried for the products of hidden states with a head on a CPU: `python benchmarks/head_products.py`.

Prints the table of docs/speed.md. Each figure is the median of torch's benchmark timer over two seconds.
"""

import argparse

import torch
import torch.nn.functional as F
from torch.utils.benchmark import Timer

import digitloss as dl

NUM_COLUMNS, HIDDEN = 151_936, 896
ROWS = 4096


def seconds(call, min_run_time=2.0):
    call()
    return Timer("call()", globals={"call": call}).blocked_autorange(min_run_time=min_run_time).median


def in_blocks(states, head, out, rows=ROWS):
    for start in range(0, len(head), rows):
        torch.mm(states, head[start : start + rows].to(states.dtype).T, out=out[:, start : start + rows])


def print_row(what, value, unit):
    print(f"| {what} | {value:.3g} {unit} |", flush=True)


def measure_logits(num_tokens):
    states, head = torch.randn(num_tokens, HIDDEN), torch.randn(NUM_COLUMNS, HIDDEN)
    out = torch.empty(num_tokens, NUM_COLUMNS)
    giga = 2 * num_tokens * HIDDEN * NUM_COLUMNS / 1e9
    calls = {
        "one product, into a new tensor each time": lambda: F.linear(states, head),
        "one product, into a buffer": lambda: torch.mm(states, head.T, out=out),
        **{
            f"blocks of {n:,} rows, into a buffer": lambda n=n: in_blocks(states, head, out, n)
            for n in (1024, 4096, 16384)
        },
    }
    for what, call in calls.items():
        print_row(f"logits of {num_tokens} tokens: {what}", giga / seconds(call), "GFLOP/s")


def measure_bfloat16(num_tokens):
    states, head = torch.randn(num_tokens, HIDDEN), torch.randn(NUM_COLUMNS, HIDDEN)
    narrow, out = head.bfloat16(), torch.empty(num_tokens, NUM_COLUMNS)
    narrow_states = states.bfloat16()
    giga = 2 * num_tokens * HIDDEN * NUM_COLUMNS / 1e9
    few = narrow_states[:8]
    gradient = torch.randn(8, NUM_COLUMNS).bfloat16()
    print_row("bfloat16 head: product in bfloat16", giga / seconds(lambda: narrow_states @ narrow.T), "GFLOP/s")
    backward = seconds(lambda: gradient.T @ few) * num_tokens / len(few)
    print_row("bfloat16 head: gradient of the head in bfloat16 (8 tokens)", giga / backward, "GFLOP/s")
    whole = seconds(lambda: torch.mm(states, narrow.float().T, out=out))
    print_row("bfloat16 head: widened whole, then one product", giga / whole, "GFLOP/s")
    blocks = seconds(lambda: in_blocks(states, narrow, out))
    print_row(f"bfloat16 head: widened in blocks of {ROWS:,} rows", giga / blocks, "GFLOP/s")


def measure_chunks(num_tokens):
    vocab = dl.NumberVocab.from_tokens([*"0123456789", *["x"] * (NUM_COLUMNS - 10)])
    objective = dl.Objective(vocab)
    hidden = torch.randn(1, num_tokens, HIDDEN, requires_grad=True)
    head = (torch.randn(NUM_COLUMNS, HIDDEN) / HIDDEN**0.5).requires_grad_()
    labels = torch.randint(0, 100, (1, num_tokens))
    for size in (32, 110, 220, 441, 882):
        call = lambda size=size: objective.from_hidden(hidden, head, labels, chunk_size=size).backward()  # noqa: E731
        print_row(f"objective of {num_tokens} tokens, {size} at a time", seconds(call), "s")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=441)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    print("| what | measured |\n|---|---|")
    measure_logits(arguments.tokens)
    measure_bfloat16(arguments.tokens)
    measure_chunks(4 * arguments.tokens)


if __name__ == "__main__":
    main()
