"""Instruction files into prompts and completions, and those into training rows.

Read are JSON (a list of objects) and JSON lines, told apart by what the file holds, with one of the usual pairs of
fields. A row that cannot be used stops the reading with its file and number; none is dropped. Rows are never cut.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict, runtime_checkable

from digitloss.errors import DatasetError

FIELDS = (("instruction", "output"), ("question", "answer"), ("prompt", "completion"), ("input", "target"))
"""Pairs of fields, prompt and completion, in the order in which they are looked for."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One prompt and what the model should write after it."""

    prompt: str
    completion: str


class TrainingRow(TypedDict):
    """Token ids of prompt and completion; the labels are -100 on the prompt."""

    input_ids: list[int]
    labels: list[int]


@runtime_checkable
class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used."""

    eos_token_id: int | None

    def __call__(self, text: list[str], **kwargs: Any) -> Any:
        """Return the token ids of each text as `input_ids`."""
        ...


def read_examples(path: str | Path) -> list[Example]:
    """Read a JSON or JSON-lines file of examples.

    Numbers in the file keep their digits as written (`0.50` stays `0.50`).

    Args:
        path: The file.

    Returns:
        The examples, in the order of the file.

    Raises:
        DatasetError: The file cannot be read, or a row has no prompt or no answer; file and row are named.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    rows = _parse(path, text)
    if not rows:
        raise DatasetError(f"{path}: no rows; expected a JSON list or JSON lines of objects")
    return [_example(f"{path}, {where}", row) for where, row in rows]


def encode_examples(
    tokenizer: Tokenizer, examples: Iterable[Example], *, template: str = "{prompt}\n", max_length: int | None = None
) -> list[TrainingRow]:
    """Encode examples as rows for training on the completion and the end-of-text token.

    Prompt and completion are encoded apart, as they are when the model is asked, so that no token spans the border.

    Args:
        tokenizer: The model's tokenizer; its `eos_token_id` ends each row.
        examples: What to encode.
        template: What stands before the completion, with `{prompt}` in it.
        max_length: Longest row allowed, in tokens; None for no limit.

    Returns:
        One row an example.

    Raises:
        DatasetError: A row is longer than max_length; rows are never cut, since that could cut a number.
        ValueError: The template has no `{prompt}`, or the tokenizer no end-of-text token.
    """
    if "{prompt}" not in template:
        raise ValueError(f"template must contain {{prompt}}, got {template!r}")
    if tokenizer.eos_token_id is None:
        raise ValueError(
            "the tokenizer has no eos_token_id, and without it a model never learns where to stop: set one"
        )
    examples = list(examples)
    if not examples:
        return []
    prompts = tokenizer([template.replace("{prompt}", example.prompt) for example in examples])["input_ids"]
    completions = tokenizer([example.completion for example in examples], add_special_tokens=False)["input_ids"]
    rows: list[TrainingRow] = []
    for index, (example, prompt, answer) in enumerate(zip(examples, prompts, completions, strict=True)):
        completion = [*answer, tokenizer.eos_token_id]
        length = len(prompt) + len(completion)
        if max_length is not None and length > max_length:
            raise DatasetError(
                f"example {index} has {length} tokens, more than max_length={max_length}: raise max_length or leave the"
                f" example out; it begins with {example.prompt[:60]!r}"
            )
        rows.append({"input_ids": prompt + completion, "labels": [-100] * len(prompt) + completion})
    return rows


def _parse(path: Path, text: str) -> list[tuple[str, Any]]:
    """Rows of a file with where each stands."""
    try:
        content = json.loads(text, parse_float=str, parse_int=str)
    except json.JSONDecodeError:
        return [
            (f"line {number}", _parse_line(path, number, line))
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip()
        ]
    if isinstance(content, dict):
        return [("line 1", content)]
    if not isinstance(content, list):
        raise DatasetError(f"{path}: expected a JSON list or JSON lines of objects, got a {type(content).__name__}")
    return [(f"row {number}", row) for number, row in enumerate(content, 1)]


def _parse_line(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line, parse_float=str, parse_int=str)
    except json.JSONDecodeError as error:
        raise DatasetError(f"{path}, line {number}: not valid JSON ({error})") from error


def _example(where: str, row: Any) -> Example:
    if not isinstance(row, dict):
        raise DatasetError(f"{where}: expected an object with a prompt and an answer, got a {type(row).__name__}")
    for prompt, completion in FIELDS:
        if prompt in row:
            return Example(
                prompt=_text(where, row, prompt, "prompt"), completion=_text(where, row, completion, "answer")
            )
    pairs = ", ".join("/".join(pair) for pair in FIELDS)
    raise DatasetError(f"{where}: no prompt: expected one of the field pairs {pairs}, got the fields {_names(row)}")


def _text(where: str, row: dict[str, Any], field: str, what: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        got = "nothing" if value is None else repr(value)[:60]
        raise DatasetError(
            f"{where}: no {what}: expected text in the field {field!r}, got {got}; the fields are {_names(row)}"
        )
    return value


def _names(row: dict[str, Any]) -> Sequence[str]:
    return sorted(row)
