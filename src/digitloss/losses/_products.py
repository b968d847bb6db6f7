"""Products of a chunk of tokens with the rows of a head: the logits, and what goes back from their gradient.

A GPU multiplies in the type of the factors and adds up in float32. A CPU multiplies in float32, block by block of the
head's rows: such a block stays in cache, a narrower type is widened into one small buffer, and nothing of the size of
the head is made. (Its products in bfloat16 are many times slower than that.)
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

_ROWS_OF_BLOCK = 4096


def product_dtype(states: Tensor, weight: Tensor) -> torch.dtype:
    """Type in which two factors are multiplied."""
    dtype = torch.promote_types(states.dtype, weight.dtype)
    return torch.promote_types(dtype, torch.float32) if _widens(states.device) else dtype


def write_product(
    out: Float[Tensor, "n V"], states: Float[Tensor, "n R"], weight: Float[Tensor, "V R"], *, add: bool
) -> None:
    """Write, or add, states times weight."""
    dtype = product_dtype(states, weight)
    if dtype != out.dtype and not _widens(out.device):
        product = states.to(dtype) @ weight.to(dtype).T
        _ = out.add_(product) if add else out.copy_(product)
        return
    states = states.to(out.dtype)
    for columns, rows in zip(torch.split(out, _ROWS_OF_BLOCK, 1), _blocks(weight, out.dtype), strict=True):
        columns.addmm_(states, rows.T, beta=float(add))


def states_gradient(work: Float[Tensor, "n V"], weight: Float[Tensor, "V R"], dtype: torch.dtype) -> Tensor:
    """Gradient of the states, from that of the logits; a GPU multiplies in a given type."""
    if not _widens(work.device):
        return work.to(dtype) @ weight.to(dtype)
    total = work.new_zeros(len(work), weight.shape[1])
    for columns, rows in zip(torch.split(work, _ROWS_OF_BLOCK, 1), _blocks(weight, work.dtype), strict=True):
        total.addmm_(columns, rows)
    return total


def add_weight_gradient(
    total: Float[Tensor, "V R"], work: Float[Tensor, "n V"], states: Float[Tensor, "n R"], dtype: torch.dtype
) -> None:
    """Add the gradient of the weight; a GPU multiplies in a given type."""
    if not _widens(work.device):
        total += work.to(dtype).T @ states.to(dtype)
        return
    states = states.to(work.dtype)
    for rows, columns in zip(torch.split(total, _ROWS_OF_BLOCK), torch.split(work, _ROWS_OF_BLOCK, 1), strict=True):
        rows.addmm_(columns.T, states)


def _widens(device: torch.device) -> bool:
    """True where products are made in float32 or wider, whatever the factors are in."""
    return device.type == "cpu"


def _blocks(weight: Float[Tensor, "V R"], dtype: torch.dtype) -> Iterator[Tensor]:
    """Rows of a weight, block by block, in a given type. They are there until the next block is asked for."""
    is_ready = weight.dtype == dtype
    wide = weight.new_empty(() if is_ready else (min(_ROWS_OF_BLOCK, len(weight)), weight.shape[1]), dtype=dtype)
    for rows in torch.split(weight, _ROWS_OF_BLOCK):
        yield rows if is_ready else wide[: len(rows)].copy_(rows)
