"""Tokens of several digits: the exact conditional digit probability, against sums over the family written out."""

import json
import math

import pytest
import torch
from transformers import AutoTokenizer

import digitloss as dl
from digitloss.losses._digits import select_digits
from digitloss.numbers import TokenDigits, find_digits
from fakes import three_digit_tokenizer


def brute_force(vocab, token_id, logits):
    """(p, BCE logit) of the ten classes of each digit of a token, by sums over the tokens of its family."""
    text = vocab.tokens[token_id]
    slots = [i for i, c in enumerate(text) if c in "0123456789"]

    def pattern(other):
        return None if other is None else "".join("\0" if c in "0123456789" else c for c in other)

    family = [i for i, other in enumerate(vocab.tokens) if pattern(other) == pattern(text)]
    for k, slot in enumerate(slots):
        agree = [i for i in family if all(vocab.tokens[i][s] == text[s] for s in slots[:k])]
        weights, means = [], []
        for digit in range(10):
            members = [logits[i].item() for i in agree if vocab.tokens[i][slot] == str(digit)]
            weights.append(math.fsum(math.exp(z) for z in members))
            means.append(math.log(weights[-1] / len(members)) if members else None)
        yield int(text[slot]), [w / math.fsum(weights) for w in weights], means


def digits_of(vocab, token_ids, logits):
    """What the losses read for each of some target tokens, each predicted by one row of logits."""
    found = find_digits(vocab, torch.tensor(token_ids)[:, None])
    return select_digits(vocab.tables(), found, logits[:, vocab.tables().token_ids])


def check(vocab, token_ids, logits):
    digits, has_term = digits_of(vocab, token_ids, logits)
    num_slots = len(digits.target) // len(token_ids)
    num_checked = 0
    for row, token_id in enumerate(token_ids):
        for k, (target, p, means) in enumerate(brute_force(vocab, token_id, logits[row])):
            m = row * num_slots + k
            possible = [mean is not None for mean in means]
            assert has_term[m] == (sum(possible) >= 2)
            if not has_term[m]:
                continue
            num_checked += 1
            assert digits.target[m] == target
            assert digits.is_possible[m].tolist() == possible
            assert digits.logits[m].softmax(0).tolist() == pytest.approx(p, rel=1e-5, abs=1e-12)
            got = [z for z, is_possible in zip(digits.token_logits[m].tolist(), possible, strict=True) if is_possible]
            assert got == pytest.approx([mean for mean in means if mean is not None], rel=1e-5, abs=1e-5)
            del_term = sum(
                p[d] * (math.log1p(math.exp(means[d])) - (d == target) * means[d]) for d in range(10) if possible[d]
            )
            loss = dl.losses.load("digit_entropy", place="none").digit_loss(digits)[m]
            assert loss.item() == pytest.approx(del_term, rel=1e-5)
    return num_checked


def test_in_memory_family():
    vocab = dl.NumberVocab.from_tokenizer(three_digit_tokenizer())
    token_ids = [vocab.tokens.index(text) for text in ("7", "42", "042", "999", "100")]
    logits = 3 * torch.randn(len(token_ids), len(vocab), dtype=torch.float64)
    assert check(vocab, token_ids, logits) == 1 + 2 + 3 + 3 + 3


@pytest.mark.parametrize(
    ("family", "texts"),
    [
        ("llama3", ["0", "9", "00", "47", "000", "123", "905", "999"]),
        ("gpt2", ["3", " 3", "47", " 47", "123", " 1999", "2014", " 2014", "666", "0000", "999999"]),
        ("t5", ["7", " 7", "2.0", "-15", " 1,", "186", "000"]),
    ],
)
def test_real_families(shared, family, texts):
    vocab = dl.NumberVocab.from_tokenizer(AutoTokenizer.from_pretrained(shared / "tokenizers" / family))
    ids = {text: i for i, text in enumerate(vocab.tokens)}
    token_ids = [ids[text] for text in texts if text in ids]
    assert len(token_ids) >= 7
    generator = torch.Generator().manual_seed(0)
    logits = 4 * torch.randn(len(token_ids), len(vocab), dtype=torch.float64, generator=generator) - 3
    assert check(vocab, token_ids, logits) >= 10


def test_two_tokens_one_digit_at_a_time():
    # family "##" = {12, 13, 45}: the first digit is 1 with 2 of 3 equal tokens, then 2 or 3 with one each
    vocab = dl.NumberVocab.from_tokens(["a", "12", "13", "45"])
    (digits, has_term) = digits_of(vocab, [1, 3], torch.zeros(2, 4, dtype=torch.float64))
    assert has_term.tolist() == [True, True, True, False]
    assert digits.logits.softmax(-1)[0, [1, 4]].tolist() == pytest.approx([2 / 3, 1 / 3])
    assert digits.logits.softmax(-1)[1, [2, 3]].tolist() == pytest.approx([1 / 2, 1 / 2])
    assert digits.token_logits[0, [1, 4]].tolist() == pytest.approx([0, 0])


def test_equal_texts_add_up():
    vocab = dl.NumberVocab.from_tokens(["1", "2", "1"])
    digits, _ = digits_of(vocab, [0], torch.zeros(1, 3, dtype=torch.float64))
    assert digits.logits.softmax(-1)[0, [1, 2]].tolist() == pytest.approx([2 / 3, 1 / 3])


def test_far_apart_logits_stay_exact():
    """A group 2,000 nats below another still has its own logit and gradient."""
    vocab = dl.NumberVocab.from_tokens(["10", "11", "20", "21"])
    logits = torch.tensor([[1000.0, 1000.0, -1000.0, -1001.0]], requires_grad=True)
    digits, _ = digits_of(vocab, [2], logits)
    assert digits.logits[0, 2].item() == pytest.approx(-1000 + math.log1p(math.exp(-1)))
    (gradient,) = torch.autograd.grad(digits.logits[0, 2], logits)
    assert gradient[0].tolist() == pytest.approx([0, 0, 1 / (1 + math.exp(-1)), 1 / (1 + math.e)])


def test_a_multi_digit_token_weighs_each_of_its_places(shared):
    """Llama-3's "123" at places 2, 1, 0: the sum of three digit terms, each with its weight."""
    vocab = dl.NumberVocab.from_tokenizer(AutoTokenizer.from_pretrained(shared / "tokenizers" / "llama3"))
    labels = torch.tensor([[vocab.tokens.index("a"), vocab.tokens.index("123")]])
    logits = torch.zeros(1, 2, len(vocab))
    terms = dl.Objective(vocab).terms(logits, labels)
    assert terms.numeric[0, 0].item() == pytest.approx((3 + 2 + 1) * math.log(2), rel=1e-5)
    assert terms.num_digits.tolist() == [[3]]


def test_found_digits_and_tokens_agree(shared):
    """The tables that the losses read are those of the grammar: same shape, same digits."""
    vocab = dl.NumberVocab.from_tokens(json.loads('["1", "23", "4.5"]'))
    found = find_digits(vocab, torch.tensor([[0, 1, 2]]))
    assert isinstance(found, TokenDigits)
    assert found.value.tolist() == [[[1, -1], [2, 3], [4, 5]]]
    assert found.place[0, 2].tolist() == [0, -1]
