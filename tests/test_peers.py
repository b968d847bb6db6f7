"""What users of other numeric losses ran into. Each test names the thread or behaviour, as listed in its comment."""

import math
import pickle
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F

import digitloss as dl
from digitloss.losses import AbstractDigitLoss
from fakes import (
    encode,
    letters_vocab,
    no_digit_tokenizer,
    one_digit_tokenizer,
    space_prefix_tokenizer,
    three_digit_tokenizer,
)

IGNORED = -100
DIGIT_LOSSES = [name for name in dl.losses.names() if isinstance(dl.losses.load(name), AbstractDigitLoss)]


@pytest.fixture(params=dl.losses.names())
def loss(request):
    return request.param


@pytest.fixture(params=DIGIT_LOSSES)
def digit_loss(request):
    return request.param


def head_of(vocab, num_columns=None):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(num_columns or len(vocab), 4, generator=generator)


def make(vocab, loss="digit_entropy", num_columns=None, **options):
    return dl.Objective(vocab, loss, head=head_of(vocab, num_columns), **options)


def random_logits(labels, num_columns, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return (3 * torch.randn(*labels.shape, num_columns, generator=generator)).to(dtype).requires_grad_()


def gradient_of(value, logits):
    (gradient,) = torch.autograd.grad(value, logits)
    return gradient


def sure_logits(vocab, text, size=30.0):
    """Labels of a text, and logits that are sure of every next token."""
    labels = encode(vocab, text)
    targets = F.pad(labels[:, 1:], (0, 1), value=0).clamp(min=0)
    return (size * F.one_hot(targets, len(vocab)).float()).requires_grad_(), labels


# Rows 1 and 19: NaN, or a constant without a graph, where a batch has no number.


def test_a_batch_without_numbers_is_a_zero_with_a_graph(digit_loss):
    vocab = letters_vocab()
    labels = encode(vocab, "ab c_")
    logits = random_logits(labels, len(vocab))
    numeric = make(vocab, digit_loss).terms(logits, labels).numeric.sum()
    assert numeric == 0
    assert not gradient_of(numeric, logits).any()


def test_a_rank_without_any_target_is_a_zero_with_a_graph(loss):
    vocab = letters_vocab()
    labels = torch.full((2, 4), IGNORED)
    logits = random_logits(labels, len(vocab))
    value = make(vocab, loss)(logits, labels, num_items_in_batch=12)
    assert value == 0
    assert not gradient_of(value, logits).any()


# Row 2: models pad their vocabulary beyond the tokenizer, or the tokenizer has more tokens than the model.


def test_logits_may_have_more_columns_than_the_tokenizer(loss):
    vocab = letters_vocab()
    labels = encode(vocab, "a12.5b")
    logits = random_logits(labels, len(vocab) + 40)
    value = make(vocab, loss, len(vocab) + 40)(logits, labels)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient_of(value, logits)).all()


def test_a_tokenizer_with_more_tokens_than_columns_is_fine_while_its_digits_have_one():
    vocab = dl.NumberVocab.from_tokens([*"0123456789", "a", "b", "c"])
    labels = torch.tensor([[10, 1, 2]])
    assert torch.isfinite(make(vocab)(torch.zeros(1, 3, 11), labels))
    with pytest.raises(ValueError, match="need logits of at least 10 columns, got 9"):
        make(vocab)(torch.zeros(1, 3, 9), torch.tensor([[1, 2, 3]]))


# Row 3: how tokens of several digits are weighed.


def test_tokens_of_several_digits_have_a_term_and_a_place_for_each_digit():
    tokenizer = three_digit_tokenizer()
    vocab = dl.NumberVocab.from_tokenizer(tokenizer)
    ids = tokenizer("a1234.5")["input_ids"]
    rows = dl.place_table(vocab, ids)
    assert [row.digits for row in rows] == [(), (1, 2, 3), (4,), (), (5,)]
    assert [row.places for row in rows] == [(), (3, 2, 1), (0,), (), (-1,)]
    labels = torch.tensor([ids])
    assert make(vocab).terms(random_logits(labels, len(vocab)), labels).num_digits.tolist() == [[3, 1, 0, 1]]


