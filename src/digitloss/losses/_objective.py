"""What is minimised: cross-entropy of every target token plus alpha times a numeric term, reduced once.

    objective = sum_t H_t / tokens  +  alpha * sum_t numeric_t / (tokens or digits)

The counts may be given for a whole optimizer step over all micro-batches and ranks; the value then never depends on how
a batch is split, padded or packed.
"""

import math
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from digitloss._shapes import Labels, Logits, TokenLosses
from digitloss.errors import unknown_name
from digitloss.losses._base import AbstractDigitLoss, AbstractLoss, AbstractVocabularyLoss, check_number
from digitloss.losses._digits import select_digits
from digitloss.losses._parts import entropy
from digitloss.losses._registry import load
from digitloss.numbers import NumberVocab, TokenDigits, find_digits

IGNORED = -100
"""Label of a token that is no target, as in torch and transformers."""

NORMALIZATIONS = ("tokens", "digits")


class Terms(NamedTuple):
    """The objective token by token, before alpha and reduction: [B, S], 0 where the token is ignored.

    S = T - 1 for labels, T for shift_labels.
    """

    cross_entropy: TokenLosses
    """Nats."""
    numeric: TokenLosses
    """Sum over the token's digits; for a loss of the whole vocabulary, what it adds to cross-entropy."""
    num_digits: Int[Tensor, "B S"]
    """Digits of the token that get a term."""


class Reading(NamedTuple):
    """The terms of a batch and what the model believed about its digits: [B, S] each."""

    terms: Terms
    digit_entropy: TokenLosses
    """Sum over the token's digits of the entropy of the ten classes, in nats; no gradient."""
    num_correct: Int[Tensor, "B S"]
    """Digits of the token whose most probable class is the target."""


