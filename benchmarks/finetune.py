"""Fine-tune one model with several losses from the same start on the same batches; figures on held-out rows.

    python benchmarks/finetune.py --model FOLDER --tokenizer FOLDER --data train.jsonl --out finetune.json

The last `--held-out` rows of the file are never trained on. Before and after training each model is evaluated on them:
cross-entropy, the DEL term, digit accuracy and digit entropy. The number of digits that the loss sees is compared with
the number of ASCII digits in the held-out answers.
"""

import argparse
import json
import re
import tempfile
import time
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, TrainingArguments

import digitloss as dl
from digitloss.data import encode_examples, read_examples
from digitloss.train import NumericTrainer

TEMPLATE = "Question: {prompt}\nAnswer: "


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder or hub name of a causal language model")
    parser.add_argument("--tokenizer", help="folder or hub name; default: the model's")
    parser.add_argument("--data", required=True, type=Path, help="JSON or JSON lines, see digitloss.data.read_examples")
    parser.add_argument("--losses", nargs="+", default=["cross_entropy", "digit_entropy"])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch-size", type=int, default=4, help="rows of a micro-batch")
    parser.add_argument("--accumulation", type=int, default=2, help="micro-batches of a step")
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--held-out", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("finetune.json"))
    return parser.parse_args()


def make_trainer(options, folder, vocab, tokenizer, loss, rows):
    args = TrainingArguments(
        output_dir=folder,
        max_steps=options.steps,
        per_device_train_batch_size=options.batch_size,
        gradient_accumulation_steps=options.accumulation,
        per_device_eval_batch_size=8,
        learning_rate=options.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=options.steps // 10,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        seed=0,
    )
    return NumericTrainer(
        model=AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32),
        args=args,
        objective=dl.Objective(vocab, loss=loss),
        train_dataset=rows[: -options.held_out],
        eval_dataset=rows[-options.held_out :],
        data_collator=DataCollatorForSeq2Seq(tokenizer),
    )


def measure(trainer, measuring):
    """Figures on the held-out rows, with the same objective for every model."""
    objective, trainer.objective = trainer.objective, measuring
    metrics = trainer.evaluate()
    trainer.objective = objective
    names = ["cross_entropy", "numeric_loss", "digit_accuracy", "digit_token_entropy", "digit_density"]
    return {name: metrics[f"eval_{name}"] for name in names}


def main():
    options = parse()
    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer or options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    vocab = dl.NumberVocab.from_tokenizer(tokenizer)
    examples = read_examples(options.data)
    rows = encode_examples(tokenizer, examples, template=TEMPLATE)
    measuring = dl.Objective(vocab, loss="digit_entropy")

    labels = [torch.tensor([row["labels"]]) for row in rows[-options.held_out :]]
    num_seen = sum(int(measuring.count_digits(row).sum()) for row in labels)
    num_written = sum(len(re.findall("[0-9]", example.completion)) for example in examples[-options.held_out :])
    results = {
        "options": {name: str(value) for name, value in vars(options).items()},
        "versions": {module.__name__: module.__version__ for module in (torch, transformers, dl)},
        "held_out_digits": {"seen": num_seen, "written": num_written},
        "losses": {},
    }
    for loss in options.losses:
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(options, folder, vocab, tokenizer, loss, rows)
            before = measure(trainer, measuring)
            start = time.monotonic()
            trainer.train()
            seconds = time.monotonic() - start
            results["losses"][loss] = {
                "alpha": trainer.objective.alpha,
                "before": before,
                "after": measure(trainer, measuring),
                "seconds": round(seconds, 1),
                "log": [entry for entry in trainer.state.log_history if "loss" in entry],
            }
        options.out.write_text(json.dumps(results, indent=1))
        print(loss, json.dumps({k: v for k, v in results["losses"][loss].items() if k != "log"}, indent=1), flush=True)
    print("held-out digits:", results["held_out_digits"])


if __name__ == "__main__":
    main()
