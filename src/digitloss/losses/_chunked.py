"""The objective in one pass: chunk by chunk, value and gradient together, without a second copy of the logits.

Of the logits of a token a loss reads those of the digit tokens, the cross-entropy and, for some, the mean of a cost
under the model. The first are gathered for all tokens at once and the digit terms differentiated by autograd: a small
graph. The others are found for a chunk of tokens in cache,

    e = exp(logits - max),  Z = sum e,  cross-entropy H = max + log Z - logit of the target,

and differentiated in the same way. Since the normalisers are known before any logit is read, so is the weight w of each
token, and the gradient of the logits takes the place of e:

    e / Z (w + g_H + g_cost (cost - mean cost)) - (w + g_H) [target] + g_digits

What this file does not do: a second derivative, for which the plain path (`_plain.py`) is there; that is also the
specification, to which this one is held.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from digitloss.losses._base import AbstractDigitLoss, AbstractVocabularyLoss
from digitloss.losses._digits import select_digits
from digitloss.losses._heads import Head, Product
from digitloss.losses._labels import is_readable
from digitloss.losses._products import add_weight_gradient, states_gradient, write_product
from digitloss.losses._tokens import Targets, believed, sum_over_digits
from digitloss.numbers._tables import Tables

_TOKENS_OF_PRODUCT = 256


class Context(NamedTuple):
    """What every chunk reads besides its tokens."""

    loss: AbstractDigitLoss | AbstractVocabularyLoss
    tables: Tables
    rows: Tensor | None
    """Rows whose products the loss's costs are made of."""
    has_beliefs: bool
    """True where digit entropy and right digits are asked for."""
    room: Tensor | None = None
    """Where the products of a chunk are written, one chunk after the other; None: in a tensor of their own."""

    def with_room(self, size: int) -> "Context":
        """Return the same with room for chunks of up to `size` tokens, where the loss needs products."""
        return self if self.rows is None else self._replace(room=self.rows.new_empty(size, len(self.rows)))


class Weights(NamedTuple):
    """Factor of each of N tokens in the objective, normaliser and alpha included."""

    cross_entropy: Float[Tensor, " N"]
    numeric: Float[Tensor, " N"]

    def part(self, where: slice) -> "Weights":
        """Return those of a part of the tokens."""
        return Weights(self.cross_entropy[where], self.numeric[where])


class Figures(NamedTuple):
    """What was read of N tokens, without gradient."""

    cross_entropy: Tensor
    numeric: Tensor
    digit_entropy: Tensor
    num_correct: Tensor


def objective_of_logits(
    logits: Float[Tensor, "B T V"], targets: Targets, weights: Weights, context: Context
) -> tuple[Float[Tensor, ""], Figures]:
    """Return the objective of B * T tokens, differentiable, and the figures of each token."""
    found: list[Figures] = []

    def compute(inputs: Sequence[Tensor], is_needed: Sequence[bool]) -> tuple[Tensor, list[Tensor | None]]:
        (given,) = inputs
        gradient = torch.empty(given.shape, dtype=_kept(given.dtype), device=given.device) if is_needed[0] else None
        with torch.autocast(given.device.type, enabled=False):
            figures = _read_logits(given, gradient, targets, weights, context)
        found[:] = [figures]
        return _total(figures, weights), [gradient]

    value: Tensor = _compute(compute, logits)
    return value, found[0]


