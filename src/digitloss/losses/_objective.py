"""What is minimised: cross-entropy of every target token plus alpha times a numeric term, reduced once.

    objective = sum_t H_t / tokens  +  alpha * sum_t numeric_t / (tokens or digits)

The counts may be given for a whole optimizer step over all micro-batches and ranks; the value then never depends on how
a batch is split, padded or packed.
"""

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from digitloss._shapes import Labels, Logits
from digitloss.errors import unknown_name
from digitloss.losses._base import AbstractDigitLoss, AbstractLoss, AbstractVocabularyLoss, check_number
from digitloss.losses._chunked import (
    Context,
    Figures,
    Weights,
    hidden_chunk_size,
    objective_of_hidden,
    objective_of_logits,
)
from digitloss.losses._digits import select_digits
from digitloss.losses._heads import Head, read_head
from digitloss.losses._labels import find_scale, given_labels, of_targets, read_labels
from digitloss.losses._plain import read_plain, sum_as_cross_entropy
from digitloss.losses._registry import load
from digitloss.losses._tokens import IGNORED, Reading, Targets, Terms, believed, sum_over_digits
from digitloss.numbers import NumberVocab

NORMALIZATIONS = ("tokens", "digits")


class Objective:
    """Cross-entropy plus a numeric term.

    Args:
        vocab: What the tokens of the labels hold.
        loss: Name of a loss (`digitloss.losses.names()`), or a loss of your own.
        alpha: Weight of the numeric term, at least 0; None: the loss's own default.
        normalize: What the numeric sum is divided by: target tokens, or digits (a mean over digits, as in the paper).
            A loss of the whole vocabulary is always divided by tokens.
        fused: True: value and gradient in one pass, which costs less time and memory than cross-entropy alone in plain
            autograd; False: plain autograd, which can be differentiated twice.
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
        fused: bool = True,
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
        self.fused = fused

    @property
    def is_normalized_by_tokens(self) -> bool:
        """True where the numeric sum is divided by target tokens, False where by digits."""
        return self.normalize == "tokens" or isinstance(self.loss, AbstractVocabularyLoss)

    @property
    def is_term(self) -> bool:
        """True where it is cross-entropy plus a term on digits, or plus nothing: that term is `numeric_from_hidden`."""
        return isinstance(self.loss, AbstractDigitLoss) or self.loss.adds_nothing

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
        return self._compute(
            logits,
            labels,
            shift_labels=shift_labels,
            position_ids=position_ids,
            head=head,
            counts=(num_items_in_batch, num_digits_in_batch),
            weights=(loss_weights, numeric_weights),
            has_beliefs=False,
        )[0]

    def measure(
        self,
        logits: Logits | Float[Tensor, "N V"],
        labels: Labels | None = None,
        *,
        shift_labels: Labels | Int[Tensor, " N"] | None = None,
        num_items_in_batch: int | Tensor | None = None,
        num_digits_in_batch: int | Tensor | None = None,
        position_ids: Int[Tensor, "_ T"] | Int[Tensor, " N"] | None = None,
        head: Float[Tensor, "V H"] | nn.Module | None = None,
    ) -> tuple[Float[Tensor, ""], Reading]:
        """Return the objective, and without gradient its terms and what the model believed.

        Arguments are those of the call.
        """
        return self._compute(
            logits,
            labels,
            shift_labels=shift_labels,
            position_ids=position_ids,
            head=head,
            counts=(num_items_in_batch, num_digits_in_batch),
            weights=(None, None),
            has_beliefs=True,
        )

    def from_hidden(
        self,
        hidden: Float[Tensor, "B T H"] | Float[Tensor, "N H"],
        head: Float[Tensor, "V H"] | nn.Module | Head,
        labels: Labels | None = None,
        *,
        shift_labels: Labels | Int[Tensor, " N"] | None = None,
        num_items_in_batch: int | Tensor | None = None,
        num_digits_in_batch: int | Tensor | None = None,
        position_ids: Int[Tensor, "_ T"] | Int[Tensor, " N"] | None = None,
        loss_weights: Float[Tensor, "B T"] | Float[Tensor, " N"] | None = None,
        numeric_weights: Float[Tensor, "B T"] | Float[Tensor, " N"] | None = None,
        chunk_size: int | None = None,
    ) -> Float[Tensor, ""]:
        """Return the objective of a batch without building its logits [B, T, V].

        The value and the gradients are those of the logits path, computed chunk by chunk; loss and head gradient are
        summed in float32 or wider, whatever the type of the model.

        Args:
            hidden: What the head reads: the last hidden states.
            head: The output head, its weight, or a `Head` where the model scales or bounds its logits.
            labels: As for the call.
            shift_labels: As for the call.
            num_items_in_batch: As for the call.
            num_digits_in_batch: As for the call.
            position_ids: As for the call.
            loss_weights: As for the call.
            numeric_weights: As for the call.
            chunk_size: Tokens at a time; None: about 256 MB of logits on a CPU, 1 GB on a GPU.

        Raises:
            ValueError: As the call does.

        Example:
            >>> import digitloss as dl
            >>> objective = dl.Objective(dl.NumberVocab.from_tokens([*"0123456789", "."]))
            >>> hidden, head = torch.randn(1, 4, 8), torch.nn.Linear(8, 11, bias=False)
            >>> labels = torch.tensor([[1, 10, 2, 5]])
            >>> loss = objective.from_hidden(hidden, head, labels)
            >>> torch.testing.assert_close(loss, objective(head(hidden), labels))
        """
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1, got {chunk_size}")
        return self._from_hidden(
            hidden,
            head,
            labels,
            shift_labels=shift_labels,
            position_ids=position_ids,
            counts=(num_items_in_batch, num_digits_in_batch),
            weights=(loss_weights, numeric_weights),
            has_beliefs=False,
            chunk_size=chunk_size,
        )[0]

    def numeric_from_hidden(
        self,
        hidden: Float[Tensor, "B T H"] | Float[Tensor, "N H"],
        head: Float[Tensor, "V H"] | nn.Module | Head,
        labels: Labels | None = None,
        *,
        shift_labels: Labels | Int[Tensor, " N"] | None = None,
        num_items_in_batch: int | Tensor | None = None,
        num_digits_in_batch: int | Tensor | None = None,
        position_ids: Int[Tensor, "_ T"] | Int[Tensor, " N"] | None = None,
        numeric_weights: Float[Tensor, "B T"] | Float[Tensor, " N"] | None = None,
    ) -> Float[Tensor, ""]:
        """Return the numeric term alone, alpha and normaliser included, to add to a fused cross-entropy.

        It reads the rows of the digit tokens only. Arguments as for `from_hidden`.

        Raises:
            ValueError: The loss replaces cross-entropy and has no term of its own.
        """
        return self._numeric_from_hidden(
            hidden,
            head,
            labels,
            shift_labels=shift_labels,
            position_ids=position_ids,
            counts=(num_items_in_batch, num_digits_in_batch),
            weights=(None, numeric_weights),
            has_beliefs=False,
        )[0]

    def measure_from_hidden(
        self,
        hidden: Float[Tensor, "B T H"] | Float[Tensor, "N H"],
        head: Float[Tensor, "V H"] | nn.Module | Head,
        labels: Labels | None = None,
        *,
        shift_labels: Labels | Int[Tensor, " N"] | None = None,
        num_items_in_batch: int | Tensor | None = None,
        num_digits_in_batch: int | Tensor | None = None,
        position_ids: Int[Tensor, "_ T"] | Int[Tensor, " N"] | None = None,
        is_term: bool = False,
    ) -> tuple[Float[Tensor, ""], Reading]:
        """Return what `from_hidden` does, and without gradient its terms and what the model believed.

        Args:
            hidden: As for `from_hidden`.
            head: As for `from_hidden`.
            labels: As for the call.
            shift_labels: As for the call.
            num_items_in_batch: As for the call.
            num_digits_in_batch: As for the call.
            position_ids: As for the call.
            is_term: Measure `numeric_from_hidden` instead: then the cross-entropy of the terms is 0, as it is not read.
        """
        measure = self._numeric_from_hidden if is_term else self._from_hidden
        value, reading = measure(
            hidden,
            head,
            labels,
            shift_labels=shift_labels,
            position_ids=position_ids,
            counts=(num_items_in_batch, num_digits_in_batch),
            weights=(None, None),
            has_beliefs=True,
        )
        return value, reading

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
        logits, targets = read_labels(self.vocab, logits, labels, shift_labels, position_ids)
        rows = self._cost_rows(head, logits.shape[-1])
        if shift_labels is None:
            logits = logits[:, :-1]
        return read_plain(logits, targets, self.loss, self.vocab.tables(targets.token.device), rows).terms

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
        """Reduce terms to the objective; arguments as for the call."""
        given, is_shifted = given_labels(labels, shift_labels)
        is_target = of_targets(given, is_shifted) != IGNORED
        if is_target.shape != terms.cross_entropy.shape:
            raise ValueError(
                f"terms {list(terms.cross_entropy.shape)} and labels {list(given.shape)} do not belong together: pass"
                " the labels, or the shift_labels, that the terms were made of"
            )
        counts, weights = (num_items_in_batch, num_digits_in_batch), (loss_weights, numeric_weights)
        scale = find_scale(given, is_shifted, terms.num_digits, counts, weights, self.is_normalized_by_tokens)
        cross_entropy, numeric, _ = terms
        if scale.loss_weights is not None:
            cross_entropy, numeric = cross_entropy * scale.loss_weights, numeric * scale.loss_weights
        if scale.numeric_weights is not None:
            numeric = numeric * scale.numeric_weights
        total = sum_as_cross_entropy(cross_entropy, is_target) / scale.num_items
        return total + self.alpha * (numeric.sum() / scale.num_terms)

    def count_digits(
        self, labels: Labels | None = None, *, shift_labels: Labels | Int[Tensor, " N"] | None = None
    ) -> Int[Tensor, "B S"]:
        """Count the digits of each target token that get a term: `terms.num_digits` from the labels alone."""
        targets = of_targets(*given_labels(labels, shift_labels))
        return self.vocab.tables(targets.device).num_terms[self.vocab.columns_of(targets)]

    def _compute(
        self,
        logits: Tensor,
        labels: Tensor | None,
        *,
        shift_labels: Tensor | None,
        position_ids: Tensor | None,
        head: Tensor | nn.Module | None,
        counts: tuple[int | Tensor | None, int | Tensor | None],
        weights: tuple[Tensor | None, Tensor | None],
        has_beliefs: bool,
    ) -> tuple[Tensor, Reading]:
        logits, targets = read_labels(self.vocab, logits, labels, shift_labels, position_ids)
        tables = self.vocab.tables(targets.token.device)
        rows = self._cost_rows(head, logits.shape[-1])
        num_digits = tables.num_terms[targets.found.column]
        if not self.fused or torch.compiler.is_compiling() or logits.numel() == 0:
            scores = logits if shift_labels is not None else logits[:, :-1]
            reading = read_plain(scores, targets, self.loss, tables, rows)
            value = self.reduce(
                reading.terms,
                labels,
                shift_labels=shift_labels,
                num_items_in_batch=counts[0],
                num_digits_in_batch=counts[1],
                loss_weights=weights[0],
                numeric_weights=weights[1],
            )
            return value, reading._replace(terms=Terms(*(term.detach() for term in reading.terms)))
        flat, factors = self._flat(targets, logits, labels, shift_labels, counts, weights)
        value, figures = objective_of_logits(logits, flat, factors, Context(self.loss, tables, rows, has_beliefs))
        return value, _reading(figures, logits, targets, num_digits)

    def _from_hidden(
        self,
        hidden: Tensor,
        head: Tensor | nn.Module | Head,
        labels: Tensor | None,
        *,
        shift_labels: Tensor | None,
        position_ids: Tensor | None,
        counts: tuple[int | Tensor | None, int | Tensor | None],
        weights: tuple[Tensor | None, Tensor | None],
        has_beliefs: bool,
        chunk_size: int | None = None,
    ) -> tuple[Tensor, Reading]:
        given = read_head(head)
        hidden, targets = read_labels(self.vocab, hidden, labels, shift_labels, position_ids, given)
        flat, factors = self._flat(targets, hidden, labels, shift_labels, counts, weights)
        tables = self.vocab.tables(targets.token.device)
        context = Context(self.loss, tables, self._cost_rows(given, len(given.weight)), has_beliefs)
        size = hidden_chunk_size(len(given.weight), hidden.device) if chunk_size is None else chunk_size
        value, figures = objective_of_hidden(hidden, given, flat, factors, context, size)
        return value, _reading(figures, hidden, targets, tables.num_terms[targets.found.column])

    def _numeric_from_hidden(
        self,
        hidden: Tensor,
        head: Tensor | nn.Module | Head,
        labels: Tensor | None,
        *,
        shift_labels: Tensor | None,
        position_ids: Tensor | None,
        counts: tuple[int | Tensor | None, int | Tensor | None],
        weights: tuple[Tensor | None, Tensor | None],
        has_beliefs: bool,
    ) -> tuple[Tensor, Reading]:
        if not self.is_term:
            raise ValueError(f"{self.loss.name} replaces cross-entropy: it is no term beside it; use from_hidden")
        given = read_head(head)
        hidden, targets = read_labels(self.vocab, hidden, labels, shift_labels, position_ids, given)
        flat, factors = self._flat(targets, hidden, labels, shift_labels, counts, weights)
        tables = self.vocab.tables(targets.token.device)
        with torch.autocast(hidden.device.type, enabled=False):
            digit_logits = given.logits(given.products(hidden.flatten(0, 1)), tables.token_ids)
            digits, has_term = select_digits(tables, flat.found, digit_logits)
            losses = (
                self.loss.digit_loss(digits) if isinstance(self.loss, AbstractDigitLoss) else digits.logits[:, 0] * 0
            )
            numeric = sum_over_digits(losses, has_term, flat)
            value = (numeric * factors.numeric).sum()
            none = torch.zeros_like(numeric.detach())
            beliefs = (none, none)
            if has_beliefs:
                with torch.no_grad():
                    beliefs = believed(digits, has_term, flat)
        figures = Figures(none, numeric.detach(), *beliefs)
        return value, _reading(figures, hidden, targets, tables.num_terms[targets.found.column])

    def _flat(
        self,
        targets: Targets,
        logits: Float[Tensor, "B T _"],
        labels: Tensor | None,
        shift_labels: Tensor | None,
        counts: tuple[int | Tensor | None, int | Tensor | None],
        weights: tuple[Tensor | None, Tensor | None],
    ) -> tuple[Targets, Weights]:
        """The targets of B * T logits, or hidden states, and their factors in the objective."""
        tables = self.vocab.tables(targets.token.device)
        num_digits = tables.num_terms[targets.found.column]
        scale = find_scale(
            *given_labels(labels, shift_labels), num_digits, counts, weights, self.is_normalized_by_tokens
        )
        dtype = torch.promote_types(logits.dtype, torch.float32)
        factors = scale.factors(targets.is_target, self.alpha, dtype)
        if shift_labels is None:  # the last position of each row has no target: one token more, instead of a copy
            targets = targets.with_none_behind(tables)
            factors = [F.pad(factor, (0, 1)) for factor in factors]
        return targets.flatten(), Weights(*(factor.flatten() for factor in factors))

    def _cost_rows(self, head: Tensor | nn.Module | Head | None, num_columns: int) -> Tensor | None:
        """What the loss makes of the head given to the call, else of the objective's own; None where it reads none."""
        if not isinstance(self.loss, AbstractVocabularyLoss) or not self.loss.needs_head:
            return None
        head = self.head if head is None or self.loss.keeps_head else head
        if head is None:
            raise ValueError(
                f"{self.loss.name} reads the output head: pass head=model.get_output_embeddings() to Objective or to"
                " the call"
            )
        weight = read_head(head).merged_weight()
        if len(weight) != num_columns:
            raise ValueError(
                f"head must have one row for each of the {num_columns} columns of the logits, got a weight of shape"
                f" {list(weight.shape)} (a sharded head must be gathered first)"
            )
        return self.loss.cost_rows(weight)


def _reading(figures: Figures, logits: Tensor, targets: Targets, num_digits: Tensor) -> Reading:
    parts = [figure.view(logits.shape[:2])[:, : targets.token.shape[1]] for figure in figures]
    return Reading(Terms(parts[0], parts[1], num_digits), parts[2], parts[3])


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
    return read_head(head).merged_weight().clone()
