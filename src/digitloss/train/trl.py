"""TRL's `SFTTrainer` with an objective, without logits of all tokens and without a second forward pass.

TRL's model returns the log-probability of each target token, made chunk by chunk from the hidden states. The term is
computed in the same forward, from the same hidden states and the rows of the digit tokens: there the weights of a
sharded model are whole. A loss of the whole vocabulary (EMO, MixCE) is computed there too, in chunks, and takes the
place of TRL's.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from digitloss.errors import ModelError, TermNotCalledError
from digitloss.losses import Head, Objective
from digitloss.losses._labels import unshifted
from digitloss.losses._tokens import IGNORED
from digitloss.train._outputs import check_model, check_objective
from digitloss.train._steps import CountedSteps, given_labels, refuse_other_losses

try:
    from trl.trainer.sft_trainer import SFTTrainer
    from trl.trainer.utils import add_fused_lm_head as _  # noqa: F401 (says whether this TRL has the fused head)
except ImportError as error:
    raise ImportError(
        "NumericSFTTrainer needs TRL 1.16 or newer, whose models return log-probabilities instead of logits"
        f" ({error}): pip install 'digitloss[trl]', or use NumericTrainer"
    ) from error

_CHECKED = 4  # targets whose log-probability is compared with TRL's, in the first batch


class NumericSFTTrainer(CountedSteps, SFTTrainer):
    """`trl.SFTTrainer` that minimises an objective; all its other arguments are the SFTTrainer's.

    Packing, padding-free batches, gradient accumulation, several processes, PEFT and evaluation work as in TRL. The log
    has, beside TRL's figures, those of `NumericTrainer`.

    Args:
        objective: What to minimise.

    Raises:
        ValueError: An option that would replace the objective.
        ModelError: In the first step, where the log-probabilities of the model are not those of its head.
        TermNotCalledError: In the first step, where the loss was computed without the objective.
    """

    def __init__(self, *args: Any, objective: Objective, **kwargs: Any):
        check_objective(objective)
        super().__init__(*args, **kwargs)
        refuse_other_losses(self)
        check_model(self.model)
        loss_type = getattr(self.args, "loss_type", "nll")
        if loss_type not in ("nll", "chunked_nll"):
            raise ValueError(f"loss_type={loss_type!r} would replace the objective: leave it at 'nll'")
        if not self.args.average_tokens_across_devices:
            raise ValueError("an objective is divided by the tokens of all ranks: average_tokens_across_devices=True")
        if not objective.is_term and self.aux_loss_enabled:
            raise ValueError(
                f"{objective.loss.name} replaces cross-entropy, and the auxiliary loss of the experts with it: set"
                " output_router_logits=False in the model's configuration, or choose a loss on digits"
            )
        self._begin(objective, "NumericSFTTrainer")
        self._is_checked = False
        self._measured: tuple[Tensor, Tensor] | None = None
        base = _base(self.model)
        base.forward = MethodType(self._measuring(base.forward), base)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        """Return the objective of a micro-batch, divided by the counts of the whole step while training."""
        labels = unshifted(*given_labels(inputs))
        counts = self._counts(model.training, labels.device)
        self._measured = None
        given: Any = super().compute_loss(  # type: ignore[no-untyped-call]
            model, inputs, return_outputs, num_items_in_batch=counts[0]
        )
        cross_entropy, *outputs = given if return_outputs else (given,)
        if self._measured is None:
            raise TermNotCalledError(
                "the model ran without TRL's fused head: something replaced the model's forward after NumericSFTTrainer"
                " was made"
            )
        value, replaced = self._measured
        self._measured = None
        if counts[0] is not None:
            value, replaced = (x * self.accelerator.num_processes for x in (value, replaced))
        loss = cross_entropy - replaced + value
        return (loss, *outputs) if return_outputs else loss

    def _measuring(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the model's forward: where TRL asks for log-probabilities, the objective is measured too."""

        @functools.wraps(forward)
        def measured(model: Any, *args: Any, fused_lm_head: bool = False, **kwargs: Any) -> Any:
            if not fused_lm_head:
                return forward(*args, **kwargs)
            with _hidden_states(model) as kept:
                outputs = forward(*args, fused_lm_head=True, **kwargs)
            self._measure(model, kept[-1], outputs, kwargs)
            return outputs

        return measured

    def _measure(self, model: Any, hidden: Tensor, outputs: Any, inputs: Mapping[str, Any]) -> None:
        labels, shift_labels = given_labels(inputs)
        rows = unshifted(labels, shift_labels)
        head = Head.from_model(model, check=False)
        if not self._is_checked:
            self._is_checked = True
            _check(head, model, hidden if shift_labels is not None else hidden[:, :-1], rows[:, 1:], outputs.log_probs)
        counts = self._counts(model.training, hidden.device)
        is_term = self.objective.is_term
        value, reading = self.objective.measure_from_hidden(
            hidden,
            head,
            labels,
            shift_labels=shift_labels,
            num_items_in_batch=counts[0],
            num_digits_in_batch=counts[1],
            position_ids=inputs.get("position_ids"),
            is_term=is_term,
        )
        replaced = torch.zeros((), device=value.device)
        if is_term:
            terms = reading.terms._replace(cross_entropy=-outputs.log_probs.detach().float())
            reading = reading._replace(terms=terms)
        else:
            num_items = (rows[:, 1:] != IGNORED).sum().clamp(min=1) if counts[0] is None else counts[0]
            replaced = -outputs.log_probs.sum() / num_items
        self._record(reading, rows, counts)
        self._measured = value, replaced


def _base(model: Any) -> Any:
    """The model inside a PEFT wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@contextmanager
def _hidden_states(model: Any) -> Iterator[list[Tensor]]:
    """Keep what the model's body hands to its head."""
    kept: list[Tensor] = []
    handle = model.base_model.register_forward_hook(lambda *given: kept.append(given[2].last_hidden_state))
    try:
        yield kept
    finally:
        handle.remove()


@torch.no_grad()
def _check(head: Head, model: Any, hidden: Tensor, targets: Tensor, log_probs: Tensor) -> None:
    """Compare the log-probabilities of a few targets with those that the head, as it was read, gives them."""
    where = (targets != IGNORED).nonzero()[:_CHECKED]
    if not len(where):
        return
    row, column = where.unbind(1)
    states, target = hidden[row, column], targets[row, column]
    with torch.autocast(hidden.device.type, enabled=False):
        logits = head.logits(head.products(states))
        own = logits.float().log_softmax(-1).gather(1, target[:, None])[:, 0]
    given = log_probs[row, column].float()
    tolerance = 1e-3 if hidden.dtype == torch.float32 and not torch.is_autocast_enabled(hidden.device.type) else 0.25
    if not torch.allclose(own, given, rtol=tolerance, atol=tolerance):
        raise ModelError(
            f"{type(model).__name__}: TRL {version('trl')} gives targets the log-probabilities {given.tolist()}, the"
            f" head as it was read gives {own.tolist()}: the model does something else with its logits; use"
            " NumericTrainer"
        )
