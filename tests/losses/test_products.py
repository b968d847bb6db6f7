"""Products of a chunk with the head, as a CPU and as a GPU makes them (on a CPU here), against float64."""

from itertools import product

import pytest
import torch

from digitloss.losses import _products

FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16
TOLERANCE = {(True, FLOAT32): 1e-6, (False, FLOAT32): 1e-6, (True, BFLOAT16): 1e-6, (False, BFLOAT16): 2e-2}


@pytest.fixture(params=list(product([True, False], [FLOAT32, BFLOAT16])), ids=str)
def case(request, monkeypatch):
    """Type of states [5, 3] and weight [10, 3], in blocks of four rows, and what rounding may cost."""
    widens, dtype = request.param
    monkeypatch.setattr(_products, "_widens", lambda device: widens)
    monkeypatch.setattr(_products, "_ROWS_OF_BLOCK", 4)
    generator = torch.Generator().manual_seed(0)
    states, weight = (torch.randn(n, 3, generator=generator).to(dtype) for n in (5, 10))
    return states, weight, torch.randn(5, 10, generator=generator), TOLERANCE[request.param]


def assert_near(got, expected, tolerance):
    assert (got.double() - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize("add", [True, False])
def test_logits_are_written_or_added(case, add):
    states, weight, before, tolerance = case
    out = before.clone() if add else torch.full_like(before, torch.nan)
    _products.write_product(out, states, weight, add=add)
    assert_near(out, states.double() @ weight.double().T + (before.double() if add else 0), tolerance)


def test_gradients_of_states_and_weight(case):
    states, weight, work, tolerance = case
    got = _products.states_gradient(work, weight, weight.dtype)
    assert_near(got, work.double() @ weight.double(), tolerance)
    total = torch.ones(10, 3)
    _products.add_weight_gradient(total, work, states, weight.dtype)
    assert_near(total, 1 + work.double().T @ states.double(), tolerance)
