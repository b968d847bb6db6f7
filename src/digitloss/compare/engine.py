"""Trains one small model with each loss and asks it held-out problems; figures go to `results.json`, run by run.

Every loss has the same start, the same batches in the same order and the same questions. An interrupted comparison goes
on with the losses that are not in the file yet.
"""

import dataclasses
import json
import multiprocessing
import platform
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
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
from digitloss.errors import DatasetError
from digitloss.numbers import NumberVocab
from digitloss.train import NumericTrainer

Progress = Callable[[str, float], None]
"""Called with what is going on and the share of the whole comparison that is done."""

_TEMPLATE = "{prompt} "
_TEST_SEED = 0
_CURVES = ("loss", "cross_entropy", "numeric_loss", "digit_token_entropy", "digit_accuracy")


def run(
    settings: Settings, out: Path, progress: Progress = lambda what, share: None, workers: int = 1
) -> dict[str, Any]:
    """Run a comparison, or what is missing of it.

    Each loss is trained on one thread, so that the figures do not depend on the number of cores.

    Args:
        settings: What to do.
        out: Folder of `results.json`; made where it is absent.
        progress: Called now and then.
        workers: Losses trained at a time, each in a process of its own; 1: all in this process.

    Returns:
        What `results.json` holds: `settings`, `versions`, and `runs` with the scores, curves and answers of each loss.

    Raises:
        DatasetError: The folder has results of other settings, or results that cannot be read.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    path = out / "results.json"
    results = _load(path, settings)
    out.mkdir(parents=True, exist_ok=True)
    done = {entry["loss"] for entry in results["runs"]} & set(settings.losses)
    pending = [name for name in settings.losses if name not in done]

    def report(names: Sequence[str], share: float) -> None:
        progress(", ".join(names), (len(done) + share) / len(settings.losses))

    def order(entry: dict[str, Any]) -> int:
        name = entry["loss"]
        return settings.losses.index(name) if name in settings.losses else len(settings.losses)

    for entry in (_in_processes if workers > 1 else _in_this_process)(settings, pending, report, workers):
        results["runs"].append(entry)
        results["runs"].sort(key=order)
        _save(path, results)
    return results


def _in_this_process(
    settings: Settings, names: Sequence[str], report: Callable[[Sequence[str], float], None], workers: int
) -> Iterator[dict[str, Any]]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for index, name in enumerate(names):

            def report_one(share: float, index: int = index, name: str = name) -> None:
                report([name], index + share)

            yield _run_one(settings, name, report_one)
    finally:
        torch.set_num_threads(num_threads)


def _in_processes(
    settings: Settings, names: Sequence[str], report: Callable[[Sequence[str], float], None], workers: int
) -> Iterator[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    shares = context.Array("d", len(names))
    with ProcessPoolExecutor(workers, context, _start_worker, (shares,)) as pool:
        futures = {pool.submit(_run_in_worker, settings, name, index) for index, name in enumerate(names)}
        while futures:
            finished, futures = wait(futures, timeout=0.5, return_when=FIRST_COMPLETED)
            now: list[float] = shares[:]
            report([name for name, share in zip(names, now, strict=True) if 0 < share < 1] or ["starting"], sum(now))
            yield from (future.result() for future in finished)


_shares: Any = None  # in a worker: the share of each loss that is done, read by the parent


def _start_worker(shares: Any) -> None:
    global _shares
    _shares = shares
    torch.set_num_threads(1)


def _run_in_worker(settings: Settings, name: str, index: int) -> dict[str, Any]:
    def report(share: float) -> None:
        _shares[index] = share

    return _run_one(settings, name, report)


def _run_one(settings: Settings, name: str, report: Callable[[float], None]) -> dict[str, Any]:
    """Train and evaluate one loss; `report` gets the share that is done, 1 at the end."""
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


def _load(path: Path, settings: Settings) -> dict[str, Any]:
    """Results so far, checked to be of the same settings and versions; other losses' results are kept."""
    fresh = {
        "settings": json.loads(json.dumps(dataclasses.asdict(settings))),
        "versions": {
            "digitloss": version("digitloss"),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "runs": [],
    }
    if not path.exists():
        return fresh
    try:
        found = json.loads(path.read_text())
        old, runs = {**found["settings"], **found["versions"]}, list(found["runs"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DatasetError(f"{path}: not the results of a comparison ({error!r}); choose another --out") from error
    new = {**fresh["settings"], **fresh["versions"]}
    different = sorted(name for name in old.keys() | new.keys() if name != "losses" and old.get(name) != new.get(name))
    if different:
        changes = ", ".join(f"{name} {old.get(name)!r} there, {new.get(name)!r} now" for name in different)
        raise DatasetError(f"{path}: holds results of other settings ({changes}); choose another --out or remove it")
    return {**fresh, "runs": runs}


def _save(path: Path, results: dict[str, Any]) -> None:
    """Write whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1))
    part.replace(path)
