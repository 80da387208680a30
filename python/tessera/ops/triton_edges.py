# SPDX-License-Identifier: MIT
"""Fused operations over edges on a GPU, in Triton: the functions that models call, and their derivatives.

Names, arguments and results are those of :mod:`tessera.kernels.reference`, for tensors of one GPU; nothing of size
edges x channels goes to memory. Differentiable once, which is what forces need. All sums run in edge order or sender
order without atomics, so results repeat bit for bit.
"""

from typing import Any

import torch
from torch import Tensor

from tessera.kernels import triton_attention_ops as kernels
from tessera.kernels import triton_table_sum
from tessera.model.graph import EdgeList


def edge_attention(
    query: Tensor, payload: Tensor, gates: Tensor, envelope: Tensor, factor: Tensor | None, active: Tensor,
    edges: EdgeList, is_smooth: bool,
) -> Tensor:  # fmt: skip
    """Give what the neighbors tell each atom; see :func:`tessera.kernels.reference.edge_attention`.

    Args:
        query: of receivers, divided by sqrt(D), [N, D, H], float32 or float64.
        payload: of senders: D planes of keys, then V planes of values, [M, D + V, H].
        gates: score gates and output gates, [E, 2, H].
        envelope: p, [E].
        factor: f, one a moment, [E, A]; A is 1 or 3. None: one moment of 1.
        active: the edges that count, bool [E]; others are not read, and their gradients are 0.
        edges: the list.
        is_smooth: which floor the normalizer has.

    Returns:
        [N, A, V, H]; 0 for a row without active edges.

    Raises:
        ValueError: an array of another shape or type, named with what was expected.
    """
    _check_attention(query, payload, envelope, factor, active)
    _check("gates", gates, (None, 2, query.shape[2]), query.dtype)
    message, _ = kernels.edge_attention(
        query.contiguous(), payload.contiguous(), gates.contiguous(), envelope.contiguous(),
        None if factor is None else factor.contiguous(), active.contiguous(), *_index(edges), is_smooth,
    )  # fmt: skip
    return message


def table_attention(
    query: Tensor, payload: Tensor, table: Tensor, row: Tensor, fraction: Tensor, envelope: Tensor, slope: Tensor,
    factor: Tensor | None, active: Tensor, edges: EdgeList, is_smooth: bool,
) -> Tensor:  # fmt: skip
    """Give :func:`edge_attention` with gates from splines: edge e takes six rows of `table` [T, 2, H] from `row[e]` on.

    `fraction` [E] is differentiable, the table is not. Nor is `envelope`: what its change with the distance does is
    part of the gradient of `fraction`, by which its derivative is `slope`, [E].

    Raises:
        ValueError: an array of another shape or type, or a table that requires a gradient.
    """
    _check_attention(query, payload, envelope, factor, active)
    _check_table(table, row, fraction, (None, 2, query.shape[2]), query.dtype)
    _check("slope", slope, (None,), query.dtype)
    message, _ = kernels.table_attention(
        query.contiguous(), payload.contiguous(), table.contiguous(), row.contiguous(), fraction.contiguous(),
        envelope.detach().contiguous(), slope.detach().contiguous(), None if factor is None else factor.contiguous(),
        active.contiguous(), *_index(edges), is_smooth,
    )  # fmt: skip
    return message


def table_sum(
    harmonics: Tensor, table: Tensor, row: Tensor, fraction: Tensor, scale: Tensor, edges: EdgeList
) -> Tensor:
    """Sum harmonics times radial functions from a spline, scaled: see :func:`tessera.kernels.reference.table_sum`.

    Args:
        harmonics: [E, R], R = (L+1)^2.
        table: coefficients, [T, L+1, C], float32 or float64; not differentiable.
        row: first of an edge's six rows, int64 [E].
        fraction: place in the interval, 0 to 1, [E].
        scale: [E].
        edges: the list.

    Returns:
        [N, R, C].

    Raises:
        ValueError: an array of another shape or type, or a table that requires a gradient.
    """
    if table.dtype not in {torch.float32, torch.float64} or table.dim() != 3:
        raise ValueError(
            f"table: expected float32 or float64 [T, L+1, C], found {table.dtype} {list(table.shape)}; convert it"
        )
    _check_table(table, row, fraction, (None, None, None), table.dtype)
    _check("harmonics", harmonics, (None, table.shape[1] ** 2), table.dtype)
    _check("scale", scale, (None,), table.dtype)
    return triton_table_sum.table_sum(
        harmonics.contiguous(), table.contiguous(), row.contiguous(), fraction.contiguous(), scale.contiguous(),
        edges.receiver_range,
    )  # fmt: skip


