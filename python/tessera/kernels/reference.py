# SPDX-License-Identifier: MIT
"""The message-passing operations in plain torch.

They serve training (differentiable twice), eager runs and as the oracle of the compiled operators of the same names
(ARCHITECTURE.md, Operators). N owned rows, M = N + H extended rows, E edges, A moment components, R = (lmax+1)^2 rows
of harmonics, C channels, H heads, D scalars a head. Rows in planes are [*, planes, H]: channel c of harmonics row r
belongs to head c mod H and stands in plane r * C/H + c // H; heads are neighbors in memory and never mix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

NORMALIZER_FLOOR = 1e-3
"""Added to the normalizer of attention weights, in units of the largest exponential."""
SPLINE_ROWS = 6
"""Coefficients of a quintic B-spline that an interval needs."""

if TYPE_CHECKING:  # the model imports this module
    from tessera.model.graph import EdgeList


def segment_sum(values: Tensor, edges: EdgeList) -> Tensor:
    """Sum the edges of each receiver: [E, F] -> [N, F]."""
    return values.new_zeros((edges.num_owned, *values.shape[1:])).index_add(0, edges.receiver, values)


def segment_max(values: Tensor, active: Tensor, edges: EdgeList) -> Tensor:
    """Take the maximum over the active edges of each receiver: [E, F], bool [E] -> [N, F]; 0 where none is active.

    The derivative goes to the edges that attain the maximum, in equal shares (E2Former V2 specification, section 3.4).
    """
    index = edges.receiver[:, None].expand_as(values)
    candidates = values.detach().masked_fill(~active[:, None], -torch.inf)
    lowest = candidates.new_full((edges.num_owned, values.shape[1]), -torch.inf)
    maximum = lowest.scatter_reduce(0, index, candidates, "amax")
    maximum = torch.where(maximum == -torch.inf, 0.0, maximum)
    attains = ((candidates == maximum[edges.receiver]) & active[:, None]).to(values.dtype)
    winners = segment_sum(attains, edges).clamp(min=1.0)
    # The sum is zero; it carries the derivative.
    return maximum + segment_sum((values - values.detach()) * attains, edges) / winners


def edge_dot(query: Tensor, key: Tensor, edges: EdgeList) -> Tensor:
    """Multiply receiver's query by sender's key, head by head: [N, H, D], [M, H, D] -> [E, H]."""
    return (_rows(query, edges.receiver) * _rows(key, edges.sender)).sum(-1)


def weighted_sum(weights: Tensor, values: Tensor, edges: EdgeList) -> Tensor:
    """Sum the senders' values with one weight a moment and head: [E, A, H], [M, R, C] -> [N, A, R, C].

    Channel c belongs to head c mod H (E2Former V2 specification, section 3.5).
    """
    repeats = values.shape[2] // weights.shape[2]
    sent = _rows(values, edges.sender)
    moments = [
        segment_sum(weights[:, place].repeat(1, repeats)[:, None, :] * sent, edges) for place in range(weights.shape[1])
    ]
    return torch.stack(moments, dim=1)


def edge_attention(
    query: Tensor, payload: Tensor, gates: Tensor, envelope: Tensor, factor: Tensor | None, active: Tensor,
    edges: EdgeList, is_smooth: bool,
) -> Tensor:  # fmt: skip
    """Give what the neighbors tell each atom: scores, envelope-weighted softmax, gated sum of the senders' values.

    With a = gate * (q_i . k_j), w = e^a p, u the output gate and A the largest a of the receiver's active edges, the
    message is sum_e w_e u_e f_e V_j / (sum_e w_e + 1e-3 F); F = e^A, whose derivative counts (ties share it equally),
    or 1 where `is_smooth` (E2Former V2 specification, sections 3.4, 3.5 and 9.2).

    Args:
        query: of receivers, divided by sqrt(D), [N, D, H].
        payload: of senders: D planes of keys, then V planes of values, [M, D + V, H].
        gates: score gates and output gates, [E, 2, H].
        envelope: p, [E]; inactive edges count as 0.
        factor: f, one a moment, [E, A]; None: one moment of 1.
        active: the edges that count, bool [E].
        edges: the list.
        is_smooth: which floor F the normalizer has.

    Returns:
        [N, A, V, H]; 0 for a row without active edges.
    """
    num_scalars = query.shape[1]
    key, value = payload.split((num_scalars, payload.shape[1] - num_scalars), dim=1)
    score = gates[:, 0] * (_rows(query, edges.receiver) * _rows(key, edges.sender)).sum(1)
    largest = segment_max(score, active, edges)
    shift = largest.detach().clamp(min=0.0) if is_smooth else largest.detach()
    floor = torch.exp(-shift) if is_smooth else torch.exp(largest - shift)
    # Inactive edges may score above the shift; their exponential must not overflow.
    relative = torch.where(active[:, None], score - shift[edges.receiver], torch.zeros_like(score))
    weight = torch.exp(relative) * torch.where(active, envelope, torch.zeros_like(envelope))[:, None]
    normalizer = segment_sum(weight, edges) + NORMALIZER_FLOOR * floor
    sent = (weight * gates[:, 1])[:, None] * _rows(value, edges.sender)
    parts = [sent] if factor is None else [column[:, None, None] * sent for column in factor.unbind(1)]
    moments = [segment_sum(part, edges) for part in parts]
    return torch.stack(moments, dim=1) / normalizer[:, None, None]


def table_attention(
    query: Tensor, payload: Tensor, table: Tensor, row: Tensor, fraction: Tensor, envelope: Tensor, slope: Tensor,  # noqa: ARG001
    factor: Tensor | None, active: Tensor, edges: EdgeList, is_smooth: bool,
) -> Tensor:  # fmt: skip
    """Give :func:`edge_attention` with gates from a spline, `table` [T, 2, H]; see :func:`spline`.

    `slope` is the derivative of `envelope` by `fraction`, [E]: both depend on the distance alone. It is for kernels
    that add both derivatives up as one of `fraction` and give `envelope` none; here each gets its own.
    """
    return edge_attention(query, payload, spline(table, row, fraction), envelope, factor, active, edges, is_smooth)


def spline(table: Tensor, row: Tensor, fraction: Tensor) -> Tensor:
    """Evaluate uniform quintic B-splines: coefficients [T, ...], int64 [E], [E] -> [E, ...].

    Edge e lies at `fraction` (0 to 1) of an interval whose six coefficients start at `row` of the table. The splines
    have four continuous derivatives; the derivative by `fraction` is that of the spline.
    """
    weights = spline_weights(fraction)
    shape = (-1, *(1 for _ in table.shape[1:]))
    return sum(weights[:, place].view(shape) * table[row + place] for place in range(SPLINE_ROWS))


def spline_weights(fraction: Tensor) -> Tensor:
    """Evaluate the six basis splines that overlap an interval: [E] -> [E, 6]; they add up to 1."""
    t, s = fraction, 1.0 - fraction
    weights = [
        s**5,
        26.0 + t * (-50.0 + t * (20.0 + t * (20.0 + t * (-20.0 + t * 5.0)))),
        66.0 + t * t * (-60.0 + t * t * (30.0 - t * 10.0)),
        66.0 + s * s * (-60.0 + s * s * (30.0 - s * 10.0)),
        26.0 + s * (-50.0 + s * (20.0 + s * (20.0 + s * (-20.0 + s * 5.0)))),
        t**5,
    ]
    return torch.stack(weights, dim=1) * (1.0 / 120.0)


def table_sum(
    harmonics: Tensor, table: Tensor, row: Tensor, fraction: Tensor, scale: Tensor, edges: EdgeList
) -> Tensor:
    """Sum harmonics times radial functions from a spline, scaled: [E, R], [T, L+1, C], [E], [E], [E] -> [N, R, C]."""
    return outer_sum(harmonics, spline(table, row, fraction) * scale[:, None, None], edges)


def outer_sum(harmonics: Tensor, radial: Tensor, edges: EdgeList) -> Tensor:
    """Sum harmonics times radial functions of the same degree: [E, R], [E, L+1, C] -> [N, R, C]."""
    return segment_sum(harmonics[:, :, None] * radial[:, _degree_of_row(radial.shape[1], radial.device)], edges)


def harmonic_dot(harmonics: Tensor, features: Tensor, edges: EdgeList) -> Tensor:
    """Contract the receiver's features with an edge's harmonics, degree by degree: [E, R], [N, R, C] -> [E, L+1, C].

    The transpose of :func:`outer_sum` in its second argument.
    """
    products = harmonics[:, :, None] * _rows(features, edges.receiver)
    degrees = range(round(harmonics.shape[1] ** 0.5))
    return torch.stack([products[:, degree**2 : (degree + 1) ** 2].sum(1) for degree in degrees], dim=1)


def nearest_edges(distance: Tensor, active: Tensor, edges: EdgeList, count: int) -> Tensor:
    """Mark the `count` nearest active edges of each receiver: [E], bool [E] -> bool [E]; ties go to the first edge."""
    by_distance = torch.argsort(distance.masked_fill(~active, torch.inf), stable=True)
    order = by_distance[torch.argsort(edges.receiver[by_distance], stable=True)]
    place = torch.arange(order.shape[0], device=order.device) - edges.receiver_range[edges.receiver[order], 0]
    return torch.zeros_like(active).index_put((order,), place < count) & active


def recompute_after(x: Tensor, gradient: Tensor) -> Tensor:  # noqa: ARG001
    """Return `x`: what runs eagerly runs in the order of its writing."""
    return x


def halo_start(payload: Tensor, plan: Tensor, edges: EdgeList, list_index: int) -> Tensor:  # noqa: ARG001
    """Return a ticket, [2]; the rows are copied in :func:`halo_wait`, since one process holds them all."""
    return payload.new_zeros(2)


def halo_wait(payload: Tensor, ticket: Tensor, plan: Tensor, edges: EdgeList, list_index: int) -> Tensor:  # noqa: ARG001
    """Append the halo rows, copies of owned rows: [N, P] -> [N + H, P].

    Raises:
        ValueError: the list has halo rows but does not say whom they copy.
    """
    if edges.halo_rows is None:
        raise ValueError(f"expected halo_rows for {edges.num_halo} halo rows, found None; say whom they copy")
    return torch.cat([payload, payload[edges.halo_rows]])


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    """Gather [N, ...] by int64 [E]; unlike that of values[rows], the derivative does not sort the edges on a GPU."""
    return values.index_select(0, rows)


def _degree_of_row(num_degrees: int, device: torch.device) -> Tensor:
    """Degree l of each of the (lmax+1)^2 rows, int64."""
    degrees = torch.arange(num_degrees, device=device)
    return torch.repeat_interleave(degrees, 2 * degrees + 1, output_size=num_degrees**2)
