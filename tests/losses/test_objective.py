"""Objective: values by hand, both normalisations, and bad input."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import digitloss as dl
from digitloss.losses import AbstractDigitLoss, AbstractVocabularyLoss
from fakes import encode, letters_vocab


@pytest.fixture
def vocab():
    return letters_vocab()


@pytest.fixture
def batch(vocab):
    labels = encode(vocab, "a12.5b_7,468")
    return torch.randn(1, labels.shape[1], len(vocab) + 2), labels


def test_equal_logits_by_hand(vocab):
    # 5 targets of log(17) each; digits 1 2 (u = 2, 1) and 5 (u = 1 / 1.02), each u * log 2
    labels = encode(vocab, "a12.5b")
    logits = torch.zeros(1, 6, len(vocab))
    numeric = (2 + 1 + 1 / 1.02) * math.log(2)
    cross_entropy = math.log(len(vocab))
    by_tokens = dl.Objective(vocab, alpha=0.5)(logits, labels)
    assert by_tokens.item() == pytest.approx(cross_entropy + 0.5 * numeric / 5, rel=1e-6)
    by_digits = dl.Objective(vocab, alpha=0.5, normalize="digits")(logits, labels)
    assert by_digits.item() == pytest.approx(cross_entropy + 0.5 * numeric / 3, rel=1e-6)


def test_given_counts_divide(vocab, batch):
    logits, labels = batch
    terms = dl.Objective(vocab).terms(logits, labels)
    for num_items in (50, torch.tensor(50)):
        value = dl.Objective(vocab)(logits, labels, num_items_in_batch=num_items)
        assert value.item() == pytest.approx((terms.cross_entropy.sum() + 0.1 * terms.numeric.sum()).item() / 50)
    value = dl.Objective(vocab, normalize="digits")(logits, labels, num_items_in_batch=50, num_digits_in_batch=20)
    assert value.item() == pytest.approx(terms.cross_entropy.sum().item() / 50 + 0.1 * terms.numeric.sum().item() / 20)


@pytest.mark.parametrize("seed", range(20))
def test_alpha_zero_is_cross_entropy_bit_for_bit(vocab, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, len(vocab), (seed % 5 + 1, seed + 2), generator=generator)
    labels[torch.rand(labels.shape, generator=generator) < 0.3] = -100
    labels[0, 1] = 1
    logits = torch.randn(*labels.shape, len(vocab), generator=generator, requires_grad=True)
    expected = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    (expected_gradient,) = torch.autograd.grad(expected, logits)
    for options in ({"alpha": 0.0}, {"loss": "cross_entropy"}):
        value = dl.Objective(vocab, fused=False, **options)(logits, labels)
        (gradient,) = torch.autograd.grad(value, logits)
        assert torch.equal(value, expected)
        assert torch.equal(gradient, expected_gradient)


def test_the_first_label_is_no_target_but_belongs_to_its_number(vocab):
    labels = encode(vocab, "123")
    terms = dl.Objective(vocab, place="continuous").terms(torch.zeros(1, 3, len(vocab)), labels)
    assert terms.numeric[0].tolist() == pytest.approx([2 * math.log(2), math.log(2)])
    assert terms.num_digits.tolist() == [[1, 1]]


def test_loss_weights_leave_counts_alone(vocab, batch):
    logits, labels = batch
    weights = torch.arange(labels.shape[1]).float()[None]
    terms = dl.Objective(vocab).terms(logits, labels)
    value = dl.Objective(vocab)(logits, labels, loss_weights=weights)
    num_targets = (labels[:, 1:] != -100).sum()
    expected = ((terms.cross_entropy + 0.1 * terms.numeric) * weights[:, 1:]).sum() / num_targets
    assert value.item() == pytest.approx(expected.item(), rel=1e-6)


def test_numeric_weights_leave_out_symbols(vocab):
    labels = encode(vocab, "a12 34")
    logits = torch.randn(1, 6, len(vocab))
    weights = torch.tensor([[1.0, 0, 0, 1, 1, 1]])
    terms = dl.Objective(vocab).terms(logits, labels)
    expected = (terms.cross_entropy.sum() + 0.1 * terms.numeric[0, 3:].sum()) / 5
    assert dl.Objective(vocab)(logits, labels, numeric_weights=weights).item() == pytest.approx(expected.item())


def test_lone_digits_get_no_term():
    vocab = dl.NumberVocab.from_tokens(["a", "12", "13", "45", "7"])
    labels = torch.tensor([[0, 3, 4, 1]])
    terms = dl.Objective(vocab).terms(torch.zeros(1, 4, 5), labels)
    # "45": 4 competes with 1, 5 is alone; "7" is the only one-digit token; "12": both digits compete
    assert terms.num_digits.tolist() == [[1, 0, 2]]
    assert (terms.numeric > 0).tolist() == [[True, False, True]]


@dataclass(frozen=True, kw_only=True)
class OwnLoss(AbstractDigitLoss):
    default_alpha: ClassVar[float] = 2.0

    def digit_loss(self, digits):
        return (digits.place + 10).to(digits.logits.dtype)


@dataclass(frozen=True, kw_only=True)
class HeadLoss(AbstractVocabularyLoss):
    needs_head: ClassVar[bool] = True

    def token_costs(self, target, products):
        return products

    def added_loss(self, cross_entropy, mean_cost):
        return 3 * mean_cost


def test_a_loss_of_ones_own(vocab):
    labels = encode(vocab, "a12")
    objective = dl.Objective(vocab, loss=OwnLoss())
    assert objective.alpha == 2.0
    assert objective.terms(torch.zeros(1, 3, len(vocab)), labels).numeric.tolist() == [[11, 10]]
    with pytest.raises(ValueError, match=r"options \['tau'\] belong to a loss given by name"):
        dl.Objective(vocab, loss=OwnLoss(), tau=1.0)


def test_a_loss_that_reads_the_head(vocab):
    labels = encode(vocab, "a1_2")
    logits, head = torch.zeros(1, 4, len(vocab)), torch.rand(len(vocab), 3)
    objective = dl.Objective(vocab, loss=HeadLoss())
    with pytest.raises(ValueError, match=r"reads the output head: pass head=model\.get_output_embeddings"):
        objective(logits, labels)
    numeric = objective.terms(logits, labels, head=head).numeric
    mean_costs = (head @ head.T).mean(-1)[labels[0, 1:].clamp(min=0)]  # all tokens are as likely
    torch.testing.assert_close(numeric, torch.tensor([[1.0, 0.0, 1.0]]) * 3 * mean_costs)
    expected = math.log(len(vocab)) + 3 * mean_costs[[0, 2]].mean()
    assert objective(logits, labels, head=head).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_loss_of_ones_own_has_the_name_of_its_class(vocab):
    assert OwnLoss().name == "OwnLoss"
    assert dl.losses.load("dist2").name == "dist2"


@dataclass(frozen=True, kw_only=True)
class WithoutDefault(AbstractDigitLoss):
    def digit_loss(self, digits):
        return digits.logits.sum(-1)


def test_a_loss_without_a_default_alpha_needs_one(vocab):
    assert dl.Objective(vocab, WithoutDefault(), alpha=0.5).alpha == 0.5
    with pytest.raises(TypeError, match="WithoutDefault has no default_alpha: give the class one, or pass alpha"):
        dl.Objective(vocab, WithoutDefault())


def test_tables_made_in_inference_mode_can_be_trained_with():
    with torch.inference_mode():
        vocab = dl.NumberVocab.from_tokens([*"0123456789"])
    logits = torch.zeros(1, 2, 10, requires_grad=True)
    dl.Objective(vocab)(logits, torch.tensor([[1, 2]])).backward()
    assert logits.grad.any()


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dl.losses.load("dist2", tau="1"), "tau must be a number, got '1'"),
        (lambda: dl.losses.load("digit_entropy", decimal_base=None), "decimal_base must be a number, got None"),
        (lambda: dl.losses.load("mixce", eta=True), "eta must be a number, got True"),
        (
            lambda: dl.NumberVocab.from_tokenizer(["1", "2"]),
            "expected a tokenizer, got a list: pass a list of texts to",
        ),
        (lambda: dl.NumberVocab.from_tokenizer("gpt2"), "expected a tokenizer, got a str: .* load a name with AutoTok"),
    ],
)
def test_values_of_another_type_are_named(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.usefixtures("shapes_unchecked")
def test_marks_of_another_type_are_named():
    with pytest.raises(ValueError, match=r"decimal_point must be None or one character .*, got 5"):
        dl.NumberVocab.from_tokens(["1", "2"], decimal_point=5)


def test_decimals_never_weigh_more_than_those_before_them():
    with pytest.raises(ValueError, match=r"decimal_base must be at least 1, got 0\.5"):
        dl.losses.load("digit_entropy", decimal_base=0.5)


@pytest.mark.usefixtures("shapes_unchecked")
def test_alpha_is_any_real_number(vocab):
    alpha = dl.Objective(vocab, alpha=np.float32(0.25)).alpha
    assert alpha == 0.25
    assert type(alpha) is float


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("count", [-1, -0.5, math.nan, torch.tensor(-3)])
def test_counts_are_at_least_0(vocab, batch, count):
    with pytest.raises(ValueError, match="counts of a batch must be numbers of at least 0, got"):
        dl.Objective(vocab)(*batch, num_items_in_batch=count)


def test_describes_itself(vocab):
    assert repr(dl.Objective(vocab, loss="dist2")) == (
        "Objective(loss='dist2', alpha=0.1, normalize='tokens', options=Loss(tau=1.0, place='none'))"
    )


@pytest.mark.parametrize("alpha", [-0.1, math.nan, math.inf])
def test_alpha_is_a_finite_number_of_at_least_0(vocab, alpha):
    with pytest.raises(ValueError, match=f"alpha must be a finite number of at least 0, got {alpha}"):
        dl.Objective(vocab, alpha=alpha)


def test_counts_repeated_for_each_device_count_once(vocab, batch):
    logits, labels = batch
    expected = dl.Objective(vocab)(logits, labels, num_items_in_batch=20)
    value = dl.Objective(vocab)(logits, labels, num_items_in_batch=torch.full((2, 1), 20))
    assert value.shape == ()
    assert value == expected


def test_other_types(vocab, shapes_unchecked):
    with pytest.raises(TypeError, match=r"vocab must be a NumberVocab, got str: make one with NumberVocab\.from_tok"):
        dl.Objective("tokenizer")
    for alpha in ("0.1", True):
        with pytest.raises(TypeError, match=f"alpha must be a number, got {alpha!r}"):
            dl.Objective(vocab, alpha=alpha)
    with pytest.raises(TypeError, match="tokens must be texts or None, got 7 for id 1"):
        dl.NumberVocab.from_tokens(["1", 7])


def test_bad_names(vocab, shapes_unchecked):
    with pytest.raises(ValueError, match="unknown loss 'digit_entrpy', did you mean 'digit_entropy'"):
        dl.Objective(vocab, loss="digit_entrpy")
    with pytest.raises(ValueError, match="unknown loss '_parts'"):
        dl.Objective(vocab, loss="_parts")
    with pytest.raises(ValueError, match="unknown normalize 'token', did you mean 'tokens'"):
        dl.Objective(vocab, normalize="token")
    with pytest.raises(ValueError, match="unknown option of dist2 'taus', did you mean 'tau'"):
        dl.Objective(vocab, loss="dist2", taus=1.0)
    with pytest.raises(ValueError, match=r"cross_entropy replaces cross-entropy and takes no alpha, got 0\.1"):
        dl.Objective(vocab, loss="cross_entropy", alpha=0.1)
    with pytest.raises(TypeError, match="loss must be a name, an AbstractDigitLoss or an AbstractVocabularyLoss"):
        dl.Objective(vocab, loss=F.mse_loss)


def test_bad_shapes(vocab, shapes_unchecked):
    objective = dl.Objective(vocab)
    logits, labels = torch.zeros(2, 4, len(vocab)), torch.zeros(2, 4, dtype=torch.long)
    for wrong_logits, wrong_labels in [
        (logits[:, :3], labels),
        (logits.flatten(0, 1), labels.flatten()),
        (logits, labels[0]),
        (logits[:1], labels),
    ]:
        with pytest.raises(ValueError, match=r"expected logits \[B, T, V\] and labels \[B, T\] of the same B and T"):
            objective(wrong_logits, wrong_labels)
    with pytest.raises(TypeError, match=r"expected floating-point logits and integer labels, got torch\.int64"):
        objective(logits.long(), labels)
    with pytest.raises(TypeError, match=r"got torch\.float32 and torch\.float32"):
        objective(logits, labels.float())
    with pytest.raises(ValueError, match=r"position_ids must have the shape of labels \[2, 4\], got \[2, 3\]"):
        objective(logits, labels, position_ids=labels[:, :3])
    for name in ("loss_weights", "numeric_weights"):
        with pytest.raises(ValueError, match=rf"{name} must have the shape of labels \[2, 4\], got \[2, 3\]"):
            objective(logits, labels, **{name: torch.ones(2, 3)})
    with pytest.raises(ValueError, match="digit tokens need logits of at least 13 columns, got 5"):
        objective(logits[..., :5], labels)


@pytest.mark.parametrize("label", [-1, 17, 10**6])
def test_labels_outside_the_vocabulary(vocab, label):
    labels = torch.tensor([[0, label, 3]])
    with pytest.raises(ValueError, match=rf"labels must lie in 0\.\.16 or be -100 \(no target\), got {label}"):
        dl.Objective(vocab)(torch.zeros(1, 3, len(vocab)), labels)


def test_a_missing_digit_count(vocab, batch):
    with pytest.raises(ValueError, match="needs num_digits_in_batch too"):
        dl.Objective(vocab, normalize="digits")(*batch, num_items_in_batch=3)