# Row 4: options "1" to "4" are categories, not numbers.


def test_a_digit_that_is_a_name_can_be_left_out_of_the_term():
    vocab = letters_vocab()
    labels = encode(vocab, "1a25")
    logits = random_logits(labels, len(vocab))
    objective = make(vocab, alpha=1.0)
    weights = torch.tensor([[1.0, 1.0, 0.0, 0.0]])
    cross_entropy = make(vocab, "cross_entropy")(logits, labels)
    assert objective(logits, labels, numeric_weights=weights) == cross_entropy
    assert objective(logits, labels) > cross_entropy


# Row 5: decoder-only models shift their labels; a perfect model costs nothing.


@pytest.mark.parametrize("text", ["a12.5b", "1,234.5 7", "a0", "a00b", "a007"])
def test_a_perfect_model_with_unshifted_labels_costs_nothing(loss, text):
    vocab = letters_vocab()
    logits, labels = sure_logits(vocab, text)
    objective = make(vocab, loss)
    if loss == "dist2":  # its target distribution is not one-hot: the next test
        assert (objective.terms(logits, labels).numeric >= 0).all()
        return
    assert objective.terms(logits, labels).numeric.abs().max() < 1e-5
    assert objective(logits, labels) < 1e-5


def test_dist2_costs_nothing_at_its_target_distribution():
    vocab = letters_vocab()
    logits = torch.zeros(1, 2, len(vocab))
    for digit in range(10):
        logits[..., vocab.tokens.index(str(digit))] = -float((digit - 7) ** 2)
    assert make(vocab, "dist2").terms(logits, encode(vocab, "a7")).numeric.item() == pytest.approx(0, abs=1e-6)


# Row 6: id 0 is a digit, and ignored labels were counted as it.


def test_an_id_of_0_that_is_a_digit_is_not_an_ignored_label(digit_loss):
    vocab = dl.NumberVocab.from_tokens([*"0123456789", "a"])
    labels = torch.tensor([[10, IGNORED, IGNORED, 0, 10]])
    terms = make(vocab, digit_loss).terms(random_logits(labels, 11), labels)
    assert terms.num_digits.tolist() == [[0, 0, 1, 0]]
    assert (terms.numeric[0] != 0).tolist() == [False, False, True, False]


# Row 7: tokens with a space before the digits, weights, speed.


def test_numbers_with_a_space_in_their_token_count():
    tokenizer = space_prefix_tokenizer()
    vocab = dl.NumberVocab.from_tokenizer(tokenizer)
    ids = tokenizer("is 12 or 7")["input_ids"]
    digits = [row.digits for row in dl.place_table(vocab, ids) if row.digits]
    assert digits == [(1, 2), (7,)]
    labels = torch.tensor([ids])
    terms = make(vocab).terms(random_logits(labels, len(vocab)), labels)
    assert terms.num_digits.sum() == 3
    assert ((terms.numeric != 0) == (terms.num_digits > 0)).all()


# Rows 8, 17, 18: the loss outside of transformers, made once and handed on.


def test_an_objective_can_be_pickled(loss):
    vocab = letters_vocab()
    labels = encode(vocab, "a12.5b")
    logits = random_logits(labels, len(vocab))
    objective = make(vocab, loss)
    assert pickle.loads(pickle.dumps(objective))(logits, labels) == objective(logits, labels)


def test_the_tokenizer_is_not_changed():
    tokenizer = one_digit_tokenizer()
    before = tokenizer.backend_tokenizer.to_str()
    dl.NumberVocab.from_tokenizer(tokenizer)
    assert tokenizer.backend_tokenizer.to_str() == before
    tokenizer = no_digit_tokenizer()
    before = tokenizer.backend_tokenizer.to_str()
    with pytest.raises(dl.errors.TokenizerError):
        dl.NumberVocab.from_tokenizer(tokenizer)
    assert tokenizer.backend_tokenizer.to_str() == before


# Rows 9 and 10: num_items_in_batch comes as None (evaluation), a number or a tensor.