class Objective:
    """Cross-entropy plus a numeric term.

    Args:
        vocab: What the tokens of the labels hold.
        loss: Name of a loss (`digitloss.losses.names()`), or a loss of your own.
        alpha: Weight of the numeric term, at least 0; None: the loss's own default.
        normalize: What the numeric sum is divided by: target tokens, or digits (a mean over digits, as in the paper).
            A loss of the whole vocabulary is always divided by tokens.
        head: The output head, or its weight [V, H], for losses that read it (`needs_head`); it may be given to each
            call instead, and `NumericTrainer` takes the model's. Losses that keep it (`keeps_head`) copy it now.
        options: Fields of the loss's dataclass.

    Raises:
        ValueError: An unknown name or option, or a value out of range.
        TypeError: A vocab, loss or alpha of another type.

    Example:
        >>> import torch
        >>> import digitloss as dl
        >>> vocab = dl.NumberVocab.from_tokens([*"0123456789", ".", " kg"])
        >>> objective = dl.Objective(vocab, loss="digit_entropy", alpha=0.1)
        >>> labels = torch.tensor([[1, 2, 10, 5, 11]])
        >>> loss = objective(torch.zeros(1, 5, 12), labels)
        >>> round(loss.item(), 4)
        2.5192
    """

    def __init__(
        self,
        vocab: NumberVocab,
        loss: str | AbstractDigitLoss | AbstractVocabularyLoss = "digit_entropy",
        alpha: float | None = None,
        normalize: Literal["tokens", "digits"] = "tokens",
        head: Tensor | nn.Module | None = None,
        **options: Any,
    ):
        if not isinstance(vocab, NumberVocab):
            raise TypeError(
                f"vocab must be a NumberVocab, got {type(vocab).__name__}: make one with"
                " NumberVocab.from_tokenizer(tokenizer)"
            )
        self.vocab = vocab
        if options and not isinstance(loss, str):
            raise ValueError(f"options {sorted(options)} belong to a loss given by name, got the loss {loss!r}")
        self.loss = load(loss, **options) if isinstance(loss, str) else loss
        if normalize not in NORMALIZATIONS:
            raise unknown_name("normalize", normalize, NORMALIZATIONS)
        self.alpha = _resolve_alpha(self.loss, alpha)
        self.normalize = normalize
        self.head = _keep_head(self.loss, head)

    @property
    def is_normalized_by_tokens(self) -> bool:
        """True where the numeric sum is divided by target tokens, False where by digits."""
        return self.normalize == "tokens" or isinstance(self.loss, AbstractVocabularyLoss)

    def __repr__(self) -> str:
        """Return name, weight and options."""
        return (
            f"Objective(loss={self.loss.name!r}, alpha={self.alpha}, normalize={self.normalize!r},"
            f" options={self.loss!r})"
        )

    def __call__(
        self,
        logits: Logits | Float[Tensor, "N V"],
        labels: Labels | None = None,
        *,
        shift_labels: Labels | Int[Tensor, " N"] | None = None,
        num_items_in_batch: int | Tensor | None = None,
        num_digits_in_batch: int | Tensor | None = None,
        position_ids: Int[Tensor, "_ T"] | Int[Tensor, " N"] | None = None,
        loss_weights: Float[Tensor, "B T"] | Float[Tensor, " N"] | None = None,
        numeric_weights: Float[Tensor, "B T"] | Float[Tensor, " N"] | None = None,
        head: Float[Tensor, "V H"] | nn.Module | None = None,
    ) -> Float[Tensor, ""]:
        """Return the objective of a batch, a scalar in float32 or wider.

        Args:
            logits: As the model returns them: position t predicts label t+1.
            labels: Token ids, not shifted, -100 where a token is no target. The label at position 0 is no target
                either, but belongs to its number.
            shift_labels: Instead of labels: position t of the logits predicts shift_labels at t. The value is that of
                labels where the label at position 0, which is not seen, changes no place (a point may); split rows
                split their numbers. Logits [N, V] may be flattened with them, [N]: a number ends at -100, which
                transformers puts at the end of each row.
            num_items_in_batch: Target tokens of the whole optimizer step; None: those of this batch.
            num_digits_in_batch: Digits of the whole optimizer step, for `normalize="digits"`; None: of this batch.
            position_ids: Positions of the inputs in packed samples: a number never crosses a 0. Not needed where the
                collator masks the first label of each sample.
            loss_weights: Factor of the whole loss of each label, in the shape of the labels that are given; the counts
                that divide stay unweighted.
            numeric_weights: Factor of the numeric term of each label: 0 leaves out digits that are symbols (dates, ids)
                while their cross-entropy stays.
            head: The output head or its weight, for losses that read it (`needs_head`); None: the objective's own.

        Raises:
            ValueError: Shapes or labels that do not fit together, or a count or the head missing.
            TypeError: Logits or labels that are no tensor, or of another type of number.
        """
        reading = self.read(logits, labels, shift_labels=shift_labels, position_ids=position_ids, head=head)
        return self.reduce(
            reading.terms,
            labels,
            shift_labels=shift_labels,
            num_items_in_batch=num_items_in_batch,
            num_digits_in_batch=num_digits_in_batch,
            loss_weights=loss_weights,
            numeric_weights=numeric_weights,
        )

    def terms(
        self,
        logits: Logits | Float[Tensor, "N V"],
        labels: Labels | None = None,
        *,
        shift_labels: Labels | Int[Tensor, " N"] | None = None,
        position_ids: Int[Tensor, "_ T"] | Int[Tensor, " N"] | None = None,
        head: Float[Tensor, "V H"] | nn.Module | None = None,
    ) -> Terms:
        """Return the objective token by token, before alpha and reduction; arguments as for the call."""
        return self.read(logits, labels, shift_labels=shift_labels, position_ids=position_ids, head=head).terms

    def read(
        self,
        logits: Logits | Float[Tensor, "N V"],
        labels: Labels | None = None,
        *,
        shift_labels: Labels | Int[Tensor, " N"] | None = None,
        position_ids: Int[Tensor, "_ T"] | Int[Tensor, " N"] | None = None,
        head: Float[Tensor, "V H"] | nn.Module | None = None,
    ) -> Reading:
        """Return the terms and what the model believed about each digit; arguments as for the call."""
        logits, labels, position_ids = self._aligned(logits, labels, shift_labels, position_ids)
        found = TokenDigits(*(x[:, 1:] for x in find_digits(self.vocab, labels, position_ids)))
        targets = labels[:, 1:].long()
        is_target = targets != IGNORED
        scores = _at_least_float32(logits).flatten(0, 1)
        cross_entropy = F.cross_entropy(scores, targets.flatten(), ignore_index=IGNORED, reduction="none")

        tables = self.vocab.tables(labels.device)
        digits, has_term = select_digits(tables, found, scores[:, tables.token_ids])
        if isinstance(self.loss, AbstractDigitLoss):
            numeric = _per_token(self.loss.digit_loss(digits), has_term, found)
        else:
            weight = self._head_weight(head, scores.shape[1])
            added = self.loss.added_loss(scores, targets.flatten().clamp(min=0), cross_entropy, weight)
            numeric = torch.where(is_target, added.view(targets.shape), 0.0)
        with torch.no_grad():
            digit_entropy = _per_token(entropy(digits).sum(-1), has_term, found)
            num_correct = _per_token((digits.logits.argmax(-1) == digits.target).long(), has_term, found)
        terms = Terms(cross_entropy.view(targets.shape), numeric, tables.num_terms[found.column])
        return Reading(terms, digit_entropy, num_correct)

    def reduce(
        self,
        terms: Terms,
        labels: Labels | None = None,
        *,
        shift_labels: Labels | Int[Tensor, " N"] | None = None,
        num_items_in_batch: int | Tensor | None = None,
        num_digits_in_batch: int | Tensor | None = None,
        loss_weights: Float[Tensor, "B T"] | Float[Tensor, " N"] | None = None,
        numeric_weights: Float[Tensor, "B T"] | Float[Tensor, " N"] | None = None,
    ) -> Float[Tensor, ""]:
        """Reduce terms to the objective: the one reduction of the library; arguments as for the call."""
        cross_entropy, numeric, num_digits = terms
        given, is_shifted = _given(labels, shift_labels)
        is_target = _of_targets(given, is_shifted) != IGNORED
        if is_target.shape != cross_entropy.shape:
            raise ValueError(
                f"terms {list(cross_entropy.shape)} and labels {list(given.shape)} do not belong together: pass the"
                " labels, or the shift_labels, that the terms were made of"
            )
        for name, weights in (("loss_weights", loss_weights), ("numeric_weights", numeric_weights)):
            if weights is not None and weights.shape != given.shape:
                raise ValueError(f"{name} must have the shape of labels {list(given.shape)}, got {list(weights.shape)}")
        if loss_weights is not None:
            factor = _of_targets(loss_weights, is_shifted)
            cross_entropy, numeric = cross_entropy * factor, numeric * factor
        if numeric_weights is not None:
            numeric = numeric * _of_targets(numeric_weights, is_shifted)
        num_items = _count(num_items_in_batch, is_target.sum())
        total = _sum_as_cross_entropy(cross_entropy, is_target) / num_items
        if self.is_normalized_by_tokens:
            return total + self.alpha * (numeric.sum() / num_items)
        if num_items_in_batch is not None and num_digits_in_batch is None:
            raise ValueError(
                "normalize='digits' with num_items_in_batch needs num_digits_in_batch too, the digits of the same"
                " optimizer step: Objective.count_digits counts them, NumericTrainer does it for you"
            )
        return total + self.alpha * (numeric.sum() / _count(num_digits_in_batch, num_digits.sum()))

    def count_digits(
        self, labels: Labels | None = None, *, shift_labels: Labels | Int[Tensor, " N"] | None = None
    ) -> Int[Tensor, "B S"]:
        """Count the digits of each target token that get a term: `terms.num_digits` from the labels alone."""
        targets = _of_targets(*_given(labels, shift_labels))
        return self.vocab.tables(targets.device).num_terms[self.vocab.columns_of(targets)]

    def _head_weight(self, head: Tensor | nn.Module | None, num_columns: int) -> Tensor | None:
        """Weight of the head given to the call, else the objective's own; None where the loss reads none."""
        if not self.loss.needs_head:
            return None
        head = self.head if head is None or self.loss.keeps_head else head
        if head is None:
            raise ValueError(
                f"{self.loss.name} reads the output head: pass head=model.get_output_embeddings() to Objective or to"
                " the call"
            )
        weight = _weight_of(head)
        if weight.ndim != 2 or len(weight) != num_columns:
            raise ValueError(
                f"head must have one row for each of the {num_columns} columns of the logits, got a weight of shape"
                f" {list(weight.shape)} (a sharded head must be gathered first)"
            )
        return weight

    def _aligned(
        self, logits: Tensor, labels: Tensor | None, shift_labels: Tensor | None, position_ids: Tensor | None
    ) -> tuple[Float[Tensor, "B S V"], Int[Tensor, "B T"], Int[Tensor, "_ T"] | None]:
        """Logits of each target, and unshifted labels and positions, T = S + 1; checked."""
        if not isinstance(logits, Tensor):
            hint = (
                ": a model that returns none had a fused loss head on (use_liger_kernel, cut-cross-entropy; under"
                " Unsloth set UNSLOTH_RETURN_LOGITS=1)"
            )
            raise TypeError(f"logits must be a tensor, got {type(logits).__name__}{hint if logits is None else ''}")
        given, is_shifted = _given(labels, shift_labels)
        if not is_shifted:
            if logits.ndim != 3 or given.ndim != 2 or logits.shape[:2] != given.shape:
                raise ValueError(
                    "expected logits [B, T, V] and labels [B, T] of the same B and T, not shifted,"
                    f" got logits {list(logits.shape)} and labels {list(given.shape)} (flattened or shifted labels go"
                    " into shift_labels)"
                )
            self._check(logits, given, position_ids)
            return logits[:, :-1], given, position_ids
        if logits.ndim == 2 and given.ndim == 1:
            logits, given = logits[None], given[None]
            position_ids = position_ids[None] if position_ids is not None and position_ids.ndim == 1 else position_ids
        if logits.ndim != 3 or given.ndim != 2 or logits.shape[:2] != given.shape:
            raise ValueError(
                "expected logits [B, T, V] and shift_labels [B, T], or [N, V] and [N], got logits"
                f" {list(logits.shape)} and shift_labels {list(given.shape)}"
            )
        self._check(logits, given, position_ids)
        if position_ids is not None:
            position_ids = F.pad(position_ids, (0, 1), value=1)
        return logits, unshifted(None, given), position_ids

    def _check(self, logits: Tensor, labels: Tensor, position_ids: Tensor | None) -> None:
        if not logits.is_floating_point() or labels.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"expected floating-point logits and integer labels, got {logits.dtype} and {labels.dtype}")
        if position_ids is not None and position_ids.shape not in (labels.shape, (1, labels.shape[1])):
            raise ValueError(
                f"position_ids must have the shape of labels {list(labels.shape)}, got {list(position_ids.shape)}"
            )
        num_columns, num_needed = logits.shape[-1], self.vocab.largest_digit_id + 1
        if num_columns < num_needed:
            raise ValueError(
                f"the tokenizer's digit tokens need logits of at least {num_needed} columns, got {num_columns}:"
                " the model and the tokenizer do not belong together"
            )
        if labels.device.type == "cpu" and not torch.compiler.is_compiling():
            wrong = labels[(labels != IGNORED) & ((labels < 0) | (labels >= num_columns))]
            if len(wrong):
                raise ValueError(
                    f"labels must lie in 0..{num_columns - 1} or be {IGNORED} (no target), got {int(wrong[0])}"
                    f" and {len(wrong) - 1} more outside"
                )


