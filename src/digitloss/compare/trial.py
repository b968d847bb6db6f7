"""One loss of a comparison: train the model, evaluate it, ask it the held-out problems.

Every loss has the same start, the same batches in the same order and the same questions.
"""

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

import digitloss.losses as all_losses
from digitloss.compare.scores import Answer, score
from digitloss.compare.settings import Settings
from digitloss.data import Example, Problem, TrainingRow, character_tokenizer, encode_examples, generate_problems
from digitloss.numbers import NumberVocab
from digitloss.train import NumericTrainer

_TEMPLATE = "{prompt} "
_TEST_SEED = 0
_CURVES = ("loss", "cross_entropy", "numeric_loss", "digit_token_entropy", "digit_accuracy")


def run_trial(settings: Settings, name: str, report: Callable[[float], None]) -> dict[str, Any]:
    """Train and evaluate one loss.

    Args:
        settings: What to do.
        name: Name of the loss.
        report: Called with the share that is done, at last with 1.

    Returns:
        The scores, curves and answers of the loss, as `results.json` holds them.
    """
    tokenizer = character_tokenizer()
    objective = all_losses.Objective(NumberVocab.from_tokenizer(tokenizer), loss=name)
    train = _encode(tokenizer, generate_problems(settings.num_train, seed=settings.seed))
    test = generate_problems(settings.num_test, seed=_TEST_SEED, split="test")
    model = _new_model(settings, tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        trainer = NumericTrainer(
            model=model,
            args=_arguments(settings, folder),
            objective=objective,
            train_dataset=_Planned(train, _plan(settings, train)),
            eval_dataset=_encode(tokenizer, test),
            data_collator=_Padding(tokenizer.pad_token_id),
            callbacks=[_Steps(settings.steps, report)],
        )
        trainer.remove_callback(PrinterCallback)
        start = time.monotonic()
        trainer.train()
        seconds = time.monotonic() - start
        metrics = trainer.evaluate()
    answers = _ask(model, tokenizer, test)
    report(1.0)
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {
        "loss": name,
        "alpha": objective.alpha,
        "alpha_applies": isinstance(objective.loss, all_losses.AbstractDigitLoss),
        "options": vars(objective.loss),
        "seed": settings.seed,
        "seconds_per_step": seconds / settings.steps,
        **score(answers),
        "teacher_forced": {
            name: metrics[f"eval_{name}"]
            for name in ("cross_entropy", "numeric_loss", "digit_token_entropy", "digit_accuracy")
        },
        "curves": {"step": [entry["step"] for entry in log], **{name: [e[name] for e in log] for name in _CURVES}},
        "answers": [answer._asdict() for answer in answers],
    }


def _arguments(settings: Settings, folder: str) -> TrainingArguments:
    return TrainingArguments(
        output_dir=folder,
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=200,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        adam_beta2=0.98,
        lr_scheduler_type="linear",
        warmup_steps=min(50, settings.steps // 2),
        logging_steps=max(1, settings.steps // 40),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        use_cpu=not torch.cuda.is_available(),
        dataloader_pin_memory=False,
        seed=settings.seed,
    )


def _new_model(settings: Settings, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A Llama with embeddings of unit variance and matrices of 1 / sqrt(inputs), which learns arithmetic soonest."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.width,
        intermediate_size=2 * settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(settings.seed)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                torch.nn.init.normal_(weight, std=1.0 if "embed" in name else weight.shape[1] ** -0.5)
    return model


def _encode(tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem]) -> list[TrainingRow]:
    examples = [Example(prompt=problem.question, completion=problem.answer) for problem in problems]
    return encode_examples(tokenizer, examples, template=_TEMPLATE)


def _plan(settings: Settings, rows: list[TrainingRow]) -> list[int]:
    """Row of every place of every batch: shuffled, with rows of like length together, which saves padding."""
    shuffle = random.Random(settings.seed)
    order: list[int] = []
    while len(order) < settings.steps * settings.batch_size:
        indices = list(range(len(rows)))
        shuffle.shuffle(indices)
        chunk = 20 * settings.batch_size
        for start in range(0, len(indices), chunk):
            near = sorted(indices[start : start + chunk], key=lambda index: len(rows[index]["labels"]))
            batches = [near[i : i + settings.batch_size] for i in range(0, len(near), settings.batch_size)]
            shuffle.shuffle(batches)
            order += [index for batch in batches if len(batch) == settings.batch_size for index in batch]
        if len(rows) < settings.batch_size:
            order += indices
    return order[: settings.steps * settings.batch_size]


class _Planned(IterableDataset[TrainingRow]):
    """Rows in a planned order."""

    def __init__(self, rows: list[TrainingRow], order: list[int]):
        self._rows, self._order = rows, order

    def __iter__(self) -> Iterator[TrainingRow]:
        return (self._rows[index] for index in self._order)


class _Padding:
    """Pads rows on the right."""

    def __init__(self, pad_token_id: int):
        self._pad_token_id = pad_token_id

    def __call__(self, rows: list[TrainingRow]) -> dict[str, Tensor]:
        def pad(values: list[list[int]], filler: int) -> Tensor:
            return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in values], True, filler)

        ids = [row["input_ids"] for row in rows]
        return {
            "input_ids": pad(ids, self._pad_token_id),
            "attention_mask": pad([[1] * len(row) for row in ids], 0),
            "labels": pad([row["labels"] for row in rows], -100),
        }


class _Steps(TrainerCallback):
    """Reports the share of the steps that are done."""

    def __init__(self, steps: int, report: Callable[[float], None]):
        self._steps, self._report = steps, report

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Report."""
        self._report(0.97 * state.global_step / self._steps)


def _ask(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem]) -> list[Answer]:
    """Greedy answers, in batches of one question length so that nothing is padded."""
    prompts = [tokenizer.encode(_TEMPLATE.replace("{prompt}", problem.question)) for problem in problems]
    outputs = [""] * len(problems)
    model.train(False)
    for length in sorted({len(prompt) for prompt in prompts}):
        indices = [index for index, prompt in enumerate(prompts) if len(prompt) == length]
        ids = torch.tensor([prompts[index] for index in indices], device=model.device)
        with torch.no_grad():
            written = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12
            )
        for index, text in zip(
            indices, tokenizer.batch_decode(written[:, length:], skip_special_tokens=True), strict=True
        ):
            outputs[index] = text
    return [
        Answer(problem.kind, problem.question, problem.answer, output)
        for problem, output in zip(problems, outputs, strict=True)
    ]
