# SPDX-License-Identifier: MIT
"""What a stage knows of its edges before any feature exists: distances, directions, envelope, radial basis."""

import dataclasses
from collections.abc import Callable
from functools import cached_property, partial
from types import ModuleType

import torch
from torch import Tensor

from tessera.model.config import Stage
from tessera.model.graph import EdgeList, Graph
from tessera.model.spline_table import SplineTable
from tessera.model.tensor_algebra import harmonics

SHORTEST_DISTANCE = 1e-6
"""Å; keeps the derivative of |v| finite for coincident atoms, which are no edges anyway (d < 1e-4)."""


def envelope(distance: Tensor, cutoff: float) -> Tensor:
    """Evaluate the envelope p(d), 1 at d = 0 and 0 with two derivatives at the cutoff.

    The factored form of 1 - 21x^5 + 35x^6 - 15x^7: the expanded one cancels near x = 1, which weakly bound atoms
    amplify (E2Former V2 specification, sections 2 and 9.6).
    """
    x = distance / cutoff
    rest = 1.0 - x
    factored = rest * rest * rest * (1.0 + x * (3.0 + x * (6.0 + x * (10.0 + x * 15.0))))
    return torch.where(x < 1.0, factored, torch.zeros_like(factored))


def envelope_slope(distance: Tensor, cutoff: float) -> Tensor:
    """Differentiate :func:`envelope` by the distance, 1/Å."""
    x = distance / cutoff
    rest = 1.0 - x
    slope = (-105.0 / cutoff) * (x * x * rest) * (x * x * rest)
    return torch.where(x < 1.0, slope, torch.zeros_like(slope))


def bell_envelope(distance: Tensor, lower: float, upper: float) -> Tensor:
    """Evaluate (1 - t^2)^2 with t running from -1 at `lower` to 1 at `upper` (specification, section 8)."""
    t = 2.0 * (distance - lower) / (upper - lower) - 1.0
    bell = (1.0 - t) * (1.0 + t)
    return torch.where(t.abs() < 1.0, bell * bell, torch.zeros_like(bell))


def bell_envelope_slope(distance: Tensor, lower: float, upper: float) -> Tensor:
    """Differentiate :func:`bell_envelope` by the distance, 1/Å."""
    t = 2.0 * (distance - lower) / (upper - lower) - 1.0
    slope = (-8.0 / (upper - lower)) * t * (1.0 - t) * (1.0 + t)
    return torch.where(t.abs() < 1.0, slope, torch.zeros_like(slope))


def radial_centers(cutoff: float, count: int, device: torch.device | None = None) -> Tensor:
    """Return the exact centres of the Gaussians, float64 [B], Å."""
    return torch.arange(count, dtype=torch.float64, device=device) * (cutoff / (count - 1))


def radial_basis(distance: Tensor, cutoff: float, count: int) -> Tensor:
    """Evaluate B Gaussians on [0, cutoff] of width 2*cutoff/(B-1): [E] -> [E, B] (specification, section 2)."""
    centers = radial_centers(cutoff, count, distance.device).to(distance.dtype)
    width = 2.0 * cutoff / (count - 1)
    offset = (distance[:, None] - centers) * (1.0 / width)
    return torch.exp(-0.5 * offset * offset)


@dataclasses.dataclass(eq=False)
class StageEdges:
    """The edges of one stage with everything that no feature enters; E edges, B Gaussians, R = (lmax+1)^2."""

    edges: EdgeList
    list_index: int
    lmax: int
    receiver_element: Tensor
    """int64 [E]."""
    sender_element: Tensor
    """int64 [E]."""
    active: Tensor
    """bool [E], the edges that this stage sees."""
    envelope: Tensor
    """[E], 0 on inactive edges."""
    vector: Tensor
    """[E, 3], Å, network dtype."""
    direction: Tensor
    """[E, 3], unit vectors, network dtype."""
    distance: Tensor
    """[E], Å, network dtype."""
    exact_distance: Tensor
    """float64 [E], Å."""
    num_elements: int
    basis_cutoff: float
    """Å, end of the radial grid."""
    num_basis: int
    slope_of: Callable[[Tensor], Tensor]
    """Derivative of the envelope, 1/Å, at distances, Å."""

    @cached_property
    def basis(self) -> Tensor:
        """Radial basis, [E, B]."""
        return radial_basis(self.distance, self.basis_cutoff, self.num_basis)

    def envelope_slope(self, table: SplineTable) -> Tensor:
        """Return the derivative of the envelope by the fraction of an interval, [E] (0 if inactive); a constant."""
        slope = self.slope_of(self.exact_distance.detach()) * (table.cutoff / table.intervals)
        return torch.where(self.active, slope, torch.zeros_like(slope)).to(self.distance.dtype)

    def place(self, table: SplineTable) -> tuple[Tensor, Tensor]:
        """Find the edges in a table: first of six rows, int64 [E], and fraction of the interval, [E] (0 if inactive).

        The place is found in float64: rounded to float32 it would move an edge by 1e-4 of an interval.
        """
        key = (table.cutoff, table.intervals)
        if key not in self._places:
            place = self.exact_distance * (table.intervals / table.cutoff)
            interval = place.detach().floor().clamp(0.0, table.intervals - 1.0)
            fraction = torch.where(self.active, place - interval, torch.zeros_like(place))
            pair = self.receiver_element * self.num_elements + self.sender_element
            row = pair * table.rows_a_pair + interval.to(torch.int64)
            self._places[key] = (row, fraction.to(self.distance.dtype))
        return self._places[key]

    @cached_property
    def _places(self) -> dict[tuple[float, int], tuple[Tensor, Tensor]]:
        return {}

    @cached_property
    def harmonics(self) -> Tensor:
        """Component-normalised harmonics of the directions, [E, R]."""
        return harmonics(self.direction, self.lmax)


