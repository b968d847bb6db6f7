"""MixCE: cross-entropy of the data under the model mixed with cross-entropy of the model under the data.

    loss_t = (eta + (1 - eta) [q_t]) H_t,    q_t = exp(-H_t) = softmax(logits_t)[y_t]      [.] carries no gradient

H is cross-entropy. eta = 1 is maximum likelihood.

Paper: Zhang et al., "MixCE: Training Autoregressive Language Models by Mixing Forward and Reverse Cross-Entropies",
ACL 2023, arXiv 2305.16958.

Differs from the DEL authors' copy, where H is already a mean over the batch: its q is one number for all tokens, and
the mean is then multiplied by the number of tokens.
"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from digitloss.losses._base import AbstractVocabularyLoss, check_share


@dataclass(frozen=True, kw_only=True)
class Loss(AbstractVocabularyLoss):
    """MixCE.

    Example:
        >>> import digitloss as dl
        >>> dl.losses.load("mixce", eta=0.3)
        Loss(eta=0.3)
    """

    has_detached_factor: ClassVar[bool] = True

    eta: float = 0.5
    """Share of the forward cross-entropy, 0 to 1 (the DEL authors' value). The MixCE authors chose it on held-out text:
    0.1 on WikiText, 0.3 on WebText, 0.7 on WritingPrompts."""

    def __post_init__(self) -> None:
        """Check the options."""
        check_share("eta", self.eta)

    def added_loss(
        self, cross_entropy: Float[Tensor, " N"], mean_cost: Float[Tensor, " N"] | None
    ) -> Float[Tensor, " N"]:
        """What MixCE adds to cross-entropy, [N] in nats; never positive."""
        del mean_cost
        return (1 - self.eta) * ((-cross_entropy.detach()).exp() - 1) * cross_entropy
