"""One training run of a comparison: train the model with a loss, evaluate it, ask it the held-out questions.

Runs of one seed have the same start, the same batches in the same order and the same questions.
"""

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import IterableDataset
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerBase,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from digitloss.compare.scores import Answer, score
from digitloss.compare.settings import Settings
from digitloss.compare.tasks import AbstractTask, Question, Split, rows_of
from digitloss.compare.variants import Variant
from digitloss.data import Example, TrainingRow, encode_examples
from digitloss.errors import DatasetError
from digitloss.losses import AbstractDigitLoss
from digitloss.losses._tokens import IGNORED
from digitloss.numbers import NumberVocab
from digitloss.train import NumericTrainer

_CURVES = ("loss", "cross_entropy", "numeric_loss", "digit_token_entropy", "digit_accuracy")
_TEACHER_FORCED = ("cross_entropy", "numeric_loss", "digit_token_entropy", "digit_accuracy")


class Trial(NamedTuple):
    """What to run."""

    variant: Variant
    seed: int
    alpha: float | None
    """Weight of the numeric term; None: the variant's own."""
    split: Split
    """The questions that are asked."""


def run_trial(settings: Settings, trial: Trial, report: Callable[[float], None]) -> dict[str, Any]:
    """Train and evaluate one loss with one seed.

    Args:
        settings: Settings of the comparison.
        trial: What to run.
        report: Called with the share that is done, at last with 1.

    Returns:
        The scores, curves and outputs, as `results.json` holds them.
    """
    task = settings.task
    seed = trial.variant.seed(trial.seed)
    tokenizer, questions = task.tokenizer, task.questions(trial.split)
    model: Any = task.new_model(seed)
    objective = trial.variant.objective(
        NumberVocab.from_tokenizer(tokenizer),
        alpha=trial.alpha,
        head=model.get_output_embeddings(),
        fused=task.is_fused,
    )
    rows = rows_of(task, seed)
    held_out = _encode(task, questions)
    _check_lengths(model, [*rows, *held_out], task.answer_tokens)
    with tempfile.TemporaryDirectory() as folder:
        trainer = NumericTrainer(
            model=model,
            args=_arguments(settings, folder, seed),
            objective=objective,
            train_dataset=_Planned(rows, _plan(settings, rows, seed)),
            eval_dataset=held_out,
            data_collator=_Padding(tokenizer.pad_token_id),
            callbacks=[_Steps(settings.steps, report)],
        )
        trainer.remove_callback(PrinterCallback)
        start = time.monotonic()
        trainer.train()
        seconds = time.monotonic() - start
        metrics = trainer.evaluate()
    outputs = _ask(task, model, questions)
    report(1.0)
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    answers = [Answer(*question, output) for question, output in zip(questions, outputs, strict=True)]
    return {
        "loss": trial.variant.label,
        "seed": trial.seed,
        "alpha": objective.alpha if isinstance(objective.loss, AbstractDigitLoss) else None,
        "seconds_per_step": seconds / settings.steps,
        **score(answers),
        "teacher_forced": {name: metrics[f"eval_{name}"] for name in _TEACHER_FORCED if f"eval_{name}" in metrics},
        "curves": {
            "step": [entry["step"] for entry in log],
            **{name: [entry.get(name) for entry in log] for name in _CURVES},
        },
        "outputs": outputs,
    }


def _arguments(settings: Settings, folder: str, seed: int) -> TrainingArguments:
    return TrainingArguments(
        output_dir=folder,
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.task.eval_batch_size,
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
        seed=seed,
    )


def _check_lengths(model: Any, rows: Sequence[TrainingRow], answer_tokens: int) -> None:
    """Refuse rows, or prompts with an answer, that are longer than the model reads."""
    limit = getattr(model.config, "max_position_embeddings", None)
    if limit is None:
        return
    for index, row in enumerate(rows):
        num_prompt = sum(label == IGNORED for label in row["labels"])
        length = max(len(row["labels"]), num_prompt + answer_tokens)
        if length > limit:
            raise DatasetError(
                f"example {index} needs {length} tokens, and the model reads {limit}: leave it out or lower"
                " max_new_tokens"
            )


def _encode(task: AbstractTask, questions: Sequence[Question]) -> list[TrainingRow]:
    examples = [Example(prompt=question.question, completion=question.gold) for question in questions]
    return encode_examples(task.tokenizer, examples, template=task.template)


def _plan(settings: Settings, rows: list[TrainingRow], seed: int) -> list[int]:
    """Row of every place of every batch: shuffled, with rows of like length together, which saves padding."""
    shuffle = random.Random(seed)
    order: list[int] = []
    while len(order) < settings.steps * settings.batch_size:
        indices = list(range(len(rows)))
        shuffle.shuffle(indices)
        if len(rows) >= settings.batch_size:  # what fills no batch is left out by chance, not by length
            indices = indices[: len(rows) - len(rows) % settings.batch_size]
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


def _ask(task: AbstractTask, model: Any, questions: Sequence[Question]) -> list[str]:
    """Greedy answers, in batches of like length, padded on the left."""
    tokenizer: PreTrainedTokenizerBase = task.tokenizer
    prompts = [tokenizer.encode(task.template.replace("{prompt}", question.question)) for question in questions]
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=False,
        max_new_tokens=task.answer_tokens,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    outputs = [""] * len(questions)
    model.train(False)
    model.generation_config = config  # the checkpoint's own would fill in what is not set: penalties, suppressed tokens
    for start in range(0, len(order), task.eval_batch_size):
        indices = order[start : start + task.eval_batch_size]
        width = len(prompts[indices[-1]])
        ids = torch.full((len(indices), width), tokenizer.pad_token_id)
        mask = torch.zeros_like(ids)
        for row, index in enumerate(indices):
            ids[row, width - len(prompts[index]) :] = torch.tensor(prompts[index])
            mask[row, width - len(prompts[index]) :] = 1
        with torch.no_grad():
            written = model.generate(
                input_ids=ids.to(model.device), attention_mask=mask.to(model.device), generation_config=config
            )
        texts = tokenizer.batch_decode(written[:, width:], skip_special_tokens=True)
        for index, text in zip(indices, texts, strict=True):
            outputs[index] = text
    return outputs