@pytest.mark.parametrize(
    "count", [None, 5, torch.tensor(5), torch.tensor([5]), torch.tensor([5, 5]), torch.tensor(5.0)]
)
def test_the_number_of_items_is_a_number_or_a_tensor(loss, count):
    vocab = letters_vocab()
    labels = encode(vocab, "a12.5b")
    logits = random_logits(labels, len(vocab))
    objective = make(vocab, loss)
    assert objective(logits, labels, num_items_in_batch=count) == objective(logits, labels, num_items_in_batch=5)
    torch.testing.assert_close(objective(logits, labels, num_items_in_batch=count), objective(logits, labels))


def test_micro_batches_add_up_to_the_batch(loss):
    vocab = letters_vocab()
    labels = torch.cat([encode(vocab, "a1_____"), encode(vocab, "1234.56")])
    logits = random_logits(labels, len(vocab))
    objective = make(vocab, loss)
    count = (labels[:, 1:] != IGNORED).sum()
    parts = [objective(logits[i : i + 1], labels[i : i + 1], num_items_in_batch=count) for i in range(2)]
    torch.testing.assert_close(sum(parts), objective(logits, labels), rtol=1e-5, atol=0)


# Row 11: labels that are shifted already, flattened logits, packed samples.


def shifted(labels):
    return F.pad(labels[:, 1:], (0, 1), value=IGNORED)


def test_shifted_labels_give_the_same(loss):
    vocab = letters_vocab()
    labels = torch.cat([encode(vocab, "a1,234.5"), encode(vocab, "b_7.25 _")])
    logits = random_logits(labels, len(vocab))
    objective = make(vocab, loss)
    expected = objective(logits, labels)
    value = objective(logits, shift_labels=shifted(labels))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient_of(value, logits), gradient_of(expected, logits))


def test_flattened_logits_with_shifted_labels_give_the_same(loss):
    vocab = letters_vocab()
    labels = torch.cat([encode(vocab, "a1,23412"), encode(vocab, "77.25 9_")])
    logits = random_logits(labels, len(vocab))
    objective = make(vocab, loss)
    value = objective(logits.flatten(0, 1), shift_labels=shifted(labels).flatten())
    expected = objective(logits, labels)
    # the label at position 0 of the second row is not seen, so its 7 is no part of 77.25: places are as before
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient_of(value, logits), gradient_of(expected, logits))
    terms = objective.terms(logits.flatten(0, 1), shift_labels=shifted(labels).flatten())
    assert terms.numeric.shape == (1, 16)


@pytest.mark.parametrize("is_flat", [False, True])
def test_terms_and_counts_of_shifted_labels_fit_together(is_flat):
    """Row 11: what a trainer does in parts is what the call does, with both normalisations."""
    vocab = letters_vocab()
    labels = torch.cat([encode(vocab, "a1,234.5"), encode(vocab, "b_7.25 _")])
    logits = random_logits(labels, len(vocab))
    targets = shifted(labels)
    if is_flat:
        logits, targets = logits.flatten(0, 1), targets.flatten()
    objective = make(vocab, normalize="digits")
    terms = objective.terms(logits, shift_labels=targets)
    assert torch.equal(terms.num_digits, objective.count_digits(shift_labels=targets))
    assert terms.num_digits.sum() == objective.count_digits(labels).sum() == 8
    expected = objective(logits, shift_labels=targets)
    assert objective.reduce(terms, shift_labels=targets) == expected
    counts = {"num_items_in_batch": (targets != IGNORED).sum(), "num_digits_in_batch": 8}
    assert objective.reduce(terms, shift_labels=targets, **counts) == expected
    with pytest.raises(ValueError, match=r"terms \[.*\] and labels \[2, 8\] do not belong together"):
        objective.reduce(terms, labels)


def test_the_label_at_position_0_is_not_seen_where_labels_are_shifted():
    """Row 11: integers, decimals and groups keep their places without it; a point at the start of a row is lost."""
    vocab = letters_vocab()
    objective = make(vocab, place="released")
    for text, is_same in [("123.4", True), ("1,234,567", True), ("3.5", True), ("7.2.1", True), (".5", False)]:
        labels = encode(vocab, text)
        logits = torch.zeros(*labels.shape, len(vocab))
        numeric = objective.terms(logits, labels).numeric
        assert torch.equal(objective.terms(logits, shift_labels=shifted(labels)).numeric[:, :-1], numeric) == is_same


