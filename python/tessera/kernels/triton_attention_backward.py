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
    add_planes,
    dot_planes,
    edge_gates,
    load_planes,
    own_lanes,
    place_of_factors,
    store_planes,
    zero_planes,
)
from tessera.kernels.triton_records import NOTHING, gates_row_of, load_numbers, neighbor_of


@triton.jit
def attention_backward_receivers(
    grad, message, statistics, query, payload, gates, index, numbers, factor, receiver_range, grad_query, grad_gates,
    grad_place, grad_factor, terms, num_rows, num_edges,
    HAS_TABLE: tl.constexpr, HAS_FACTOR: tl.constexpr, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr,
    VALUES: tl.constexpr, MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write gradients of queries [N, D, H] and of what belongs to edges, and the terms of receivers [N, 3 or 4, H].

    One program serves ROWS receivers and BLOCK heads. With a table `grad_place` is the gradient of an edge's place in
    it, through both gates and the envelope, whose slope the records hold; without, that of the envelope, and
    `grad_gates` is [E, 2, H]. Gradients of places and factors are sums over heads: each of B blocks of heads writes its
    own, [B, E] or [B, E, A], which the caller adds up; factors have none without HAS_FACTOR. Writes are not atomic;
    results repeat bit for bit and do not depend on ROWS.
    """
    WIDTH: tl.constexpr = 14 if HAS_TABLE else 2
    TERMS: tl.constexpr = 3 if IS_SMOOTH else 4
    dtype: tl.constexpr = payload.dtype.element_ty
    at, lane, is_row = own_lanes(num_rows, BLOCK, ROWS)
    place = tl.load(receiver_range + 2 * at).to(tl.int32)
    end = tl.where(is_row, tl.load(receiver_range + 2 * at + 1).to(tl.int32), place)
    last = (num_edges - 1).to(tl.int32)
    queries, incoming, of_row = read_receiver(
        grad, message, statistics, query, at, lane, IS_SMOOTH, SCALARS, MOMENTS * VALUES, HEADS, BLOCK
    )
    sums = zero_planes(SCALARS, ROWS * BLOCK, dtype)
    own_sums = tl.program_id(1).to(tl.int64) * num_edges
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
        sums = receive_edge(
            queries, incoming, of_row, sums, key, value, gate, of_edge, place, place < end, counts, own_sums, lane,
            factor, grad_gates, grad_place, grad_factor, HAS_TABLE, HAS_FACTOR, IS_SMOOTH, SCALARS, VALUES, MOMENTS,
            HEADS, BLOCK,
        )  # fmt: skip
        place += 1
        left -= 1
    store_planes(grad_query, at, lane, sums, 0, SCALARS, SCALARS, HEADS, BLOCK, is_row)
    store_planes(terms, at, lane, of_row, 0, TERMS, TERMS, HEADS, BLOCK, is_row)


@triton.jit
def read_receiver(
    grad, message, statistics, query, row, lane, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr, SUMS: tl.constexpr,
    HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return queries, incoming gradient and terms of receivers."""
    queries = load_planes(query, row, lane, 0, SCALARS, SCALARS, HEADS, BLOCK)
    incoming = load_planes(grad, row, lane, 0, SUMS, SUMS, HEADS, BLOCK)
    product = dot_planes(incoming, load_planes(message, row, lane, 0, SUMS, SUMS, HEADS, BLOCK), SUMS)
    return queries, incoming, row_terms(statistics, product, row, lane, IS_SMOOTH, HEADS, BLOCK)


@triton.jit
def row_terms(statistics, product, row, lane, IS_SMOOTH: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    """Return of receivers: shift, 1 / S, P, and, unless smooth, what an edge that attains the largest score loses."""
    if IS_SMOOTH:
        largest, normalizer = load_planes(statistics, row, lane, 0, 2, 2, HEADS, BLOCK)
        return shift_of(largest, IS_SMOOTH), inverse_of(normalizer, lane, HEADS, BLOCK), product
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
def score_gradient(score, of_row, p, output_gate, told, counts, IS_SMOOTH: tl.constexpr):
    """Return e, c and da of an edge from its score and b; da is 0, as p has to be, where the edge does not count."""
    score = tl.where(counts, score, of_row[0])
    relative = tl.exp(score - of_row[0]) * of_row[1]
    excess = tl.fma(output_gate, told, -of_row[2])
    gradient = relative * p * excess
    if not IS_SMOOTH:
        gradient = tl.where(counts & (score == of_row[0]), gradient - of_row[3], gradient)
    return relative, excess, gradient


@triton.jit
def receive_edge(
    queries, incoming, of_row, sums, key, value, gate, of_edge, edge, is_edge, counts, own_sums, lane, factor,
    grad_gates, grad_place, grad_factor,
    HAS_TABLE: tl.constexpr, HAS_FACTOR: tl.constexpr, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr,
    VALUES: tl.constexpr, MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one edge a row, zeros where it does not count; return the query gradients with it."""
    dot = dot_planes(queries, key, SCALARS)
    p = tl.where(counts, of_edge[0], 0.0)
    factors = place_of_factors(edge, MOMENTS)
    told_by_moment = ()
    if HAS_FACTOR:
        told = tl.zeros_like(dot)
        for moment in tl.static_range(MOMENTS):
            part = dot_planes(incoming[moment * VALUES : (moment + 1) * VALUES], value, VALUES)
            told_by_moment = told_by_moment + (part,)
            told = tl.fma(tl.load(factor + factors + moment, mask=counts, other=0.0), part, told)
    else:
        told = dot_planes(incoming, value, VALUES)
    relative, excess, d_score = score_gradient(gate[0] * dot, of_row, p, gate[1], told, counts, IS_SMOOTH)
    weight = relative * p
    d_score_gate = d_score * dot
    d_output_gate = weight * told
    d_place = relative * excess  # by the envelope
    if HAS_TABLE:
        d_place = tl.fma(d_score_gate, gate[2], tl.fma(d_output_gate, gate[3], d_place * of_edge[1]))
    else:
        gradients = (d_score_gate, d_output_gate)
        store_planes(grad_gates, edge.to(tl.int64), lane, gradients, 0, 2, 2, HEADS, BLOCK, is_edge)
    shares = (d_place,)
    if HAS_FACTOR:
        for moment in tl.static_range(MOMENTS):
            shares = shares + (weight * gate[1] * told_by_moment[moment],)
    totals = sum_heads(shares, 1 + HAS_FACTOR * MOMENTS, BLOCK)
    is_written = is_edge & (lane % BLOCK == 0)  # once a row
    tl.store(grad_place + own_sums + edge, tl.where(counts, totals[0], 0.0), mask=is_written)
    if HAS_FACTOR:
        for moment in tl.static_range(MOMENTS):
            place = grad_factor + (own_sums + edge) * MOMENTS + moment
            tl.store(place, tl.where(counts, totals[1 + moment], 0.0), mask=is_written)
    return add_planes(sums, d_score * gate[0], key, SCALARS)


@triton.jit
def add_two(a0, a1, b0, b1):
    """Add pairs."""
    return a0 + b0, a1 + b1


@triton.jit
def add_four(a0, a1, a2, a3, b0, b1, b2, b3):
    """Add quadruples."""
    return a0 + b0, a1 + b1, a2 + b2, a3 + b3


@triton.jit
def sum_heads(vectors, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Sum one, two or four vectors over the heads of a row, in one tree of fixed shape; all lanes get the sums."""
    rows = ()
    for place in tl.static_range(COUNT):
        rows = rows + (tl.reshape(vectors[place], [vectors[place].shape[0] // BLOCK, BLOCK]),)
    if COUNT == 1:
        totals = (tl.sum(rows[0], axis=1, keep_dims=True),)
    elif COUNT == 2:
        totals = tl.reduce((rows[0], rows[1]), 1, add_two, keep_dims=True)
    else:
        totals = tl.reduce((rows[0], rows[1], rows[2], rows[3]), 1, add_four, keep_dims=True)
    spread = ()
    for place in tl.static_range(COUNT):
        wide = tl.broadcast_to(totals[place], rows[place].shape)
        spread = spread + (tl.reshape(wide, vectors[place].shape),)
    return spread


@triton.jit
def attention_backward_senders(
    grad, terms, query, payload, gates, index, numbers, factor, sender_range, grad_payload, num_rows, num_edges,
    HAS_TABLE: tl.constexpr, HAS_FACTOR: tl.constexpr, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr,
    VALUES: tl.constexpr, MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the payload, [M, D + V, H]; one program serves ROWS senders and BLOCK heads.

    Records and factors are in the order of the senders. Writes are not atomic; results repeat bit for bit and do not
    depend on ROWS.
    """
    WIDTH: tl.constexpr = 8 if HAS_TABLE else 2
    TERMS: tl.constexpr = 3 if IS_SMOOTH else 4
    dtype: tl.constexpr = payload.dtype.element_ty
    at, lane, is_row = own_lanes(num_rows, BLOCK, ROWS)
    place = tl.load(sender_range + 2 * at).to(tl.int32)
    end = tl.where(is_row, tl.load(sender_range + 2 * at + 1).to(tl.int32), place)
    last = (num_edges - 1).to(tl.int32)
    key = load_planes(payload, at, lane, 0, SCALARS, SCALARS + VALUES, HEADS, BLOCK)
    value = load_planes(payload, at, lane, SCALARS, VALUES, SCALARS + VALUES, HEADS, BLOCK)
    sums = (zero_planes(SCALARS, ROWS * BLOCK, dtype), zero_planes(VALUES, ROWS * BLOCK, dtype))
    left = tl.max(end - place)
    word = tl.load(index + place, mask=place < end, other=NOTHING)
    while left > 0:
        counts = word >= 0
        other = neighbor_of(word)
        queries = load_planes(query, other, lane, 0, SCALARS, SCALARS, HEADS, BLOCK, counts)
        incoming = load_planes(grad, other, lane, 0, MOMENTS * VALUES, MOMENTS * VALUES, HEADS, BLOCK, counts)
        of_row = load_planes(terms, other, lane, 0, TERMS, TERMS, HEADS, BLOCK, counts)
        of_edge = load_numbers(numbers, tl.minimum(place, last), WIDTH)
        gate = edge_gates(gates, gates_row_of(word), of_edge, counts, lane, HAS_TABLE, HEADS, BLOCK)
        word = tl.load(index + place + 1, mask=place + 1 < end, other=NOTHING)
        p = tl.where(counts, of_edge[0], 0.0)
        sums = send_edge(
            queries, incoming, of_row, gate, sums, key, value, p, factor + place_of_factors(place, MOMENTS), counts,
            HAS_FACTOR, IS_SMOOTH, SCALARS, VALUES, MOMENTS,
        )  # fmt: skip
        place += 1
        left -= 1
    store_planes(grad_payload, at, lane, sums[0], 0, SCALARS, SCALARS + VALUES, HEADS, BLOCK, is_row)
    store_planes(grad_payload, at, lane, sums[1], SCALARS, VALUES, SCALARS + VALUES, HEADS, BLOCK, is_row)


@triton.jit
def send_edge(
    queries, incoming, of_row, gate, sums, key, value, p, factors, counts, HAS_FACTOR: tl.constexpr,
    IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr, VALUES: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """Return the sums of the senders' key and value gradients with one more edge each, or with zeros."""
    key_sums, value_sums = sums
    mixed = incoming
    share = gate[1]
    if HAS_FACTOR and MOMENTS > 1:
        mixed = mix_moments(incoming, factors, counts, VALUES, MOMENTS)
    told = dot_planes(mixed, value, VALUES)
    if HAS_FACTOR and MOMENTS == 1:
        f = tl.load(factors, mask=counts, other=0.0)
        told = f * told
        share = gate[1] * f
    relative, _, d_score = score_gradient(
        gate[0] * dot_planes(queries, key, SCALARS), of_row, p, gate[1], told, counts, IS_SMOOTH
    )
    return (
        add_planes(key_sums, d_score * gate[0], queries, SCALARS),
        add_planes(value_sums, relative * p * share, mixed, VALUES),
    )


@triton.jit
def mix_moments(incoming, factors, counts, VALUES: tl.constexpr, MOMENTS: tl.constexpr):
    """Sum the moments of an incoming gradient with an edge's factors: planes A x V -> V."""
    f = tl.load(factors, mask=counts, other=0.0)
    mixed = ()
    for plane in tl.static_range(VALUES):
        mixed = mixed + (f * incoming[plane],)
    for moment in tl.static_range(1, MOMENTS):
        f = tl.load(factors + moment, mask=counts, other=0.0)
        mixed = add_planes(mixed, f, incoming[moment * VALUES : (moment + 1) * VALUES], VALUES)
    return mixed
