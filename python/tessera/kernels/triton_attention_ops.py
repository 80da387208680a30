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
FORWARD_WARPS, RECEIVERS_WARPS, SENDERS_WARPS = 8, 4, 8
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


def _constants(query: Tensor, payload: Tensor, factor: Tensor, launch: Launch) -> dict[str, int]:
    """Constants that all kernels are specialised by."""
    return {
        "SCALARS": query.shape[1],
        "VALUES": payload.shape[1] - query.shape[1],
        "MOMENTS": factor.shape[1],
        "HEADS": query.shape[2],
        "BLOCK": launch.block,
        "ROWS": launch.rows,
    }


def _num_statistics(is_smooth: bool) -> int:
    """Planes of the statistics: ties count only where the floor follows the largest score."""
    return 2 if is_smooth else 3


def _forward(
    query: Tensor, payload: Tensor, gates: Tensor, row: Tensor | None, fraction: Tensor | None, envelope: Tensor,
    factor: Tensor, active: Tensor, sender: Tensor, receiver_range: Tensor, is_smooth: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    num_rows, num_heads, moments = receiver_range.shape[0], query.shape[2], factor.shape[1]
    planes = payload.shape[1] - query.shape[1]
    launch = forward_launch(num_heads)
    message = query.new_empty((num_rows, moments, planes, num_heads))
    statistics = query.new_empty((num_rows, _num_statistics(is_smooth), num_heads))
    # Without a table the kernel reads neither rows nor fractions; any tensors of these types will do.
    wrap_triton(attention_forward)[launch.grid(num_rows)](
        query, payload, gates, sender if row is None else row, envelope if fraction is None else fraction, envelope,
        factor, active, sender, receiver_range, message, statistics, num_rows,
        HAS_TABLE=row is not None, IS_SMOOTH=is_smooth, **_constants(query, payload, factor, launch),
        num_warps=launch.warps,
    )  # fmt: skip
    return message, statistics


def _backward_receivers(
    grad: Tensor, message: Tensor, statistics: Tensor, query: Tensor, payload: Tensor, gates: Tensor,
    row: Tensor | None, fraction: Tensor | None, envelope: Tensor, factor: Tensor, active: Tensor, sender: Tensor,
    receiver_range: Tensor, is_smooth: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    num_rows = receiver_range.shape[0]
    launch = receivers_launch(query.shape[2])
    blocks, num_edges = launch.num_blocks, envelope.shape[0]
    grad_query, products = query.new_empty(query.shape), query.new_empty((num_rows, query.shape[2]))
    grad_envelope = query.new_empty((blocks, num_edges))
    grad_factor = query.new_empty((blocks, *factor.shape))
    grad_gates = query.new_empty(gates.shape if row is None else (blocks, num_edges))
    wrap_triton(attention_backward_receivers)[launch.grid(num_rows)](
        grad, message, statistics, query, payload, gates, sender if row is None else row,
        envelope if fraction is None else fraction, envelope, factor, active, sender, receiver_range, grad_query,
        grad_gates, grad_envelope, grad_factor, products, num_rows, num_edges,
        HAS_TABLE=row is not None, IS_SMOOTH=is_smooth, **_constants(query, payload, factor, launch),
        num_warps=launch.warps,
    )  # fmt: skip
    if row is not None:
        grad_gates = grad_gates.sum(0)
    return grad_query, grad_gates, grad_envelope.sum(0), grad_factor.sum(0), products


def _backward_senders(
    grad: Tensor, statistics: Tensor, products: Tensor, query: Tensor, payload: Tensor, gates: Tensor,
    row: Tensor | None, fraction: Tensor | None, envelope: Tensor, factor: Tensor, active: Tensor, receiver: Tensor,
    sender_order: Tensor, sender_range: Tensor, is_smooth: bool,
) -> Tensor:  # fmt: skip
    num_rows = sender_range.shape[0]
    launch = senders_launch(query.shape[2])
    grad_payload = payload.new_empty(payload.shape)
    wrap_triton(attention_backward_senders)[launch.grid(num_rows)](
        grad, statistics, products, query, payload, gates, receiver if row is None else row,
        envelope if fraction is None else fraction, envelope, factor, active, receiver, sender_order, sender_range,
        grad_payload, num_rows,
        HAS_TABLE=row is not None, IS_SMOOTH=is_smooth, **_constants(query, payload, factor, launch),
        num_warps=launch.warps,
    )  # fmt: skip
    return grad_payload


@triton_op("tessera_triton::edge_attention", mutates_args={})
def edge_attention(
    query: Tensor, payload: Tensor, gates: Tensor, envelope: Tensor, factor: Tensor, active: Tensor, receiver: Tensor,  # noqa: ARG001
    sender: Tensor, receiver_range: Tensor, sender_order: Tensor, sender_range: Tensor, is_smooth: bool,  # noqa: ARG001
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return message [N, A, V, H] and statistics [N, 3, H], or [N, 2, H] where `is_smooth`."""
    return _forward(query, payload, gates, None, None, envelope, factor, active, sender, receiver_range, is_smooth)


@triton_op("tessera_triton::table_attention", mutates_args={})
def table_attention(
    query: Tensor, payload: Tensor, table: Tensor, row: Tensor, fraction: Tensor, envelope: Tensor, factor: Tensor,
    active: Tensor, receiver: Tensor, sender: Tensor, receiver_range: Tensor, sender_order: Tensor,  # noqa: ARG001
    sender_range: Tensor, is_smooth: bool,  # noqa: ARG001
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the same with gates from a table [T, 2, H]."""
    return _forward(query, payload, table, row, fraction, envelope, factor, active, sender, receiver_range, is_smooth)


@triton_op("tessera_triton::edge_attention_backward_receivers", mutates_args={})
def edge_attention_backward_receivers(
    grad: Tensor, message: Tensor, statistics: Tensor, query: Tensor, payload: Tensor, gates: Tensor, envelope: Tensor,
    factor: Tensor, active: Tensor, sender: Tensor, receiver_range: Tensor, is_smooth: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return gradients of query, gates, envelope, factor, and sum(grad * message) a row and head, [N, H]."""
    return _backward_receivers(
        grad, message, statistics, query, payload, gates, None, None, envelope, factor, active, sender, receiver_range,
        is_smooth,
    )  # fmt: skip


@triton_op("tessera_triton::table_attention_backward_receivers", mutates_args={})
def table_attention_backward_receivers(
    grad: Tensor, message: Tensor, statistics: Tensor, query: Tensor, payload: Tensor, table: Tensor, row: Tensor,
    fraction: Tensor, envelope: Tensor, factor: Tensor, active: Tensor, sender: Tensor, receiver_range: Tensor,
    is_smooth: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return gradients of query, fraction, envelope, factor, and sum(grad * message) a row and head, [N, H]."""
    return _backward_receivers(
        grad, message, statistics, query, payload, table, row, fraction, envelope, factor, active, sender,
        receiver_range, is_smooth,
    )  # fmt: skip


@triton_op("tessera_triton::edge_attention_backward_senders", mutates_args={})
def edge_attention_backward_senders(
    grad: Tensor, statistics: Tensor, products: Tensor, query: Tensor, payload: Tensor, gates: Tensor,
    envelope: Tensor, factor: Tensor, active: Tensor, receiver: Tensor, sender_order: Tensor, sender_range: Tensor,
    is_smooth: bool,
) -> Tensor:  # fmt: skip
    """Return the gradient of the payload, [M, D + V, H]."""
    return _backward_senders(
        grad, statistics, products, query, payload, gates, None, None, envelope, factor, active, receiver,
        sender_order, sender_range, is_smooth,
    )  # fmt: skip


@triton_op("tessera_triton::table_attention_backward_senders", mutates_args={})
def table_attention_backward_senders(
    grad: Tensor, statistics: Tensor, products: Tensor, query: Tensor, payload: Tensor, table: Tensor, row: Tensor,
    fraction: Tensor, envelope: Tensor, factor: Tensor, active: Tensor, receiver: Tensor, sender_order: Tensor,
    sender_range: Tensor, is_smooth: bool,
) -> Tensor:  # fmt: skip
    """Return the gradient of the payload, [M, D + V, H]."""
    return _backward_senders(
        grad, statistics, products, query, payload, table, row, fraction, envelope, factor, active, receiver,
        sender_order, sender_range, is_smooth,
    )  # fmt: skip