def test_weights_of_shifted_labels_are_shifted():
    vocab = letters_vocab()
    labels = encode(vocab, "a12.5b")
    logits = random_logits(labels, len(vocab))
    weights = torch.rand(1, 6, generator=torch.Generator().manual_seed(1))
    aligned = F.pad(weights[:, 1:], (0, 1))
    objective = make(vocab)
    for name in ("loss_weights", "numeric_weights"):
        expected = objective(logits, labels, **{name: weights})
        torch.testing.assert_close(objective(logits, shift_labels=shifted(labels), **{name: aligned}), expected)
        flat = objective(logits[0], shift_labels=shifted(labels)[0], **{name: aligned[0]})
        torch.testing.assert_close(flat, expected)


def test_position_ids_of_shifted_labels_are_the_models():
    vocab = letters_vocab()
    labels = encode(vocab, "a1234")
    logits = random_logits(labels, len(vocab))
    positions = torch.tensor([[0, 1, 2, 0, 1]])  # 12 | 34
    objective = make(vocab, place="integer")
    expected = objective(logits, labels, position_ids=positions)
    assert expected != objective(logits, labels)
    for arguments in ((logits, shifted(labels), positions), (logits[0], shifted(labels)[0], positions[0])):
        value = objective(arguments[0], shift_labels=arguments[1], position_ids=arguments[2])
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize(
    ("logits", "labels", "shift_labels", "message"),
    [
        (
            (3, 5),
            (3,),
            None,
            r"not shifted, got logits \[3, 5\] and labels \[3\] \(flattened or shifted labels go into",
        ),
        ((1, 3, 5), (1, 3), (1, 3), "pass either labels, not shifted, or shift_labels"),
        ((1, 3, 5), None, None, "pass either labels, not shifted, or shift_labels"),
        ((1, 3, 5), None, (3,), r"got logits \[1, 3, 5\] and shift_labels \[3\]"),
        ((1, 3, 5), None, (1, 4), r"got logits \[1, 3, 5\] and shift_labels \[1, 4\]"),
    ],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_shapes_that_do_not_fit_are_named(logits, labels, shift_labels, message):
    vocab = dl.NumberVocab.from_tokens([*"01234"])
    given = [None if shape is None else torch.ones(shape, dtype=torch.long) for shape in (labels, shift_labels)]
    with pytest.raises(ValueError, match=message):
        dl.Objective(vocab)(torch.zeros(logits), given[0], shift_labels=given[1])


@pytest.mark.parametrize(
    ("labels", "weights"), [((2, 3), (2, 4)), ((2, 3), (6,)), ((6,), (2, 3)), ((6,), (1, 6)), ((6,), (7,))]
)
@pytest.mark.parametrize("name", ["loss_weights", "numeric_weights"])
@pytest.mark.usefixtures("shapes_unchecked")
def test_weights_have_the_shape_of_the_labels_that_are_given(name, labels, weights):
    shapes = rf"{name} must have the shape of labels \[{', '.join(map(str, labels))}\], got \["
    with pytest.raises(ValueError, match=shapes):
        make(letters_vocab())(
            torch.zeros(*labels, 17),
            shift_labels=torch.ones(labels, dtype=torch.long),
            **{name: torch.ones(weights)},
        )


def test_numbers_of_packed_samples_are_not_joined():
    vocab = letters_vocab()
    apart = encode(vocab, "_12_34")
    positions = torch.tensor([[0, 1, 2, 0, 1, 2]])
    together = encode(vocab, "a12a34")
    for labels, options in ((apart, {}), (together, {"position_ids": positions})):
        places = dl.numbers.find_digits(vocab, labels, options.get("position_ids")).place
        assert places[0, [1, 2, 4, 5], 0].tolist() == [1, 0, 1, 0]


# Row 12: fused heads return no logits.


@pytest.mark.usefixtures("shapes_unchecked")
def test_missing_logits_name_the_flags():
    with pytest.raises(TypeError, match=r"logits must be a tensor, got NoneType: .*use_liger_kernel.*UNSLOTH_RETURN"):
        dl.Objective(letters_vocab())(None, torch.tensor([[1, 2]]))


@pytest.mark.usefixtures("shapes_unchecked")
def test_labels_and_logits_of_another_kind_are_named():
    objective = make(letters_vocab())
    with pytest.raises(TypeError, match="labels must be a tensor, got list"):
        objective(torch.zeros(1, 2, 17), [[1, 2]])
    with pytest.raises(TypeError, match=r"logits must be a tensor, got list$"):
        objective([[[0.0]]], torch.tensor([[1]]))


# Row 13: a weight for each token, with a normaliser that is stated: the count of targets, unweighted.


def test_weights_of_tokens_by_hand(loss):
    vocab = letters_vocab()
    labels = encode(vocab, "a1_b")
    logits = random_logits(labels, len(vocab))
    objective = make(vocab, loss)
    terms = objective.terms(logits, labels)
    weights = torch.tensor([[9.0, 2.0, 9.0, 0.5]])
    each = terms.cross_entropy + objective.alpha * terms.numeric
    expected = (2.0 * each[0, 0] + 0.5 * each[0, 2]) / 2  # two targets
    torch.testing.assert_close(objective(logits, labels, loss_weights=weights), expected)
    assert objective(logits, labels, loss_weights=torch.zeros(1, 4)) == 0


# Rows 14 and 16: a loss of one's own in place of cross-entropy, here the squared error of the expected digit.


@dataclass(frozen=True, kw_only=True)
class SquaredError(AbstractDigitLoss):
    default_alpha: ClassVar[float] = 1.0

    def digit_loss(self, digits):
        expected = (digits.logits.softmax(-1) * torch.arange(10)).sum(-1)
        return (expected - digits.target).square()


def test_a_loss_of_ones_own_is_an_object():
    vocab = letters_vocab()
    labels = encode(vocab, "a1")
    logits = torch.zeros(1, 2, len(vocab))
    assert make(vocab, SquaredError()).terms(logits, labels).numeric.item() == pytest.approx((4.5 - 1) ** 2)
    expected = dl.Objective(vocab, "number_token", form="mse", alpha=1.0)(logits, labels)
    torch.testing.assert_close(make(vocab, SquaredError())(logits, labels), expected)


@dataclass(frozen=True, kw_only=True)
class InPlace(AbstractDigitLoss):
    default_alpha: ClassVar[float] = 1.0

    def digit_loss(self, digits):
        miss = 1 - digits.logits.softmax(-1).gather(1, digits.target[:, None])[:, 0]
        return miss.sqrt().exp()


def test_a_loss_of_ones_own_may_end_in_an_operation_that_needs_its_result():
    """Input table: sqrt and exp keep their result for the backward pass; nothing may change it in place."""
    vocab = letters_vocab()
    labels = encode(vocab, "a1 2")
    logits = torch.zeros(1, 4, len(vocab), requires_grad=True)
    numeric = make(vocab, InPlace()).terms(logits, labels).numeric
    root = math.sqrt(0.9)  # p = 1/10 each; d exp(sqrt(1 - p)) / dz_y = -exp(root) / (2 root) p (1 - p)
    assert numeric[0].tolist() == pytest.approx([math.exp(root), 0, math.exp(root)])
    gradient = gradient_of(numeric.sum(), logits)
    assert gradient[0, 0, labels[0, 1]].item() == pytest.approx(-math.exp(root) / (2 * root) * 0.09)


# Row 15: boxes and coordinates.


def test_numbers_of_a_box_are_apart_without_a_thousands_separator():
    tokens = [*"0123456789", ",", "[", "]"]
    box = [tokens.index(character) for character in "[110,250]"]
    vocab = dl.NumberVocab.from_tokens(tokens, thousands_separator=None)
    assert [row.places for row in dl.place_table(vocab, box)] == [(), (2,), (1,), (0,), (), (2,), (1,), (0,), ()]
    joined = dl.NumberVocab.from_tokens(tokens)
    assert dl.place_table(joined, box)[1].places == (5,)


def test_a_coordinate_that_is_farther_off_costs_more():
    """Row 15: under cross-entropy 11 for 12 and 91 for 12 cost the same."""
    vocab = letters_vocab()
    _, labels = sure_logits(vocab, "a12")
    costs = []
    for wrong in ("a11", "a92"):
        logits, _ = sure_logits(vocab, wrong)
        terms = make(vocab, "number_token").terms(logits, labels)
        costs.append((terms.cross_entropy.sum().item(), terms.numeric.sum().item()))
    assert costs[0][0] == pytest.approx(costs[1][0])
    assert [cost for _, cost in costs] == pytest.approx([1, 8], abs=1e-4)


# Row 20: soft targets that know distances.


def test_a_near_miss_costs_less_under_soft_targets():
    vocab = letters_vocab()
    _, labels = sure_logits(vocab, "a5")
    costs = [
        make(vocab, "dist2").terms(sure_logits(vocab, f"a{wrong}", 10.0)[0], labels).numeric.item() for wrong in "5469"
    ]
    assert costs[0] < costs[1] < costs[3]
    assert costs[1] == pytest.approx(costs[2], rel=1e-5)  # 4 and 6 are as far from 5


# Table of input behaviours.


def test_labels_may_be_of_32_bits(loss):
    vocab = letters_vocab()
    labels = encode(vocab, "a12.5b")
    logits = random_logits(labels, len(vocab))
    assert make(vocab, loss)(logits, labels.int()) == make(vocab, loss)(logits, labels)


@pytest.mark.parametrize(("wrong", "shown"), [(17, "17"), (-1, "-1"), (-101, "-101"), (10**9, "1000000000")])
def test_labels_outside_of_the_vocabulary_are_named(wrong, shown):
    """Not an IndexError, and a negative label is no alias of a digit at the end of the vocabulary."""
    vocab = letters_vocab()
    labels = torch.tensor([[0, 1, wrong]])
    with pytest.raises(ValueError, match=rf"labels must lie in 0\.\.16 or be -100 \(no target\), got {shown}"):
        make(vocab)(torch.zeros(1, 3, 17), labels)


def test_a_size_that_fits_once_is_checked_every_time():
    vocab = letters_vocab()
    objective = make(vocab)
    objective(torch.zeros(1, 2, len(vocab)), torch.tensor([[1, 2]]))
    with pytest.raises(ValueError, match="need logits of at least"):
        objective(torch.zeros(1, 2, 4), torch.tensor([[1, 2]]))


def test_a_tokenizer_without_digits_is_refused():
    with pytest.raises(dl.errors.TokenizerError, match="no digit tokens: looked for the ASCII digits"):
        dl.NumberVocab.from_tokenizer(no_digit_tokenizer())


def test_a_vocabulary_without_a_point_reads_integers():
    vocab = dl.NumberVocab.from_tokens([*"0123456789", "a"])
    assert [row.places for row in dl.place_table(vocab, [1, 2, 10, 3])] == [(1,), (0,), (), (0,)]


def test_an_unknown_token_between_digits_is_no_point():
    vocab = dl.NumberVocab.from_tokens(["<unk>", *"0123456789", None])
    for between in (0, 11, 500):
        assert [row.places for row in dl.place_table(vocab, [2, between, 3])] == [(0,), (), (0,)]


def test_digits_of_other_scripts_are_no_digits():
    vocab = dl.NumberVocab.from_tokens([*"0123456789", "\u0e50", "\u0663", "\u00bd", "\u00b2"])
    assert vocab.describe().num_digit_tokens == 10


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("1,234", [3, 2, 1, 0]),
        ("-12", [1, 0]),
        ("1.2.3", [0, 0, 0]),
        ("6.51E+02", [0, -1, -2, 1, 0]),
        ("12.345", [1, 0, -1, -2, -3]),
        ("1,23", [0, 1, 0]),
    ],
)
def test_signs_separators_exponents_and_versions_are_read(text, places):
    tokens = [*"0123456789.,-+E"]
    rows = dl.place_table(dl.NumberVocab.from_tokens(tokens), [tokens.index(c) for c in text])
    assert [row.places[0] for row in rows if row.places] == places


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0, 0)])
@pytest.mark.parametrize("is_shifted", [False, True])
def test_an_empty_batch_is_a_zero_with_a_graph(loss, shape, is_shifted):
    vocab = letters_vocab()
    labels = torch.zeros(shape, dtype=torch.long)
    logits = torch.zeros(*shape, len(vocab), requires_grad=True)
    value = make(vocab, loss)(logits, **{"shift_labels" if is_shifted else "labels": labels})
    assert value == 0
    assert gradient_of(value, logits).shape == logits.shape


