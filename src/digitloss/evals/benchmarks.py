r"""Benchmarks: each is one row of data below, which says where its questions are and which fields hold what.

    {"question": "Janet's ducks lay ...", "answer": "... She makes 9 * 2 = $18.\n#### 18"}
    ->  Question(id="gsm8k-1", text="Janet's ducks lay ...", options=(), answer="18")

To add one, write a row here, or the same fields in a YAML file; a data file of questions with numeric answers is a
benchmark as it is. A row that cannot be used is named and stops the reading: none is dropped or guessed. What this
module does not do: write prompts, or run a model.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from digitloss.data import read_rows
from digitloss.errors import DatasetError, missing_extra, unknown_name
from digitloss.evals import answers
from digitloss.evals.answers import Kind


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question and its right answer."""

    id: str
    """The benchmark's name and the number of the row, from 1."""
    text: str
    """The question, without its options."""
    options: tuple[str, ...] = ()
    """Texts of the options, without their letters; empty where the answer is free."""
    answer: str
    """A number, a formula, or the letter of the right option."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Where the questions of a benchmark are, and what their fields mean.

    Of the fields of a row, the first template or name whose fields the row has is used.

    Raises:
        ValueError: Unknown kind, or neither a hub set nor a file.
        TypeError: A text where a tuple of texts is expected.
    """

    name: str
    """Name in the command line and in results."""
    kind: Kind
    """What an answer is: `number`, `math` or `choice`."""
    hub: str | None = None
    """Name of the hub set."""
    revision: str | None = None
    """Commit of the hub set, so that results stay comparable."""
    configs: tuple[str, ...] = ()
    """Configurations of the hub set, one after the other."""
    split: str = "test"
    """Split of the hub set; `train+test` is both."""
    files: tuple[str, ...] = ()
    """Files that hold the same questions, below the data folder; the first that exists is read."""
    num_questions: int | None = None
    """How many there are; another count is refused, since it would be another benchmark."""
    question: tuple[str, ...] = ("{question}", "{problem}", "{query}", "{prompt}", "{input}")
    """Templates of the question."""
    answer: tuple[str, ...] = ("answer", "solution", "target", "completion", "output")
    """Fields of the right answer: a text that holds it, or the letter or index (from 0) of an option."""
    options: tuple[str, ...] = ("options", "choices")
    """Fields of the list of options; without one, options stand in the question behind `Answer Choices:`."""

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.kind not in get_args(Kind):
            raise unknown_name("kind of answer", self.kind, get_args(Kind))
        if not self.hub and not self.files:
            raise ValueError(f"benchmark {self.name!r} must name a hub set or a file, got neither")
        for field, expected in _TYPES.items():
            value = getattr(self, field)
            if value is not None and not isinstance(value, expected):
                raise TypeError(f"{field} of benchmark {self.name!r} must be {expected.__name__}, got {value!r}")
        for field in _TUPLES:
            value = getattr(self, field)
            if not isinstance(value, tuple) or not all(isinstance(text, str) for text in value):
                raise TypeError(f"{field} of benchmark {self.name!r} must be a tuple of texts, got {value!r}")


_TYPES = {"hub": str, "revision": str, "split": str, "num_questions": int}
_TUPLES = ("configs", "files", "question", "answer", "options")

_BENCHMARKS = (
    Benchmark(
        name="gsm8k",
        kind="number",
        hub="openai/gsm8k",
        revision="cc7b047b6e5bb11b4f1af84efc572db110a51b3c",
        configs=("main",),
        files=("gsm8k/test.jsonl",),
        num_questions=1319,
    ),
    Benchmark(
        name="math",
        kind="math",
        hub="EleutherAI/hendrycks_math",
        revision="21a5633873b6a120296cce3e2df9d5550074f4a3",
        configs=(
            "algebra",
            "counting_and_probability",
            "geometry",
            "intermediate_algebra",
            "number_theory",
            "prealgebra",
            "precalculus",
        ),
        files=("math/test.jsonl", "math/test.json"),
        num_questions=5000,
    ),
    Benchmark(
        name="svamp",
        kind="number",
        hub="ChilleD/SVAMP",
        revision="5e0bf1e5e7c0e9c4bc39180d224f41f3f801b7ef",
        split="train+test",
        files=("svamp/SVAMP.json",),
        num_questions=1000,
        question=("{Body} {Question}",),
        answer=("Answer",),
    ),
    Benchmark(name="simuleq", kind="number", files=("simuleq/simuleq.json",), num_questions=514),
    Benchmark(
        name="aqua",
        kind="choice",
        hub="deepmind/aqua_rat",
        revision="33301c6a050c96af81f63cad5562cb5363e88971",
        configs=("raw",),
        files=("aqua/test.json",),
        num_questions=254,
        answer=("correct",),
    ),
    Benchmark(
        name="sat_math",
        kind="choice",
        hub="hails/agieval-sat-math",
        revision="51ab661f5a2e48370671c87c29d037b5b2b4853e",
        files=("sat_math/sat.json", "sat_math/sat-math.jsonl"),
        num_questions=220,
        question=("{passage} {question}", "{question}", "{query}"),
        answer=("answer", "label", "gold"),
    ),
    Benchmark(
        name="mmlu_math",
        kind="choice",
        hub="cais/mmlu",
        revision="c30699e8356da336a370243923dbaf21066bb9fe",
        configs=(
            "elementary_mathematics",
            "high_school_mathematics",
            "formal_logic",
            "college_mathematics",
            "abstract_algebra",
        ),
        files=("mmlu_math/mathematics.json",),
        num_questions=974,
    ),
)

