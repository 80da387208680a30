# SPDX-License-Identifier: MIT
"""Inputs of the fused kernels, and what a back end makes of them: result and gradients."""

import dataclasses

import torch
from small_graph import small_list, values

from tessera.kernels import reference
from tessera.model import EdgeList

#: Of the largest value of a result, or of 1, which is what goes in: terms of that size cancel in small values, so the
#: order of sums and exp's own 2 ulp count against the largest. Seen in float32: 3.5e-6 of it where the reference
#: rounds, 1.1e-5 in the kernels for four heads, the fewest that an envelope's gradient is summed over.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}
NUM_TABLE_ROWS = 20
EDGE, TABLE = "edge_attention", "table_attention"


def moved(edges: EdgeList, device) -> EdgeList:
    fields = {field.name: getattr(edges, field.name) for field in dataclasses.fields(edges)}
    return EdgeList(**{name: value.to(device) for name, value in fields.items()})


def active_edges(num_edges: int) -> torch.Tensor:
    """Every fifth edge does not count, the first one of all among them."""
    return torch.arange(num_edges) % 5 != 0


def attention_inputs(edges: EdgeList, kind: str, shape, scale: float = 1.0) -> dict[str, torch.Tensor]:
    """Named inputs in float64; shape is (D, V, H, A), and A = 0 stands for one moment without a factor."""
    scalars, planes, heads, moments = shape
    num_owned, num_edges = edges.num_owned, edges.receiver.shape[0]
    active = active_edges(num_edges)
    inputs = {
        "query": values(num_owned, scalars, heads, seed=1) * scale,
        "payload": values(num_owned + edges.num_halo, scalars + planes, heads, seed=2),
    }
    if kind == EDGE:
        inputs["gates"] = values(num_edges, 2, heads, seed=3)
    else:
        inputs["table"] = values(NUM_TABLE_ROWS, 2, heads, seed=3).detach()
        inputs["row"] = torch.arange(num_edges) % (NUM_TABLE_ROWS - reference.SPLINE_ROWS + 1)
        inputs["fraction"] = values(num_edges, seed=4).sigmoid()
    inputs["envelope"] = values(num_edges, seed=5).abs()
    if kind == TABLE:
        inputs["slope"] = 0.3 * values(num_edges, seed=7).detach()
    inputs["factor"] = values(num_edges, moments, seed=6) if moments > 0 else None
    inputs["active"] = active
    return inputs


def attention_outcome(functions, edges, kind, inputs, is_smooth, dtype=torch.float64, device="cpu"):
    """Message and gradients of a random linear function of it, by name, on the CPU."""
    ready = {}
    for name, value in inputs.items():
        if value is None:
            ready[name] = None
        elif value.is_floating_point():
            ready[name] = value.detach().to(device, dtype).requires_grad_(name not in {"table", "slope"})
        else:
            ready[name] = value.to(device)
    arguments = dict(ready)
    if kind == TABLE:  # both depend on the distance, and both derivatives come as one, that of the fraction
        moved_by = ready["fraction"] - ready["fraction"].detach()
        envelope = ready["envelope"] = ready["envelope"].detach()
        arguments["envelope"] = torch.where(ready["active"], envelope + ready["slope"] * moved_by, envelope)
    message = getattr(functions, kind)(*arguments.values(), moved(edges, device), is_smooth)
    weight = torch.randn(message.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    leaves = {name: value for name, value in ready.items() if value is not None and value.requires_grad}
    gradients = torch.autograd.grad((message * weight.to(message)).sum(), list(leaves.values()))
    found = {"message": message, **dict(zip(leaves, gradients, strict=True))}
    return {name: value.detach().cpu() for name, value in found.items()}


def sum_inputs(edges: EdgeList, degrees: int, channels: int) -> dict[str, torch.Tensor]:
    """Named inputs of table_sum in float64."""
    num_edges = edges.receiver.shape[0]
    return {
        "harmonics": values(num_edges, degrees**2, seed=1),
        "table": values(NUM_TABLE_ROWS, degrees, channels, seed=2).detach(),
        "row": torch.arange(num_edges) % (NUM_TABLE_ROWS - reference.SPLINE_ROWS + 1),
        "fraction": values(num_edges, seed=3).sigmoid(),
        "scale": values(num_edges, seed=4),
    }


def sum_outcome(functions, edges, inputs, dtype=torch.float64, device="cpu"):
    """Sums and gradients of a random linear function of them, by name, on the CPU."""
    ready = {}
    for name, value in inputs.items():
        if value.is_floating_point():
            ready[name] = value.detach().to(device, dtype).requires_grad_(name != "table")
        else:
            ready[name] = value.to(device)
    sums = functions.table_sum(*ready.values(), moved(edges, device))
    weight = torch.randn(sums.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    leaves = {name: value for name, value in ready.items() if value.requires_grad}
    gradients = torch.autograd.grad((sums * weight.to(sums)).sum(), list(leaves.values()))
    found = {"sums": sums, **dict(zip(leaves, gradients, strict=True))}
    return {name: value.detach().cpu() for name, value in found.items()}


def assert_equal(found, expected, dtype):
    assert found.keys() == expected.keys()
    for name, exact in expected.items():
        bound = TOLERANCE[dtype] * max([1.0, *exact.abs().flatten().tolist()])
        torch.testing.assert_close(
            found[name].double(), exact, rtol=0, atol=bound, msg=lambda text, name=name: f"{name}: {text}"
        )


def tied_inputs(edges: EdgeList, kind: str, shape):
    """Inputs in which scores tie: all queries, keys and gates are the same small integers, so products are exact."""
    inputs = attention_inputs(edges, kind, shape)
    scalars = shape[0]
    inputs["query"] = torch.ones_like(inputs["query"])
    payload = inputs["payload"].detach().clone()
    payload[:, :scalars] = 1.0
    inputs["payload"] = payload
    if kind == EDGE:
        gates = inputs["gates"].detach().clone()
        gates[:, 0] = 1.0
        gates[::3, 0] = 0.5
        inputs["gates"] = gates
    else:
        inputs["row"] = torch.zeros_like(inputs["row"])
        inputs["fraction"] = torch.full_like(inputs["fraction"], 0.25)
    return inputs


def tiny_list() -> EdgeList:
    """A list that the interpreter, which takes milliseconds an edge, gets through; row 3 receives nothing."""
    return small_list(6, 2, 18)
