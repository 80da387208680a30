# SPDX-License-Identifier: MIT
"""Making a traced graph smaller must not change what it computes."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tessera_export import simplify as room
from tessera_export.simplify import simplify


def traced(function, *inputs: torch.Tensor) -> torch.fx.GraphModule:
    return make_fx(function, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*inputs)


def targets(module: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


@pytest.fixture
def x() -> torch.Tensor:
    return torch.linspace(-1.0, 1.0, 15, dtype=torch.float64).reshape(5, 3)


def test_a_repeated_operation_is_computed_once(x: torch.Tensor) -> None:
    module = traced(lambda a: torch.exp(a) + torch.exp(a) * 2.0, x)
    before = module(x)
    simplify(module)
    assert targets(module).count("aten.exp.default") == 1
    assert torch.equal(module(x), before)


def test_equal_numbers_of_different_type_are_not_merged(x: torch.Tensor) -> None:
    module = traced(lambda a: (a * 2, a * 2.0), x.to(torch.int64))
    simplify(module)
    whole, real = module(x.to(torch.int64))
    assert (whole.dtype, real.dtype) == (torch.int64, torch.float32)


def test_what_depends_on_weights_alone_becomes_a_constant(x: torch.Tensor) -> None:
    weight = torch.arange(9.0, dtype=torch.float64).reshape(3, 3)
    module = traced(lambda a: a @ (weight.T * 3.0 + 1.0), x)
    before = module(x)
    simplify(module)
    assert targets(module) == ["aten.mm.default"]
    assert torch.equal(module(x), before)


def test_a_constant_that_would_outgrow_its_weights_is_not_folded(
    x: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "LARGEST_FREE_CONSTANT", 5)
    weight = torch.ones(3, dtype=torch.float64)
    module = traced(lambda a: a @ weight.repeat(3).reshape(3, 3), x)
    simplify(module)
    assert "aten.repeat.default" in targets(module)
    assert torch.equal(module(x), x.sum(1, keepdim=True).repeat(1, 3))


def test_whole_slices_vanish_and_real_ones_stay(x: torch.Tensor) -> None:
    def value_and_gradient(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = a.detach().requires_grad_()
        value = leaf[:, 1:][1:, :].exp().sum()
        return value.detach(), torch.autograd.grad(value, leaf)[0]

    module = traced(value_and_gradient, x)
    value, gradient = module(x)
    simplify(module)
    assert sum("slice.Tensor" in name for name in targets(module)) == 2
    after_value, after_gradient = module(x)
    assert torch.equal(after_value, value)
    assert torch.equal(after_gradient, gradient)


def test_a_graph_that_writes_in_place_is_refused(x: torch.Tensor) -> None:
    module = traced(lambda a: torch.zeros_like(a).add_(a), x)
    with pytest.raises(ValueError, match="in place"):
        simplify(module)


@pytest.mark.parametrize("is_constant", [True, False])
def test_a_product_over_one_term_is_a_multiplication(x: torch.Tensor, is_constant: bool) -> None:
    """Inductor takes small outer products apart, which would make a least number of rows part of the program."""
    row = torch.tensor([[2.0, -3.0]], dtype=torch.float64)
    module = traced(lambda a, b: a[:, :1] @ (row if is_constant else b) + a @ a.T[:, :2], x, row)
    before = module(x, row)
    simplify(module)
    assert targets(module).count("aten.mm.default") == 1
    assert torch.equal(module(x, row), before)
