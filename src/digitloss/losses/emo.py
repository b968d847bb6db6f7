"""EMO: earth mover's distance to the target token, with the cosine distance between token embeddings as its cost.

    emo_t = 1 - e_y . sum_v q_v e_v + [q_y],    q = softmax(logits_t)      [.] carries no gradient

    emo1:  loss_t = ([H_t / (emo_t + 1e-10)] emo_t + H_t) / 2
    emo2:  loss_t = [emo_t / (H_t + 1e-10)] H_t + emo_t

H is cross-entropy, e_v the head's row of token v, of unit length and without gradient. The two terms weigh the same,
whatever their sizes: the value of emo1 is H, and what EMO changes is the gradient.

Paper: Ren, Wu, Zhu, "EMO: Earth Mover Distance Optimization for Auto-Regressive Language Modeling", ICLR 2024,
arXiv 2310.04691.

Differs from the DEL authors' copy, whose two terms are never combined: the weight there divides a mean over the batch
by the distance of a token, and names a variable that does not exist.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from digitloss.losses._base import AbstractVocabularyLoss, check_choice, check_positive

_EPSILON = 1e-10  # of the authors: a ratio stays finite where its denominator is 0


@dataclass(frozen=True, kw_only=True)
class Loss(AbstractVocabularyLoss):
    """EMO.

    Example:
        >>> import digitloss as dl
        >>> dl.losses.load("emo", form="emo2")
        Loss(form='emo2', rows='current', max_ratio=None)
    """

    needs_head: ClassVar[bool] = True
    has_detached_factor: ClassVar[bool] = True

    form: Literal["emo1", "emo2"] = "emo1"
    """Which term is brought to the size of the other: the distance (emo1) or cross-entropy (emo2)."""
    rows: Literal["current", "frozen"] = "current"
    """Embeddings of the tokens: the head's as they are now, or as they were when the objective was made."""
    max_ratio: float | None = None
    """Highest factor that brings a term to the other's size; None: no limit. The authors use 3 when they fine-tune."""

    def __post_init__(self) -> None:
        """Check the options."""
        check_choice("form", self.form, ["emo1", "emo2"])
        check_choice("rows", self.rows, ["current", "frozen"])
        if self.max_ratio is not None:
            check_positive("max_ratio", self.max_ratio)

    @property
    def keeps_head(self) -> bool:
        """True for frozen rows."""
        return self.rows == "frozen"

    def cost_rows(self, head: Float[Tensor, "V H"]) -> Float[Tensor, "V H"]:
        """Return the embeddings, of unit length and without gradient, in float32 or wider."""
        return F.normalize(head.detach().to(torch.promote_types(head.dtype, torch.float32)), dim=-1)

    def token_costs(self, target: Int[Tensor, " N"], products: Float[Tensor, "N V"] | None) -> Float[Tensor, "N V"]:
        """Return 1 - cos(e_v, e_y) of every token v."""
        assert products is not None
        return products.neg_().add_(1)

    def added_loss(
        self, cross_entropy: Float[Tensor, " N"], mean_cost: Float[Tensor, " N"] | None
    ) -> Float[Tensor, " N"]:
        """What EMO adds to cross-entropy, [N] in nats.

        The distance is the mean cost plus the target's own probability, without gradient: a token that is sure of its
        target has distance 1.
        """
        assert mean_cost is not None
        distance = (mean_cost + (-cross_entropy.detach()).exp()).clamp(min=0)  # below 0 by rounding only
        if self.form == "emo1":
            return (self._ratio(cross_entropy, distance) * distance - cross_entropy) / 2
        return (self._ratio(distance, cross_entropy) - 1) * cross_entropy + distance

    def _ratio(self, numerator: Float[Tensor, " N"], denominator: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        ratio = numerator.detach() / (denominator.detach() + _EPSILON)
        return ratio if self.max_ratio is None else ratio.clamp(max=self.max_ratio)
