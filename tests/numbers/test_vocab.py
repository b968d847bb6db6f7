"""What each token holds: families, holes, and tokens whose digits do not count."""

import copy

import pytest
import torch
from transformers import AutoTokenizer

import digitloss as dl
from digitloss.errors import TokenizerError
from fakes import FAMILIES, TOKENIZERS, no_digit_tokenizer, one_digit_tokenizer


class SlowTokenizer:
    """A tokenizer in plain Python, as slow ones are: SentencePiece pieces, byte fallback, added and special tokens."""

    pieces = (
        *[
            "<s>",
            "</s>",
            "▁",
            "a",
            "<0x31>",
            "<0x0A>",
            "<0xC3>",
            "1",
            "2",
            "▁3",
            ".",
            "<unused7>",
            "[DOC_4]",
            "<tool9>",
        ],
        "<b>",
    )
    special, added = (0, 1), {13: "<tool9>", 14: "<b>"}

    def __len__(self):
        return len(self.pieces)

    def get_vocab(self):
        return {piece: i for i, piece in enumerate(self.pieces)}

    @property
    def all_special_ids(self):
        return list(self.special)

    @property
    def added_tokens_decoder(self):
        return dict(self.added)

    def decode(self, token_ids, *, skip_special_tokens, clean_up_tokenization_spaces):
        assert not skip_special_tokens
        assert not clean_up_tokenization_spaces
        text = ""
        for i in token_ids:
            piece = self.pieces[i]
            if piece.startswith("<0x"):
                piece = chr(int(piece[3:5], 16)) if int(piece[3:5], 16) < 128 else "\ufffd"
            text += piece.replace("▁", " ")
        return text.removeprefix(" ")


@pytest.mark.parametrize("family", FAMILIES)
def test_ten_one_digit_tokens_on_every_real_tokenizer(shared, family):
    vocab = dl.NumberVocab.from_tokenizer(AutoTokenizer.from_pretrained(shared / "tokenizers" / family))
    one_digit = [f for f in vocab.describe().families if f.pattern == "#"]
    assert [(f.num_tokens, f.num_holes, f.num_lone_digits) for f in one_digit] == [(10, 0, 0)]


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("llama3", {"#": 10, "##": 100, "###": 1000}),
        ("gpt2", {"#": 10, " #": 10, "##": 100, "###": 777, "####": 94}),
        ("qwen2.5", {"#": 10}),
        ("t5", {"#": 10, " #": 9, "##": 100, "###": 186, "####": 30}),
    ],
)
def test_families_of_real_tokenizers(shared, family, expected):
    summary = dl.NumberVocab.from_tokenizer(AutoTokenizer.from_pretrained(shared / "tokenizers" / family)).describe()
    sizes = {f.pattern: f.num_tokens for f in summary.families}
    assert {pattern: sizes[pattern] for pattern in expected} == expected
    holes = {f.pattern: f.num_holes for f in summary.families}
    assert all(holes[pattern] == 10 ** pattern.count("#") - size for pattern, size in expected.items())


def test_t5_glues_signs_and_points_to_digits(shared):
    summary = dl.NumberVocab.from_tokenizer(AutoTokenizer.from_pretrained(shared / "tokenizers" / "t5")).describe()
    assert {"#.", "-##", " #,"} <= {f.pattern for f in summary.families}


def test_a_slow_tokenizer_is_read_in_context():
    vocab = dl.NumberVocab.from_tokenizer(SlowTokenizer())
    assert vocab.tokens == (
        *[None, None, " ", "a", None, "\n", "\ufffd", "1", "2", " 3", ".", None, None, None],
        "<b>",
    )
    table = dl.place_table(vocab, [7, 2, 8, 9, 4, 11, 12, 13])
    assert [token.digits for token in table] == [(1,), (), (2,), (3,), (), (), (), ()]
    assert [token.places for token in table[:4]] == [(0,), (), (0,), (0,)]


def test_a_fragment_of_a_character_counts_as_a_letter_and_a_line_break_does_not():
    vocab = dl.NumberVocab.from_tokenizer(SlowTokenizer())
    after_fragment, after_line_break = (dl.place_table(vocab, [first, 10, 7])[2].places for first in (6, 5))
    assert (after_fragment, after_line_break) == ((0,), (-1,))


def test_a_token_that_cannot_be_read_in_context_is_named():
    class Odd(SlowTokenizer):
        def decode(self, token_ids, **options):
            return "?" if 9 in token_ids else super().decode(token_ids, **options)

    with pytest.raises(TokenizerError, match=r"token 9 \('▁3'\) cannot be read in context"):
        dl.NumberVocab.from_tokenizer(Odd())


def test_no_readable_token():
    class Blank(SlowTokenizer):
        pieces, added = ("<s>", "</s>", "▁", "<0xC3>"), {}

    with pytest.raises(TokenizerError, match="no readable token among the 2 ordinary tokens of the tokenizer"):
        dl.NumberVocab.from_tokenizer(Blank())


