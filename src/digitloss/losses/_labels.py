"""From labels, counts and weights as users give them to targets and their factors in the objective; checked."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from digitloss.losses._heads import Head
from digitloss.losses._tokens import IGNORED, Targets, find_targets
from digitloss.numbers import NumberVocab


def read_labels(
    vocab: NumberVocab,
    logits: Tensor,
    labels: Tensor | None,
    shift_labels: Tensor | None,
    position_ids: Tensor | None,
    head: Head | None = None,
) -> tuple[Float[Tensor, "B T V"], Targets]:
    """Logits [B, T, V], or hidden states, and the targets of the labels, T - 1 or T of a row; checked."""
    if not isinstance(logits, Tensor):
        hint = (
            ": a model that returns none had a fused loss head on (use_liger_kernel, cut-cross-entropy; under"
            " Unsloth set UNSLOTH_RETURN_LOGITS=1)"
        )
        raise TypeError(f"logits must be a tensor, got {type(logits).__name__}{hint if logits is None else ''}")
    given, is_shifted = given_labels(labels, shift_labels)
    if not is_shifted:
        if logits.ndim != 3 or given.ndim != 2 or logits.shape[:2] != given.shape:
            raise ValueError(
                "expected logits [B, T, V] and labels [B, T] of the same B and T, not shifted,"
                f" got logits {list(logits.shape)} and labels {list(given.shape)} (flattened or shifted labels go"
                " into shift_labels)"
            )
        _check(vocab, logits, given, position_ids, head)
        return logits, find_targets(vocab, given, position_ids)
    if logits.ndim == 2 and given.ndim == 1:
        logits, given = logits[None], given[None]
        position_ids = position_ids[None] if position_ids is not None and position_ids.ndim == 1 else position_ids
    if logits.ndim != 3 or given.ndim != 2 or logits.shape[:2] != given.shape:
        raise ValueError(
            "expected logits [B, T, V] and shift_labels [B, T], or [N, V] and [N], got logits"
            f" {list(logits.shape)} and shift_labels {list(given.shape)}"
        )
    _check(vocab, logits, given, position_ids, head)
    if position_ids is not None:
        position_ids = F.pad(position_ids, (0, 1), value=1)
    return logits, find_targets(vocab, unshifted(None, given), position_ids)


class Scale(NamedTuple):
    """What the sums over tokens are divided by and each token is multiplied with."""

    num_items: Tensor
    num_terms: Tensor
    loss_weights: Float[Tensor, "B S"] | None
    numeric_weights: Float[Tensor, "B S"] | None

    def factors(self, is_target: Bool[Tensor, "B S"], alpha: float, dtype: torch.dtype) -> list[Tensor]:
        """Factors of each token's cross-entropy and numeric term in the objective."""
        of_loss = is_target.to(dtype)
        if self.loss_weights is not None:
            of_loss = of_loss * self.loss_weights
        of_numeric = alpha * of_loss / self.num_terms
        if self.numeric_weights is not None:
            of_numeric = of_numeric * self.numeric_weights
        return [(of_loss / self.num_items).to(dtype), of_numeric.to(dtype)]


def find_scale(
    given: Tensor,
    is_shifted: bool,
    num_digits: Int[Tensor, "B S"],
    counts: tuple[int | Tensor | None, int | Tensor | None],
    weights: tuple[Tensor | None, Tensor | None],
    is_normalized_by_tokens: bool,
) -> Scale:
    """What the sums are divided by and the tokens multiplied with; checked."""
    for name, weight in zip(("loss_weights", "numeric_weights"), weights, strict=True):
        if weight is not None and weight.shape != given.shape:
            raise ValueError(f"{name} must have the shape of labels {list(given.shape)}, got {list(weight.shape)}")
    found = [None if weight is None else of_targets(weight, is_shifted) for weight in weights]
    num_items_in_batch, num_digits_in_batch = counts
    num_items = _count(num_items_in_batch, (of_targets(given, is_shifted) != IGNORED).sum())
    if is_normalized_by_tokens:
        return Scale(num_items, num_items, *found)
    if num_items_in_batch is not None and num_digits_in_batch is None:
        raise ValueError(
            "normalize='digits' with num_items_in_batch needs num_digits_in_batch too, the digits of the same"
            " optimizer step: Objective.count_digits counts them, NumericTrainer does it for you"
        )
    return Scale(num_items, _count(num_digits_in_batch, num_digits.sum()), *found)


def unshifted(labels: Tensor | None, shift_labels: Tensor | None) -> Int[Tensor, "B T"]:
    """Labels as they are, or shifted ones of S targets behind an unknown first one, T = S + 1."""
    if shift_labels is not None:
        return F.pad(of_targets(shift_labels, is_shifted=True), (1, 0), value=IGNORED)
    if labels is None:
        raise ValueError("expected labels or shift_labels, got neither")
    return labels


def given_labels(labels: Tensor | None, shift_labels: Tensor | None) -> tuple[Tensor, bool]:
    """The labels that were given, and True where they are shifted."""
    if (labels is None) == (shift_labels is None):
        raise ValueError("pass either labels, not shifted, or shift_labels")
    given = shift_labels if labels is None else labels
    if not isinstance(given, Tensor):
        raise TypeError(f"labels must be a tensor, got {type(given).__name__}")
    return given, labels is None


def of_targets(values: Tensor, is_shifted: bool) -> Shaped[Tensor, "B S"]:
    """Labels, or weights in their shape, of the targets."""
    if not is_shifted:
        return values[:, 1:]
    return values if values.ndim == 2 else values[None]


def _check(vocab: NumberVocab, logits: Tensor, labels: Tensor, position_ids: Tensor | None, head: Head | None) -> None:
    if not logits.is_floating_point() or labels.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"expected floating-point logits and integer labels, got {logits.dtype} and {labels.dtype}")
    if position_ids is not None and position_ids.shape not in (labels.shape, (1, labels.shape[1])):
        raise ValueError(
            f"position_ids must have the shape of labels {list(labels.shape)}, got {list(position_ids.shape)}"
        )
    if head is not None and head.weight.shape[1] != logits.shape[-1]:
        raise ValueError(
            f"hidden states of size {logits.shape[-1]} and a head for a size of {head.weight.shape[1]} do not"
            " belong together"
        )
    num_columns = logits.shape[-1] if head is None else len(head.weight)
    num_needed = vocab.largest_digit_id + 1
    if num_columns < num_needed:
        raise ValueError(
            f"the tokenizer's digit tokens need logits of at least {num_needed} columns, got {num_columns}:"
            " the model and the tokenizer do not belong together"
        )
    if is_readable(labels):
        wrong = labels[(labels != IGNORED) & ((labels < 0) | (labels >= num_columns))]
        if len(wrong):
            raise ValueError(
                f"labels must lie in 0..{num_columns - 1} or be {IGNORED} (no target), got {int(wrong[0])}"
                f" and {len(wrong) - 1} more outside"
            )


def _count(given: int | Tensor | None, here: Tensor) -> Tensor:
    """A denominator; at least 1, so that a batch without targets gives 0 and not NaN."""
    if given is None:
        return here.clamp(min=1)
    count = torch.as_tensor(given).flatten()[0]
    if is_readable(count) and not count >= 0:
        raise ValueError(f"counts of a batch must be numbers of at least 0, got {given}")
    return count.clamp(min=1)  # DataParallel repeats the count, once a device


def is_readable(values: Tensor) -> bool:
    """True where values can be looked at for nothing: on the CPU, and neither fake nor being compiled."""
    return type(values) is Tensor and values.device.type == "cpu" and not torch.compiler.is_compiling()
