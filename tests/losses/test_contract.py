"""What holds for every loss of the folder. A new loss needs no line here."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F

import digitloss as dl
from digitloss.losses import AbstractDigitLoss, AbstractVocabularyLoss
from fakes import encode, letters_vocab

NORMALIZATIONS = ["tokens", "digits"]
ROWS = ["a12.5 b_7,468", "_c3 b0.04a_92", "1,234.5ab_ 6 "]


@pytest.fixture(params=dl.losses.names())
def name(request):
    return request.param


@pytest.fixture(params=["one", "several"])
def vocab(request):
    """One-digit tokens, and with tokens of two and three digits (with holes) beside them."""
    if request.param == "one":
        return letters_vocab()
    tokens = list(letters_vocab().tokens)
    return dl.NumberVocab.from_tokens([*tokens, "12", "17", "34", "30", "99", " 4", " 5", "123", "124", "200", "7."])


@pytest.fixture
def batch(vocab):
    return make_batch(vocab)


def make_batch(vocab, dtype=torch.float32, scale=3.0):
    generator = torch.Generator().manual_seed(0)
    labels = torch.cat([encode(vocab, row) for row in ROWS])
    if len(vocab) > 30:
        labels = torch.cat([labels, torch.tensor([[19, 20, 26, 21, 23, 5, 19, 17, 24, 18, 28, 27, 3]])])
    logits = scale * torch.randn(*labels.shape, len(vocab) + 3, generator=generator, dtype=torch.float64)
    return logits.to(dtype).requires_grad_(), labels


def head_of(objective, logits):
    if not objective.loss.needs_head:
        return None
    return torch.randn(logits.shape[-1], 5, generator=torch.Generator().manual_seed(1)).to(logits.dtype)


def value_and_gradient(objective, logits, labels, **options):
    value = objective(logits, labels, head=head_of(objective, logits), **options)
    (gradient,) = torch.autograd.grad(value, logits)
    return value, gradient


def assert_equal(got, expected, tolerance=1e-5):
    torch.testing.assert_close(got[0], expected[0], rtol=tolerance, atol=0)
    assert (got[1] - expected[1]).norm() <= tolerance * expected[1].norm()


def test_shapes_and_zeros(name, vocab, batch):
    logits, labels = batch
    objective = dl.Objective(vocab, loss=name)
    terms = objective.terms(logits, labels, head=head_of(objective, logits))
    for part in terms:
        assert part.shape == (len(labels), labels.shape[1] - 1)
        assert torch.isfinite(part).all()
    assert terms.cross_entropy.dtype == terms.numeric.dtype == torch.float32
    ignored = labels[:, 1:] == -100
    assert ignored.any()
    for part in terms:
        assert (part[ignored] == 0).all()
    if isinstance(objective.loss, AbstractDigitLoss):
        assert (terms.numeric[terms.num_digits == 0] == 0).all()
        assert (terms.numeric[terms.num_digits > 0] != 0).all()
    value = objective(logits, labels, head=head_of(objective, logits))
    assert value.shape == ()
    assert torch.isfinite(value)


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_a_batch_without_digits_backpropagates_zeros(name, normalize):
    vocab = letters_vocab()
    objective = dl.Objective(vocab, loss=name, normalize=normalize)
    labels = encode(vocab, "ab c_a")
    logits = torch.randn(1, 6, len(vocab), requires_grad=True)
    terms = objective.terms(logits, labels, head=head_of(objective, logits))
    if isinstance(objective.loss, AbstractDigitLoss):
        assert terms.numeric.sum() == 0
    assert terms.num_digits.sum() == 0
    (gradient,) = torch.autograd.grad(terms.numeric.sum(), logits)
    assert torch.isfinite(gradient).all()
    value, gradient = value_and_gradient(objective, logits, labels)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("text", ["___", "1__", "a", "1"])
def test_a_batch_without_targets_is_a_connected_zero(name, normalize, text):
    vocab = letters_vocab()
    labels = encode(vocab, text)
    logits = torch.randn(1, len(text), len(vocab), requires_grad=True)
    value, gradient = value_and_gradient(dl.Objective(vocab, loss=name, normalize=normalize), logits, labels)
    assert value == 0
    assert (gradient == 0).all()


def test_impossible_tokens_make_no_nan(name, vocab, batch):
    """-inf on other tokens, on some classes, on all digits but one, and on all digits."""
    logits, labels = batch
    tokens = vocab.tables().token_ids
    objective = dl.Objective(vocab, loss=name)
    blocked = logits.detach().clone()
    blocked[:, ::3, 0] = -torch.inf
    blocked[:, 1::3, tokens[2:5]] = -torch.inf
    blocked[:, 2::4, tokens[1:]] = -torch.inf
    blocked[:, 3::4, tokens] = -torch.inf
    targets = torch.where(labels == -100, 0, labels)[:, 1:]
    blocked[:, :-1].scatter_(2, targets[..., None], 0.5)  # the target stays possible: cross-entropy is finite
    blocked.requires_grad_()
    terms = objective.terms(blocked, labels, head=head_of(objective, blocked))
    assert torch.isfinite(terms.numeric).all()
    _, gradient = value_and_gradient(objective, blocked, labels)
    assert torch.isfinite(gradient).all()


def test_an_impossible_target_makes_no_nan_in_the_term(name):
    vocab = letters_vocab()
    objective = dl.Objective(vocab, loss=name)
    if isinstance(objective.loss, AbstractVocabularyLoss):
        pytest.skip("cross-entropy of an impossible token is infinite")
    labels = encode(vocab, "a1")
    logits = torch.zeros(1, 2, len(vocab))
    logits[0, 0, labels[0, 1]] = -torch.inf
    logits.requires_grad_()
    numeric = objective.terms(logits, labels).numeric.sum()
    (gradient,) = torch.autograd.grad(numeric, logits)
    assert torch.isfinite(numeric)
    assert torch.isfinite(gradient).all()


CRITERIA = [
    {"criterion": criterion, "distance": distance}
    for criterion in ("bce", "entropy", "probability")
    for distance in ("none", "absolute", "squared")
    if (criterion, distance) != ("probability", "none")
]


@pytest.mark.parametrize(
    ("name", "options"),
    [("number_token", {}), ("number_token", {"form": "mse"}), ("dist2", {}), *(("digit_entropy", o) for o in CRITERIA)],
)
def test_scaled_gradients_of_impossible_classes_are_finite(name, options):
    """A loss scaler multiplies by 65,536: a class that is a hole, or whose logit is -inf, must not make inf * 0."""
    vocab = dl.NumberVocab.from_tokens(["1", "2", "3", "12", "13"])
    logits = torch.zeros(1, 3, 5)
    logits[0, 1, :2] = -torch.inf  # the target's own class and another
    logits.requires_grad_()
    objective = dl.Objective(vocab, name, **options)
    numeric = objective.terms(logits, torch.tensor([[0, 3, 0]])).numeric.sum()
    (gradient,) = torch.autograd.grad(numeric * 65_536, logits)
    assert torch.isfinite(numeric)
    assert torch.isfinite(gradient).all()


def test_impossible_tokens_equal_absent_tokens(name, vocab, batch):
    """A class that is a hole of the family and one whose logits are -inf are the same thing."""
    objective = dl.Objective(vocab, loss=name)
    if isinstance(objective.loss, AbstractVocabularyLoss):
        pytest.skip("a statement about digit classes")
    logits, labels = batch
    labels = torch.where(labels == vocab.tokens.index("9"), -100, labels)
    unused = [i for i in vocab.tables().token_ids.tolist() if not (labels == i).any()]
    assert vocab.tokens.index("9") in unused
    holes = dl.NumberVocab.from_tokens([None if i in unused else t for i, t in enumerate(vocab.tokens)])
    blocked = logits.detach().clone()
    blocked[..., unused] = -torch.inf
    expected = dl.Objective(holes, loss=name).terms(logits, labels)
    torch.testing.assert_close(objective.terms(blocked, labels).numeric, expected.numeric)


def test_gradients_are_right(name, vocab):
    logits, labels = make_batch(vocab, torch.float64)
    objective = dl.Objective(vocab, loss=name)
    if objective.loss.has_detached_factor:
        pytest.skip("the gradient is not that of the value, by definition; the loss's own test has it by hand")
    rows, head = labels[:, :7], head_of(objective, logits)
    some = logits[:, :7].detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: objective(x, rows, head=head), some, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_computed_in_float32(name, vocab, dtype):
    logits, labels = make_batch(vocab, dtype)
    objective = dl.Objective(vocab, loss=name)
    value, gradient = value_and_gradient(objective, logits, labels)
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    expected, _ = value_and_gradient(objective, logits.detach().float().requires_grad_(), labels)
    assert value == expected


def test_permuted_ids_change_nothing(name, vocab, batch):
    logits, labels = batch
    new_id = torch.randperm(len(vocab), generator=torch.Generator().manual_seed(3))
    tokens = [None] * len(vocab)
    for old, new in enumerate(new_id.tolist()):
        tokens[new] = vocab.tokens[old]
    permuted = logits.detach().clone()
    permuted[..., new_id] = logits[..., : len(vocab)].detach()
    objective, other = dl.Objective(vocab, loss=name), dl.Objective(dl.NumberVocab.from_tokens(tokens), loss=name)
    new_labels = torch.where(labels < 0, labels, new_id[labels.clamp(min=0)])
    head = head_of(objective, logits)
    new_head = None
    if head is not None:
        new_head = head.clone()
        new_head[new_id] = head[: len(vocab)]
    torch.testing.assert_close(
        other.terms(permuted, new_labels, head=new_head).numeric, objective.terms(logits, labels, head=head).numeric
    )


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_padding_changes_nothing(name, vocab, batch, normalize):
    logits, labels = batch
    objective = dl.Objective(vocab, loss=name, normalize=normalize)
    expected = value_and_gradient(objective, logits, labels)
    for before, after in [(0, 3), (2, 0), (1, 2)]:
        padded_labels = F.pad(labels, (before, after), value=-100)
        if before:  # the first label becomes a possible target, so it must be masked to stay none
            padded_labels[:, before] = -100
            base = labels.clone()
            base[:, 0] = -100
            expected = value_and_gradient(objective, logits, base)
        padded = F.pad(logits.detach(), (0, 0, before, after), value=7.0).requires_grad_()
        value, gradient = value_and_gradient(objective, padded, padded_labels)
        assert_equal((value, gradient[:, before : before + labels.shape[1]]), expected)


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("splits", [(1, 1, 1), (2, 1), (1, 2), (3,)])
def test_micro_batches_change_nothing(name, normalize, splits):
    vocab = letters_vocab()
    logits, labels = make_batch(vocab)
    objective = dl.Objective(vocab, loss=name, normalize=normalize)
    expected = value_and_gradient(objective, logits, labels)
    counts = {
        "num_items_in_batch": (labels[:, 1:] != -100).sum(),
        "num_digits_in_batch": int(objective.count_digits(labels).sum()),
    }
    total, gradients = 0.0, []
    for rows, row_labels in zip(logits.split(splits), labels.split(splits), strict=True):
        value, gradient = value_and_gradient(objective, rows, row_labels, **counts)
        total = total + value
        gradients.append(gradient)
    assert_equal((total, torch.cat(gradients)), expected)


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_packing_changes_nothing(name, vocab, batch, normalize):
    logits, labels = batch
    labels = labels.clone()
    labels[:, 0] = -100
    objective = dl.Objective(vocab, loss=name, normalize=normalize)
    expected = value_and_gradient(objective, logits, labels)
    packed = logits.detach().reshape(1, -1, logits.shape[-1]).requires_grad_()
    value, gradient = value_and_gradient(objective, packed, labels.reshape(1, -1))
    assert_equal((value, gradient.view_as(logits)), expected)


def test_packing_with_position_ids_keeps_numbers_apart(name, vocab, batch):
    """Where the collator does not mask the first label of a sample, its digits still belong to their own number."""
    logits, labels = batch
    position_ids = torch.arange(labels.shape[1]).repeat(1, len(labels))
    packed = logits.detach().reshape(1, -1, logits.shape[-1])
    objective = dl.Objective(vocab, loss=name)
    head = head_of(objective, logits)
    terms = objective.terms(packed, labels.reshape(1, -1), position_ids=position_ids, head=head)
    apart = objective.terms(logits, labels, head=head)
    inner = position_ids[0, 1:] != 0
    for got, expected in zip(terms, apart, strict=True):
        torch.testing.assert_close(got[0][inner], expected.flatten())


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
def test_weights(name, vocab, batch, normalize):
    logits, labels = batch
    objective = dl.Objective(vocab, loss=name, normalize=normalize)
    expected = value_and_gradient(objective, logits, labels)
    ones = torch.ones(labels.shape)
    assert_equal(value_and_gradient(objective, logits, labels, loss_weights=ones, numeric_weights=ones), expected)
    doubled = value_and_gradient(objective, logits, labels, loss_weights=2 * ones)
    assert_equal((doubled[0] / 2, doubled[1] / 2), expected)
    baseline = value_and_gradient(dl.Objective(vocab, loss="cross_entropy"), logits, labels)
    assert_equal(value_and_gradient(objective, logits, labels, numeric_weights=0 * ones), baseline)


def test_options_are_documented_and_checked(name):
    kind = type(dl.losses.load(name))
    assert kind.__doc__
    with pytest.raises(ValueError, match=f"unknown option of {name} 'no_such_option'"):
        dl.losses.load(name, no_such_option=1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        dl.losses.load(name).anything = 1


def test_counts_the_same_with_int32_labels(name, vocab, batch):
    logits, labels = batch
    objective = dl.Objective(vocab, loss=name)
    assert torch.equal(objective.count_digits(labels.int()), objective.count_digits(labels))
    head = head_of(objective, logits)
    assert objective(logits, labels.int(), head=head) == objective(logits, labels, head=head)


def test_an_objective_can_be_copied(name, vocab, batch):
    logits, labels = batch
    objective = dl.Objective(vocab, loss=name)
    head = head_of(objective, logits)
    assert copy.deepcopy(objective)(logits, labels, head=head) == objective(logits, labels, head=head)