_DATA_ENDINGS = (".json", ".jsonl", ".csv", ".parquet")
_YAML_ENDINGS = (".yaml", ".yml")


def names() -> list[str]:
    """List the names of the benchmarks.

    Example:
        >>> names()
        ['gsm8k', 'math', 'svamp', 'simuleq', 'aqua', 'sat_math', 'mmlu_math']
    """
    return [benchmark.name for benchmark in _BENCHMARKS]


def find(name: str | Path) -> Benchmark:
    """Find a benchmark.

    Args:
        name: One of `names()`; a YAML file with the fields of a `Benchmark`, whose files are looked for beside it; or a
            JSON, JSON-lines, CSV or Parquet file of questions with numeric answers.

    Raises:
        ValueError: No such benchmark.
        DatasetError: A YAML file that describes none.

    Example:
        >>> find("svamp").num_questions
        1000
    """
    path = Path(name)
    if path.suffix.lower() in _YAML_ENDINGS:
        return _described(path)
    if path.suffix.lower() in _DATA_ENDINGS:
        return Benchmark(name=path.stem, kind="number", files=(str(path.resolve()),))
    for benchmark in _BENCHMARKS:
        if benchmark.name == str(name):
            return benchmark
    raise unknown_name("benchmark", str(name), [*names(), "a YAML or data file"])


def load(benchmark: Benchmark | str | Path, *, data_dir: str | Path | None = None) -> list[Question]:
    """Load the questions of a benchmark.

    Args:
        benchmark: A benchmark, or what `find` takes.
        data_dir: Folder that holds the benchmark's file, or the folder of its hub set under the set's name; None for
            the hub, where the benchmark has a set there.

    Returns:
        All questions, in the order of the data.

    Raises:
        DatasetError: The data cannot be read, its count is another, or a row has no question or no usable answer.
        MissingExtraError: A hub set, Parquet or YAML file without the packages that read them.
        ValueError: No such benchmark.
    """
    if not isinstance(benchmark, Benchmark):
        benchmark = find(benchmark)
    rows = list(_rows(benchmark, data_dir))
    if benchmark.num_questions not in (None, len(rows)):
        raise DatasetError(
            f"{benchmark.name} has {benchmark.num_questions} questions, got {len(rows)}: the data is cut, or of another"
            " split; describe it as a benchmark of its own"
        )
    return [_question(benchmark, number, where, row) for number, (where, row) in enumerate(rows, 1)]


def _described(path: Path) -> Benchmark:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise missing_extra("reading YAML files", "eval") from error
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise DatasetError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(content, dict):
        raise DatasetError(f"{path}: expected the fields of a benchmark, got a {type(content).__name__}")
    fields = {field.name for field in dataclasses.fields(Benchmark)}
    for name in content:
        if name not in fields:
            raise DatasetError(f"{path}: {unknown_name('field', name, sorted(fields))}")
    for name in ("name", "kind"):
        if not isinstance(content.get(name), str):
            raise DatasetError(f"{path}: expected a text in the field {name!r}, got {content.get(name)!r}")
    for name in _TUPLES:
        if name in content:
            content[name] = tuple(content[name]) if isinstance(content[name], list) else (content[name],)
    try:
        described = Benchmark(**content)
    except (TypeError, ValueError) as error:
        raise DatasetError(f"{path}: {error}") from error
    beside = path.resolve().parent
    return dataclasses.replace(described, files=tuple(str(beside / file) for file in described.files))


