"""Reads the logits of a model's output, or says why there are none."""

from typing import Any

from torch import Tensor


def read_logits(outputs: Any) -> Tensor:
    """Return the logits [B, T, V] of a model's output."""
    logits = outputs["logits"] if isinstance(outputs, dict) else getattr(outputs, "logits", None)
    if logits is None or not isinstance(logits, Tensor) or logits.numel() == 0:
        raise ValueError(
            "the model returned no logits, and the numeric term reads them. A fused loss head was on: switch off"
            " use_liger_kernel (or Liger's fused_linear_cross_entropy), cut-cross-entropy and TRL's fused head;"
            " under Unsloth set UNSLOTH_RETURN_LOGITS=1"
        )
    return logits
