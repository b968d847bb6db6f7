"""Benchmarks load from files, from hub folders and from the hub, whole or not at all."""

import dataclasses
import json

import pytest

from digitloss.errors import DatasetError, MissingExtraError
from digitloss.evals import answers, benchmarks
from digitloss.evals.benchmarks import Benchmark, Question

COUNTS = {"gsm8k": 1319, "math": 5000, "svamp": 1000, "simuleq": 514, "aqua": 254, "sat_math": 220, "mmlu_math": 974}
FORMULAS = [
    r"\frac{1}{2}",
    r"\frac{\sqrt{3}}{3}",
    r"(-\infty,0)\cup(0,\infty)",
    r"\left(3, \frac{\pi}{2}\right)",
    r"\begin{pmatrix} 1 \\ -2 \end{pmatrix}",
    r"\text{Evelyn}",
    r"x^2+2x+1",
    r"10\sqrt{2}",
    r"\{1,\ 2\}",
    r"3+2i",
    r"12\text{ cm}^2",
    r"50\%",
    r"\$4.50",
    r"90^\circ",
    r"101_2",
    r"-\dfrac{7}{9}",
    r"y = 2x + 1",
]


def math_rows():
    """As many rows as MATH has, in its layout."""
    formulas = [FORMULAS[index // 300] if index % 300 == 0 else str(index - 2500) for index in range(5000)]
    return [
        {
            "problem": f"Find the value number {index}.",
            "level": "Level 3",
            "type": "Algebra",
            "solution": f"We get $1 + 1 = 2$, not $\\boxed{{0}}$. Hence it is $\\boxed{{{formula}}}$.",
        }
        for index, formula in enumerate(formulas)
    ]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, shared):
    """The files of the seven benchmarks."""
    folder = tmp_path_factory.mktemp("benchmarks")
    for source in (shared / "data" / "benchmarks").iterdir():
        (folder / source.name).symlink_to(source.resolve())
    (folder / "math").mkdir()
    (folder / "math" / "test.jsonl").write_text("\n".join(map(json.dumps, math_rows())))
    return folder


@pytest.fixture(scope="module")
def hub_dir(tmp_path_factory, data_dir):
    """The six benchmarks of the hub, each as a folder in the layout of its set."""
    folder = tmp_path_factory.mktemp("hub")
    for name, (splits, configs) in hub_layouts(data_dir).items():
        write_hub_set(folder / benchmarks.find(name).hub, splits, configs)
    return folder


def hub_layouts(data_dir):
    def read(file):
        text = (data_dir / file).read_text()
        return json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]

    svamp = [row | {"Answer": str(row["Answer"])} for row in read("svamp/SVAMP.json")]
    sat = [
        {
            "query": f"{row['passage']}Q: {row['question']} Answer Choices: {' '.join(row['options'])}\nA: Among",
            "choices": row["options"],
            "gold": ["ABCD".index(row["label"])],
        }
        for row in read("sat_math/sat-math.jsonl")
    ]
    mmlu, math = read("mmlu_math/mathematics.json"), math_rows()
    subjects, mmlu_subjects = benchmarks.find("math").configs, {row["subject"] for row in mmlu}
    return {
        "gsm8k": ("test", {"main": read("gsm8k/test.jsonl")}),
        "math": ("test", {subject: math[index::7] for index, subject in enumerate(subjects)}),
        "svamp": ("train+test", {None: (svamp[:700], svamp[700:])}),
        "aqua": ("test", {"raw": read("aqua/test.json")}),
        "sat_math": ("test", {None: sat}),
        "mmlu_math": ("test", {name: [row for row in mmlu if row["subject"] == name] for name in mmlu_subjects}),
    }