@pytest.mark.parametrize("share", ["some", "all"])
def test_impossible_digits_make_no_nan(digit_loss, share):
    vocab = letters_vocab()
    labels = encode(vocab, "a12")
    logits = random_logits(labels, len(vocab)).detach().clone()
    digits = vocab.tables().token_ids
    logits[..., digits if share == "all" else digits[:6]] = -math.inf
    logits.requires_grad_()
    numeric = make(vocab, digit_loss).terms(logits, labels).numeric.sum()
    assert torch.isfinite(numeric)
    assert torch.isfinite(gradient_of(numeric, logits)).all()


def test_logits_that_are_nan_at_an_ignored_position_do_no_harm(digit_loss):
    vocab = letters_vocab()
    labels = encode(vocab, "a_12")
    logits = random_logits(labels, len(vocab)).detach().clone()
    logits[0, 0] = math.nan
    logits.requires_grad_()
    objective = make(vocab, digit_loss)
    value = objective(logits, labels)
    assert torch.isfinite(value)
    gradient = gradient_of(value, logits)
    assert torch.isfinite(gradient[0, 1:]).all()
    gradient = gradient_of(objective.terms(logits, labels).numeric.sum(), logits)
    assert torch.isfinite(gradient).all()
    assert not gradient[0, 0].any()


