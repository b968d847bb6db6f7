"""The output head as numbers: what makes logits of hidden states."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class Head(NamedTuple):
    """An output head: logits = softcap tanh(scale (W h + b) / softcap), without a softcap scale (W h + b)."""

    weight: Float[Tensor, "V H"]
    bias: Float[Tensor, " V"] | None = None
    scale: float = 1.0
    """Factor of the logits (Cohere's logit_scale; one over Granite's logits_scaling)."""
    softcap: float | None = None
    """Bound of the logits (Gemma's final_logit_softcapping)."""

    def logits(self, hidden: Float[Tensor, "N H"], tokens: Int[Tensor, " D"] | None = None) -> Float[Tensor, "N D"]:
        """Logits of all tokens, or of some, in float32 or wider; the product is in the type of its factors."""
        weight, bias = self.weight, self.bias
        if tokens is not None:
            weight, bias = weight[tokens], None if bias is None else bias[tokens]
        dtype = torch.promote_types(hidden.dtype, weight.dtype)
        product = F.linear(hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
        return self.transformed(product.to(torch.promote_types(product.dtype, torch.float32)))

    def transformed(self, product: Tensor) -> Tensor:
        """Apply scale and softcap."""
        if self.scale != 1:
            product = product * self.scale
        return product if self.softcap is None else self.softcap * torch.tanh(product / self.softcap)

    def slope(self, logits: Tensor) -> Tensor | float:
        """Derivative of the logits by the product, from the logits."""
        if self.softcap is None:
            return self.scale
        return self.scale * (1 - (logits / self.softcap).square())


def read_head(head: Tensor | nn.Module | Head) -> Head:
    """Return the head of a weight [V, H], or of a module that has one.

    Raises:
        TypeError: It has no weight.
        ValueError: The weight has another shape (a sharded one must be gathered first).
    """
    if isinstance(head, Head):
        return head
    weight = head if isinstance(head, Tensor) else getattr(head, "weight", None)
    if not isinstance(weight, Tensor):
        raise TypeError(f"head must be a weight [V, H] or a module that has one, got {type(head).__name__}")
    if weight.ndim != 2:
        raise ValueError(
            f"head must have a weight [V, H], got the shape {list(weight.shape)} (gather a sharded head first)"
        )
    bias = None if isinstance(head, Tensor) else getattr(head, "bias", None)
    return Head(weight, bias)