def unshifted(labels: Tensor | None, shift_labels: Tensor | None) -> Int[Tensor, "B T"]:
    """Labels as they are, or shifted ones of S targets behind an unknown first one, T = S + 1."""
    if shift_labels is not None:
        return F.pad(_of_targets(shift_labels, is_shifted=True), (1, 0), value=IGNORED)
    if labels is None:
        raise ValueError("expected labels or shift_labels, got neither")
    return labels


def _given(labels: Tensor | None, shift_labels: Tensor | None) -> tuple[Tensor, bool]:
    """The labels that were given, and True where they are shifted."""
    if (labels is None) == (shift_labels is None):
        raise ValueError("pass either labels, not shifted, or shift_labels")
    given = shift_labels if labels is None else labels
    if not isinstance(given, Tensor):
        raise TypeError(f"labels must be a tensor, got {type(given).__name__}")
    return given, labels is None


def _of_targets(values: Tensor, is_shifted: bool) -> Shaped[Tensor, "B S"]:
    """Labels, or weights in their shape, of the targets."""
    if not is_shifted:
        return values[:, 1:]
    return values if values.ndim == 2 else values[None]


def _resolve_alpha(loss: object, alpha: float | None) -> float:
    if isinstance(loss, AbstractVocabularyLoss):
        if alpha is not None:
            raise ValueError(f"{loss.name} replaces cross-entropy and takes no alpha, got {alpha}")
        return 1.0
    if not isinstance(loss, AbstractDigitLoss):
        raise TypeError(f"loss must be a name, an AbstractDigitLoss or an AbstractVocabularyLoss, got {loss!r}")
    if alpha is None:
        if not hasattr(loss, "default_alpha"):
            raise TypeError(f"{loss.name} has no default_alpha: give the class one, or pass alpha")
        alpha = loss.default_alpha
    check_number("alpha", alpha)
    if not (math.isfinite(alpha) and alpha >= 0):
        raise ValueError(f"alpha must be a finite number of at least 0, got {alpha}")
    return float(alpha)


