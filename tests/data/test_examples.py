"""Instruction files: every usual layout is read, and a bad row is named."""

import json

import pyarrow
import pyarrow.parquet
import pytest

from digitloss.data import Example, encode_examples, read_examples
from digitloss.errors import DatasetError
from fakes import one_digit_tokenizer


@pytest.mark.parametrize("pair", [("instruction", "output"), ("question", "answer"), ("prompt", "completion")])
def test_field_pairs_and_layouts(tmp_path, pair):
    rows = [{pair[0]: "What is 1/2?", pair[1]: "0.5", "other": None}, {pair[0]: "2 {x}?", pair[1]: 0.50}]
    expected = [Example(prompt="What is 1/2?", completion="0.5"), Example(prompt="2 {x}?", completion="0.50")]
    as_list, as_lines = tmp_path / "a.json", tmp_path / "b.json"
    text = json.dumps(rows).replace('": 0.5}', '": 0.50}')
    as_list.write_text(text)
    as_lines.write_text("\n".join(text[1:-1].replace("}, {", "}\n{").splitlines()) + "\n\n")
    assert read_examples(as_list) == expected
    assert read_examples(str(as_lines)) == expected


def test_one_line_is_one_row(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"question": "q\\u2028", "answer": "1"}\n')
    assert read_examples(tmp_path / "a.jsonl") == [Example(prompt="q\u2028", completion="1")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '{"question": "q", "answer": "1"}\n{"question": "q"}',
            "line 2: no answer: expected text in the field 'answer'",
        ),
        ('[{"question": "q", "answer": "1"}, {"question": "q", "answer": " "}]', "row 2: no answer: .* got ' '"),
        ('[{"question": "", "answer": "1"}]', "row 1: no prompt"),
        ('[{"question": "q", "answer": ["1"]}]', r"row 1: no answer: .* got \['1'\]"),
        (
            '[{"text": "q"}]',
            r"row 1: no prompt: expected messages or one of the field pairs .* got the fields \['text'\]",
        ),
        ("[3]", "row 1: expected an object with a prompt and an answer, got a str"),
        ('{"question": "q", "answer": "1"}\n{"question"', "line 2: not valid JSON"),
        ("", "no rows"),
        ("[]", "no rows"),
        ('[{"question": "q\\ud800", "answer": "1"}]', "row 1: the prompt is no valid text"),
        ('{"question": "q", "answer": NaN}', "line 1: not valid JSON"),
        ("[" * 100_000, "nested too deeply to be read"),
        ("true", "expected a JSON list or JSON lines of objects, got a bool"),
    ],
)
def test_a_bad_row_is_named_with_its_file(tmp_path, content, message):
    path = tmp_path / "problems.jsonl"
    path.write_text(content)
    with pytest.raises(DatasetError, match=f"problems.jsonl(, |: ){message}"):
        read_examples(path)


@pytest.mark.parametrize(
    ("row", "prompt"),
    [
        ({"instruction": "Add.", "input": "1 + 1", "output": "2"}, "Add.\n1 + 1"),
        ({"instruction": "Add.", "input": "", "output": "2"}, "Add."),
        ({"instruction": "Add.", "input": None, "output": "2"}, "Add."),
        ({"prompt": "x", "question": "1 + 1", "answer": "2"}, "1 + 1"),
        ({"messages": [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "2"}]}, "1 + 1"),
        (
            {
                "messages": [
                    {"role": "system", "content": "Add."},
                    {"role": "user", "content": "1 + 1"},
                    {"role": "assistant", "content": "2"},
                ]
            },
            "Add.\n\n1 + 1",
        ),
        (
            {
                "prompt": [{"role": "user", "content": "1 + 1"}],
                "completion": [{"role": "assistant", "content": "2"}],
            },
            "1 + 1",
        ),
    ],
)
def test_nothing_of_a_row_is_dropped(tmp_path, row, prompt):
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    assert read_examples(tmp_path / "a.jsonl") == [Example(prompt=prompt, completion="2")]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"instruction": "Add.", "input": ["1"], "output": "2"}, r"no input: expected text in the field 'input'"),
        ({"messages": [{"role": "assistant", "content": "2"}]}, "expected at least two messages"),
        ({"messages": "2"}, "expected at least two messages, got '2'"),
        ({"messages": [{"role": "user", "content": "1"}] * 2}, "expected a text of the role assistant, got"),
        ({"messages": [{"role": "user", "content": ""}, {}]}, "expected a text of the role system or user, got"),
        (
            {"messages": [{"role": r, "content": "1"} for r in ("user", "assistant", "user", "assistant")]},
            "expected a text of the role system or user, got .* several turns",
        ),
    ],
)
def test_a_row_that_would_lose_something_is_refused(tmp_path, row, message):
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    with pytest.raises(DatasetError, match=rf"a\.jsonl, line 1: {message}"):
        read_examples(tmp_path / "a.jsonl")


