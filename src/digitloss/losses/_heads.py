"""The output head as numbers: what makes logits of hidden states, and how it is read from a model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from digitloss.errors import ModelError
from digitloss.losses._products import product_dtype, write_product

SOFTCAP_FIELDS = ("final_logit_softcapping", "logits_soft_cap")
"""Fields of a configuration that bound the logits."""
FACTOR_FIELDS = ("logit_scale", "output_multiplier", "lm_head_multiplier")
"""Fields that multiply the logits."""
DIVISOR_FIELDS = ("logits_scaling", "logits_mup_width_multiplier")
"""Fields that divide the logits, or the hidden states that the head reads."""
FAMILIES_THAT_MULTIPLY = ("hyperclovax",)
"""Model types that multiply by what others divide by."""


class Product(NamedTuple):
    """Hidden states and the weight that they are multiplied with."""

    states: Float[Tensor, "N R"]
    weight: Float[Tensor, "V R"]


class LowRank(NamedTuple):
    """A low-rank update of a head's weight (LoRA): the product gets `scale * up @ down(dropout(h))` more."""

    down: nn.Module
    """`nn.Linear` from H to the rank R, without bias."""
    up: Float[Tensor, "V R"]
    scale: float
    dropout: nn.Module


class Head(NamedTuple):
    """An output head: logits = softcap tanh(scale (W h + b) / softcap), without a softcap scale (W h + b)."""

    weight: Float[Tensor, "V H"]
    bias: Float[Tensor, " V"] | None = None
    scale: float = 1.0
    """Factor of the logits (Cohere's logit_scale; one over Granite's logits_scaling)."""
    softcap: float | None = None
    """Bound of the logits (Gemma's final_logit_softcapping)."""
    updates: tuple[LowRank, ...] = ()
    """Adapters of the weight."""

    @classmethod
    def from_model(cls, model: Any, *, check: bool = True) -> "Head":
        """Read the head of a transformers model, with the transform that its configuration names.

        PEFT's wrapper, LoRA on the head and `modules_to_save` are read too. Make it once for a training; where FSDP2
        shards the model, make it in the model's forward, with `check=False`.

        Args:
            model: A model with `get_output_embeddings`.
            check: Run the model on four tokens and compare: its logits must be those of the head.

        Raises:
            TypeError: It is no such model.
            ModelError: The head does not give the model's own logits, or it is adapted or sharded in a way that cannot
                be read.

        Example:
            >>> from transformers import LlamaConfig, LlamaForCausalLM
            >>> sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
            >>> Head.from_model(LlamaForCausalLM(LlamaConfig(vocab_size=20, **sizes))).weight.shape
            torch.Size([20, 16])
        """
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        module = inner.get_output_embeddings() if hasattr(inner, "get_output_embeddings") else None
        if module is None:
            raise TypeError(
                f"expected a model with an output head (get_output_embeddings), got {type(model).__name__}: pass"
                " Head(weight, bias, scale, softcap)"
            )
        scale, softcap = read_transform(inner.config)
        head = _read_module(module, _is_fsdp(inner))._replace(scale=scale, softcap=softcap)
        if check:
            _check(head, inner, module)
        return head

    def products(self, hidden: Float[Tensor, "N H"]) -> list[Product]:
        """Return what the logits are made of: the product with the weight, and one for each update."""
        products = [Product(hidden, self.weight)]
        for down, up, scale, dropout in self.updates:
            (rows,) = down.parameters()
            products.append(Product(scale * down(dropout(hidden.to(rows.dtype))), up))
        return products

    def logits(self, products: Sequence[Product], tokens: Int[Tensor, " D"] | None = None) -> Float[Tensor, "N D"]:
        """Logits of all tokens, or of some, in float32 or wider."""
        bias = self.bias if tokens is None or self.bias is None else self.bias[tokens]
        total = None
        for states, weight in products:
            rows = weight if tokens is None else weight[tokens]
            dtype = product_dtype(states, rows)
            product = F.linear(states.to(dtype), rows.to(dtype), None if bias is None else bias.to(dtype))
            product = product.to(torch.promote_types(dtype, torch.float32))
            total, bias = product if total is None else total.add_(product), None
        assert total is not None
        return self.transformed(total)

    def write_logits(self, out: Float[Tensor, "n V"], products: Sequence[Product]) -> Float[Tensor, "n V"]:
        """Logits of all tokens, without gradient; `out`, float32 or wider, is overwritten, by them or on the way."""
        for index, (states, weight) in enumerate(products):
            write_product(out, states, weight, add=index > 0)
        return self.transformed(out if self.bias is None else out.add_(self.bias))

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

    def merged_weight(self) -> Float[Tensor, "V H"]:
        """Return the weight with its updates, without gradient."""
        weight = self.weight.detach()
        for down, up, scale, _ in self.updates:
            (rows,) = down.parameters()
            weight = weight + scale * (up.detach() @ rows.detach()).to(weight.dtype)
        return weight


def read_head(head: Tensor | nn.Module | Head) -> Head:
    """Return the head of a weight [V, H], or of a module that has one; nothing is known there of scale and softcap.

    Raises:
        TypeError: It has no weight, or is a whole model.
        ValueError: The weight has another shape.
        ModelError: It is adapted, quantized or sharded in a way that cannot be read.
    """
    if isinstance(head, Head):
        return head
    if isinstance(head, Tensor):
        return Head(_whole(head, is_fsdp=False))
    if hasattr(head, "get_output_embeddings"):
        raise TypeError(
            f"head must be a weight [V, H], a module that has one or a Head, got the model {type(head).__name__}: pass"
            " Head.from_model(model)"
        )
    return _read_module(head, _is_fsdp(head))


