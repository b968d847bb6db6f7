"""Time and memory of every loss, forward and backward, as multiples of plain cross-entropy.

    python benchmarks/losses.py [--shape 4 512 32000] [--rounds 5] [--dtype float32] [--out losses.json]

Cross-entropy (`F.cross_entropy` on the shifted logits, in float32), and every loss in one pass and in plain autograd,
run in turn in one process, round by round.
Time is the median over rounds of the ratio to the cross-entropy of the same round. Memory is what the process grows by
in a call, at its largest, in a process of its own, as a multiple of the size of the logits (Linux only).
"""

import argparse
import json
import multiprocessing
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import digitloss as dl


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", type=int, nargs=3, default=[4, 512, 32000], metavar=("B", "T", "V"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="type of the logits")
    parser.add_argument("--hidden-size", type=int, default=896, help="columns of the head that EMO reads")
    parser.add_argument("--digits", type=float, default=0.15, help="share of the labels that are digits")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def make_batch(options):
    batch, length, vocabulary = options.shape
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, vocabulary, (batch, length), generator=generator)
    is_digit = torch.rand(labels.shape, generator=generator) < options.digits
    labels = torch.where(is_digit, torch.randint(0, 10, labels.shape, generator=generator), labels)
    logits = torch.randn(batch, length, vocabulary, generator=generator).to(getattr(torch, options.dtype))
    return logits.requires_grad_(), labels


def make_losses(options):
    vocab = dl.NumberVocab.from_tokens([*"0123456789", *["x"] * (options.shape[2] - 10)])

    def plain(logits, labels):
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())

    head = torch.randn(options.shape[2], options.hidden_size)
    losses = {"plain": plain}
    for name in dl.losses.names():
        losses[name] = dl.Objective(vocab, loss=name, head=head)
        losses[f"{name}, plain autograd"] = dl.Objective(vocab, loss=name, head=head, fused=False)
    return losses


def call(loss, logits, labels):
    logits.grad = None
    start = time.perf_counter()
    loss(logits, labels).backward()
    return time.perf_counter() - start


def memory_of_process(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise LookupError(field)


def measure_memory(options, name, queue):
    torch.set_num_threads(options.threads)
    logits, labels = make_batch(options)
    loss = make_losses(options)[name]
    small = argparse.Namespace(**{**vars(options), "shape": [1, 4, options.shape[2]]})
    call(loss, *make_batch(small))
    Path("/proc/self/clear_refs").write_text("5")  # forget the largest size so far (Linux)
    before = memory_of_process("VmRSS")
    call(loss, logits, labels)
    queue.put((memory_of_process("VmHWM") - before) / (logits.numel() * logits.element_size()))


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    logits, labels = make_batch(options)
    losses = make_losses(options)
    for loss in losses.values():
        call(loss, logits, labels)
    rounds = [{name: call(loss, logits, labels) for name, loss in losses.items()} for _ in range(options.rounds)]
    del logits
    context = multiprocessing.get_context("spawn")
    results = {}
    for name in losses:
        queue = context.Queue()
        process = context.Process(target=measure_memory, args=(options, name, queue))
        process.start()
        memory = queue.get()
        process.join()
        ratio = statistics.median(seconds[name] / seconds["plain"] for seconds in rounds)
        results[name] = {"time": round(ratio, 2), "memory": round(memory, 2)}
        print(f"{name:<30} {ratio:5.2f} x the time   {memory:5.2f} x the logits in memory", flush=True)
    if options.out:
        description = {
            "shape": options.shape,
            "dtype": options.dtype,
            "threads": options.threads,
            "torch": torch.__version__,
        }
        options.out.write_text(json.dumps({**description, "losses": results}, indent=1))


if __name__ == "__main__":
    main()
