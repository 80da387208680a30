# SPDX-License-Identifier: MIT
"""The derivative of edge attention: one pass by receivers (CSR), one by senders (CSC), nothing kept but statistics.

With score a, shift s, normalizer S, envelope p, output gate u, factors f, incoming gradient G and P = sum G * message
over a row's planes (differentiating the equations of :func:`tessera.kernels.reference.edge_attention`):

    e = exp(a - s) / S        b_A = sum_V G_AV V_j       b = sum_A f_A b_A        c = u b - P
    da = e p c                dp = sum over heads e c    du = e p b               df_A = sum over heads e p u b_A
    dV_V = e p u sum_A f_A G_AV

Where the normalizer's floor follows the largest score, da of the edges that attain it loses equal shares of 1e-3 P / S.
"""

import triton
from triton import language as tl

from tessera.kernels.triton_attention import shift_of
from tessera.kernels.triton_edges import (
    NO_HEAD,
    add_planes,
    dot_planes,
    edge_gates,
    load_planes,
    next_places,
    smallest_head,
    store_planes,
    zero_planes,
)


@triton.jit
def attention_backward_receivers(
    grad, message, statistics, query, payload, gates, row, fraction, envelope, factor, active, sender, receiver_range,
    grad_query, grad_gates, grad_envelope, grad_factor, products, num_rows, num_edges,
    HAS_TABLE: tl.constexpr, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr, VALUES: tl.constexpr,
    MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write gradients of queries [N, D, H] and of what belongs to edges, and P [N, H].

    One program serves TILE receivers and BLOCK heads. `grad_gates` is [E, 2, H], or the gradient of the fractions
    where gates come from a table. Gradients of envelope, factors and fractions are sums over heads: each of B blocks of
    heads writes its own, [B, E] or [B, E, A], which the caller adds up. Writes are not atomic; results repeat bit for
    bit and do not depend on TILE.
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
    rows = ()
    sums = ()
    for t in tl.static_range(TILE):
        at = tl.minimum(first_row + t, num_rows - 1)
        rows = rows + (
            read_receiver(
                grad, message, statistics, query, at, lane, IS_SMOOTH, SCALARS, MOMENTS * VALUES, HEADS, BLOCK
            ),
        )
        sums = sums + (zero_planes(SCALARS, BLOCK, dtype),)
    current = smallest_head(head, TILE)
    own_sums = tl.program_id(1).to(tl.int64) * num_edges
    while current != NO_HEAD:
        key = load_planes(payload, current, lane, 0, SCALARS, SCALARS + VALUES, HEADS, BLOCK)
        value = load_planes(payload, current, lane, SCALARS, VALUES, SCALARS + VALUES, HEADS, BLOCK)
        places = next_places(cursor, head, current, TILE)
        heads = ()
        for t in tl.static_range(TILE):
            heads = heads + (tl.load(sender + places[t], mask=places[t] < end[t], other=NO_HEAD),)
        next_sums = ()
        for t in tl.static_range(TILE):
            sum_t = sums[t]
            if head[t] == current:
                edge = cursor[t]
                if tl.load(active + edge):
                    sum_t = receive_edge(
                        rows[t], sum_t, key, value, edge, own_sums, lane, gates, row, fraction, envelope, factor,
                        grad_gates, grad_envelope, grad_factor, HAS_TABLE, IS_SMOOTH, SCALARS, VALUES, MOMENTS, HEADS,
                        BLOCK,
                    )  # fmt: skip
                else:
                    store_no_gradient(
                        edge,
                        own_sums,
                        lane,
                        grad_gates,
                        grad_envelope,
                        grad_factor,
                        dtype,
                        HAS_TABLE,
                        MOMENTS,
                        HEADS,
                        BLOCK,
                    )
            next_sums = next_sums + (sum_t,)
        sums = next_sums
        cursor = places
        head = heads
        current = smallest_head(head, TILE)
    for t in tl.static_range(TILE):
        if first_row + t < num_rows:
            store_planes(grad_query, first_row + t, lane, sums[t], 0, SCALARS, SCALARS, HEADS, BLOCK)
            store_planes(products, first_row + t, lane, (rows[t][2][2],), 0, 1, 1, HEADS, BLOCK)


@triton.jit
def read_receiver(
    grad, message, statistics, query, row, lane, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr, SUMS: tl.constexpr,
    HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return queries, incoming gradient and terms of a receiver."""
    queries = load_planes(query, row, lane, 0, SCALARS, SCALARS, HEADS, BLOCK)
    incoming = load_planes(grad, row, lane, 0, SUMS, SUMS, HEADS, BLOCK)
    product = dot_planes(incoming, load_planes(message, row, lane, 0, SUMS, SUMS, HEADS, BLOCK), SUMS)
    return queries, incoming, row_terms(statistics, product, row, lane, IS_SMOOTH, HEADS, BLOCK)


@triton.jit
def row_terms(statistics, product, row, lane, IS_SMOOTH: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    """Return of a receiver: shift, 1 / S, P, and what an edge that attains the largest score loses of da."""
    if IS_SMOOTH:
        largest, normalizer = load_planes(statistics, row, lane, 0, 2, 2, HEADS, BLOCK)
        return shift_of(largest, IS_SMOOTH), inverse_of(normalizer, lane, HEADS, BLOCK), product, product * 0.0
    else:
        largest, normalizer, ties = load_planes(statistics, row, lane, 0, 3, 3, HEADS, BLOCK)
        inverse = inverse_of(normalizer, lane, HEADS, BLOCK)
        return largest, inverse, product, product * inverse * 1e-3 / tl.maximum(ties, 1.0)


@triton.jit
def inverse_of(normalizer, lane, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    """Return 1 / S, 0 in lanes beyond HEADS, so that they add nothing to sums over lanes."""
    if HEADS % BLOCK == 0:
        return 1.0 / normalizer
    else:
        return tl.where(lane < HEADS, 1.0 / tl.where(lane < HEADS, normalizer, 1.0), 0.0)


@triton.jit
def score_gradient(score, terms, p, output_gate, told, IS_SMOOTH: tl.constexpr):
    """Return e, c and da of an edge from its score and b."""
    shift, inverse, product, tie_share = terms
    relative = tl.exp(score - shift) * inverse
    excess = tl.fma(output_gate, told, -product)
    gradient = relative * p * excess
    if not IS_SMOOTH:
        gradient = tl.where(score == shift, gradient - tie_share, gradient)
    return relative, excess, gradient


@triton.jit
def receive_edge(
    terms_of_row, sums, key, value, edge, own_sums, lane, gates, row, fraction, envelope, factor, grad_gates,
    grad_envelope, grad_factor,
    HAS_TABLE: tl.constexpr, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr, VALUES: tl.constexpr,
    MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one edge and return the sums of its receiver's query gradient with it."""
    queries, incoming, terms = terms_of_row
    gate = edge_gates(gates, row, fraction, edge, lane, HAS_TABLE, True, HEADS, BLOCK)
    dot = dot_planes(queries, key, SCALARS)
    p = tl.load(envelope + edge)
    told = tl.zeros_like(dot)
    told_by_moment = ()
    for moment in tl.static_range(MOMENTS):
        part = dot_planes(incoming[moment * VALUES : (moment + 1) * VALUES], value, VALUES)
        told_by_moment = told_by_moment + (part,)
        told = tl.fma(tl.load(factor + edge * MOMENTS + moment), part, told)
    relative, excess, d_score = score_gradient(gate[0] * dot, terms, p, gate[1], told, IS_SMOOTH)
    weight = relative * p
    d_score_gate = d_score * dot
    d_output_gate = weight * told
    shares = (relative * excess,)
    for moment in tl.static_range(MOMENTS):
        shares = shares + (weight * gate[1] * told_by_moment[moment],)
    if HAS_TABLE:
        shares = shares + (tl.fma(d_score_gate, gate[2], d_output_gate * gate[3]),)
    else:
        store_planes(grad_gates, edge, lane, (d_score_gate, d_output_gate), 0, 2, 2, HEADS, BLOCK)
    totals = sum_lanes(shares, MOMENTS + 1 + HAS_TABLE)
    tl.store(grad_envelope + own_sums + edge, totals[0])
    for moment in tl.static_range(MOMENTS):
        tl.store(grad_factor + (own_sums + edge) * MOMENTS + moment, totals[1 + moment])
    if HAS_TABLE:
        tl.store(grad_gates + own_sums + edge, totals[1 + MOMENTS])
    return add_planes(sums, d_score * gate[0], key, SCALARS)


@triton.jit
def store_no_gradient(
    edge, own_sums, lane, grad_gates, grad_envelope, grad_factor, DTYPE: tl.constexpr, HAS_TABLE: tl.constexpr,
    MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the zero gradients of an edge that does not count."""
    tl.store(grad_envelope + own_sums + edge, 0.0)
    for moment in tl.static_range(MOMENTS):
        tl.store(grad_factor + (own_sums + edge) * MOMENTS + moment, 0.0)
    if HAS_TABLE:
        tl.store(grad_gates + own_sums + edge, 0.0)
    else:
        store_planes(grad_gates, edge, lane, zero_planes(2, BLOCK, DTYPE), 0, 2, 2, HEADS, BLOCK)


@triton.jit
def add_two(a0, a1, b0, b1):
    """Add pairs."""
    return a0 + b0, a1 + b1


@triton.jit
def add_three(a0, a1, a2, b0, b1, b2):
    """Add triples."""
    return a0 + b0, a1 + b1, a2 + b2


@triton.jit
def add_four(a0, a1, a2, a3, b0, b1, b2, b3):
    """Add quadruples."""
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3


@triton.jit
def add_five(a0, a1, a2, a3, a4, b0, b1, b2, b3, b4):
    """Add quintuples."""
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4


@triton.jit
def sum_lanes(vectors, COUNT: tl.constexpr):
    """Sum each of two to five vectors over lanes, all in one tree of fixed shape."""
    if COUNT == 2:
        return tl.reduce((vectors[0], vectors[1]), 0, add_two)
    elif COUNT == 3:
        return tl.reduce((vectors[0], vectors[1], vectors[2]), 0, add_three)
    elif COUNT == 4:
        return tl.reduce((vectors[0], vectors[1], vectors[2], vectors[3]), 0, add_four)
    else:
        return tl.reduce((vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]), 0, add_five)


@triton.jit
def attention_backward_senders(
    grad, statistics, products, query, payload, gates, row, fraction, envelope, factor, active, receiver, sender_order,
    sender_range, grad_payload, num_rows,
    HAS_TABLE: tl.constexpr, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr, VALUES: tl.constexpr,
    MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the payload, [M, D + V, H]; one program serves TILE senders and BLOCK heads.

    It walks through the union of their receivers and reads a receiver's queries, incoming gradient and statistics once
    for all of them. Writes are not atomic; results repeat bit for bit and do not depend on TILE.
    """
    dtype: tl.constexpr = payload.dtype.element_ty
    lane = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first_row = tl.program_id(0).to(tl.int64) * TILE
    cursor = ()
    end = ()
    head = ()
    for t in tl.static_range(TILE):
        is_row = first_row + t < num_rows
        place = tl.load(sender_range + 2 * (first_row + t), mask=is_row, other=0)
        last = tl.load(sender_range + 2 * (first_row + t) + 1, mask=is_row, other=0)
        cursor = cursor + (place,)
        end = end + (last,)
        edge = tl.load(sender_order + place, mask=place < last, other=0)
        head = head + (tl.load(receiver + edge, mask=place < last, other=NO_HEAD),)
    keys = ()
    values = ()
    sums = ()
    for t in tl.static_range(TILE):
        at = tl.minimum(first_row + t, num_rows - 1)
        keys = keys + (load_planes(payload, at, lane, 0, SCALARS, SCALARS + VALUES, HEADS, BLOCK),)
        values = values + (load_planes(payload, at, lane, SCALARS, VALUES, SCALARS + VALUES, HEADS, BLOCK),)
        sums = sums + ((zero_planes(SCALARS, BLOCK, dtype), zero_planes(VALUES, BLOCK, dtype)),)
    current = smallest_head(head, TILE)
    while current != NO_HEAD:
        queries = load_planes(query, current, lane, 0, SCALARS, SCALARS, HEADS, BLOCK)
        incoming = load_planes(grad, current, lane, 0, MOMENTS * VALUES, MOMENTS * VALUES, HEADS, BLOCK)
        product = load_planes(products, current, lane, 0, 1, 1, HEADS, BLOCK)
        terms = row_terms(statistics, product[0], current, lane, IS_SMOOTH, HEADS, BLOCK)
        places = next_places(cursor, head, current, TILE)
        heads = ()
        for t in tl.static_range(TILE):
            edge = tl.load(sender_order + places[t], mask=places[t] < end[t], other=0)
            heads = heads + (tl.load(receiver + edge, mask=places[t] < end[t], other=NO_HEAD),)
        next_sums = ()
        for t in tl.static_range(TILE):
            sum_t = sums[t]
            if head[t] == current:
                edge = tl.load(sender_order + cursor[t])
                if tl.load(active + edge):
                    gate = edge_gates(gates, row, fraction, edge, lane, HAS_TABLE, False, HEADS, BLOCK)
                    sum_t = send_edge(
                        queries, incoming, terms, gate, sum_t, keys[t], values[t], tl.load(envelope + edge),
                        factor + edge * MOMENTS, IS_SMOOTH, SCALARS, VALUES, MOMENTS,
                    )  # fmt: skip
            next_sums = next_sums + (sum_t,)
        sums = next_sums
        cursor = places
        head = heads
        current = smallest_head(head, TILE)
    for t in tl.static_range(TILE):
        if first_row + t < num_rows:
            store_planes(grad_payload, first_row + t, lane, sums[t][0], 0, SCALARS, SCALARS + VALUES, HEADS, BLOCK)
            store_planes(grad_payload, first_row + t, lane, sums[t][1], SCALARS, VALUES, SCALARS + VALUES, HEADS, BLOCK)


@triton.jit
def send_edge(
    queries, incoming, terms, gate, sums, key, value, p, factors, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr,
    VALUES: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """Return the sums of a sender's key and value gradients with one more edge."""
    key_sums, value_sums = sums
    mixed = incoming[0:VALUES]
    if MOMENTS > 1:
        mixed = mix_moments(incoming, factors, VALUES, MOMENTS)
        told = dot_planes(mixed, value, VALUES)
        share = gate[1]
    else:
        f = tl.load(factors)
        told = f * dot_planes(mixed, value, VALUES)
        share = gate[1] * f
    relative, _, d_score = score_gradient(
        gate[0] * dot_planes(queries, key, SCALARS), terms, p, gate[1], told, IS_SMOOTH
    )
    return (
        add_planes(key_sums, d_score * gate[0], queries, SCALARS),
        add_planes(value_sums, relative * p * share, mixed, VALUES),
    )


@triton.jit
def mix_moments(incoming, factors, VALUES: tl.constexpr, MOMENTS: tl.constexpr):
    """Sum the moments of an incoming gradient with an edge's factors: planes A x V -> V."""
    f = tl.load(factors)
    mixed = ()
    for plane in tl.static_range(VALUES):
        mixed = mixed + (f * incoming[plane],)
    for moment in tl.static_range(1, MOMENTS):
        mixed = add_planes(mixed, tl.load(factors + moment), incoming[moment * VALUES : (moment + 1) * VALUES], VALUES)
    return mixed
