# SPDX-License-Identifier: MIT
"""Test systems of the verification: random liquids and the traps (no edge, one atom, every image a halo row)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from tessera.model import E2Former, Graph, build_graph, edge_list

#: Atoms per Å^3 of the random liquids; water has 0.1.
LIQUID_DENSITY = 0.1
#: Å; closest approach of the random liquids, about an O-H bond.
SMALLEST_DISTANCE = 0.95
LIQUID_SIZES = (20, 67, 200)
SEED = 20260


@dataclass(frozen=True)
class System:
    """Atoms to compare on: numbers [n], positions [n, 3] and cell [3, 3] in Å."""

    name: str
    numbers: np.ndarray
    positions: np.ndarray
    cell: np.ndarray
    pbc: tuple[bool, bool, bool]
    charge: int = 0
    multiplicity: int = 1

    def graph(self, model: E2Former) -> Graph:
        """Give the model's input for this system, without halo rows."""
        return build_graph(
            model, self.numbers, self.positions, self.cell, self.pbc, charge=self.charge, multiplicity=self.multiplicity
        )


def verification_systems(numbers: Sequence[int], cutoff: float, charges: tuple[int, int]) -> list[System]:
    """Make the systems: liquids of LIQUID_SIZES atoms, a dimer with a far third atom, no edge at all, one atom.

    Args:
        numbers: atomic numbers that the model knows.
        cutoff: the model's largest, Å.
        charges: smallest and largest total charge, e; the liquids go through both signs where allowed.
    """
    generator = np.random.default_rng(SEED)
    systems = [
        random_liquid(generator, size, numbers, charge=int(np.clip(charge, *charges)))
        for size, charge in zip(LIQUID_SIZES, (0, 1, -1), strict=True)
    ]
    far = 3.0 * cutoff
    cell = 10.0 * far * np.eye(3)
    lonely = np.array([[0.0, 0.0, 0.0], [0.4 * cutoff, 0.2, 0.1], [far, far, far]])
    apart = far * np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    kinds = np.resize(np.asarray(numbers), 3)
    open_boundary = (False, False, False)
    return [
        *systems,
        System("a pair and a lone atom", kinds, lonely, cell, open_boundary),
        System("three atoms without an edge", kinds, apart, cell, open_boundary),
        System("one atom", kinds[:1], apart[:1], cell, open_boundary),
    ]


def random_liquid(generator: np.random.Generator, size: int, numbers: Sequence[int], charge: int = 0) -> System:
    """Draw `size` atoms in a tilted periodic cell at LIQUID_DENSITY, no two closer than SMALLEST_DISTANCE."""
    side = (size / LIQUID_DENSITY) ** (1.0 / 3.0)
    cell = side * (np.eye(3) + np.tril(generator.uniform(-0.2, 0.2, (3, 3)), -1))
    images = np.array(np.meshgrid(*[(-1, 0, 1)] * 3)).reshape(3, -1).T @ cell
    placed = np.empty((0, 3))
    while len(placed) < size:
        candidate = generator.uniform(0.0, 1.0, 3) @ cell
        shifted = candidate - placed[:, None, :] - images[None, :, :]
        if (shifted**2).sum(-1).min(initial=np.inf) >= SMALLEST_DISTANCE**2:
            placed = np.vstack([placed, candidate])
    kinds = generator.choice(np.asarray(numbers), size)
    kinds[: len(numbers)] = np.asarray(numbers)[:size]  # every element takes part
    return System(f"{size} random atoms", kinds, placed, cell, (True, True, True), charge=charge)


def images_as_halo(graph: Graph, positions: np.ndarray) -> Graph:
    """Rewrite a periodic graph as one rank of many sees it: each atom read across a face gets a halo row.

    The edges keep their order and vectors; an edge to an image (v differs from r_i - r_j) takes its sender from the
    halo row of that atom, which `halo_rows` names.
    """
    pos = torch.as_tensor(positions, dtype=torch.float64)
    lists = []
    for edges in graph.lists:
        direct = pos[edges.receiver] - pos[edges.sender]
        is_image = (direct - edges.vector).abs().amax(-1) > 1e-6  # Å; any lattice vector is far longer
        owners, place = torch.unique(edges.sender[is_image], return_inverse=True)
        sender = edges.sender.clone()
        sender[is_image] = len(pos) + place
        lists.append(edge_list(edges.receiver, sender, edges.vector, len(pos), graph.element[owners], halo_rows=owners))
    return replace(graph, lists=lists)