def objective_of_hidden(
    hidden: Float[Tensor, "B T H"], head: Head, targets: Targets, weights: Weights, context: Context, size: int
) -> tuple[Float[Tensor, ""], Figures]:
    """Return the same from hidden states, `size` tokens at a time: no logits of all tokens are there at once.

    Loss and head gradient are summed in float32 or wider, whatever the types of hidden states and head.
    """
    found: list[Figures] = []
    has_bias = head.bias is not None
    num_products = 1 + len(head.updates)

    def compute(inputs: Sequence[Tensor], is_needed: Sequence[bool]) -> tuple[Tensor, list[Tensor | None]]:
        products = [Product(*pair) for pair in zip(inputs[:num_products], inputs[num_products:], strict=False)]
        given = head._replace(weight=products[0].weight, bias=inputs[-1] if has_bias else None)
        gradients = [_accumulator(x, is_sum=i >= num_products) if is_needed[i] else None for i, x in enumerate(inputs)]
        with torch.autocast(hidden.device.type, enabled=False):
            digit_logits = given.logits(products, context.tables.token_ids)
            digits = read_digits(digit_logits, targets, weights, context, with_gradient=any(is_needed))
            parts = []
            scratch = digit_logits.new_empty(min(size, len(digit_logits)), len(given.weight))
            of_chunk = context.with_room(len(scratch))
            for start in range(0, len(digit_logits), size):
                where = slice(start, start + size)
                chunk = [Product(states[where], weight) for states, weight in products]
                work = given.write_logits(scratch[: len(chunk[0].states)], chunk)
                slope = given.slope(work) if any(is_needed) else 1.0
                parts.append(read_chunk(work, work, targets.part(where), weights.part(where), of_chunk, any(is_needed)))
                if not any(is_needed):
                    continue
                if digits.gradient is not None:
                    work.scatter_add_(1, context.tables.token_ids.expand(len(work), -1), digits.gradient[where])
                if isinstance(slope, Tensor) or slope != 1:
                    work.mul_(slope)
                _add_gradients(gradients, work, chunk, where)
        cross_entropy, added = (torch.cat(part) for part in zip(*parts, strict=True))
        numeric = added if digits.numeric is None else digits.numeric
        found[:] = [Figures(cross_entropy, numeric, digits.entropy, digits.num_correct)]
        kept = [None if g is None else g.to(_kept(x.dtype)) for g, x in zip(gradients, inputs, strict=True)]
        return _total(found[0], weights), kept

    products = head.products(hidden.flatten(0, 1))
    inputs = [*(pair.states for pair in products), *(pair.weight for pair in products)]
    value: Tensor = _compute(compute, *inputs, *([head.bias] if has_bias else []))
    return value, found[0]


def _accumulator(given: Tensor, *, is_sum: bool) -> Tensor:
    """Room for the gradient of hidden states, or in float32 or wider for that of a weight, which is a sum of chunks."""
    if not is_sum:
        return torch.empty_like(given, dtype=_kept(given.dtype))
    return torch.zeros_like(given, dtype=torch.promote_types(given.dtype, torch.float32))


def _add_gradients(
    gradients: Sequence[Tensor | None], work: Float[Tensor, "n V"], chunk: Sequence[Product], where: slice
) -> None:
    """Write the gradients of a chunk's states, and add up those of weights and bias."""
    num_products = len(chunk)
    for (states, weight), of_states, of_weight in zip(chunk, gradients, gradients[num_products:], strict=False):
        dtype = _kept(torch.promote_types(states.dtype, weight.dtype))
        if of_states is not None:
            of_states[where] = states_gradient(work, weight, dtype)
        if of_weight is not None:
            add_weight_gradient(of_weight, work, states, dtype)
    if len(gradients) > 2 * num_products and gradients[-1] is not None:
        gradients[-1].add_(work.sum(0))