def _keep_head(loss: AbstractLoss, head: Tensor | nn.Module | None) -> Tensor | nn.Module | None:
    if not loss.keeps_head:
        return head
    if head is None:
        raise ValueError(
            f"{loss!r} reads the head as it was before training: pass head=model.get_output_embeddings() to Objective"
        )
    return _weight_of(head).detach().clone()


def _weight_of(head: Tensor | nn.Module) -> Tensor:
    weight = head if isinstance(head, Tensor) else getattr(head, "weight", None)
    if not isinstance(weight, Tensor):
        raise TypeError(f"head must be a weight [V, H] or a module that has one, got {type(head).__name__}")
    return weight


def _at_least_float32(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _per_token(values: Tensor, has_term: Bool[Tensor, " M"], found: TokenDigits) -> Tensor:
    """Sum over the digits of each token, 0 where it has none; connected to the graph either way."""
    return torch.where(has_term, values, 0).view(found.value.shape).sum(-1)


def _sum_as_cross_entropy(values: TokenLosses, is_target: Bool[Tensor, "B S"]) -> Tensor:
    """Sum in the order in which `F.cross_entropy` does, so that alpha = 0 equals it bit for bit."""
    index = torch.where(is_target, 0, IGNORED).flatten()
    return F.nll_loss(-values.flatten()[:, None], index, ignore_index=IGNORED, reduction="sum")


def _count(given: int | Tensor | None, here: Tensor) -> Tensor:
    """A denominator; at least 1, so that a batch without targets gives 0 and not NaN."""
    if given is None:
        return here.clamp(min=1)
    count = torch.as_tensor(given).flatten()[0]
    if count.device.type == "cpu" and not torch.compiler.is_compiling() and not count >= 0:
        raise ValueError(f"counts of a batch must be numbers of at least 0, got {given}")
    return count.clamp(min=1)  # DataParallel repeats the count, once a device