def _index(edges: EdgeList) -> tuple[Tensor, ...]:
    return edges.receiver, edges.sender, edges.receiver_range, edges.sender_order, edges.sender_range


def _check_attention(query: Tensor, payload: Tensor, envelope: Tensor, factor: Tensor | None, active: Tensor) -> None:
    if query.dtype not in {torch.float32, torch.float64} or query.dim() != 3:
        raise ValueError(
            f"query: expected float32 or float64 [N, D, H], found {query.dtype} {list(query.shape)}; convert it"
        )
    _check("payload", payload, (None, None, query.shape[2]), query.dtype)
    if payload.shape[1] <= query.shape[1]:
        raise ValueError(
            f"payload: expected {query.shape[1]} planes of keys and at least one of values, found {payload.shape[1]} "
            "planes; join keys and values along axis 1"
        )
    _check("envelope", envelope, (None,), query.dtype)
    _check("active", active, (None,), torch.bool)
    if factor is None:
        return
    _check("factor", factor, (None, None), query.dtype)
    if factor.shape[1] != 1 and factor.shape[1] != 3:  # extents may be symbols, which sets do not take
        raise ValueError(f"factor: expected 1 or 3 moments, found {factor.shape[1]}; use tessera.kernels.reference")


def _check_table(
    table: Tensor, row: Tensor, fraction: Tensor, shape: tuple[int | None, ...], dtype: torch.dtype
) -> None:
    _check("table", table, shape, dtype)
    _check("row", row, (None,), torch.int64)
    _check("fraction", fraction, (None,), dtype)
    if table.requires_grad:
        raise ValueError("table: expected constants, found a table that requires a gradient; detach it")


def _check(name: str, value: Tensor, shape: tuple[int | None, ...], dtype: torch.dtype) -> None:
    """Compare type and the extents that a model fixes; None stands for an extent that may be a symbol of a trace."""
    fits = value.dim() == len(shape) and all(
        expected is None or found == expected for expected, found in zip(shape, value.shape, strict=True)
    )
    if not fits or value.dtype != dtype:
        wanted = ", ".join("any" if extent is None else str(extent) for extent in shape)
        raise ValueError(
            f"{name}: expected {dtype} [{wanted}], found {value.dtype} {list(value.shape)}; convert or reshape it"
        )


def _save_edge(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.is_smooth = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *output)


def _edge_backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 12
    (query, payload, gates, envelope, factor, active, receiver, sender, receiver_range, sender_order, sender_range,
     message, statistics) = ctx.saved_tensors  # fmt: skip
    grad = grad.contiguous()
    grad_query, grad_gates, grad_envelope, grad_factor, terms = kernels.edge_attention_backward_receivers(
        grad, message, statistics, query, payload, gates, envelope, factor, active, sender, receiver_range,
        ctx.is_smooth,
    )  # fmt: skip
    grad_payload = kernels.edge_attention_backward_senders(
        grad, terms, query, payload, gates, envelope, factor, active, receiver, sender_order, sender_range,
        ctx.is_smooth,
    )  # fmt: skip
    return (grad_query, grad_payload, grad_gates, grad_envelope, None if factor is None else grad_factor,
            *(None,) * 7)  # fmt: skip


def _table_backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 15
    (query, payload, table, row, fraction, envelope, slope, factor, active, receiver, sender, receiver_range,
     sender_order, sender_range, message, statistics) = ctx.saved_tensors  # fmt: skip
    grad, of_edges = grad.contiguous(), (row, fraction, envelope, slope, factor, active)
    grad_query, grad_place, grad_factor, terms = kernels.table_attention_backward_receivers(
        grad, message, statistics, query, payload, table, *of_edges, sender, receiver_range, ctx.is_smooth
    )
    grad_payload = kernels.table_attention_backward_senders(
        grad, terms, query, payload, table, *of_edges, receiver, sender_order, sender_range, ctx.is_smooth
    )
    return (grad_query, grad_payload, None, None, grad_place, None, None, None if factor is None else grad_factor,
            *(None,) * 7)  # fmt: skip


kernels.edge_attention.register_autograd(_edge_backward, setup_context=_save_edge)
kernels.table_attention.register_autograd(_table_backward, setup_context=_save_edge)


def _save_sum(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    by_harmonics, by_fraction, by_scale = triton_table_sum.table_sum_backward_edges(
        grad.contiguous(), *ctx.saved_tensors
    )
    return by_harmonics, None, None, by_fraction, by_scale, None


triton_table_sum.table_sum.register_autograd(_sum_backward, setup_context=_save_sum)
