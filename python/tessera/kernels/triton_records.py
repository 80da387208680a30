# SPDX-License-Identifier: MIT
"""What the attention kernels read of an edge, made once a pass instead of by every warp that meets the edge.

An edge is met by a warp for each block of heads, all lanes of which need the same few numbers. Each of them costs an
instruction to read and an access of the first cache, and the weights of a spline cost thirty more to evaluate. So a
small kernel writes records, in the order in which the next pass walks: an index word [E] and numbers [E, WIDTH].

An index word holds the row of the neighbor in its upper and the row of the gates in its lower 32 bits; its sign is set
where the edge does not count. Both rows exist for every edge: one that does not count names its receiver, whose data are
sound, so nothing needs a mask but what is added up. Numbers are envelope, its slope, the six weights of the spline and,
in records of the widest kind, the weights of its derivative; float32 is read in pairs.
"""

from typing import NamedTuple

import triton
from torch import Tensor
from torch.library import wrap_triton
from triton import language as tl

from tessera.kernels.triton_edges import spline_slopes, spline_weights

BLOCK = 128
"""Edges that a program writes."""
WARPS = 4
NOTHING = tl.constexpr(-(2**63))
"""The index word of no edge: it does not count, and names rows 0."""
PLAIN_WIDTH, WEIGHTS_WIDTH, SLOPES_WIDTH = 2, 8, 14
"""Numbers of a record: envelope and its slope; with the weights of a spline; with those of its derivative, too."""


class EdgeNumbers(NamedTuple):
    """What belongs to edges: [E] each, `row` int64 and `active` bool; without a table `row` and `fraction` are None."""

    row: Tensor | None
    fraction: Tensor | None
    envelope: Tensor
    slope: Tensor | None
    active: Tensor


@triton.jit
def write_records(
    neighbor, spare, row, fraction, envelope, slope, active, order, index, numbers, num_edges,
    HAS_TABLE: tl.constexpr, IS_ORDERED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write index words [E] and numbers [E, WIDTH] of BLOCK edges; `spare` is the row that an edge names if it does
    not count. IS_ORDERED: the edge at place n is `order[n]`.
    """
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_edge = place < num_edges
    edge = place
    if IS_ORDERED:
        edge = tl.load(order + place, mask=is_edge, other=0)
    counts = tl.load(active + edge, mask=is_edge, other=0).to(tl.int1)
    other = tl.load(neighbor + edge, mask=counts, other=0)
    other = tl.where(counts, other, tl.load(spare + edge, mask=is_edge, other=0))
    gates_row = edge
    if HAS_TABLE:
        gates_row = tl.load(row + edge, mask=is_edge, other=0)
    word = (other << 32) | gates_row
    tl.store(index + place, tl.where(counts, word, word | NOTHING), mask=is_edge)
    start = numbers + place * WIDTH
    tl.store(start, tl.load(envelope + edge, mask=counts, other=0.0), mask=is_edge)
    if HAS_TABLE:
        tl.store(start + 1, tl.load(slope + edge, mask=counts, other=0.0), mask=is_edge)
        t = tl.load(fraction + edge, mask=counts, other=0.0)
        weights = spline_weights(t)
        for node in tl.static_range(6):
            tl.store(start + 2 + node, weights[node] * (1.0 / 120.0), mask=is_edge)
        if WIDTH > 8:
            slopes = spline_slopes(t)
            for node in tl.static_range(6):
                tl.store(start + 8 + node, slopes[node] * (1.0 / 120.0), mask=is_edge)


@triton.jit
def neighbor_of(word):
    """Return the row of the neighbor that index words name, int64."""
    return ((word >> 32).to(tl.int32) & 0x7FFFFFFF).to(tl.int64)


@triton.jit
def gates_row_of(word):
    """Return the row of the gates that index words name, int64."""
    return word & 0xFFFFFFFF


@triton.jit
def load_numbers(numbers, edge, FIRST: tl.constexpr, COUNT: tl.constexpr, WIDTH: tl.constexpr):
    """Read numbers FIRST to FIRST + COUNT, both even, of records, a tuple; every edge must exist."""
    found = ()
    if numbers.dtype.element_ty == tl.float32:
        start = numbers.to(tl.pointer_type(tl.int64), bitcast=True) + edge.to(tl.int64) * (WIDTH // 2)
        for pair in tl.static_range(COUNT // 2):
            both = tl.load(start + FIRST // 2 + pair)
            low = both.to(tl.int32).to(tl.float32, bitcast=True)
            found = found + (low, (both >> 32).to(tl.int32).to(tl.float32, bitcast=True))
    else:
        start = numbers + edge.to(tl.int64) * WIDTH
        for number in tl.static_range(COUNT):
            found = found + (tl.load(start + FIRST + number),)
    return found


def edge_records(
    neighbor: Tensor, spare: Tensor, of_edges: EdgeNumbers, width: int, order: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return index words [E] and numbers [E, width] in the order of the list, or in `order`; for use in an operator."""
    num_edges = neighbor.shape[0]
    index, numbers = neighbor.new_empty((num_edges,)), of_edges.envelope.new_empty((num_edges, width))
    has_table = of_edges.row is not None
    # What a kernel does not read may be any tensor of the type.
    wrap_triton(write_records)[((num_edges + BLOCK - 1) // BLOCK,)](
        neighbor, spare, of_edges.row if has_table else neighbor, of_edges.fraction if has_table else of_edges.envelope,
        of_edges.envelope, of_edges.slope if has_table else of_edges.envelope, of_edges.active,
        neighbor if order is None else order, index, numbers, num_edges,
        HAS_TABLE=has_table, IS_ORDERED=order is not None, WIDTH=width, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return index, numbers
