# SPDX-License-Identifier: MIT
"""Edge attention as operators `tessera_triton::...`: what each allocates and how its kernel is launched.

They are `torch.library.triton_op`s: an exported program names them as it names any operator, and AOTInductor compiles
the kernels into the artifact. Extents may be symbols; all that a kernel is specialised by is a constant of the model.
Gates come from edges, [E, 2, H], or from splines over a table [T, 2, H] (`table_...`); both take the same kernels.
Names as in :mod:`tessera.kernels.reference`; derivatives are registered in :mod:`tessera.ops.triton_edges`.
"""

from typing import NamedTuple

from torch import Tensor
from torch.library import triton_op, wrap_triton

from tessera.kernels.triton_attention import attention_forward
from tessera.kernels.triton_attention_backward import attention_backward_receivers, attention_backward_senders
from tessera.kernels.triton_records import PLAIN_WIDTH, SLOPES_WIDTH, WEIGHTS_WIDTH, EdgeNumbers, edge_records


class Launch(NamedTuple):
    """How a kernel runs: rows and heads that one program serves, the blocks of heads, and the program's warps."""

    rows: int
    block: int
    num_blocks: int
    warps: int

    def grid(self, num_rows: int) -> tuple[int, int]:
        """Return the number of programs for rows (fast) and blocks of heads (slow)."""
        return (num_rows + self.rows - 1) // self.rows, self.num_blocks


LARGEST_BLOCK = 32
"""Heads of a row that a program serves, one a lane: sums over heads stay within a warp, and a plane of a row is a cache
line. The slices of all rows that are in use at a time, and of tables, are small enough for the caches."""
LANES = 32
FORWARD_WARPS, RECEIVERS_WARPS, SENDERS_WARPS = 8, 8, 8
"""Of a program: neighbors on the curve, which find each other's rows in the first cache. 1 to 32 were tried."""