@pytest.mark.parametrize("weights", [torch.tensor([[1, 1, 0, 0]]), torch.tensor([[True, True, False, False]])])
@pytest.mark.usefixtures("shapes_unchecked")
def test_weights_may_be_integers_or_booleans(weights):
    vocab = letters_vocab()
    labels = encode(vocab, "a125")
    logits = random_logits(labels, len(vocab))
    objective = make(vocab)
    assert objective(logits, labels, loss_weights=weights) == objective(logits, labels, loss_weights=weights.float())


@pytest.mark.parametrize("text", ["70000", "123456", "65505", "99999999999999999999999"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_numbers_in_half_precision(loss, text, dtype):
    """10^k of a long number overflows float16 where a loss works with values."""
    vocab = letters_vocab()
    labels = encode(vocab, f"a{text}")
    logits = random_logits(labels, len(vocab), dtype)
    value = make(vocab, loss)(logits, labels)
    assert value.dtype == torch.float32
    assert torch.isfinite(value)
    assert torch.isfinite(gradient_of(value, logits)).all()


def test_a_mean_over_many_untrained_digits_does_not_overflow_in_half_precision():
    """A sum of 16,000 expected distances is beyond float16. By hand: log 17 + mean of |c - 9| = 4.5."""
    vocab = letters_vocab()
    labels = encode(vocab, "9" * 16_001)
    logits = torch.zeros(1, 16_001, len(vocab), dtype=torch.float16, requires_grad=True)
    value = make(vocab, "number_token", alpha=1.0)(logits, labels)
    assert value.item() == pytest.approx(math.log(17) + 4.5, rel=1e-4)
    assert torch.isfinite(gradient_of(value, logits)).all()


def test_places_beyond_the_twentieth_count():
    """By hand: equal logits cost u log 2 each, u = 23, 22, ..., 1."""
    vocab = letters_vocab()
    labels = encode(vocab, "a" + 23 * "9")
    terms = make(vocab, "digit_entropy").terms(torch.zeros(1, 24, len(vocab)), labels)
    assert (terms.numeric[0] / math.log(2)).tolist() == pytest.approx(range(23, 0, -1))


# By hand, with u = 2 at the tens and p = 1 on the wrong 9: d(p softplus(z)) / dz = 1; p - q = 1 - q_9, where
# q_9 = e^-64; NTL stands still, p_9 (|9 - 1| - sum p |c - 1|) = 0, and leaves the push to cross-entropy.
PUSH = {"digit_entropy": 2.0, "dist2": 1.0, "number_token": 0.0}


def test_the_push_of_each_term_on_a_wrong_digit_of_huge_logits(digit_loss):
    vocab = letters_vocab()
    logits = torch.full((1, 3, len(vocab)), -1e4)
    wrong = encode(vocab, "a92")
    for position in (0, 1):
        logits[0, position, wrong[0, position + 1]] = 1e4
    logits.requires_grad_()
    objective = make(vocab, digit_loss)
    labels = encode(vocab, "a12")
    gradient = gradient_of(objective.terms(logits, labels).numeric.sum(), logits)
    assert torch.isfinite(gradient).all()
    if digit_loss in PUSH:
        assert gradient[0, 0, wrong[0, 1]].item() == pytest.approx(PUSH[digit_loss])
    assert gradient_of(objective(logits, labels), logits)[0, 0, wrong[0, 1]] >= 0.5


@pytest.mark.parametrize("size", [10.0, 100.0])
def test_a_sure_and_wrong_digit_is_pushed_down(digit_loss, size):
    """It has a gradient: at the wrong digit it points down, whatever that of the target is."""
    vocab = letters_vocab()
    logits, _ = sure_logits(vocab, "a92", size)
    labels = encode(vocab, "a12")
    objective = make(vocab, digit_loss)
    gradient = gradient_of(objective(logits, labels), logits)
    wrong = encode(vocab, "a92")[0, 1]
    assert gradient[0, 0, wrong] > 0.3
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("size", [1e4, 1e6])
def test_huge_logits_stay_finite(loss, size):
    vocab = letters_vocab()
    logits, _ = sure_logits(vocab, "a92", size)
    value = make(vocab, loss)(logits, encode(vocab, "a12"))
    assert torch.isfinite(value)
    assert torch.isfinite(gradient_of(value, logits)).all()


def test_a_zero_is_learnt_like_any_digit(digit_loss):
    """A relative error has no gradient where the target is 0."""
    vocab = letters_vocab()
    labels = encode(vocab, "a0")
    sure, _ = sure_logits(vocab, "a0", 3.0)
    wrong, _ = sure_logits(vocab, "a9", 3.0)
    objective = make(vocab, digit_loss)
    costs = [objective.terms(logits, labels).numeric.sum() for logits in (sure, wrong)]
    assert costs[0] < costs[1]
    assert gradient_of(costs[1], wrong).norm() > 0.1


def test_leading_zeros_are_digits_and_a_missing_one_is_wrong():
    """The value of 007 is that of 7, its text is not."""
    tokenizer = three_digit_tokenizer()
    vocab = dl.NumberVocab.from_tokenizer(tokenizer)
    ids = tokenizer("a007")["input_ids"]
    assert dl.place_table(vocab, ids)[1].digits == (0, 0, 7)
    labels = torch.tensor([ids])
    right, wrong = torch.zeros(2, 1, 2, len(vocab))
    right[0, 0, ids[1]] = 30
    wrong[0, 0, tokenizer("a7")["input_ids"][1]] = 30
    costs = [make(vocab, "number_token")(logits, labels).item() for logits in (right, wrong)]
    assert costs[0] < 1e-6 < 1 < costs[1]


def test_ids_of_digits_in_any_order(loss):
    """The ten digits are found by their text: permuting the ids changes nothing."""
    plain = dl.NumberVocab.from_tokens([*"0123456789", "a"])
    mixed = dl.NumberVocab.from_tokens([*"a9705318426"])
    new_id = torch.tensor([mixed.tokens.index(token) for token in plain.tokens])
    labels = torch.tensor([[10, 1, 2, 10, 0]])
    logits = random_logits(labels, 11)
    head = head_of(plain)
    permuted_logits, permuted_head = torch.empty_like(logits), torch.empty_like(head)
    permuted_logits[..., new_id] = logits
    permuted_head[new_id] = head
    value = dl.Objective(plain, loss, head=head)(logits, labels)
    permuted = dl.Objective(mixed, loss, head=permuted_head)(permuted_logits, new_id[labels])
    torch.testing.assert_close(permuted, value)
