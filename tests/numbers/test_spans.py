"""The place of every digit: the tables of the grammar on every tokenizer, and random texts against plain text."""

import itertools
import json
import random
import re

import pytest
import torch
from transformers import AutoTokenizer

import digitloss as dl
from digitloss.numbers import find_digits
from fakes import FAMILIES, TOKENIZERS, encode, letters_vocab
from grammar import places_of_text

PLACES = {
    "7": [0],
    "1234": [3, 2, 1, 0],
    "0.001": [0, -1, -2, -3],
    "12.34": [1, 0, -1, -2],
    ".5": [-1],
    "=.5": [-1],
    "Rs.360": [2, 1, 0],
    "a.1": [0],
    "..5": [0],
    "5.": [0],
    "It is 5. Then": [0],
    "1,234.5": [3, 2, 1, 0, -1],
    "12,345,678": [7, 6, 5, 4, 3, 2, 1, 0],
    "1,23": [0, 1, 0],
    "1,2,3": [0, 0, 0],
    "1,234,56": [0, 2, 1, 0, 1, 0],
    "0,123": [0, 2, 1, 0],
    "3 4 and 12 7": [0, 0, 1, 0, 0],
    "1.2.3": [0, 0, 0],
    "192.168.0.1": [2, 1, 0, 2, 1, 0, 0, 0],
    "2024-01-15": [3, 2, 1, 0, 1, 0, 1, 0],
    "-0.75": [0, -1, -2],
    "1e-5": [0, 0],
    "3/4": [0, 0],
    "12345": [4, 3, 2, 1, 0],
    "1 2": [0, 0],
    "3.14": [0, -1, -2],
    "5..7": [0, 0],
    "1.5,234": [0, -1, 2, 1, 0],
    "1,234.5.6": [0, 2, 1, 0, 0, 0],
    "50%": [1, 0],
}


def read_all(vocab, tokenizer, texts):
    """Digits of each text, and their places as pairs, from one padded batch of label rows."""
    ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    labels = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids], True, -100)
    found = find_digits(vocab, labels)
    for row in zip(found.is_digit, found.value, found.place, found.part_place, strict=True):
        is_digit, *values = row
        digits, places, part_places = (value[is_digit].tolist() for value in values)
        yield digits, list(zip(places, part_places, strict=True))


def read(vocab, tokenizer, text):
    return next(read_all(vocab, tokenizer, [text]))


def digits_of(text):
    return [int(c) for c in re.findall("[0-9]", text)]


@pytest.fixture(scope="module", params=sorted(TOKENIZERS))
def in_memory(request):
    tokenizer = TOKENIZERS[request.param]()
    return tokenizer, dl.NumberVocab.from_tokenizer(tokenizer)


@pytest.fixture(scope="module", params=FAMILIES)
def real(request, shared):
    tokenizer = AutoTokenizer.from_pretrained(shared / "tokenizers" / request.param)
    return tokenizer, dl.NumberVocab.from_tokenizer(tokenizer)


def random_text(rng):
    """Words, signs and numbers of every form, some glued together, as ASCII and accented text."""
    integer = "".join(rng.choices("0123456789", k=rng.randint(1, 7)))
    grouped = f"{rng.randint(1, 999)}" + "".join(f",{rng.randint(0, 999):03}" for _ in range(rng.randint(1, 3)))
    decimals = "".join(rng.choices("0123456789", k=rng.randint(1, 5)))
    pieces = [
        integer,
        grouped,
        f"{integer}.{decimals}",
        f"{grouped}.{decimals}",
        f".{decimals}",
        f"{rng.randint(0, 9)}.{rng.randint(0, 99)}.{rng.randint(0, 99)}",
        f"{rng.randint(1, 99)},{rng.randint(1, 9999)}",
        *["cost", "Rs", "é", "naïve", "x", "1e", "$", "%", "-", "(", ")", "/", ".", ",", "..", ":", "=", "\n", " "],
    ]
    return "".join(rng.choice(pieces) + rng.choice(["", "", " ", " ", ". ", ", "]) for _ in range(rng.randint(1, 8)))


@pytest.mark.parametrize("text", PLACES)
def test_the_plain_parser_of_the_tests_reads_the_table(text):
    assert [place for place, _ in places_of_text(text)] == PLACES[text]


def test_places_of_the_table_in_memory(in_memory):
    tokenizer, vocab = in_memory
    for (text, places), (digits, found) in zip(PLACES.items(), read_all(vocab, tokenizer, PLACES), strict=True):
        assert (text, digits, [place for place, _ in found]) == (text, digits_of(text), places)


def test_places_of_the_table_on_real_tokenizers(real):
    tokenizer, vocab = real
    for (text, places), (digits, found) in zip(PLACES.items(), read_all(vocab, tokenizer, PLACES), strict=True):
        assert (text, digits, [place for place, _ in found]) == (text, digits_of(text), places)


def test_random_texts_in_memory(in_memory):
    tokenizer, vocab = in_memory
    rng = random.Random(0)
    texts = [random_text(rng).replace("é", "e").replace("ï", "i").replace("\n", " ") for _ in range(1000)]
    for text, found in zip(texts, read_all(vocab, tokenizer, texts), strict=True):
        assert (text, found) == (text, (digits_of(text), places_of_text(text)))


def test_thousand_random_texts_on_real_tokenizers(real):
    tokenizer, vocab = real
    rng = random.Random(1)
    texts = [random_text(rng) for _ in range(1000)]
    for text, found in zip(texts, read_all(vocab, tokenizer, texts), strict=True):
        assert (text, found) == (text, (digits_of(text), places_of_text(text)))


