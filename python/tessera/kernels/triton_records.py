# SPDX-License-Identifier: MIT
"""What the attention kernels read of an edge, made once a pass instead of by every warp that meets the edge.

An edge is met by a warp for each block of heads, all lanes of which need the same few numbers. Each of them costs an
instruction to read and an access of the first cache, and the weights of a spline cost thirty more to evaluate. So a
small kernel writes records, in the order in which the next pass walks: an index word [E] and numbers [E, WIDTH].

An index word holds the row of the neighbor in its upper and the row of the gates in its lower 32 bits; it is negative
where the edge does not count. Numbers are envelope, its slope, the six weights of the spline and, in records of the
widest kind, the weights of its derivative. They lie in words of eight bytes, of two float32 or one float64; a number of
CHUNK edges side by side, so that what is written and what a row's next edges read are whole cache lines.
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
CHUNK_BITS = tl.constexpr(4)
CHUNK = tl.constexpr(1 << 4)
"""Edges whose words lie side by side."""
NOTHING = tl.constexpr(-1)
"""The index word of an edge that does not count, or of none."""
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
    neighbor, row, fraction, envelope, slope, active, order, index, numbers, num_edges,
    HAS_TABLE: tl.constexpr, IS_ORDERED: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write index words [E] and numbers of BLOCK edges. IS_ORDERED: the edge at place n is `order[n]`."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_edge = place < num_edges
    edge = place
    if IS_ORDERED:
        edge = tl.load(order + place, mask=is_edge, other=0)
    counts = tl.load(active + edge, mask=is_edge, other=0).to(tl.int1)
    gates_row = edge
    if HAS_TABLE:
        gates_row = tl.load(row + edge, mask=is_edge, other=0)
    word = (tl.load(neighbor + edge, mask=counts, other=0) << 32) | gates_row
    tl.store(index + place, tl.where(counts, word, NOTHING), mask=is_edge)
    found = (tl.load(envelope + edge, mask=counts, other=0.0),)
    if HAS_TABLE:
        found = found + (tl.load(slope + edge, mask=counts, other=0.0),)
        t = tl.load(fraction + edge, mask=counts, other=0.0)
        weights = spline_weights(t)
        for node in tl.static_range(6):
            found = found + (weights[node] * (1.0 / 120.0),)
        if WIDTH > 8:
            slopes = spline_slopes(t)
            for node in tl.static_range(6):
                found = found + (slopes[node] * (1.0 / 120.0),)
    else:
        found = found + (found[0],)  # fills a word
    if numbers.dtype.element_ty == tl.float32:
        start = numbers.to(tl.pointer_type(tl.int64), bitcast=True) + first_word(place, WIDTH // 2)
        for pair in tl.static_range(WIDTH // 2):
            low = found[2 * pair].to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
            high = found[2 * pair + 1].to(tl.int32, bitcast=True).to(tl.int64) << 32
            tl.store(start + pair * CHUNK, high | low, mask=is_edge)
    else:
        start = numbers + first_word(place, WIDTH)
        for number in tl.static_range(WIDTH):
            tl.store(start + number * CHUNK, found[number], mask=is_edge)


@triton.jit
def first_word(edge, WORDS: tl.constexpr):
    """Return where the first word of edges stands, int64; the next one is CHUNK words away."""
    return (edge >> CHUNK_BITS).to(tl.int64) * (WORDS * CHUNK) + (edge & (CHUNK - 1))


@triton.jit
def neighbor_of(word):
    """Return the row of the neighbor that index words of edges that count name, int64."""
    return (word >> 32).to(tl.int32).to(tl.int64)


@triton.jit
def gates_row_of(word):
    """Return the row of the gates that index words of edges that count name, int64."""
    return word & 0xFFFFFFFF


@triton.jit
def load_numbers(numbers, edge, WIDTH: tl.constexpr):
    """Read all numbers of records of edges that exist, a tuple."""
    found = ()
    if numbers.dtype.element_ty == tl.float32:
        start = numbers.to(tl.pointer_type(tl.int64), bitcast=True) + first_word(edge, WIDTH // 2)
        for pair in tl.static_range(WIDTH // 2):
            both = tl.load(start + pair * CHUNK)
            low = both.to(tl.int32).to(tl.float32, bitcast=True)
            found = found + (low, (both >> 32).to(tl.int32).to(tl.float32, bitcast=True))
    else:
        start = numbers + first_word(edge, WIDTH)
        for number in tl.static_range(WIDTH):
            found = found + (tl.load(start + number * CHUNK),)
    return found


def edge_records(
    neighbor: Tensor, of_edges: EdgeNumbers, width: int, order: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return index words [E] and `width` numbers an edge in the order of the list, or in `order`; for operators."""
    num_edges = neighbor.shape[0]
    index = neighbor.new_empty((num_edges,))
    numbers = of_edges.envelope.new_empty(((num_edges + CHUNK.value) * width,))  # the last chunk may not be full
    has_table = of_edges.row is not None
    # What a kernel does not read may be any tensor of the type.
    wrap_triton(write_records)[((num_edges + BLOCK - 1) // BLOCK,)](
        neighbor, of_edges.row if has_table else neighbor, of_edges.fraction if has_table else of_edges.envelope,
        of_edges.envelope, of_edges.slope if has_table else of_edges.envelope, of_edges.active,
        neighbor if order is None else order, index, numbers, num_edges,
        HAS_TABLE=has_table, IS_ORDERED=order is not None, WIDTH=width, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip
    return index, numbers