def write_hub_set(folder, splits, configs):
    import pyarrow
    import pyarrow.parquet

    lines = ["---", "configs:"]
    for config, rows in configs.items():
        lines += [f"- config_name: {config or 'default'}", "  data_files:"]
        for split, part in zip(splits.split("+"), rows if "+" in splits else [rows], strict=True):
            file = folder / (config or "data") / f"{split}-00000-of-00001.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(part), file)
            lines += [f"  - split: {split}", f"    path: {file.relative_to(folder)}"]
    (folder / "README.md").write_text("\n".join([*lines, "---", ""]))


@pytest.fixture
def datasets_cache(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return datasets


def test_the_names_are_the_rows():
    assert benchmarks.names() == list(COUNTS)
    for name in benchmarks.names():
        row = benchmarks.find(name)
        assert row.num_questions == COUNTS[name]
        assert row.files
        assert (row.hub is None) == (row.revision is None)
        assert row.hub is None or len(row.revision) == 40


@pytest.mark.parametrize("name", COUNTS)
def test_every_right_answer_parses_and_equals_itself_alone(name, data_dir):
    questions = benchmarks.load(name, data_dir=data_dir)
    assert len(questions) == COUNTS[name]
    assert len({question.id for question in questions}) == COUNTS[name]
    kind = benchmarks.find(name).kind
    for question, neighbour in zip(questions, questions[1:] + questions[:1], strict=True):
        assert question.text
        assert all(question.options)
        assert answers.equal(question.answer, question.answer, kind)
        is_same = float_or_text(question.answer) == float_or_text(neighbour.answer)
        assert answers.equal(question.answer, neighbour.answer, kind) == is_same
        if kind == "choice":
            assert answers.extract(f"The answer is ({question.answer}).", kind) == question.answer
        elif kind == "math":
            assert answers.extract(f"so $\\boxed{{{question.answer}}}$.", kind) == question.answer
        else:
            assert answers.equal(answers.extract(f"so\n#### {question.answer}", kind), question.answer, kind)


def float_or_text(answer):
    try:
        return float(answer.replace(",", ""))
    except ValueError:
        return answer


@pytest.mark.parametrize("name", [name for name in COUNTS if name != "simuleq"])
def test_hub_folders_hold_the_same(name, data_dir, hub_dir, datasets_cache):
    from_hub = benchmarks.load(name, data_dir=hub_dir)
    from_file = benchmarks.load(of_hub_texts(name), data_dir=data_dir)

    def content(questions):
        return sorted((question.text, question.options, float_or_text(question.answer)) for question in questions)

    assert content(from_hub) == content(from_file)


def of_hub_texts(name):
    """SAT's hub set has the texts of the second file."""
    row = benchmarks.find(name)
    return dataclasses.replace(row, files=row.files[-1:]) if name == "sat_math" else row


def test_without_a_folder_the_pinned_hub_set_is_asked_for(datasets_cache, monkeypatch):
    asked = []

    def load_dataset(name, config=None, *, split, revision):
        asked.append((name, config, split, revision))
        return [{"question": "1 + 1?", "choices": ["1", "2"], "answer": 1}] * 7

    monkeypatch.setattr(datasets_cache, "load_dataset", load_dataset)
    row = dataclasses.replace(benchmarks.find("mmlu_math"), num_questions=35)
    questions = benchmarks.load(row)
    assert questions[0] == Question(id="mmlu_math-1", text="1 + 1?", options=("1", "2"), answer="B")
    assert questions[-1].id == "mmlu_math-35"
    assert asked == [(row.hub, config, "test", row.revision) for config in row.configs]


def test_questions_as_they_should_be(data_dir):
    by_name = {name: benchmarks.load(name, data_dir=data_dir) for name in ("svamp", "aqua", "sat_math", "mmlu_math")}
    assert by_name["svamp"][1].text.endswith("If he had $ 4 at the start How much did the candy bar cost?")
    assert by_name["aqua"][29].options == ("59", "69", "79", "89", "99")  # "A)A)59"
    assert by_name["sat_math"][0] == Question(
        id="sat_math-1",
        text=r"If $\frac{x-1}{3}=k$ and $k=3$, what is the value of $x$ ?",
        options=("2", "4", "9", "10"),
        answer="D",
    )
    assert by_name["mmlu_math"][0].options == ("p = 4", "p = 8", "p = 12", "p = 24")
    assert by_name["mmlu_math"][0].answer == "C"


def test_a_yaml_file_is_a_benchmark(tmp_path):
    row = {"problem": "1/2 + 1/2?", "solution": r"It is $\boxed{1}$.", "answer": "1", "subject": "Algebra", "level": 1}
    (tmp_path / "rows.jsonl").write_text("\n".join([json.dumps(row)] * 3))
    (tmp_path / "math500.yaml").write_text(
        "name: math500\nkind: math\nfiles: rows.jsonl\nquestion: 'Solve: {problem}'\n"
        "answer: [answer]\nnum_questions: 3\n"
    )
    questions = benchmarks.load(tmp_path / "math500.yaml")
    assert questions[2] == Question(id="math500-3", text="Solve: 1/2 + 1/2?", answer="1")
    assert benchmarks.find(str(tmp_path / "math500.yaml")).files == (str(tmp_path / "rows.jsonl"),)


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        ("jsonl", '{"question": "1 + 1?", "answer": 2}\n{"question": "2 + 3?", "answer": "so\\n#### 5"}\n'),
        ("json", '[{"prompt": "1 + 1?", "completion": "2"}, {"prompt": "2 + 3?", "completion": "5"}]'),
        ("csv", "input,target\n1 + 1?,2\n2 + 3?,5\n"),
    ],
)
def test_a_file_of_numeric_answers_is_a_benchmark(tmp_path, ending, content):
    path = tmp_path / f"sums.{ending}"
    path.write_text(content)
    assert benchmarks.load(path) == [
        Question(id="sums-1", text="1 + 1?", answer="2"),
        Question(id="sums-2", text="2 + 3?", answer="5"),
    ]