def _read_logits(
    logits: Tensor, gradient: Tensor | None, targets: Targets, weights: Weights, context: Context
) -> Figures:
    """Read logits, and write their gradient where it is asked for."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    digit_logits = logits[..., context.tables.token_ids].flatten(0, 1).to(dtype)
    digits = read_digits(digit_logits, targets, weights, context, with_gradient=gradient is not None)
    size = chunk_size(logits.shape[-1], logits.device, has_product=context.rows is not None)
    context = context.with_room(size)
    is_direct = gradient is not None and gradient.dtype == dtype
    scratch = logits.new_empty((0 if is_direct else size, logits.shape[-1]), dtype=dtype)
    parts = []
    for where, scores, into in _parts(logits, gradient, size):
        work = into if is_direct and into is not None else scratch[: len(scores)]
        figures = read_chunk(scores, work, targets.part(where), weights.part(where), context, into is not None)
        parts.append(figures)
        if into is not None and digits.gradient is not None:
            work.scatter_add_(1, context.tables.token_ids.expand(len(work), -1), digits.gradient[where])
        if into is not None and not is_direct:
            into.copy_(work)
    cross_entropy, added = (torch.cat(part) for part in zip(*parts, strict=True))
    numeric = added if digits.numeric is None else digits.numeric
    return Figures(cross_entropy, numeric, digits.entropy, digits.num_correct)


class _DigitFigures(NamedTuple):
    numeric: Tensor | None
    """None where the loss is no term on digits."""
    gradient: Tensor | None
    """Of the digit tokens' logits."""
    entropy: Tensor
    num_correct: Tensor


def read_digits(
    digit_logits: Float[Tensor, "N D"], targets: Targets, weights: Weights, context: Context, *, with_gradient: bool
) -> _DigitFigures:
    """Read the logits of the digit tokens of all tokens: the digit terms and what the model believed."""
    loss = context.loss
    none = digit_logits.new_zeros(len(digit_logits))
    numeric = gradient = None
    entropy = num_correct = none
    if isinstance(loss, AbstractDigitLoss) or context.has_beliefs:
        leaf = digit_logits.requires_grad_(with_gradient)
        with torch.set_grad_enabled(with_gradient):
            digits, has_term = select_digits(context.tables, targets.found, leaf)
            if isinstance(loss, AbstractDigitLoss):
                numeric = sum_over_digits(loss.digit_loss(digits), has_term, targets)
        if numeric is not None and numeric.requires_grad:
            (gradient,) = torch.autograd.grad(numeric, leaf, weights.numeric, allow_unused=True)
        if context.has_beliefs:
            with torch.no_grad():
                entropy, num_correct = believed(digits, has_term, targets)
    return _DigitFigures(None if numeric is None else numeric.detach(), gradient, entropy, num_correct)