def _rows(benchmark: Benchmark, data_dir: str | Path | None) -> Iterator[tuple[str, Any]]:
    sources: list[str | Path] = [Path(data_dir or ".") / file for file in benchmark.files]
    if benchmark.hub and data_dir is not None:
        sources.append(Path(data_dir) / benchmark.hub)
    source = next((source for source in sources if Path(source).exists()), None)
    revision = None
    if benchmark.hub and data_dir is None:
        source, revision = benchmark.hub, benchmark.revision
    if source is None:
        expected = " or ".join(map(str, sources))
        hint = "" if benchmark.hub else "; it is no hub set: pass the folder that holds its file"
        raise DatasetError(f"{benchmark.name}: expected {expected}, found nothing there{hint}")
    for config in benchmark.configs or (None,) if not Path(source).is_file() else (None,):
        yield from read_rows(source, config=config, split=benchmark.split, revision=revision)


def _question(benchmark: Benchmark, number: int, where: str, row: Any) -> Question:
    if not isinstance(row, dict):
        raise DatasetError(f"{where}: expected an object with a question and an answer, got a {type(row).__name__}")
    text, options = _filled(benchmark, where, row), _options(benchmark, where, row)
    raw = next((row[name] for name in benchmark.answer if row.get(name) is not None), None)
    if benchmark.kind == "choice":
        text, written = _split_at_options(text)
        options = options or written
        answer = _letter(raw, len(options))
    else:
        answer = _solution(str(raw), benchmark.kind) if isinstance(raw, str | int | float) else None
    if answer is None or not answers.equal(answer, answer, benchmark.kind):
        what = f"the letter or index of one of {len(options)} options" if benchmark.kind == "choice" else "one answer"
        raise DatasetError(
            f"{where}: expected {what} of kind {benchmark.kind!r} in the field {' or '.join(benchmark.answer)}, got"
            f" {str(raw)[-80:]!r}; the fields are {sorted(row)}"
        )
    return Question(id=f"{benchmark.name}-{number}", text=text, options=options, answer=answer)


_FIELD = re.compile(r"\{(\w+)\}")


def _filled(benchmark: Benchmark, where: str, row: Mapping[str, Any]) -> str:
    for template in benchmark.question:
        fields = _FIELD.findall(template)
        if all(isinstance(row.get(field), str) for field in fields):
            text = _FIELD.sub(lambda found: row[found[1]].strip(), template).strip()
            if text:
                return text
    templates = " or ".join(benchmark.question)
    raise DatasetError(f"{where}: no question: expected texts for {templates}, got the fields {sorted(row)}")


def _solution(text: str, kind: Kind) -> str | None:
    """The answer that a worked solution marks, or the text itself where it is an answer and no solution."""
    if "\\boxed" in text or "\\fbox" in text:
        return answers.extract(text, kind)
    answer = text.rpartition("####")[2].strip()
    return None if re.search(r"[.!?]\s|\n", answer) else answer


def _options(benchmark: Benchmark, where: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    options = next((row[name] for name in benchmark.options if row.get(name) is not None), None)
    if benchmark.kind != "choice" or options is None:
        return ()
    if not isinstance(options, list) or not all(isinstance(option, str | int | float) for option in options):
        raise DatasetError(f"{where}: expected a list of options, got {str(options)[:80]!r}")
    return tuple(_without_letter(str(option), "ABCDEFGHIJ"[index : index + 1]) for index, option in enumerate(options))


def _without_letter(option: str, letter: str) -> str:
    """`(A)2`, `A)2` and `A)A)2` are option A, 2."""
    return re.sub(rf"^(?:\s*\(?{letter}\))+", "", option).strip()


def _split_at_options(text: str) -> tuple[str, tuple[str, ...]]:
    """A question apart from the options behind it: `Passage. Q: 1 + 1? Answer Choices: (A) 2 (B) 3`."""
    question, mark, behind = text.partition("Answer Choices:")
    if not mark:
        return text, ()
    parts = re.split(r"\(([A-J])\)", behind)[1:]
    letters, options = parts[0::2], parts[1::2]
    in_order = "".join(letters) == "ABCDEFGHIJ"[: len(letters)]
    question = " ".join(part.strip() for part in question.split("Q:", 1)).strip()
    return question, tuple(option.strip() for option in options) if in_order else ()


def _letter(raw: Any, num_options: int) -> str | None:
    """The letter of a letter, of an index from 0, or of a list that holds one of them."""
    if isinstance(raw, list) and len(raw) == 1:
        raw = raw[0]
    letters = "ABCDEFGHIJ"[:num_options]
    text = str(raw).strip().strip("()").upper()
    if text.isdecimal() and text.isascii() and len(text) < 3:
        return letters[int(text) : int(text) + 1] or None
    return text if len(text) == 1 and text in letters else None
