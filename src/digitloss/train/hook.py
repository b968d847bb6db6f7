"""The objective as a plain function, for code that cannot subclass the Trainer."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from digitloss.losses import Objective
from digitloss.train._outputs import check_objective, read_logits
from digitloss.train._proof import log_weight_in_batch


def compute_loss_func(objective: Objective) -> Callable[..., Tensor]:
    """Make a `compute_loss_func` for `transformers.Trainer`; `NumericTrainer` does more.

    Limits, since the Trainer hands over outputs, labels and the number of target tokens only: no `position_ids` (packed
    samples must have their first label masked), no digit count (`normalize="digits"` is refused), no metrics in the
    log, and no proof in the first step that it was called. A loss that reads the head takes the one given to the
    objective. `eval_loss` is the Trainer's mean over batches, so it depends on the evaluation batch size. With several
    processes leave `average_tokens_across_devices=True`. Before May 2026 transformers counted the first label of each
    row as a target: mask it there.

    Args:
        objective: What to minimise.

    Returns:
        `f(outputs, labels, num_items_in_batch=None) -> scalar`.

    Raises:
        ValueError: The objective needs what the hook does not get.

    Example:
        >>> import digitloss as dl
        >>> vocab = dl.NumberVocab.from_tokens([*"0123456789"])
        >>> hook = dl.train.compute_loss_func(dl.Objective(vocab))
    """
    check_reduced(objective, "compute_loss_func")
    is_first = True

    def compute_loss(outputs: Any, labels: Tensor, num_items_in_batch: int | Tensor | None = None) -> Tensor:
        nonlocal is_first
        if is_first:
            is_first = False
            log_weight_in_batch(objective, labels)
        return objective(read_logits(outputs, labels.shape[1]), labels, num_items_in_batch=num_items_in_batch)

    return compute_loss


def check_reduced(objective: Objective, adapter: str) -> None:
    """Refuse an objective that needs more than a hook gets."""
    check_objective(objective)
    if objective.normalize == "digits":
        raise ValueError(
            f"{adapter} cannot use normalize='digits': a hook does not get the digit count of the whole optimizer step."
            " Use NumericTrainer, or normalize='tokens'"
        )
    if objective.loss.needs_head and objective.head is None:
        raise ValueError(
            f"{adapter} cannot read the head, which {objective.loss.name} needs: give it to the objective,"
            " Objective(..., head=model.get_output_embeddings()), or use NumericTrainer"
        )