def read_chunk(
    scores: Float[Tensor, "N V"],
    work: Float[Tensor, "N V"],
    targets: Targets,
    weights: Weights,
    context: Context,
    with_gradient: bool,
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return the cross-entropy of a chunk of logits and what the loss adds to it.

    `work`, float32 or wider, may be the logits; it is overwritten, by the gradient of both where that is asked for.
    The digit terms are apart.
    """
    loss, token = context.loss, targets.token[:, None]
    target_logit = scores.gather(1, token).squeeze(1)
    peak = scores.amax(1, keepdim=True).to(work.dtype)
    total = torch.sub(scores, peak, out=work).exp_().sum(1)
    cross_entropy = torch.where(targets.is_target, peak.squeeze(1) + total.log() - target_logit, 0.0)
    added = torch.zeros_like(cross_entropy)
    factor = weights.cross_entropy
    costs = of_cost = mean_cost = None
    if isinstance(loss, AbstractVocabularyLoss):
        costs = loss.token_costs(targets.token, _cost_products(targets.token, context))
        if costs is not None:
            costs = costs.to(work.dtype)
            mean_cost = torch.linalg.vecdot(work, costs) / total
        leaves = [x.requires_grad_(with_gradient) for x in (cross_entropy, mean_cost) if x is not None]
        with torch.set_grad_enabled(with_gradient):
            added = torch.where(targets.is_target, loss.added_loss(cross_entropy, mean_cost), 0.0)
        if added.requires_grad:
            small = torch.autograd.grad(added, leaves, weights.numeric, allow_unused=True)
            factor = factor if small[0] is None else factor + small[0]
            of_cost = None if costs is None else small[1]
    if with_gradient:
        if costs is None or of_cost is None or mean_cost is None:
            work.mul_((factor / total)[:, None])
        else:
            work.mul_(costs.mul_(of_cost[:, None]).add_((factor - of_cost * mean_cost.detach())[:, None]))
            work.div_(total[:, None])
        work.scatter_add_(1, token, -factor[:, None])
    return cross_entropy.detach(), added.detach()


def _cost_products(target: Int[Tensor, " n"], context: Context) -> Float[Tensor, "n V"] | None:
    """Products of the targets' cost rows with all, in the room that chunks share."""
    rows, room = context.rows, context.room
    if rows is None:
        return None
    out = rows.new_empty(len(target), len(rows)) if room is None else room[: len(target)]
    write_product(out, rows[target], rows, add=False)
    return out


class _Computed(torch.autograd.Function):
    """A scalar whose gradients are computed with it. Backward scales them; a second backward computes them anew."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[..., Any], *inputs: Tensor) -> Tensor:
        is_needed = ctx.needs_input_grad[1:]
        value, gradients = compute([x.detach() for x in inputs], is_needed)
        ctx.save_for_backward(*inputs)
        ctx.compute, ctx.gradients = compute, gradients
        found: Tensor = value
        return found

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused objective has no second derivative (create_graph=True): make it with Objective(...,"
                " fused=False)"
            )
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            _, gradients = ctx.compute([x.detach() for x in ctx.saved_tensors], ctx.needs_input_grad[1:])
        if not is_readable(upstream) or upstream.item() != 1:
            for gradient in gradients:
                if gradient is not None:
                    gradient.mul_(upstream)
        types = [x.dtype for x in ctx.saved_tensors]
        return (None, *(g if g is None else g.to(dtype) for g, dtype in zip(gradients, types, strict=True)))


@torch.compiler.disable(reason="the objective in one pass runs as it is")  # type: ignore[untyped-decorator,no-untyped-call]
def _compute(compute: Callable[..., Any], *inputs: Tensor) -> Tensor:
    value: Tensor = _Computed.apply(compute, *inputs)  # type: ignore[no-untyped-call]
    return value


def _kept(dtype: torch.dtype) -> torch.dtype:
    """Type in which a gradient waits for backward: a loss scaler multiplies there, before float16 would round to 0."""
    return torch.float32 if dtype == torch.float16 else dtype


def chunk_size(num_columns: int, device: torch.device, *, has_product: bool) -> int:
    """Tokens of a chunk: few enough to stay in the cache of a CPU, or to be small beside the memory of a GPU.

    Where costs are a product with the head, a CPU needs more of them at a time.
    """
    num_elements = 2**21 if device.type == "cpu" else 2**26
    return max(_TOKENS_OF_PRODUCT if has_product else 1, num_elements // num_columns)


def hidden_chunk_size(num_columns: int, device: torch.device) -> int:
    """Tokens of a chunk of hidden states: enough for a fast product, 256 MB of logits on a CPU and 1 GB on a GPU."""
    num_elements = 2**26 if device.type == "cpu" else 2**28
    return max(1, num_elements // num_columns)


def _parts(logits: Tensor, gradient: Tensor | None, size: int) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
    """Chunks of the tokens: where they are, their logits, and where their gradient goes. Nothing is copied."""
    rows = [logits.view(-1, logits.shape[-1])] if logits.is_contiguous() else list(logits)
    into = None if gradient is None else gradient.view(-1, logits.shape[-1])
    offset = 0
    for row in rows:
        for start in range(0, len(row), size):
            scores = row[start : start + size]
            part = slice(offset, offset + len(scores))
            offset += len(scores)
            yield part, scores, None if into is None else into[part]


def _total(figures: Figures, weights: Weights) -> Tensor:
    return (figures.cross_entropy * weights.cross_entropy).sum() + (figures.numeric * weights.numeric).sum()
