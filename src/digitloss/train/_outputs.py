"""What every adapter checks of a model and its output, so that nothing of the loss is lost in silence."""

from typing import Any

from torch import Tensor

from digitloss.losses import Objective


def check_objective(objective: object) -> None:
    """Refuse what is no objective."""
    if not isinstance(objective, Objective):
        raise TypeError(f"expected an Objective, got {objective!r}: make one with digitloss.Objective(vocab, loss=...)")


def check_model(model: Any) -> None:
    """Refuse encoder-decoder models, whose labels are not those of the next token."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise ValueError(
            f"{type(model).__name__} is an encoder-decoder model, whose labels are not shifted: only decoder-only"
            " models are supported; use Objective yourself, with shift_labels=labels"
        )


def read_logits(outputs: Any, num_positions: int) -> Tensor:
    """Return the logits [B, T, V] of a model's output for labels of T positions."""
    if isinstance(outputs, tuple):
        raise ValueError("the model returned a tuple: call it with return_dict=True (config.return_dict)")
    found = outputs if isinstance(outputs, dict) else vars(outputs)
    if found.get("encoder_last_hidden_state") is not None:
        raise ValueError("the outputs are of an encoder-decoder model: only decoder-only models are supported")
    if found.get("aux_loss") is not None:
        raise ValueError(
            "the model returned an auxiliary loss (aux_loss, of a mixture of experts), which the objective would leave"
            " out: set config.output_router_logits=False to train without it, or use NumericLossCallback, with which"
            " the model adds it"
        )
    logits = found.get("logits")
    if not isinstance(logits, Tensor) or logits.numel() == 0:
        raise ValueError(
            "the model returned no logits, and the numeric term reads them. A fused loss head was on: switch off"
            " use_liger_kernel (or Liger's fused_linear_cross_entropy), cut-cross-entropy and TRL's fused head;"
            " under Unsloth set UNSLOTH_RETURN_LOGITS=1"
        )
    if logits.ndim == 3 and logits.shape[1] > num_positions:
        raise ValueError(
            f"the model returned logits of {logits.shape[1]} positions for labels of {num_positions}: virtual tokens in"
            " front (prompt tuning) are supported by NumericLossCallback only, to which PEFT hands labels that long"
        )
    return logits
