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


@triton.jit
def attention_backward_receivers(
    grad, message, statistics, query, payload, gates, row, fraction, envelope, factor, active, sender, receiver_range,
    grad_query, grad_gates, grad_envelope, grad_factor, products, num_rows, num_edges,
    HAS_TABLE: tl.constexpr, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr, VALUES: tl.constexpr,
    MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write gradients of queries [N, D, H] and of what belongs to edges, and P [N, H].

    One program serves ROWS receivers and BLOCK heads. `grad_gates` is [E, 2, H], or the gradient of the fractions
    where gates come from a table. Gradients of envelope, factors and fractions are sums over heads: each of B blocks of
    heads writes its own, [B, E] or [B, E, A], which the caller adds up. Writes are not atomic; results repeat bit for
    bit and do not depend on ROWS.
    """
    dtype: tl.constexpr = payload.dtype.element_ty
    at, lane, is_row = own_lanes(num_rows, BLOCK, ROWS)
    place = tl.load(receiver_range + 2 * at).to(tl.int32)
    end = tl.where(is_row, tl.load(receiver_range + 2 * at + 1).to(tl.int32), place)
    terms = read_receiver(
        grad, message, statistics, query, at, lane, IS_SMOOTH, SCALARS, MOMENTS * VALUES, HEADS, BLOCK
    )
    sums = zero_planes(SCALARS, ROWS * BLOCK, dtype)
    own_sums = tl.program_id(1).to(tl.int64) * num_edges
    left = tl.max(end - place)
    other = tl.load(sender + place, mask=place < end, other=0)
    counts = (place < end) & tl.load(active + place, mask=place < end, other=0).to(tl.int1)
    while left > 0:
        key = load_planes(payload, other, lane, 0, SCALARS, SCALARS + VALUES, HEADS, BLOCK, counts)
        value = load_planes(payload, other, lane, SCALARS, VALUES, SCALARS + VALUES, HEADS, BLOCK, counts)
        next_place = place + 1
        next_other = tl.load(sender + next_place, mask=next_place < end, other=0)
        next_active = tl.load(active + next_place, mask=next_place < end, other=0).to(tl.int1)
        sums = receive_edge(
            terms, sums, key, value, place, place < end, counts, own_sums, lane, gates, row, fraction, envelope,
            factor, grad_gates, grad_envelope, grad_factor, HAS_TABLE, IS_SMOOTH, SCALARS, VALUES, MOMENTS, HEADS,
            BLOCK,
        )  # fmt: skip
        counts = (next_place < end) & next_active
        place = next_place
        other = next_other
        left -= 1
    store_planes(grad_query, at, lane, sums, 0, SCALARS, SCALARS, HEADS, BLOCK, is_row)
    store_planes(products, at, lane, (terms[2][2],), 0, 1, 1, HEADS, BLOCK, is_row)


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
def row_terms(
    statistics, product, row, lane, IS_SMOOTH: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, is_read=None
):
    """Return of receivers: shift, 1 / S, P, and what an edge that attains the largest score loses of da."""
    if IS_SMOOTH:
        largest, normalizer = load_planes(statistics, row, lane, 0, 2, 2, HEADS, BLOCK, is_read)
        inverse = inverse_of(normalizer, lane, HEADS, BLOCK, is_read)
        return shift_of(largest, IS_SMOOTH), inverse, product, product * 0.0
    else:
        largest, normalizer, ties = load_planes(statistics, row, lane, 0, 3, 3, HEADS, BLOCK, is_read)
        inverse = inverse_of(normalizer, lane, HEADS, BLOCK, is_read)
        return largest, inverse, product, product * inverse * 1e-3 / tl.maximum(ties, 1.0)


@triton.jit
def inverse_of(normalizer, lane, HEADS: tl.constexpr, BLOCK: tl.constexpr, is_read=None):
    """Return 1 / S, 0 in lanes beyond HEADS, so that they add nothing to sums over lanes; 1 where none was read."""
    if is_read is not None:
        normalizer = tl.where(is_read, normalizer, 1.0)
    if HEADS % BLOCK == 0:
        return 1.0 / normalizer
    else:
        return tl.where(lane < HEADS, 1.0 / tl.where(lane < HEADS, normalizer, 1.0), 0.0)


@triton.jit
def score_gradient(score, terms, p, output_gate, told, counts, IS_SMOOTH: tl.constexpr):
    """Return e, c and da of an edge from its score and b; da is 0, and p has to be, where the edge does not count."""
    shift, inverse, product, tie_share = terms
    score = tl.where(counts, score, shift)
    relative = tl.exp(score - shift) * inverse
    excess = tl.fma(output_gate, told, -product)
    gradient = relative * p * excess
    if not IS_SMOOTH:
        gradient = tl.where(counts & (score == shift), gradient - tie_share, gradient)
    return relative, excess, gradient


@triton.jit
def receive_edge(
    terms_of_row, sums, key, value, edge, is_edge, counts, own_sums, lane, gates, row, fraction, envelope, factor,
    grad_gates, grad_envelope, grad_factor,
    HAS_TABLE: tl.constexpr, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr, VALUES: tl.constexpr,
    MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the gradients of one edge a row, zeros where it does not count; return the query gradients with it."""
    queries, incoming, terms = terms_of_row
    gate = edge_gates(gates, row, fraction, edge, counts, lane, HAS_TABLE, True, HEADS, BLOCK)
    dot = dot_planes(queries, key, SCALARS)
    p = tl.load(envelope + edge, mask=counts, other=0.0)
    factors = place_of_factors(edge, MOMENTS)
    told = tl.zeros_like(dot)
    told_by_moment = ()
    for moment in tl.static_range(MOMENTS):
        part = dot_planes(incoming[moment * VALUES : (moment + 1) * VALUES], value, VALUES)
        told_by_moment = told_by_moment + (part,)
        told = tl.fma(tl.load(factor + factors + moment, mask=counts, other=0.0), part, told)
    relative, excess, d_score = score_gradient(gate[0] * dot, terms, p, gate[1], told, counts, IS_SMOOTH)
    weight = relative * p
    d_score_gate = d_score * dot
    d_output_gate = weight * told
    shares = (relative * excess,)
    for moment in tl.static_range(MOMENTS):
        shares = shares + (weight * gate[1] * told_by_moment[moment],)
    if HAS_TABLE:
        shares = shares + (tl.fma(d_score_gate, gate[2], d_output_gate * gate[3]),)
    else:
        gradients = (d_score_gate, d_output_gate)
        store_planes(grad_gates, edge.to(tl.int64), lane, gradients, 0, 2, 2, HEADS, BLOCK, is_edge)
    totals = sum_heads(shares, MOMENTS + 1 + HAS_TABLE, BLOCK)
    is_written = is_edge & (lane % BLOCK == 0)  # once a row
    tl.store(grad_envelope + own_sums + edge, tl.where(counts, totals[0], 0.0), mask=is_written)
    for moment in tl.static_range(MOMENTS):
        place = grad_factor + (own_sums + edge) * MOMENTS + moment
        tl.store(place, tl.where(counts, totals[1 + moment], 0.0), mask=is_written)
    if HAS_TABLE:
        share = tl.where(counts, totals[1 + MOMENTS], 0.0)
        tl.store(grad_gates + own_sums + edge, share, mask=is_written)
    return add_planes(sums, d_score * gate[0], key, SCALARS)


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
def sum_heads(vectors, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Sum each of two to five vectors over the heads of a row, in one tree of fixed shape; all lanes get the sums."""
    rows = ()
    for place in tl.static_range(COUNT):
        rows = rows + (tl.reshape(vectors[place], [vectors[place].shape[0] // BLOCK, BLOCK]),)
    if COUNT == 2:
        totals = tl.reduce((rows[0], rows[1]), 1, add_two, keep_dims=True)
    elif COUNT == 3:
        totals = tl.reduce((rows[0], rows[1], rows[2]), 1, add_three, keep_dims=True)
    elif COUNT == 4:
        totals = tl.reduce((rows[0], rows[1], rows[2], rows[3]), 1, add_four, keep_dims=True)
    else:
        totals = tl.reduce((rows[0], rows[1], rows[2], rows[3], rows[4]), 1, add_five, keep_dims=True)
    spread = ()
    for place in tl.static_range(COUNT):
        wide = tl.broadcast_to(totals[place], rows[place].shape)
        spread = spread + (tl.reshape(wide, vectors[place].shape),)
    return spread


@triton.jit
def attention_backward_senders(
    grad, statistics, products, query, payload, gates, row, fraction, envelope, factor, active, receiver, sender_order,
    sender_range, grad_payload, num_rows,
    HAS_TABLE: tl.constexpr, IS_SMOOTH: tl.constexpr, SCALARS: tl.constexpr, VALUES: tl.constexpr,
    MOMENTS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the payload, [M, D + V, H]; one program serves ROWS senders and BLOCK heads.

    Writes are not atomic; results repeat bit for bit and do not depend on ROWS.
    """
    dtype: tl.constexpr = payload.dtype.element_ty
    at, lane, is_row = own_lanes(num_rows, BLOCK, ROWS)
    place = tl.load(sender_range + 2 * at).to(tl.int32)
    end = tl.where(is_row, tl.load(sender_range + 2 * at + 1).to(tl.int32), place)
    key = load_planes(payload, at, lane, 0, SCALARS, SCALARS + VALUES, HEADS, BLOCK)
    value = load_planes(payload, at, lane, SCALARS, VALUES, SCALARS + VALUES, HEADS, BLOCK)
    sums = (zero_planes(SCALARS, ROWS * BLOCK, dtype), zero_planes(VALUES, ROWS * BLOCK, dtype))
    left = tl.max(end - place)
    edge = tl.load(sender_order + place, mask=place < end, other=0).to(tl.int32)
    other = tl.load(receiver + edge, mask=place < end, other=0)
    counts = (place < end) & tl.load(active + edge, mask=place < end, other=0).to(tl.int1)
    while left > 0:
        queries = load_planes(query, other, lane, 0, SCALARS, SCALARS, HEADS, BLOCK, counts)
        incoming = load_planes(grad, other, lane, 0, MOMENTS * VALUES, MOMENTS * VALUES, HEADS, BLOCK, counts)
        product = load_planes(products, other, lane, 0, 1, 1, HEADS, BLOCK, counts)
        terms = row_terms(statistics, product[0], other, lane, IS_SMOOTH, HEADS, BLOCK, counts)
        place += 1
        next_edge = tl.load(sender_order + place, mask=place < end, other=0).to(tl.int32)
        next_other = tl.load(receiver + next_edge, mask=place < end, other=0)
        next_active = tl.load(active + next_edge, mask=place < end, other=0).to(tl.int1)
        gate = edge_gates(gates, row, fraction, edge, counts, lane, HAS_TABLE, False, HEADS, BLOCK)
        p = tl.load(envelope + edge, mask=counts, other=0.0)
        sums = send_edge(
            queries, incoming, terms, gate, sums, key, value, p, factor + place_of_factors(edge, MOMENTS), counts,
            IS_SMOOTH, SCALARS, VALUES, MOMENTS,
        )  # fmt: skip
        counts = (place < end) & next_active
        edge = next_edge
        other = next_other
        left -= 1
    store_planes(grad_payload, at, lane, sums[0], 0, SCALARS, SCALARS + VALUES, HEADS, BLOCK, is_row)
    store_planes(grad_payload, at, lane, sums[1], SCALARS, VALUES, SCALARS + VALUES, HEADS, BLOCK, is_row)


@triton.jit
def send_edge(
    queries, incoming, terms, gate, sums, key, value, p, factors, counts, IS_SMOOTH: tl.constexpr,
    SCALARS: tl.constexpr, VALUES: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """Return the sums of the senders' key and value gradients with one more edge each, or with zeros."""
    key_sums, value_sums = sums
    mixed = incoming[0:VALUES]
    if MOMENTS > 1:
        mixed = mix_moments(incoming, factors, counts, VALUES, MOMENTS)
        told = dot_planes(mixed, value, VALUES)
        share = gate[1]
    else:
        f = tl.load(factors, mask=counts, other=0.0)
        told = f * dot_planes(mixed, value, VALUES)
        share = gate[1] * f
    relative, _, d_score = score_gradient(
        gate[0] * dot_planes(queries, key, SCALARS), terms, p, gate[1], told, counts, IS_SMOOTH
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