def test_random_pieces_as_tokens():
    """Any cut of a text into tokens reads the same: what a token drops of its characters cannot matter."""
    rng = random.Random(2)
    texts = ["".join(rng.choices("0012359.,., a-é", k=rng.randint(1, 16))) for _ in range(1500)]
    cuts = []
    for text in texts:
        points = sorted({0, len(text), *rng.sample(range(len(text) + 1), k=min(3, len(text)))})
        cuts.append([text[i:j] for i, j in itertools.pairwise(points)])
    tokens = sorted({piece for cut in cuts for piece in cut} | {"0"})
    ids = {token: i for i, token in enumerate(tokens)}
    vocab = dl.NumberVocab.from_tokens(tokens)
    for text, cut in zip(texts, cuts, strict=True):
        table = dl.place_table(vocab, [ids[piece] for piece in cut])
        found = [pair for token in table for pair in zip(token.places, token.part_places, strict=True)]
        assert (text, cut, found) == (text, cut, places_of_text(text))


@pytest.mark.parametrize(
    ("decimal_point", "thousands_separator", "text", "places"),
    [
        (",", ".", "1.234,5", [3, 2, 1, 0, -1]),
        (",", ".", "3,14", [0, -1, -2]),
        (",", ".", "1.23", [0, 1, 0]),
        (".", None, "[110,250]", [2, 1, 0, 2, 1, 0]),
        (".", ",", "[110,250]", [5, 4, 3, 2, 1, 0]),
        (None, ",", "12.34", [1, 0, 1, 0]),
        (",", " ", "12 345,6", [4, 3, 2, 1, 0, -1]),
        (".", "'", "1'234.5", [3, 2, 1, 0, -1]),
    ],
)
def test_other_marks(decimal_point, thousands_separator, text, places):
    tokenizer = TOKENIZERS["one_digit"]()
    vocab = dl.NumberVocab.from_tokenizer(
        tokenizer, decimal_point=decimal_point, thousands_separator=thousands_separator
    )
    _, found = read(vocab, tokenizer, text)
    assert [place for place, _ in found] == places
    assert found == places_of_text(text, decimal_point, thousands_separator)


@pytest.mark.parametrize(
    ("text", "part_places"), [("12.345", [1, 0, 2, 1, 0]), ("1,234.50", [3, 2, 1, 0, 1, 0]), (".25", [1, 0])]
)
def test_a_point_starts_a_new_part(text, part_places):
    tokenizer = TOKENIZERS["one_digit"]()
    _, found = read(dl.NumberVocab.from_tokenizer(tokenizer), tokenizer, text)
    assert [part for _, part in found] == part_places


def places_of(vocab, labels, position_ids=None):
    found = find_digits(vocab, labels, position_ids)
    return [found.place[row][found.is_digit[row]].tolist() for row in range(len(labels))]


def test_a_number_ends_at_a_rows_end_and_at_an_ignored_label():
    vocab = letters_vocab()
    labels = torch.cat([encode(vocab, "12_34"), encode(vocab, "56.78"), encode(vocab, "_.5_9")])
    assert places_of(vocab, labels) == [[1, 0, 1, 0], [1, 0, -1, -2], [-1, 0]]


def test_a_number_ends_where_a_packed_sample_starts():
    vocab = letters_vocab()
    labels = encode(vocab, "1234.5,678")
    position_ids = torch.tensor([[0, 1, 0, 1, 2, 0, 1, 2, 3, 4]])
    assert places_of(vocab, labels) == [[3, 2, 1, 0, -1, 2, 1, 0]]
    assert places_of(vocab, labels, position_ids) == [[1, 0, 1, 0, 3, 2, 1, 0]]


def test_padding_changes_nothing():
    vocab = letters_vocab()
    labels = encode(vocab, "a1,234.5 7")
    padded = torch.nn.functional.pad(labels, (3, 4), value=-100)
    assert places_of(vocab, padded) == places_of(vocab, labels)


def test_ids_beyond_the_vocabulary_hold_no_digit():
    vocab = letters_vocab()
    labels = torch.cat([encode(vocab, "1"), torch.tensor([[999]]), encode(vocab, "2")], 1)
    assert [token.places for token in dl.place_table(vocab, labels[0])] == [(0,), (), (0,)]


def test_place_table_takes_one_row(shapes_unchecked):
    with pytest.raises(ValueError, match=r"one row of ids, got shape \(1, 2\)"):
        dl.place_table(letters_vocab(), torch.tensor([[1, 2]]))


def _texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def data_texts(shared):
    for path in sorted((shared / "data").rglob("*.json*")):
        content = path.read_text(encoding="utf-8")
        try:
            yield path, list(_texts(json.loads(content)))
        except json.JSONDecodeError:
            yield path, [text for line in content.splitlines() if line for text in _texts(json.loads(line))]


def normalized(tokenizer, text):
    """The text as the tokenizer sees it: T5 makes "2" of a superscript two."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    return normalizer.normalize_str(text) if normalizer else text


@pytest.mark.parametrize("family", ["qwen2.5", "llama3", "gpt2", "t5", "llama2"])
def test_every_digit_of_the_data_files_is_seen(shared, family):
    tokenizer = AutoTokenizer.from_pretrained(shared / "tokenizers" / family)
    vocab = dl.NumberVocab.from_tokenizer(tokenizer)
    tables = vocab.tables()
    num_digits = (tables.value >= 0).sum(-1)
    files = 0
    for path, texts in data_texts(shared):
        rows = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        ids = torch.tensor([i for row in rows for i in row])
        seen = int(num_digits[tables.column[ids]].sum())
        texts = [normalized(tokenizer, text) for text in texts]
        assert (path.name, seen) == (path.name, sum(len(re.findall("[0-9]", text)) for text in texts))
        files += 1
    assert files >= 15