@pytest.mark.parametrize(
    ("kind", "row", "answer"),
    [
        ("number", {"question": "q", "answer": r"so $\boxed{7}$"}, "7"),
        ("number", {"question": "q", "answer": 0.5}, "0.5"),
        ("math", {"problem": "q", "answer": r"\frac{1}{2}"}, r"\frac{1}{2}"),
        ("math", {"problem": "q", "solution": r"\fbox{5}"}, "5"),
        ("choice", {"question": "q", "options": ["(A) x", "(B) y"], "answer": "B"}, "B"),
        ("choice", {"question": "q", "options": ["x", "y"], "answer": "(b)"}, "B"),
        ("choice", {"question": "q", "options": ["x", "y"], "answer": "1"}, "B"),
        ("choice", {"question": "q", "choices": [3, 4.5], "answer": [0]}, "A"),
        ("choice", {"question": "q Answer Choices: (A) x (B) y", "answer": "A"}, "A"),
    ],
)
def test_usual_layouts_of_answers(tmp_path, kind, row, answer):
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    [question] = benchmarks.load(Benchmark(name="mine", kind=kind, files=("rows.json",)), data_dir=tmp_path)
    assert question.text == "q"
    assert question.answer == answer


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        ("number", {"question": "q", "answer": "seven"}, "expected one answer of kind 'number' in the field answer"),
        ("number", {"question": "q", "answer": "3 and 4"}, "got '3 and 4'"),
        ("number", {"question": "q", "answer": "#### 1 of 2"}, "got '#### 1 of 2'"),
        ("number", {"question": "q", "answer": None}, "got 'None'"),
        ("number", {"question": "q", "answer": True}, "got 'True'"),
        ("number", {"question": "q", "answer": {"a": 1}}, "expected one answer"),
        ("number", {"question": " ", "answer": "1"}, r"no question: expected texts for \{question\} or"),
        ("number", {"text": "q", "answer": "1"}, r"got the fields \['answer', 'text'\]"),
        ("number", ["q", "1"], "expected an object with a question and an answer, got a list"),
        ("math", {"problem": "q", "solution": "It follows. So it is 5"}, "expected one answer of kind 'math'"),
        ("math", {"problem": "q", "solution": r"\boxed{"}, "expected one answer of kind 'math'"),
        ("choice", {"question": "q", "options": ["x", "y"], "answer": "C"}, "the letter or index of one of 2 options"),
        ("choice", {"question": "q", "options": ["x", "y"], "answer": 2}, "one of 2 options"),
        ("choice", {"question": "q", "options": ["x", "y"], "answer": "x"}, "one of 2 options"),
        ("choice", {"question": "q", "options": ["x", "y"], "answer": ""}, "one of 2 options"),
        ("choice", {"question": "q", "options": ["x", "y"], "answer": [0, 1]}, "one of 2 options"),
        ("choice", {"question": "q", "answer": "A"}, "one of 0 options"),
        ("choice", {"question": "q Answer Choices: (A) x (C) y", "answer": "A"}, "one of 0 options"),
        ("choice", {"question": "q", "options": "x y", "answer": "A"}, "expected a list of options, got 'x y'"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, kind, row, message):
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    with pytest.raises(DatasetError, match=rf"rows\.json, row 1: .*{message}"):
        benchmarks.load(Benchmark(name="mine", kind=kind, files=("rows.json",)), data_dir=tmp_path)


