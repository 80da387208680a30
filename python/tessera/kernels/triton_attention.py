# SPDX-License-Identifier: MIT
"""Edge attention in one pass over the edges: scores, softmax with envelope, gated sum of the senders' values.

The equations are those of :func:`tessera.kernels.reference.edge_attention`. Statistics [N, 2 or 3, H] keep what the
backward pass needs of a receiver: the largest score (0 where no edge is active), the normalizer S relative to the shift
(the largest score, or 0 if that is larger and the floor is smooth), and, where the floor follows the largest score, how
many edges attain it.
"""

import triton
from triton import language as tl

from tessera.kernels.triton_edges import (
    dot_planes,
    edge_gates,
    load_planes,
    own_lanes,
    place_of_factors,
    store_planes,
    zero_planes,
)
from tessera.kernels.triton_records import NOTHING, gates_row_of, load_numbers, neighbor_of

LOWEST = tl.constexpr(-(2.0**127))
"""Largest score of a row before its first edge. Not infinity, whose difference from itself is no number;
a power of two, which every type holds."""


@triton.jit
def attention_forward(
    query, payload, gates, index, numbers, factor, receiver_range, message, statistics, num_rows, num_edges,
    HAS_TABLE: tl.constexpr, HAS_FACTOR: tl.constexpr, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr,
    VALUES: tl.constexpr, MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write message [N, A, V, H] and statistics [N, 2 or 3, H]; one program serves ROWS receivers and BLOCK heads.

    `index` and `numbers` are the records of the edges (`triton_records`); without HAS_FACTOR all factors are 1. Each
    receiver keeps the running maximum and sums of its edges (online softmax). Writes are not atomic; results repeat bit
    for bit and do not depend on ROWS.
    """
    WIDTH: tl.constexpr = 8 if HAS_TABLE else 2
    dtype: tl.constexpr = payload.dtype.element_ty
    at, lane, is_row = own_lanes(num_rows, BLOCK, ROWS)
    place = tl.load(receiver_range + 2 * at).to(tl.int32)
    end = tl.where(is_row, tl.load(receiver_range + 2 * at + 1).to(tl.int32), place)
    last = (num_edges - 1).to(tl.int32)
    queries = load_planes(query, at, lane, 0, SCALARS, SCALARS, HEADS, BLOCK)
    state = empty_state(MOMENTS * VALUES, ROWS * BLOCK, dtype)
    left = tl.max(end - place)
    word = tl.load(index + place, mask=place < end, other=NOTHING)
    while left > 0:
        counts = word >= 0
        other = neighbor_of(word)
        key = load_planes(payload, other, lane, 0, SCALARS, SCALARS + VALUES, HEADS, BLOCK, counts)
        value = load_planes(payload, other, lane, SCALARS, VALUES, SCALARS + VALUES, HEADS, BLOCK, counts)
        of_edge = load_numbers(numbers, tl.minimum(place, last), WIDTH)
        gate = edge_gates(gates, gates_row_of(word), of_edge, counts, lane, HAS_TABLE, HEADS, BLOCK)
        word = tl.load(index + place + 1, mask=place + 1 < end, other=NOTHING)
        score = gate[0] * dot_planes(queries, key, SCALARS)
        p = tl.where(counts, of_edge[0], 0.0)
        factors = factor + place_of_factors(place, MOMENTS)
        state = add_edge(state, score, gate[1], p, factors, value, counts, HAS_FACTOR, IS_SMOOTH, VALUES, MOMENTS)
        place += 1
        left -= 1
    store_state(state, message, statistics, at, is_row, lane, IS_SMOOTH, VALUES * MOMENTS, HEADS, BLOCK)


@triton.jit
def empty_state(SUMS: tl.constexpr, LANES: tl.constexpr, DTYPE: tl.constexpr):
    """Return the state of receivers before their first edge: largest score, sum of weights, ties, sums of values."""
    nothing = tl.zeros([LANES], DTYPE)
    return nothing + LOWEST, nothing, nothing, zero_planes(SUMS, LANES, DTYPE)


@triton.jit
def shift_of(largest, IS_SMOOTH: tl.constexpr):
    """Return the exponent relative to which weights are kept: no smaller than 0 where the floor is smooth."""
    if IS_SMOOTH:
        return tl.maximum(largest, 0.0)
    else:
        return largest


@triton.jit
def add_edge(
    state, score, output_gate, p, factors, value, counts, HAS_FACTOR: tl.constexpr, IS_SMOOTH: tl.constexpr,
    VALUES: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """Add an edge of score a, envelope p and sender's values to each receiver's state; p is 0 where none counts."""
    largest, total, ties, sums = state
    score = tl.where(counts, score, largest)
    new_largest = tl.maximum(largest, score)
    shift = shift_of(new_largest, IS_SMOOTH)
    # Before the first edge the old shift is LOWEST (0 where smooth): all that is scaled is 0.
    scale = tl.exp(shift_of(largest, IS_SMOOTH) - shift)
    weight = tl.exp(score - shift) * p
    ties = tl.where(score > largest, 1.0, ties + tl.where(counts & (score == largest), 1.0, 0.0))
    new_sums = ()
    for moment in tl.static_range(MOMENTS):
        share = weight * output_gate
        if HAS_FACTOR:
            share *= tl.load(factors + moment, mask=counts, other=0.0)
        for plane in tl.static_range(VALUES):
            new_sums = new_sums + (tl.fma(share, value[plane], sums[moment * VALUES + plane] * scale),)
    return new_largest, tl.fma(total, scale, weight), ties, new_sums


@triton.jit
def store_state(
    state, message, statistics, row, is_row, lane, IS_SMOOTH: tl.constexpr, SUMS: tl.constexpr, HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the receivers' normalized messages and their statistics."""
    largest, total, ties, sums = state
    largest = tl.where(largest == LOWEST, 0.0, largest)
    if IS_SMOOTH:
        normalizer = total + tl.exp(-tl.maximum(largest, 0.0)) * 1e-3
        store_planes(statistics, row, lane, (largest, normalizer), 0, 2, 2, HEADS, BLOCK, is_row)
    else:
        normalizer = total + 1e-3
        store_planes(statistics, row, lane, (largest, normalizer, ties), 0, 3, 3, HEADS, BLOCK, is_row)
    inverse = 1.0 / normalizer
    messages = ()
    for plane in tl.static_range(SUMS):
        messages = messages + (sums[plane] * inverse,)
    store_planes(message, row, lane, messages, 0, SUMS, SUMS, HEADS, BLOCK, is_row)
