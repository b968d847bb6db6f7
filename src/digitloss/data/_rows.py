"""Rows of a data file or a hub set, each with the place where it stands. Nothing is dropped or converted.

JSON and JSON lines are told apart by what the file holds. Numbers of JSON and CSV files keep their digits as written
(`0.50` stays `0.50`, `007` stays `007`); Parquet files and hub sets have them as the types of their columns.
"""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from digitloss.errors import DatasetError, missing_extra

Row = tuple[str, Any]
"""Where a row stands, for messages, and what it holds."""

_ENDINGS = (".json", ".jsonl", ".csv", ".parquet")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def read_rows(source: str | Path, *, config: str | None, split: str, revision: str | None = None) -> list[Row]:
    """Read all rows of a file, a folder or a hub set.

    Args:
        source: A file, a folder in the layout of a hub set, or the name of a hub set.
        config: Configuration of a folder or hub set.
        split: Split of a folder or hub set; `train+test` is both.
        revision: Commit of a hub set; None for its newest.

    Raises:
        DatasetError: It cannot be read, or has no rows.
        MissingExtraError: A folder, hub set or Parquet file without the `datasets` package.
    """
    path = Path(source)
    ending = path.suffix.lower()
    is_hub_name = not path.exists() and ending not in _ENDINGS and _HUB_NAME.fullmatch(str(source))
    if path.is_dir() or is_hub_name:
        rows = list(_hub_rows(str(source), config, split, revision))
    elif ending == ".parquet":
        rows = list(_parquet_rows(path))
    else:
        text = _text(path)
        rows = list(_csv_rows(path, text) if ending == ".csv" else _json_rows(path, text))
    if not rows:
        raise DatasetError(f"{source}: no rows")
    return rows


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: cannot be read as UTF-8 text: {error} (a hub set is named owner/name)") from error


def _json_rows(path: Path, text: str) -> Iterator[Row]:
    try:
        content = _parse(text)
    except json.JSONDecodeError:
        content = None
    except RecursionError as error:
        raise DatasetError(f"{path}: nested too deeply to be read") from error
    if content is None:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    yield f"{path}, line {number}", _parse(line)
                except (json.JSONDecodeError, RecursionError) as error:
                    raise DatasetError(f"{path}, line {number}: not valid JSON ({error})") from error
    elif isinstance(content, dict):
        yield f"{path}, line 1", content
    elif isinstance(content, list):
        yield from ((f"{path}, row {number}", row) for number, row in enumerate(content, 1))
    else:
        raise DatasetError(f"{path}: expected a JSON list or JSON lines of objects, got a {type(content).__name__}")


def _parse(text: str) -> Any:
    return json.loads(text, parse_float=str, parse_int=str, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise json.JSONDecodeError(f"{constant} is no JSON", constant, 0)


def _csv_rows(path: Path, text: str) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            where = f"{path}, line {reader.line_num}"
            if None in row or None in row.values():
                num_fields = len(reader.fieldnames or ())
                raise DatasetError(f"{where}: expected {num_fields} fields as in the first line, got another number")
            yield where, row
    except csv.Error as error:
        raise DatasetError(f"{path}, after line {reader.line_num}: not valid CSV ({error})") from error


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise missing_extra("reading Parquet files", "train") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise DatasetError(f"{path}: cannot be read as Parquet: {error}") from error
    yield from ((f"{path}, row {number}", row) for number, row in enumerate(table.to_pylist(), 1))


def _hub_rows(name: str, config: str | None, split: str, revision: str | None) -> Iterator[Row]:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise missing_extra("reading data sets of the hub", "train") from error
    try:
        rows: Any = datasets.load_dataset(name, config, split=split, revision=revision)
    except (OSError, ValueError) as error:
        raise DatasetError(
            f"{name}: neither a file nor a hub set that can be loaded (config {config!r}, split {split!r}): {error}"
        ) from error
    yield from ((f"{name}, {split} row {number}", dict(row)) for number, row in enumerate(rows, 1))