def test_csv_keeps_digits_and_line_breaks(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'question,answer\r\n"Two\nlines, 007?",0.50\r\nq,1e3\r\n')
    expected = [Example(prompt="Two\nlines, 007?", completion="0.50"), Example(prompt="q", completion="1e3")]
    assert read_examples(tmp_path / "a.csv") == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("question,answer\nq\n", "line 2: expected 2 fields as in the first line"),
        ("question,answer\nq,1,2\n", "line 2: expected 2 fields as in the first line"),
        ('question,answer\nq,"1"x\n', "after line 1: not valid CSV"),
        ("question,answer\n", "no rows"),
    ],
)
def test_a_bad_line_of_csv_is_named(tmp_path, content, message):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(DatasetError, match=rf"a\.csv(, |: ){message}"):
        read_examples(tmp_path / "a.csv")


def test_parquet(tmp_path):
    table = pyarrow.table({"question": ["q", "r"], "answer": ["0.50", "2"]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    expected = [Example(prompt="q", completion="0.50"), Example(prompt="r", completion="2")]
    assert read_examples(tmp_path / "a.parquet") == expected
    (tmp_path / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(DatasetError, match=r"b\.parquet: cannot be read as Parquet"):
        read_examples(tmp_path / "b.parquet")


def test_numbers_of_typed_columns_are_answers(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"input": ["q"], "target": [14.5]}), tmp_path / "a.parquet")
    assert read_examples(tmp_path / "a.parquet") == [Example(prompt="q", completion="14.5")]


def test_a_hub_set_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"question": "q", "answer": "0.50"}\n')
    (folder / "test.jsonl").write_text('{"question": "r", "answer": "1"}\n')
    assert read_examples(folder) == [Example(prompt="q", completion="0.50")]
    assert read_examples(folder, split="test") == [Example(prompt="r", completion="1")]
    with pytest.raises(DatasetError, match=r"set: neither a file nor a hub set .*split 'tset'"):
        read_examples(folder, split="tset")


def test_a_hub_name_is_asked_of_the_hub(monkeypatch):
    asked = []

    def load(*arguments, **options):
        asked.append((arguments, options))
        return [{"question": "q", "answer": "#### 5"}]

    monkeypatch.setattr("datasets.load_dataset", load)
    assert read_examples("openai/gsm8k", config="main") == [Example(prompt="q", completion="#### 5")]
    assert asked == [(("openai/gsm8k", "main"), {"split": "train", "revision": None})]
    read_examples("teknium/OpenHermes-2.5")
    assert asked[1] == (("teknium/OpenHermes-2.5", None), {"split": "train", "revision": None})


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(DatasetError, match=r"absent\.json: cannot be read"):
        read_examples(tmp_path / "absent.json")
    (tmp_path / "latin.json").write_bytes(b'[{"question": "caf\xe9"}]')
    with pytest.raises(DatasetError, match=r"latin\.json: cannot be read as UTF-8"):
        read_examples(tmp_path / "latin.json")


def test_rows_are_trained_on_the_completion_alone():
    tokenizer = one_digit_tokenizer()
    (row,) = encode_examples(tokenizer, [Example(prompt="{1}+1", completion="2.5")], template="Q:{prompt}=")
    assert tokenizer.decode(row["input_ids"], skip_special_tokens=False) == "Q:{1}+1=2.5</s>"
    targets = [label for label in row["labels"] if label != -100]
    assert tokenizer.decode(targets, skip_special_tokens=False) == "2.5</s>"
    assert row["labels"][: -len(targets)] == [-100] * len("Q:{1}+1=")


def test_rows_are_never_cut():
    examples = [Example(prompt="a", completion="1"), Example(prompt="abc", completion="12")]
    tokenizer = one_digit_tokenizer()
    assert len(encode_examples(tokenizer, examples, max_length=7)) == 2
    with pytest.raises(DatasetError, match="example 1 has 7 tokens, more than max_length=6"):
        encode_examples(tokenizer, examples, max_length=6)


def test_bad_options():
    tokenizer = one_digit_tokenizer()
    with pytest.raises(ValueError, match=r"template must contain \{prompt\}, got 'Q: '"):
        encode_examples(tokenizer, [], template="Q: ")
    tokenizer.eos_token = None
    with pytest.raises(ValueError, match="no eos_token_id"):
        encode_examples(tokenizer, [])


@pytest.mark.parametrize(
    ("file", "num_rows"),
    [("gsm8k/train.jsonl", 7473), ("mawps/singleop.jsonl", 562), ("deepmind_mathematics/train.jsonl", 15300)],
)
def test_real_files(shared, file, num_rows):
    assert len(read_examples(shared / "data" / "train" / file)) == num_rows
