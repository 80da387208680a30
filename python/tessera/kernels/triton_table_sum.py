# SPDX-License-Identifier: MIT
"""Sum over edges of harmonics times radial functions from a spline, and its derivative (`reference.table_sum`).

A lane is one channel; a program serves one receiver and one block of channels, the slow axis of the grid, so that the
slice of the table that is in use stays in the caches. Nothing of size edges x channels goes to memory.
"""

import triton
from torch import Tensor
from torch.library import triton_op, wrap_triton
from triton import language as tl

from tessera.kernels.triton_edges import load_planes, spline_slopes, spline_weights, store_planes, zero_planes

LARGEST_BLOCK = 64
"""Channels of a program, a warp: two a lane halve the work that lanes share; the table's slice fits the cache."""


@triton.jit
def table_sum_forward(
    harmonics, table, row, fraction, scale, receiver_range, sums,
    DEGREES: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write [N, R, C]; one program serves one receiver and BLOCK channels. No atomics; results repeat bit for bit."""
    ROWS: tl.constexpr = DEGREES * DEGREES
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    receiver = tl.program_id(0).to(tl.int64)
    total = zero_planes(ROWS, BLOCK, table.dtype.element_ty)
    edge = tl.load(receiver_range + 2 * receiver)
    end = tl.load(receiver_range + 2 * receiver + 1)
    while edge < end:
        rows = load_planes(table, tl.load(row + edge), lane, 0, 6 * DEGREES, DEGREES, CHANNELS, BLOCK)
        weights = spline_weights(tl.load(fraction + edge))
        factor = tl.load(scale + edge) * (1.0 / 120.0)
        added = ()
        for degree in tl.static_range(DEGREES):
            radial = weigh_degree(weights, rows, degree, DEGREES) * factor
            for order in tl.static_range(2 * degree + 1):
                y = tl.load(harmonics + edge * ROWS + degree * degree + order)
                added = added + (tl.fma(y, radial, total[degree * degree + order]),)
        total = added
        edge = edge + 1
    store_planes(sums, receiver, lane, total, 0, ROWS, ROWS, CHANNELS, BLOCK)


@triton.jit
def table_sum_backward(
    grad, harmonics, table, row, fraction, scale, receiver_range, grad_harmonics, grad_fraction, grad_scale, num_edges,
    DEGREES: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write each block's share of the gradients: harmonics [B, E, R], fraction [B, E], scale [B, E].

    One program serves one receiver and BLOCK channels; sums over lanes are trees of fixed shape. No atomics; results
    repeat bit for bit.
    """
    ROWS: tl.constexpr = DEGREES * DEGREES
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    own = tl.program_id(1).to(tl.int64) * num_edges
    receiver = tl.program_id(0).to(tl.int64)
    incoming = load_planes(grad, receiver, lane, 0, ROWS, ROWS, CHANNELS, BLOCK)
    edge = tl.load(receiver_range + 2 * receiver)
    end = tl.load(receiver_range + 2 * receiver + 1)
    while edge < end:
        rows = load_planes(table, tl.load(row + edge), lane, 0, 6 * DEGREES, DEGREES, CHANNELS, BLOCK)
        t = tl.load(fraction + edge)
        weights = spline_weights(t)
        slopes = spline_slopes(t)
        factor = tl.load(scale + edge) * (1.0 / 120.0)
        by_scale = tl.zeros([BLOCK], table.dtype.element_ty)
        by_fraction = by_scale
        for degree in tl.static_range(DEGREES):
            radial = weigh_degree(weights, rows, degree, DEGREES)
            along = by_scale * 0.0
            for order in tl.static_range(2 * degree + 1):
                y = tl.load(harmonics + edge * ROWS + degree * degree + order)
                along = tl.fma(y, incoming[degree * degree + order], along)
                share = tl.sum(radial * incoming[degree * degree + order], 0) * factor
                tl.store(grad_harmonics + (own + edge) * ROWS + degree * degree + order, share)
            by_scale = tl.fma(radial, along, by_scale)
            by_fraction = tl.fma(weigh_degree(slopes, rows, degree, DEGREES), along, by_fraction)
        tl.store(grad_scale + own + edge, tl.sum(by_scale, 0) * (1.0 / 120.0))
        tl.store(grad_fraction + own + edge, tl.sum(by_fraction, 0) * factor)
        edge = edge + 1


@triton.jit
def weigh_degree(weights, rows, DEGREE: tl.constexpr, DEGREES: tl.constexpr):
    """Sum one degree of six consecutive rows of a table [T, L+1, C] with six weights."""
    total = weights[0] * rows[DEGREE]
    for place in tl.static_range(1, 6):
        total = tl.fma(weights[place], rows[DEGREES * place + DEGREE], total)
    return total


def channel_blocks(channels: int) -> tuple[int, int]:
    """Return channels of a block, a power of two, and the number of blocks."""
    block = min(LARGEST_BLOCK, 1 << (channels - 1).bit_length())
    return block, -(-channels // block)


@triton_op("tessera_triton::table_sum", mutates_args={})
def table_sum(
    harmonics: Tensor, table: Tensor, row: Tensor, fraction: Tensor, scale: Tensor, receiver_range: Tensor
) -> Tensor:
    """Return [N, R, C] from harmonics [E, R], table [T, L+1, C], row [E], fraction [E], scale [E]."""
    num_rows, (_, degrees, channels) = receiver_range.shape[0], table.shape
    block, num_blocks = channel_blocks(channels)
    sums = table.new_empty((num_rows, degrees * degrees, channels))
    wrap_triton(table_sum_forward)[(num_rows, num_blocks)](
        harmonics, table, row, fraction, scale, receiver_range, sums,
        DEGREES=degrees, CHANNELS=channels, BLOCK=block, num_warps=1,
    )  # fmt: skip
    return sums


@triton_op("tessera_triton::table_sum_backward", mutates_args={})
def table_sum_backward_edges(
    grad: Tensor, harmonics: Tensor, table: Tensor, row: Tensor, fraction: Tensor, scale: Tensor, receiver_range: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of harmonics [E, R], fraction [E] and scale [E]."""
    num_edges, (_, degrees, channels) = fraction.shape[0], table.shape
    block, num_blocks = channel_blocks(channels)
    grad_harmonics = table.new_empty((num_blocks, *harmonics.shape))
    grad_fraction, grad_scale = table.new_empty((num_blocks, num_edges)), table.new_empty((num_blocks, num_edges))
    wrap_triton(table_sum_backward)[(receiver_range.shape[0], num_blocks)](
        grad, harmonics, table, row, fraction, scale, receiver_range, grad_harmonics, grad_fraction, grad_scale,
        num_edges, DEGREES=degrees, CHANNELS=channels, BLOCK=block, num_warps=1,
    )  # fmt: skip
    return grad_harmonics.sum(0), grad_fraction.sum(0), grad_scale.sum(0)