def test_a_cut_file_is_refused(tmp_path):
    (tmp_path / "gsm8k").mkdir()
    (tmp_path / "gsm8k" / "test.jsonl").write_text('{"question": "1 + 1?", "answer": "#### 2"}')
    with pytest.raises(DatasetError, match="gsm8k has 1319 questions, got 1: the data is cut"):
        benchmarks.load("gsm8k", data_dir=tmp_path)


def test_absent_files_are_named(tmp_path, monkeypatch):
    with pytest.raises(DatasetError, match=r"gsm8k: expected .*gsm8k/test\.jsonl or .*openai/gsm8k, found nothing"):
        benchmarks.load("gsm8k", data_dir=tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatasetError, match=r"simuleq/simuleq\.json, found nothing .* it is no hub set: pass"):
        benchmarks.load("simuleq")


@pytest.mark.parametrize("name", ["gsm9k", "", "math.txt"])
def test_unknown_benchmarks(name):
    with pytest.raises(ValueError, match=r"unknown benchmark .* Choices: gsm8k, math, .*, a YAML or data file"):
        benchmarks.load(name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("kind: number\nfiles: a.json", "expected a text in the field 'name', got None"),
        ("name: mine\nkind: 3\nfiles: a.json", "expected a text in the field 'kind', got 3"),
        ("name: mine\nkind: numbers\nfiles: a.json", "unknown kind of answer 'numbers', did you mean 'number'"),
        ("name: mine\nkind: number", "must name a hub set or a file, got neither"),
        ("name: mine\nkind: number\nfile: a.json", "unknown field 'file', did you mean 'files'"),
        ("name: mine\nkind: number\nfiles: [1]", r"files of benchmark 'mine' must be a tuple of texts, got \(1,\)"),
        ("name: mine\nkind: number\nfiles: a.json\nnum_questions: many", "num_questions of .* must be int, got 'many'"),
        ("- name", "expected the fields of a benchmark, got a list"),
        ("name: [", "cannot be read as YAML"),
        ("name: !!python/object/apply:os.getcwd []", "cannot be read as YAML"),
        ("[" * 100_000, "cannot be read as YAML"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_a_yaml_file_that_describes_no_benchmark(tmp_path, content, message):
    (tmp_path / "mine.yml").write_text(content)
    with pytest.raises(DatasetError, match=rf"mine\.yml: .*{message}"):
        benchmarks.find(tmp_path / "mine.yml")


def test_yaml_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"reading YAML files .* pip install 'digitloss\[eval\]'"):
        benchmarks.find(tmp_path / "mine.yaml")
