# SPDX-License-Identifier: MIT
"""Fused edge operations: attention in one pass over the edges, and sums with radial functions from splines.

Shapes and formulas are those of `tessera.kernels.reference`. Nothing of size edges x heads or edges x channels is kept
between the passes or within them, so the backward pass computes scores anew. No atomics: results repeat bit for bit for
any number of threads. The derivatives of splines are those by the place of an edge; tables get none.
"""

from typing import Any

import torch
from torch import Tensor

from tessera.model.graph import EdgeList


def edge_attention(
    query: Tensor, payload: Tensor, gates: Tensor, envelope: Tensor, factor: Tensor | None, active: Tensor,
    edges: EdgeList, is_smooth: bool,
) -> Tensor:  # fmt: skip
    """Give what the neighbors tell each atom, [N, A, V, H]; see `reference.edge_attention`.

    Raises:
        RuntimeError: naming operator, argument, expected and found, for arrays of other shapes or types.
    """
    arrays = (query, payload, gates, envelope, _factor(factor, envelope), active)
    return torch.ops.tessera.edge_attention(*_contiguous(arrays), *_index(edges), is_smooth)[0]


def table_attention(
    query: Tensor, payload: Tensor, table: Tensor, row: Tensor, fraction: Tensor, envelope: Tensor, slope: Tensor,  # noqa: ARG001
    factor: Tensor | None, active: Tensor, edges: EdgeList, is_smooth: bool,
) -> Tensor:  # fmt: skip
    """Give :func:`edge_attention` with gates from a spline, `table` [T, 2, H]; see `reference.table_attention`.

    Every `row` must leave room for six rows of the table; this is not checked.

    Raises:
        RuntimeError: naming operator, argument, expected and found, for arrays of other shapes or types.
    """
    arrays = (query, payload, table, row, fraction, envelope, _factor(factor, envelope), active)
    return torch.ops.tessera.table_attention(*_contiguous(arrays), *_index(edges), is_smooth)[0]


def table_sum(
    harmonics: Tensor, table: Tensor, row: Tensor, fraction: Tensor, scale: Tensor, edges: EdgeList
) -> Tensor:
    """Sum harmonics times radial functions from a spline, scaled: [E, R], [T, L+1, C], [E], [E], [E] -> [N, R, C].

    Every `row` must leave room for six rows of the table; this is not checked.

    Raises:
        RuntimeError: naming operator, argument, expected and found, for arrays of other shapes or types.
    """
    arrays = (harmonics, table, row, fraction, scale)
    return torch.ops.tessera.table_sum(*_contiguous(arrays), edges.receiver_range)


def _factor(factor: Tensor | None, envelope: Tensor) -> Tensor:
    """Return the factors, [E, A]; those of one moment, 1, where there are none."""
    return torch.ones_like(envelope)[:, None] if factor is None else factor


def _contiguous(arrays: tuple[Tensor, ...]) -> list[Tensor]:
    return [array.contiguous() for array in arrays]


def _index(edges: EdgeList) -> tuple[Tensor, ...]:
    return edges.receiver, edges.sender, edges.receiver_range, edges.sender_order, edges.sender_range


def _message_and_state(query: Tensor, payload: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
    num_rows, num_scalars, num_heads = query.shape
    message = query.new_empty((num_rows, factor.shape[1], payload.shape[1] - num_scalars, num_heads))
    return message, query.new_empty((num_rows, 3, num_heads))


@torch.library.register_fake("tessera::edge_attention")
def _(query: Tensor, payload: Tensor, gates: Tensor, envelope: Tensor, factor: Tensor, *rest: Any) -> Any:  # noqa: ARG001
    return _message_and_state(query, payload, factor)


@torch.library.register_fake("tessera::table_attention")
def _(
    query: Tensor, payload: Tensor, table: Tensor, row: Tensor, fraction: Tensor, envelope: Tensor, factor: Tensor,  # noqa: ARG001
    *rest: Any,  # noqa: ARG001
) -> Any:  # fmt: skip
    return _message_and_state(query, payload, factor)


@torch.library.register_fake("tessera::table_sum")
def _(harmonics: Tensor, table: Tensor, row: Tensor, fraction: Tensor, scale: Tensor, receiver_range: Tensor) -> Tensor:  # noqa: ARG001
    return table.new_empty((receiver_range.shape[0], harmonics.shape[1], table.shape[2]))


@torch.library.register_fake("tessera::edge_attention_backward")
def _(
    grad: Tensor, query: Tensor, payload: Tensor, gates: Tensor, envelope: Tensor, factor: Tensor, *rest: Any  # noqa: ARG001
) -> tuple[Tensor, ...]:  # fmt: skip
    return tuple(array.new_empty(array.shape) for array in (query, payload, gates, envelope, factor))


@torch.library.register_fake("tessera::table_attention_backward")
def _(
    grad: Tensor, query: Tensor, payload: Tensor, table: Tensor, row: Tensor, fraction: Tensor, envelope: Tensor,  # noqa: ARG001
    factor: Tensor, *rest: Any,  # noqa: ARG001
) -> tuple[Tensor, ...]:  # fmt: skip
    return tuple(array.new_empty(array.shape) for array in (query, payload, fraction, envelope, factor))


@torch.library.register_fake("tessera::table_sum_backward")
def _(
    grad: Tensor, harmonics: Tensor, table: Tensor, row: Tensor, fraction: Tensor, scale: Tensor, receiver_range: Tensor  # noqa: ARG001
) -> tuple[Tensor, ...]:  # fmt: skip
    return tuple(array.new_empty(array.shape) for array in (harmonics, fraction, scale))


_INDEX = 5
"""Index arrays of a list; the arguments before them are the operation's own, the one after them is `is_smooth`."""


def _save_attention(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *arrays, is_smooth = inputs
    ctx.is_smooth = is_smooth
    ctx.save_for_backward(*arrays[:-_INDEX], *output, *arrays[-_INDEX:])
    ctx.set_materialize_grads(False)


def _edge_attention_backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    query, payload, gates, envelope, factor = torch.ops.tessera.edge_attention_backward(
        grad.contiguous(), *ctx.saved_tensors, ctx.is_smooth
    )
    return query, payload, gates, envelope, factor, None, *(None,) * (_INDEX + 1)


def _table_attention_backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    query, payload, fraction, envelope, factor = torch.ops.tessera.table_attention_backward(
        grad.contiguous(), *ctx.saved_tensors, ctx.is_smooth
    )
    return query, payload, None, None, fraction, envelope, factor, None, *(None,) * (_INDEX + 1)


def _save_sum(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(*inputs)


def _table_sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    harmonics, fraction, scale = torch.ops.tessera.table_sum_backward(grad.contiguous(), *ctx.saved_tensors)
    return harmonics, None, None, fraction, scale, None


torch.library.register_autograd("tessera::edge_attention", _edge_attention_backward, setup_context=_save_attention)
torch.library.register_autograd("tessera::table_attention", _table_attention_backward, setup_context=_save_attention)
torch.library.register_autograd("tessera::table_sum", _table_sum_backward, setup_context=_save_sum)
