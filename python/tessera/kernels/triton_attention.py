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
    NO_HEAD,
    dot_planes,
    edge_gates,
    load_planes,
    next_places,
    smallest_head,
    store_planes,
    zero_planes,
)


@triton.jit
def attention_forward(
    query, payload, gates, row, fraction, envelope, factor, active, sender, receiver_range, message, statistics,
    num_rows,
    HAS_TABLE: tl.constexpr, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr, VALUES: tl.constexpr,
    MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write message [N, A, V, H] and statistics [N, 2 or 3, H]; one program serves TILE receivers and BLOCK heads.

    One lane is one head; a lane keeps the running maximum and sums of its receivers (online softmax) while it walks
    through the union of their senders, and reads a sender's keys and values once for all of them. Writes are not
    atomic; results repeat bit for bit and do not depend on TILE.
    """
    dtype: tl.constexpr = payload.dtype.element_ty
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first_row = tl.program_id(0).to(tl.int64) * TILE
    cursor = ()
    end = ()
    head = ()
    for t in tl.static_range(TILE):
        is_row = first_row + t < num_rows
        place = tl.load(receiver_range + 2 * (first_row + t), mask=is_row, other=0)
        last = tl.load(receiver_range + 2 * (first_row + t) + 1, mask=is_row, other=0)
        cursor = cursor + (place,)
        end = end + (last,)
        head = head + (tl.load(sender + place, mask=place < last, other=NO_HEAD),)
    queries = ()
    states = ()
    for t in tl.static_range(TILE):
        at = tl.minimum(first_row + t, num_rows - 1)
        queries = queries + (load_planes(query, at, lane, 0, SCALARS, SCALARS, HEADS, BLOCK),)
        states = states + (empty_state(MOMENTS * VALUES, BLOCK, dtype),)
    current = smallest_head(head, TILE)
    while current != NO_HEAD:
        key = load_planes(payload, current, lane, 0, SCALARS, SCALARS + VALUES, HEADS, BLOCK)
        value = load_planes(payload, current, lane, SCALARS, VALUES, SCALARS + VALUES, HEADS, BLOCK)
        places = next_places(cursor, head, current, TILE)
        heads = ()
        for t in tl.static_range(TILE):
            heads = heads + (tl.load(sender + places[t], mask=places[t] < end[t], other=NO_HEAD),)
        next_states = ()
        for t in tl.static_range(TILE):
            state = states[t]
            if head[t] == current:
                edge = cursor[t]
                if tl.load(active + edge):
                    gate = edge_gates(gates, row, fraction, edge, lane, HAS_TABLE, False, HEADS, BLOCK)
                    score = gate[0] * dot_planes(queries[t], key, SCALARS)
                    state = add_edge(
                        state, score, gate[1], tl.load(envelope + edge), factor + edge * MOMENTS, value, IS_SMOOTH,
                        VALUES, MOMENTS,
                    )  # fmt: skip
            next_states = next_states + (state,)
        states = next_states
        cursor = places
        head = heads
        current = smallest_head(head, TILE)
    for t in tl.static_range(TILE):
        if first_row + t < num_rows:
            store_state(states[t], message, statistics, first_row + t, lane, IS_SMOOTH, VALUES * MOMENTS, HEADS, BLOCK)


@triton.jit
def empty_state(SUMS: tl.constexpr, BLOCK: tl.constexpr, DTYPE: tl.constexpr):
    """Return the state of a receiver before its first edge: largest score, sum of weights, ties, sums of values."""
    nothing = tl.zeros([BLOCK], DTYPE)
    return nothing - float("inf"), nothing, nothing, zero_planes(SUMS, BLOCK, DTYPE)


@triton.jit
def shift_of(largest, IS_SMOOTH: tl.constexpr):
    """Return the exponent relative to which weights are kept: no smaller than 0 where the floor is smooth."""
    if IS_SMOOTH:
        return tl.maximum(largest, 0.0)
    else:
        return largest


@triton.jit
def add_edge(
    state, score, output_gate, p, factors, value, IS_SMOOTH: tl.constexpr, VALUES: tl.constexpr, MOMENTS: tl.constexpr
):
    """Add an edge of score a, envelope p and sender's values to a receiver's state."""
    largest, total, ties, sums = state
    new_largest = tl.maximum(largest, score)
    shift = shift_of(new_largest, IS_SMOOTH)
    # Before the first edge the old shift is -infinity (0 where smooth): all that is scaled is 0.
    scale = tl.exp(shift_of(largest, IS_SMOOTH) - shift)
    weight = tl.exp(score - shift) * p
    ties = tl.where(score > largest, 1.0, ties + tl.where(score == largest, 1.0, 0.0))
    new_sums = ()
    for moment in tl.static_range(MOMENTS):
        share = weight * output_gate * tl.load(factors + moment)
        for plane in tl.static_range(VALUES):
            new_sums = new_sums + (tl.fma(share, value[plane], sums[moment * VALUES + plane] * scale),)
    return new_largest, tl.fma(total, scale, weight), ties, new_sums


@triton.jit
def store_state(
    state, message, statistics, row, lane, IS_SMOOTH: tl.constexpr, SUMS: tl.constexpr, HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write a receiver's normalized message and its statistics."""
    largest, total, ties, sums = state
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    if IS_SMOOTH:
        normalizer = total + tl.exp(-tl.maximum(largest, 0.0)) * 1e-3
        store_planes(statistics, row, lane, (largest, normalizer), 0, 2, 2, HEADS, BLOCK)
    else:
        normalizer = total + 1e-3
        store_planes(statistics, row, lane, (largest, normalizer, ties), 0, 3, 3, HEADS, BLOCK)
    inverse = 1.0 / normalizer
    messages = ()
    for plane in tl.static_range(SUMS):
        messages = messages + (sums[plane] * inverse,)
    store_planes(message, row, lane, messages, 0, SUMS, SUMS, HEADS, BLOCK)
