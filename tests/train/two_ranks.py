"""Run by test_ranks.py, once alone and once on two ranks: one step, then an evaluation; rank 0 writes what came out."""

import sys

import torch

import digitloss as dl
from digitloss.train import NumericTrainer
from fakes import encode, letters_vocab, small_llama
from training import TEXTS, arguments, collate, parameters


def main(folder, normalize, batch_size):
    vocab = letters_vocab()
    labels = [encode(vocab, text)[0] for text in [*TEXTS, "a7"]]
    rows = [{"input_ids": row.clamp(min=0), "labels": row} for row in labels]
    model = small_llama(len(vocab) + 3)
    before = parameters(model)
    args = arguments(
        folder,
        per_device_train_batch_size=int(batch_size),
        gradient_accumulation_steps=2,
        per_device_eval_batch_size=2,
        ddp_backend="gloo",
    )
    trainer = NumericTrainer(
        model=model,
        args=args,
        objective=dl.Objective(vocab, normalize=normalize),
        train_dataset=rows[:8],
        eval_dataset=rows,
        data_collator=collate,
    )
    trainer.train()
    change = parameters(model) - before
    metrics = trainer.evaluate()
    if trainer.is_world_process_zero():
        kept = {name: value for name, value in metrics.items() if "second" not in name and "runtime" not in name}
        torch.save({"change": change, "log": trainer.state.log_history[0], "metrics": kept}, f"{folder}/result.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
