"""Instruction files into prompts and completions, and those into training rows.

A row has one of the usual pairs of fields, or `messages`. A row that cannot be used stops the reading with its file and
number; none is dropped. Rows are never cut.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict, runtime_checkable

from digitloss.data._rows import read_rows
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


def read_examples(source: str | Path, *, config: str | None = None, split: str = "train") -> list[Example]:
    """Read examples from a JSON, JSON-lines, CSV or Parquet file, or from a set of the Hugging Face hub.

    The fields are one of `FIELDS`, or `messages`: any system and user messages, then one of the assistant. An Alpaca
    row's `input`, where it is not empty, is the last line of the prompt. Numbers of JSON and CSV files keep their
    digits as written (`0.50` stays `0.50`).

    Args:
        source: The file, or the name of a hub set (`openai/gsm8k`) or its folder.
        config: Configuration of a hub set.
        split: Split of a hub set.

    Returns:
        The examples, in the order of the file.

    Raises:
        DatasetError: The source cannot be read, or a row has no prompt or no answer; file and row are named.
        MissingExtraError: A Parquet file or hub set without the packages that read them.
    """
    return [_example(where, row) for where, row in read_rows(source, config=config, split=split)]


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


def _example(where: str, row: Any) -> Example:
    if not isinstance(row, dict):
        raise DatasetError(f"{where}: expected an object with a prompt and an answer, got a {type(row).__name__}")
    if "messages" in row:
        messages = row["messages"]
        if not isinstance(messages, list) or len(messages) < 2:
            raise DatasetError(f"{where}: expected at least two messages, got {_shown(messages)}")
        return Example(
            prompt=_contents(where, messages[:-1], ("system", "user")),
            completion=_contents(where, messages[-1:], ("assistant",)),
        )
    whole = [pair for pair in FIELDS if pair[0] in row and pair[1] in row]
    for prompt, completion in whole or FIELDS:
        if prompt in row:
            asked = _text(where, row, prompt, "prompt", ("system", "user"))
            if prompt == "instruction" and row.get("input"):
                asked += "\n" + _text(where, row, "input", "input", ())
            return Example(prompt=asked, completion=_text(where, row, completion, "answer", ("assistant",)))
    pairs = ", ".join("/".join(pair) for pair in FIELDS)
    raise DatasetError(
        f"{where}: no prompt: expected messages or one of the field pairs {pairs}, got the fields {sorted(row)}"
    )


def _text(where: str, row: Mapping[str, Any], field: str, what: str, roles: tuple[str, ...]) -> str:
    value = row.get(field)
    if isinstance(value, list) and value and all(isinstance(message, dict) for message in value):
        return _contents(where, value, roles)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise DatasetError(
            f"{where}: no {what}: expected text in the field {field!r}, got {_shown(value)}; the fields are"
            f" {sorted(row)}"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DatasetError(f"{where}: the {what} is no valid text: {error}") from error
    return value


def _contents(where: str, messages: list[Any], roles: tuple[str, ...]) -> str:
    """Texts of messages, which must be of these roles."""
    for message in messages:
        role, content = (message.get(name) if isinstance(message, dict) else None for name in ("role", "content"))
        if role not in roles or not isinstance(content, str) or not content.strip():
            raise DatasetError(
                f"{where}: expected a text of the role {' or '.join(roles)}, got {_shown(message)} (conversations of"
                " several turns are not read)"
            )
    return "\n\n".join(message["content"] for message in messages)


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:80]
