"""One token for each printable ASCII character, and every text comes back as it was."""

import random

import pytest

from digitloss.data.characters import character_tokenizer
from digitloss.data.problems import generate_problems

pytest.importorskip("transformers")

PRINTABLE = "".join(map(chr, range(32, 127)))


@pytest.fixture(scope="module")
def tokenizer():
    return character_tokenizer()


def test_one_token_a_character(tokenizer) -> None:
    ids = tokenizer(PRINTABLE)["input_ids"]
    assert len(ids) == len(set(ids)) == 95
    assert [tokenizer.decode([token]) for token in ids] == list(PRINTABLE)
    assert len(tokenizer) == tokenizer.vocab_size == 97


def test_special_tokens(tokenizer) -> None:
    special = {tokenizer.pad_token_id, tokenizer.eos_token_id}
    assert len(special) == 2
    assert special.isdisjoint(tokenizer(PRINTABLE)["input_ids"])
    assert set(tokenizer.all_special_ids) == special
    assert tokenizer.bos_token is None


def test_nothing_is_added_and_the_end_can_be_written(tokenizer) -> None:
    assert len(tokenizer("12.5")["input_ids"]) == 4
    assert tokenizer("5" + tokenizer.eos_token)["input_ids"] == [*tokenizer("5")["input_ids"], tokenizer.eos_token_id]


def test_special_tokens_can_be_skipped(tokenizer) -> None:
    ids = [*tokenizer(" 12.5 ")["input_ids"], tokenizer.eos_token_id, tokenizer.pad_token_id]
    assert tokenizer.decode(ids, skip_special_tokens=True) == " 12.5 "


def test_padding_is_masked(tokenizer) -> None:
    batch = tokenizer(["1", "23"], padding=True)
    assert batch["input_ids"][0][1:] == [tokenizer.pad_token_id]
    assert batch["attention_mask"] == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    "text", ["", " ", "   ", " a  b ", "x , . ! ? 's n't", "<pad><eos></s>", "don ' t", "1 ,234 .5", "##1 @@"]
)
def test_round_trip_of_texts_that_a_clean_up_would_change(tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_round_trip_of_random_text(tokenizer) -> None:
    generator = random.Random(0)
    for _ in range(500):
        text = "".join(generator.choices(PRINTABLE + " " * 30, k=generator.randint(1, 80)))
        ids = tokenizer(text)["input_ids"]
        assert len(ids) == len(text)
        assert tokenizer.decode(ids) == text


def test_round_trip_of_problems(tokenizer) -> None:
    texts = [f"{problem.question} {problem.answer}" for problem in generate_problems(200, seed=0)]
    assert tokenizer.batch_decode(tokenizer(texts)["input_ids"]) == texts


@pytest.mark.parametrize("text", ["é", "12\n", "1\t2", "\N{FULLWIDTH DIGIT FIVE}"])
def test_other_characters_are_refused_not_lost(tokenizer, text: str) -> None:
    with pytest.raises(Exception, match="UNK"):
        tokenizer(text)
