"""The objective in plain autograd: the specification of the fused path, and the way to a second derivative."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from digitloss.losses._base import AbstractDigitLoss, AbstractVocabularyLoss
from digitloss.losses._digits import select_digits
from digitloss.losses._tokens import IGNORED, Reading, Targets, Terms, believed, sum_over_digits
from digitloss.numbers._tables import Tables


def read_plain(
    logits: Float[Tensor, "B S V"],
    targets: Targets,
    loss: AbstractDigitLoss | AbstractVocabularyLoss,
    tables: Tables,
    rows: Tensor | None,
) -> Reading:
    """Return the terms of each target token and what the model believed about its digits."""
    scores = (logits if logits.dtype == torch.float64 else logits.float()).flatten(0, 1)
    flat, shape = targets.flatten(), targets.token.shape
    index = torch.where(flat.is_target, flat.token, IGNORED)
    cross_entropy = F.cross_entropy(scores, index, ignore_index=IGNORED, reduction="none")
    digits, has_term = select_digits(tables, flat.found, scores[:, tables.token_ids])
    if isinstance(loss, AbstractDigitLoss):
        numeric = sum_over_digits(loss.digit_loss(digits), has_term, flat)
    else:
        costs = loss.token_costs(flat.token, None if rows is None else rows[flat.token] @ rows.T)
        mean_cost = None if costs is None else (scores.softmax(-1) * costs).sum(-1)
        numeric = torch.where(flat.is_target, loss.added_loss(cross_entropy, mean_cost), 0.0)
    with torch.no_grad():
        digit_entropy, num_correct = believed(digits, has_term, flat)
    terms = Terms(cross_entropy.view(shape), numeric.view(shape), tables.num_terms[targets.found.column])
    return Reading(terms, digit_entropy.view(shape), num_correct.view(shape))


def sum_as_cross_entropy(values: Float[Tensor, "B S"], is_target: Bool[Tensor, "B S"]) -> Tensor:
    """Sum in the order in which `F.cross_entropy` does, so that alpha = 0 equals it bit for bit."""
    index = torch.where(is_target, 0, IGNORED).flatten()
    return F.nll_loss(-values.flatten()[:, None], index, ignore_index=IGNORED, reduction="sum")