def test_the_anchor_may_be_any_readable_token():
    class NoLetterA(SlowTokenizer):
        pieces, added = ("<s>", "</s>", "▁", "7", "8"), {}

    assert dl.NumberVocab.from_tokenizer(NoLetterA()).tokens == (None, None, " ", "7", "8")


def test_the_tokenizer_is_not_changed():
    tokenizer = one_digit_tokenizer()
    before = copy.deepcopy(tokenizer.get_vocab())
    dl.NumberVocab.from_tokenizer(tokenizer)
    assert tokenizer.get_vocab() == before


def test_added_digit_tokens_do_not_count():
    tokenizer = no_digit_tokenizer()
    tokenizer.add_tokens(list("0123456789"))
    with pytest.raises(TokenizerError, match="no digit tokens: looked for the ASCII digits 0-9"):
        dl.NumberVocab.from_tokenizer(tokenizer)


@pytest.mark.parametrize("tokens", [["a", "b"], [None], [], ["½", "٣"]])
def test_no_digits_is_an_error(tokens):
    with pytest.raises(TokenizerError, match=f"looked for the ASCII digits 0-9 in the texts of {len(tokens)} tokens"):
        dl.NumberVocab.from_tokens(tokens)


def test_describe_counts_families_holes_and_lone_digits():
    # "##" has 12, 13, 45: the first digit has classes 1 and 4; after 1 the second has 2 and 3; after 4 only 5
    vocab = dl.NumberVocab.from_tokens(["1", "2", "12", "13", "45", " 7", None, "x"])
    families = {
        f.pattern: (f.num_digits, f.num_tokens, f.num_holes, f.num_lone_digits) for f in vocab.describe().families
    }
    assert families == {"#": (1, 2, 8, 0), "##": (2, 3, 97, 1), " #": (1, 1, 9, 1)}
    assert vocab.describe().num_lone_digits == 2
    assert vocab.describe().num_digit_tokens == 6
    assert str(vocab.describe()).splitlines() == [
        "6 of 8 tokens hold digits; families: 3",
        "pattern  tokens  holes  lone digits",
        "'##'          3     97            1",
        "'#'           2      8            0",
        "' #'          1      9            1",
    ]


def test_a_number_sign_in_a_text_is_no_digit():
    vocab = dl.NumberVocab.from_tokens(["#1", "#2", "12", "13"])
    assert sorted((f.pattern, f.num_digits, f.num_tokens) for f in vocab.describe().families) == [
        ("##", 1, 2),
        ("##", 2, 2),
    ]


def test_equal_texts_share_a_class():
    tables = dl.NumberVocab.from_tokens(["1", "2", "1"]).tables()
    assert not tables.has_single_members
    assert torch.equal(tables.classes[0, 0], tables.classes[2, 0])


@pytest.mark.parametrize("name", sorted(TOKENIZERS))
def test_classes_hold_every_token_of_the_family_that_agrees_before(name):
    """Each digit's ten classes, listed from the texts, against the tables."""
    vocab = dl.NumberVocab.from_tokenizer(TOKENIZERS[name]())
    tables = vocab.tables()
    texts = [vocab.tokens[i] for i in tables.token_ids.tolist()]
    members = [[] for _ in range(len(tables.num_members))]
    for column, group in zip(tables.member_column.tolist(), tables.member_group.tolist(), strict=True):
        members[group].append(texts[column])
    for column, text in enumerate(texts[:: max(1, len(texts) // 40)]):
        column = texts.index(text)
        start = len(text) - len(text.lstrip())
        family = [t for t in texts if len(t) == len(text) and t[:start] == text[:start] and t[start:].isdigit()]
        for slot in range(len(text) - start):
            at = start + slot
            for digit in range(10):
                expected = [t for t in family if t[:at] == text[:at] and t[at] == str(digit)]
                group = tables.classes[column, slot, digit]
                assert (members[group] if group >= 0 else []) == expected


@pytest.mark.parametrize("mark", ["", "..", "1", "x"])
@pytest.mark.parametrize("option", ["decimal_point", "thousands_separator"])
def test_a_mark_is_one_character(option, mark):
    with pytest.raises(ValueError, match=f"{option} must be None or one character that is neither letter nor digit"):
        dl.NumberVocab.from_tokens(["1", "2"], **{option: mark})


def test_equal_marks_are_refused():
    with pytest.raises(ValueError, match=r"must differ, got '\.' for both"):
        dl.NumberVocab.from_tokens(["1", "2"], thousands_separator=".")
    dl.NumberVocab.from_tokens(["1", "2"], decimal_point=None, thousands_separator=None)


def test_tables_are_copied_to_a_device_once():
    vocab = dl.NumberVocab.from_tokens(["1", "2"])
    assert vocab.tables("meta").value.device.type == "meta"
    assert vocab.tables("meta") is vocab.tables(torch.device("meta"))