def choose_launch(num_heads: int, warps: int) -> Launch:
    """Return how a kernel runs: constants, so that no artifact depends on a tuning run."""
    block = min(LARGEST_BLOCK, 1 << (num_heads - 1).bit_length())
    return Launch(warps * max(1, LANES // block), block, -(-num_heads // block), warps)


def forward_launch(num_heads: int) -> Launch:
    """Return how `attention_forward` runs."""
    return choose_launch(num_heads, FORWARD_WARPS)


def receivers_launch(num_heads: int) -> Launch:
    """Return how `attention_backward_receivers` runs."""
    return choose_launch(num_heads, RECEIVERS_WARPS)


def senders_launch(num_heads: int) -> Launch:
    """Return how `attention_backward_senders` runs."""
    return choose_launch(num_heads, SENDERS_WARPS)


def _constants(
    query: Tensor, payload: Tensor, factor: Tensor | None, row: Tensor | None, is_smooth: bool, launch: Launch
) -> dict[str, int | bool]:
    """Constants that all kernels are specialised by."""
    return {
        "HAS_TABLE": row is not None,
        "HAS_FACTOR": factor is not None,
        "IS_SMOOTH": is_smooth,
        "SCALARS": query.shape[1],
        "VALUES": payload.shape[1] - query.shape[1],
        "MOMENTS": _moments(factor),
        "HEADS": query.shape[2],
        "BLOCK": launch.block,
        "ROWS": launch.rows,
        "num_warps": launch.warps,
    }


def _moments(factor: Tensor | None) -> int:
    return 1 if factor is None else factor.shape[1]


def _width(row: Tensor | None, table_width: int) -> int:
    """Numbers of a record, which holds weights where there is a table."""
    return PLAIN_WIDTH if row is None else table_width


def _forward(
    query: Tensor, payload: Tensor, gates: Tensor, of_edges: EdgeNumbers, factor: Tensor | None, sender: Tensor,
    receiver_range: Tensor, is_smooth: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    num_rows, num_heads = receiver_range.shape[0], query.shape[2]
    launch = forward_launch(num_heads)
    index, numbers = edge_records(sender, of_edges, _width(of_edges.row, WEIGHTS_WIDTH))
    message = query.new_empty((num_rows, _moments(factor), payload.shape[1] - query.shape[1], num_heads))
    statistics = query.new_empty((num_rows, 2 if is_smooth else 3, num_heads))  # ties count if the floor follows scores
    wrap_triton(attention_forward)[launch.grid(num_rows)](
        query, payload, gates, index, numbers, numbers if factor is None else factor, receiver_range, message,
        statistics, num_rows, sender.shape[0], **_constants(query, payload, factor, of_edges.row, is_smooth, launch),
    )  # fmt: skip
    return message, statistics


def _backward_receivers(
    grad: Tensor, message: Tensor, statistics: Tensor, query: Tensor, payload: Tensor, gates: Tensor,
    of_edges: EdgeNumbers, factor: Tensor | None, sender: Tensor, receiver_range: Tensor, is_smooth: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return gradients of query, gates (empty with a table), places or envelope, factor (empty without); and terms."""
    num_rows, num_edges = receiver_range.shape[0], sender.shape[0]
    launch = receivers_launch(query.shape[2])
    index, numbers = edge_records(sender, of_edges, _width(of_edges.row, SLOPES_WIDTH))
    grad_query = query.new_empty(query.shape)
    terms = query.new_empty((num_rows, 3 if is_smooth else 4, query.shape[2]))
    grad_gates = query.new_empty(gates.shape if of_edges.row is None else (0,))
    grad_place = query.new_empty((launch.num_blocks, num_edges))
    grad_factor = query.new_empty((0,) if factor is None else (launch.num_blocks, *factor.shape))
    # What a kernel neither reads nor writes may be any tensor of the type.
    wrap_triton(attention_backward_receivers)[launch.grid(num_rows)](
        grad, message, statistics, query, payload, gates, index, numbers, numbers if factor is None else factor,
        receiver_range, grad_query, grad_place if of_edges.row is not None else grad_gates, grad_place,
        grad_place if factor is None else grad_factor, terms, num_rows, num_edges,
        **_constants(query, payload, factor, of_edges.row, is_smooth, launch),
    )  # fmt: skip
    if factor is not None:
        grad_factor = grad_factor.sum(0)
    return grad_query, grad_gates, grad_place.sum(0), grad_factor, terms


def _backward_senders(
    grad: Tensor, terms: Tensor, query: Tensor, payload: Tensor, gates: Tensor, of_edges: EdgeNumbers,
    factor: Tensor | None, receiver: Tensor, sender_order: Tensor, sender_range: Tensor, is_smooth: bool,
) -> Tensor:  # fmt: skip
    num_rows = sender_range.shape[0]
    launch = senders_launch(query.shape[2])
    index, numbers = edge_records(receiver, of_edges, _width(of_edges.row, WEIGHTS_WIDTH), sender_order)
    by_sender = numbers if factor is None else factor.index_select(0, sender_order)
    grad_payload = payload.new_empty(payload.shape)
    wrap_triton(attention_backward_senders)[launch.grid(num_rows)](
        grad, terms, query, payload, gates, index, numbers, by_sender, sender_range, grad_payload, num_rows,
        receiver.shape[0], **_constants(query, payload, factor, of_edges.row, is_smooth, launch),
    )  # fmt: skip
    return grad_payload


@triton_op("tessera_triton::edge_attention", mutates_args={})
def edge_attention(
    query: Tensor, payload: Tensor, gates: Tensor, envelope: Tensor, factor: Tensor | None, active: Tensor,
    receiver: Tensor, sender: Tensor, receiver_range: Tensor, sender_order: Tensor, sender_range: Tensor,  # noqa: ARG001
    is_smooth: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return message [N, A, V, H] and statistics [N, 3, H], or [N, 2, H] where `is_smooth`."""
    of_edges = EdgeNumbers(None, None, envelope, None, active)
    return _forward(query, payload, gates, of_edges, factor, sender, receiver_range, is_smooth)


@triton_op("tessera_triton::table_attention", mutates_args={})
def table_attention(
    query: Tensor, payload: Tensor, table: Tensor, row: Tensor, fraction: Tensor, envelope: Tensor, slope: Tensor,
    factor: Tensor | None, active: Tensor, receiver: Tensor, sender: Tensor, receiver_range: Tensor,  # noqa: ARG001
    sender_order: Tensor, sender_range: Tensor, is_smooth: bool,  # noqa: ARG001
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the same with gates from a table [T, 2, H]."""
    of_edges = EdgeNumbers(row, fraction, envelope, slope, active)
    return _forward(query, payload, table, of_edges, factor, sender, receiver_range, is_smooth)


@triton_op("tessera_triton::edge_attention_backward_receivers", mutates_args={})
def edge_attention_backward_receivers(
    grad: Tensor, message: Tensor, statistics: Tensor, query: Tensor, payload: Tensor, gates: Tensor, envelope: Tensor,
    factor: Tensor | None, active: Tensor, sender: Tensor, receiver_range: Tensor, is_smooth: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return gradients of query, gates, envelope and factor (empty without one), and the terms of receivers."""
    of_edges = EdgeNumbers(None, None, envelope, None, active)
    return _backward_receivers(
        grad, message, statistics, query, payload, gates, of_edges, factor, sender, receiver_range, is_smooth
    )


@triton_op("tessera_triton::table_attention_backward_receivers", mutates_args={})
def table_attention_backward_receivers(
    grad: Tensor, message: Tensor, statistics: Tensor, query: Tensor, payload: Tensor, table: Tensor, row: Tensor,
    fraction: Tensor, envelope: Tensor, slope: Tensor, factor: Tensor | None, active: Tensor, sender: Tensor,
    receiver_range: Tensor, is_smooth: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return gradients of query, of the place of edges and of factor (empty without one), and terms of receivers."""
    of_edges = EdgeNumbers(row, fraction, envelope, slope, active)
    grad_query, _, grad_place, grad_factor, terms = _backward_receivers(
        grad, message, statistics, query, payload, table, of_edges, factor, sender, receiver_range, is_smooth
    )
    return grad_query, grad_place, grad_factor, terms


@triton_op("tessera_triton::edge_attention_backward_senders", mutates_args={})
def edge_attention_backward_senders(
    grad: Tensor, terms: Tensor, query: Tensor, payload: Tensor, gates: Tensor, envelope: Tensor,
    factor: Tensor | None, active: Tensor, receiver: Tensor, sender_order: Tensor, sender_range: Tensor,
    is_smooth: bool,
) -> Tensor:  # fmt: skip
    """Return the gradient of the payload, [M, D + V, H]."""
    of_edges = EdgeNumbers(None, None, envelope, None, active)
    return _backward_senders(
        grad, terms, query, payload, gates, of_edges, factor, receiver, sender_order, sender_range, is_smooth
    )


@triton_op("tessera_triton::table_attention_backward_senders", mutates_args={})
def table_attention_backward_senders(
    grad: Tensor, terms: Tensor, query: Tensor, payload: Tensor, table: Tensor, row: Tensor, fraction: Tensor,
    envelope: Tensor, slope: Tensor, factor: Tensor | None, active: Tensor, receiver: Tensor, sender_order: Tensor,
    sender_range: Tensor, is_smooth: bool,
) -> Tensor:  # fmt: skip
    """Return the gradient of the payload, [M, D + V, H]."""
    of_edges = EdgeNumbers(row, fraction, envelope, slope, active)
    return _backward_senders(
        grad, terms, query, payload, table, of_edges, factor, receiver, sender_order, sender_range, is_smooth
    )
