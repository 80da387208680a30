# SPDX-License-Identifier: MIT
"""Liquid water of any box size from one equilibrated tile."""

import importlib.resources
import itertools
import math
from collections import defaultdict

import numpy as np
from tqdm import tqdm

from tessera.build.pairs import PointGrid
from tessera.build.system import PERIODIC
from tessera.commands import CommandError

#: Å, pairs of atoms of two waters closer than this across a seam clash: both heavy, or one hydrogen at least (the
#: tile's own closest contact is 1.46 Å).
SEAM_HEAVY, SEAM_HYDROGEN = 2.4, 1.5
#: A box is accepted with this part of its waters missing or in excess, or one water.
DENSITY_TOLERANCE = 0.002
#: Cuts tried until the density is right.
TRIALS = 8
#: Å, waters that near a face can have a partner across it: SEAM_HEAVY and two O-H bonds.
SEAM_DEPTH = 4.5
#: Å, edge below which a box is refused: the water across it would touch its own image.
SMALLEST_EDGE = 6.0


def load_tile() -> tuple[np.ndarray, float]:
    """Load the tile: positions [512, 3, 3] (O, H, H; Å, oxygen inside the cube, molecules whole) and its edge, Å.

    512 flexible TIP3P waters at 300 K and 0.998 g/cm^3, equilibrated with OpenMM for this project.
    """
    with importlib.resources.files("tessera.build").joinpath("water512.npz").open("rb") as file:
        data = np.load(file)
        positions, edge = data["positions"].astype(float), float(data["edge"])
    return positions - np.floor(positions[:, :1] / edge) * edge, edge


def tile_density() -> float:
    """Waters per Å^3 of the tile."""
    tile, edge = load_tile()
    return len(tile) / edge**3


def fill_with_water(edges: np.ndarray) -> np.ndarray:
    """Fill a periodic box at the tile's density: [waters, 3, 3], Å; O, H, H; oxygen inside the box, molecules whole.

    Where an edge is no whole number of tiles, waters at the upper face meet others than they were equilibrated with.
    Of those that clash across such a seam some are removed, whole. To make up for them the water is cut from a box that
    is slightly longer (about 0.6 Å a seam) and the molecules' centres are moved together.

    Raises:
        CommandError: an edge is shorter than 6 Å.
    """
    if not (edges >= SMALLEST_EDGE).all():
        raise CommandError(f"box: expected edges of at least {SMALLEST_EDGE:g} Å, found {format_edges(edges)}")
    target = tile_density() * np.prod(edges)
    _, tile_edge = load_tile()
    seams = np.abs(edges / tile_edge - np.round(edges / tile_edge)) > 1e-6
    too_short, too_long = None, None
    source, best, best_source = edges.astype(float), np.empty((0, 3, 3)), edges
    for _ in range(TRIALS):
        waters = cut_water(source, seams)
        missing = 1 - len(waters) / target
        if abs(missing) <= abs(1 - len(best) / target):
            best, best_source = waters, source
        if abs(missing) * target <= max(1.0, DENSITY_TOLERANCE * target) or not seams.any():
            break
        too_short, too_long = (source, too_long) if missing > 0 else (too_short, source)
        guess = np.where(seams, source * (1 + missing / seams.sum()), source)
        source = guess if too_short is None or too_long is None else (too_short + too_long) / 2
    best = thin_out(best, round(target))
    return best - best[:, :1] * (1 - edges / best_source)


def thin_out(waters: np.ndarray, target: int) -> np.ndarray:
    """Remove waters evenly until `target` are left, if there are more."""
    excess = max(0, len(waters) - target)
    return np.delete(waters, np.linspace(0, len(waters) - 1, excess).round().astype(int), axis=0)


def cut_water(edges: np.ndarray, seams: np.ndarray) -> np.ndarray:
    """Cut a box from repeated tiles and remove what clashes across the faces of the axes in `seams`."""
    tile, tile_edge = load_tile()
    num = [math.ceil(edge / tile_edge - 1e-9) for edge in edges]
    parts = []
    for corner in tqdm(
        itertools.product(*map(range, num)), total=math.prod(num), desc="water", leave=False, disable=None
    ):
        moved = tile + np.array(corner) * tile_edge
        parts.append(moved[(moved[:, 0] < edges).all(axis=1)])
    waters = np.concatenate(parts)
    return np.delete(waters, clashes_across(waters, edges, seams), axis=0)


def clashes_across(waters: np.ndarray, edges: np.ndarray, seams: np.ndarray) -> np.ndarray:
    """Choose waters to remove, so that no pair clashes across the faces of the axes in `seams`."""
    oxygen = waters[:, 0]
    near = ((oxygen < SEAM_DEPTH) | (oxygen > edges - SEAM_DEPTH)) & seams
    rows = np.flatnonzero(near.any(axis=1))
    if not len(rows):
        return rows
    atoms = waters[rows].reshape(-1, 3)
    water, heavy = np.arange(len(atoms)) // 3, np.arange(len(atoms)) % 3 == 0
    image = np.floor(atoms / edges)
    partners: dict[int, set[int]] = defaultdict(set)
    for found in PointGrid(atoms, np.diag(edges), PERIODIC, SEAM_HEAVY).pairs(atoms):
        limit = np.where(heavy[found.i] & heavy[found.j], SEAM_HEAVY, SEAM_HYDROGEN)
        # The images of whole molecules differ: the pair meets across a face, and that face is a seam.
        crossing = ((found.shift + image[found.i] - image[found.j]) != 0) & seams
        bad = (found.distance < limit) & crossing.any(axis=1) & (water[found.i] != water[found.j])
        for a, b in zip(water[found.i[bad]].tolist(), water[found.j[bad]].tolist(), strict=True):
            partners[a].add(b)
            partners[b].add(a)
    return rows[sorted(cover(partners))]


def cover(partners: dict[int, set[int]]) -> set[int]:
    """Choose few nodes that touch every edge of a graph: each time one of a pair, that with more partners left."""
    chosen: set[int] = set()
    for node in sorted(partners, key=lambda node: (-len(partners[node]), node)):
        if any(other not in chosen for other in partners[node]):
            chosen.add(node)
    return chosen


def format_edges(edges: np.ndarray) -> str:
    """Format as `a x b x c Å`."""
    return " x ".join(f"{edge:.3f}" for edge in edges) + " Å"