def read_transform(config: Any) -> tuple[float, float | None]:
    """Scale and softcap of the logits, as a model's configuration names them."""
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    named = {name: getattr(config, name, None) for name in (*SOFTCAP_FIELDS, *FACTOR_FIELDS, *DIVISOR_FIELDS)}
    scale = 1.0
    for name, value in named.items():
        if value is None or name in SOFTCAP_FIELDS:
            continue
        if isinstance(value, str):
            raise ModelError(f"{name}={value!r} in the configuration is no number: pass Head(weight, scale=...)")
        is_factor = name in FACTOR_FIELDS or getattr(config, "model_type", None) in FAMILIES_THAT_MULTIPLY
        scale = scale * value if is_factor else scale / value
    softcaps = [named[name] for name in SOFTCAP_FIELDS if named[name] is not None]
    return scale, softcaps[0] if softcaps else None


def _read_module(module: Any, is_fsdp: bool) -> Head:
    """Return the head of a module: a weight, a bias, and where PEFT adapts it with LoRA, the updates."""
    is_fsdp = is_fsdp or _is_fsdp(module)
    updates = []
    if hasattr(module, "token_adapter"):
        raise _unreadable(module, "trains rows of its weight apart (trainable tokens)")
    if hasattr(module, "base_layer"):
        if not hasattr(module, "lora_A"):
            raise _unreadable(module, "has an adapter that is not LoRA")
        adapter, module = module, module.base_layer
        active = [] if adapter.merged or adapter.disable_adapters else adapter.active_adapters
        for name in active:
            if name not in adapter.lora_A:
                continue
            if name in adapter.lora_variant or adapter.lora_B[name].bias is not None:
                raise _unreadable(adapter, "has a variant of LoRA (DoRA, or a bias)")
            up = _whole(adapter.lora_B[name].weight, is_fsdp)
            updates.append(LowRank(adapter.lora_A[name], up, adapter.scaling[name], adapter.lora_dropout[name]))
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if not isinstance(weight, Tensor):
        raise TypeError(f"head must be a weight [V, H] or a module that has one, got {type(module).__name__}")
    bias = None if bias is None else _unsharded(bias, is_fsdp)
    return Head(_whole(weight, is_fsdp), bias, updates=tuple(updates))


def _whole(weight: Tensor, is_fsdp: bool) -> Float[Tensor, "V H"]:
    weight = _unsharded(weight, is_fsdp)
    if weight.ndim != 2 or not weight.is_floating_point():
        raise ValueError(
            f"head must have a floating-point weight [V, H], got {weight.dtype} of shape {list(weight.shape)} (a"
            " quantized head cannot be read, a sharded one must be gathered first)"
        )
    return weight


def _unsharded(weight: Tensor, is_fsdp: bool) -> Tensor:
    """Return a parameter, whole; what FSDP2 shards is gathered, and its gradient averaged over the ranks."""
    if hasattr(weight, "ds_id"):
        raise ModelError(
            "DeepSpeed ZeRO-3 has partitioned the head, which cannot be read: pass the model's logits to the objective,"
            " or shard with FSDP2"
        )
    if not hasattr(weight, "full_tensor"):
        return weight
    from torch.distributed.tensor import Partial, Replicate, Shard  # slow, and absent from some builds

    placements: Sequence[Any] = getattr(weight, "placements", ())
    is_known = all(type(at) is Replicate or at == Shard(0) for at in placements)
    if not (is_fsdp and is_known and sum(type(at) is Shard for at in placements) <= 1):
        raise ModelError(
            f"the head is sharded as {placements} and not, or not only, by FSDP2 (tensor parallel?), and cannot be"
            " read: pass the model's logits to the objective; under FSDP2 pass the module, or Head.from_model, in the"
            " model's forward"
        )
    gathered: Tensor = weight.full_tensor(grad_placements=[Partial("avg")] * len(placements))
    return gathered


def _is_fsdp(module: Any) -> bool:
    """True where FSDP2 holds the parameters of a module."""
    return any(base.__name__ == "FSDPModule" for base in type(module).__mro__)


def _unreadable(module: Any, what: str) -> ModelError:
    return ModelError(
        f"the head {type(module).__name__} {what}, which cannot be read row by row: pass the model's logits to the"
        " objective"
    )


@torch.no_grad()
def _check(head: Head, model: Any, module: nn.Module) -> None:
    """Compare the logits of four tokens with those of the head, dropout off."""
    found: list[Tensor] = []

    def keep(_: nn.Module, __: Any, output: Any) -> None:
        found.append(output[0] if isinstance(output, tuple) else output.last_hidden_state)

    modes = [(part, part.training) for part in module.modules()]
    hook = model.base_model.register_forward_hook(keep)
    try:
        module.eval()
        tokens = torch.arange(4, device=head.weight.device)[None]
        expected = model(input_ids=tokens, use_cache=False, return_dict=True).logits
        got = head.logits(head.products(found[-1].flatten(0, -2)))
    finally:
        hook.remove()
        for part, mode in modes:
            part.training = mode
    expected = expected.flatten(0, -2).to(got.dtype)
    tolerance = 1e-4 if head.weight.dtype in (torch.float32, torch.float64) else 1e-2
    error = float((got - expected).norm() / expected.norm()) if got.shape == expected.shape else float("inf")
    if not error <= tolerance:
        raise ModelError(
            f"{type(model).__name__}: hidden states times head, with scale {head.scale:g} and softcap {head.softcap},"
            f" do not give the model's logits (relative error {error:.2g}): the head does something that is not known"
            " here; pass the model's logits to the objective, or a Head that describes it"
        )