class EdgeGeometry:
    """Prepares the edges of stages; stages of equal description share one result."""

    def __init__(
        self, graph: Graph, cutoffs: tuple[float, ...], lmax: int, num_basis: int, dtype: torch.dtype,
        hydrogen: Tensor, kernels: ModuleType,
    ) -> None:  # fmt: skip
        """Args: `hydrogen` is bool [elements], True where Z = 1."""
        self._graph, self._cutoffs, self._lmax, self._num_basis = graph, cutoffs, lmax, num_basis
        self._dtype, self._hydrogen, self._kernels = dtype, hydrogen, kernels
        self._distances: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self._elements: dict[int, tuple[Tensor, Tensor]] = {}
        self._prepared: dict[Stage, StageEdges] = {}

    def prepare(self, stage: Stage) -> StageEdges:
        """Return the edges that `stage` sees; its `attention` does not matter."""
        key = dataclasses.replace(stage, attention="zero-order")
        if key not in self._prepared:
            self._prepared[key] = self._build(stage)
        return self._prepared[key]

    def _build(self, stage: Stage) -> StageEdges:
        place = self._cutoffs.index(stage.cutoff)
        edges = self._graph.lists[place]
        distance, vector, direction = self._distance(place, edges)
        receiver_element, sender_element = self._edge_elements(place, edges)
        active = (distance >= stage.minimum_distance) & (distance <= stage.cutoff)
        if stage.drops_hydrogen_senders:
            active = active & ~self._hydrogen[sender_element]
        if stage.max_neighbors is not None:
            active = self._kernels.nearest_edges(distance.detach(), active, edges, stage.max_neighbors)
        if stage.bell_envelope:
            weight = bell_envelope(distance, stage.minimum_distance, stage.cutoff)
            slope_of = partial(bell_envelope_slope, lower=stage.minimum_distance, upper=stage.cutoff)
        else:
            weight = envelope(distance, stage.cutoff)
            slope_of = partial(envelope_slope, cutoff=stage.cutoff)
        return StageEdges(
            edges=edges,
            list_index=place,
            lmax=self._lmax,
            receiver_element=receiver_element,
            sender_element=sender_element,
            active=active,
            envelope=torch.where(active, weight, torch.zeros_like(weight)).to(self._dtype),
            vector=vector,
            direction=direction,
            distance=distance.to(self._dtype),
            exact_distance=distance,
            num_elements=self._hydrogen.shape[0],
            basis_cutoff=stage.basis_cutoff,
            num_basis=self._num_basis,
            slope_of=slope_of,
        )

    def _distance(self, place: int, edges: EdgeList) -> tuple[Tensor, Tensor, Tensor]:
        """Distance in float64, vector and direction in the network's dtype."""
        if place not in self._distances:
            squared = (edges.vector * edges.vector).sum(-1)
            distance = torch.sqrt(squared.clamp(min=SHORTEST_DISTANCE**2))
            direction = edges.vector / distance[:, None]
            self._distances[place] = (distance, edges.vector.to(self._dtype), direction.to(self._dtype))
        return self._distances[place]

    def _edge_elements(self, place: int, edges: EdgeList) -> tuple[Tensor, Tensor]:
        if place not in self._elements:
            element = self._graph.element
            extended = torch.cat([element, edges.halo_element])
            self._elements[place] = (element[edges.receiver], extended[edges.sender])
        return self._elements[place]
