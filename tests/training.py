"""A tiny training run for the tests of the adapters."""

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import TrainingArguments

from digitloss.train import NumericTrainer
from fakes import small_llama

TEXTS = ["a12.5b", "_b 7,468", "c__20b1", "ab c_", "1,234.5", "_0.75 6", "bb", "999a"]


def collate(rows):
    width = max(len(row["labels"]) for row in rows)
    pad = {"input_ids": 0, "labels": -100}
    batch = {
        name: torch.stack([F.pad(row[name], (0, width - len(row[name])), value=value) for row in rows])
        for name, value in pad.items()
    }
    batch["attention_mask"] = torch.stack([torch.arange(width) < len(row["labels"]) for row in rows]).long()
    return batch


def arguments(tmp_path, **options):
    defaults = {
        "output_dir": str(tmp_path),
        "max_steps": 1,
        "learning_rate": 0.5,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "save_strategy": "no",
        "remove_unused_columns": False,
        "disable_tqdm": True,
    }
    return TrainingArguments(**{**defaults, **options})


def lora(model):
    torch.manual_seed(1)
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    return get_peft_model(model, config)


def train(tmp_path, vocab, rows, objective, *, batch_size, accumulation, wrap=None, trainer=NumericTrainer, **options):
    model = small_llama(len(vocab) + 3)
    model = wrap(model) if wrap else model
    before = parameters(model)
    args = arguments(
        tmp_path, per_device_train_batch_size=batch_size, gradient_accumulation_steps=accumulation, **options
    )
    extra = {"objective": objective} if objective else {}
    trained = trainer(model=model, args=args, train_dataset=rows, data_collator=collate, **extra)
    trained.train()
    return trained, parameters(model) - before


def parameters(model):
    return torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad]).clone()


def relative_difference(got, expected):
    return (got - expected).norm() / expected.norm()
