"""Instruction files: every usual layout is read, and a bad row is named."""

import json

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
        ('[{"text": "q"}]', r"row 1: no prompt: expected one of the field pairs .* got the fields \['text'\]"),
        ("[3]", "row 1: expected an object with a prompt and an answer, got a str"),
        ('{"question": "q", "answer": "1"}\n{"question"', "line 2: not valid JSON"),
        ("", "no rows"),
        ("[]", "no rows"),
        ("true", "expected a JSON list or JSON lines of objects, got a bool"),
    ],
)
def test_a_bad_row_is_named_with_its_file(tmp_path, content, message):
    path = tmp_path / "problems.jsonl"
    path.write_text(content)
    with pytest.raises(DatasetError, match=f"problems.jsonl(, |: ){message}"):
        read_examples(path)


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
