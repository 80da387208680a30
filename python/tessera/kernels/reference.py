# SPDX-License-Identifier: MIT
"""The message-passing operations in plain torch.

They serve training (differentiable twice), eager runs and as the oracle of the compiled operators of the same names
(ARCHITECTURE.md, Operators). N owned rows, M = N + H extended rows, E edges, A moment components, R = (lmax+1)^2 rows
of harmonics, C channels, H heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

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
    return (query[edges.receiver] * key[edges.sender]).sum(-1)


def weighted_sum(weights: Tensor, values: Tensor, edges: EdgeList) -> Tensor:
    """Sum the senders' values with one weight a moment and head: [E, A, H], [M, R, C] -> [N, A, R, C].

    Channel c belongs to head c mod H (E2Former V2 specification, section 3.5).
    """
    repeats = values.shape[2] // weights.shape[2]
    sent = values[edges.sender]
    moments = [
        segment_sum(weights[:, place].repeat(1, repeats)[:, None, :] * sent, edges) for place in range(weights.shape[1])
    ]
    return torch.stack(moments, dim=1)


def outer_sum(harmonics: Tensor, radial: Tensor, edges: EdgeList) -> Tensor:
    """Sum harmonics times radial functions of the same degree: [E, R], [E, L+1, C] -> [N, R, C]."""
    return segment_sum(harmonics[:, :, None] * radial[:, _degree_of_row(radial.shape[1], radial.device)], edges)


def harmonic_dot(harmonics: Tensor, features: Tensor, edges: EdgeList) -> Tensor:
    """Contract the receiver's features with an edge's harmonics, degree by degree: [E, R], [N, R, C] -> [E, L+1, C].

    The transpose of :func:`outer_sum` in its second argument.
    """
    products = harmonics[:, :, None] * features[edges.receiver]
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


def _degree_of_row(num_degrees: int, device: torch.device) -> Tensor:
    """Degree l of each of the (lmax+1)^2 rows, int64."""
    degrees = torch.arange(num_degrees, device=device)
    return torch.repeat_interleave(degrees, 2 * degrees + 1, output_size=num_degrees**2)
