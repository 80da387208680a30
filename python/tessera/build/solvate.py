# SPDX-License-Identifier: MIT
"""Waters that clash with a solute are removed whole; some of the rest give their places to ions."""

import numpy as np

from tessera.build.pairs import PointGrid, close_pairs
from tessera.build.system import PERIODIC
from tessera.commands import CommandError

#: Å, a water goes if it is nearer to an atom of the solute: both atoms heavy, one hydrogen, both hydrogen.
CLASH_HEAVY, CLASH_MIXED, CLASH_HYDROGEN = 2.6, 1.75, 1.75
#: Molecules of water per Å^3 at 298 K and 1 bar, 0.997 g/cm^3: the solvent volume that a concentration refers to.
WATERS_PER_A3 = 0.03333
#: Ions per Å^3 at 1 mol/L.
PER_MOLAR = 6.02214076e-4
#: Waters looked at for each ion that is placed.
CANDIDATES_PER_ION = 8
#: Å, an ion avoids places with a hydrogen of another water within this; hydrogens farther off do not matter.
FREE_OF_HYDROGEN = 2.6
POTASSIUM, CHLORIDE = 19, 17


def remove_clashes(waters: np.ndarray, solute: np.ndarray, heavy: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Keep the waters that clash with no atom of the solute.

    Args:
        waters: [waters, 3, 3], Å.
        solute: [N, 3], Å.
        heavy: [N], whether an atom is no hydrogen.
        edges: [3], Å.
    """
    if not len(solute):
        return waters
    cell = np.diag(edges)
    keep = np.ones(len(waters), bool)
    # An atom of a clashing water is within CLASH_HEAVY, so only waters near the solute are measured.
    for found in PointGrid(solute, cell, PERIODIC, CLASH_HEAVY).pairs(waters.reshape(-1, 3)):
        is_oxygen, is_heavy = found.i % 3 == 0, heavy[found.j]
        limit = np.where(is_oxygen & is_heavy, CLASH_HEAVY, np.where(is_oxygen | is_heavy, CLASH_MIXED, CLASH_HYDROGEN))
        keep[found.i[found.distance < limit] // 3] = False
    return waters[keep]


def ion_counts(num_waters: int, molar: float, charge: int) -> tuple[int, int]:
    """Numbers of K+ and Cl-: `molar` mol/L of the waters' volume, and as many more as cancel `charge` (e).

    Raises:
        CommandError: the concentration is negative or not finite.
    """
    if not (np.isfinite(molar) and molar >= 0):
        raise CommandError(f"expected a concentration of at least 0 mol/L, found {molar:g}")
    pairs = round(num_waters / WATERS_PER_A3 * molar * PER_MOLAR)
    return pairs + max(0, -charge), pairs + max(0, charge)


def place_ions(
    waters: np.ndarray,
    solute: np.ndarray,
    edges: np.ndarray,
    counts: tuple[int, int],
    distance: float,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Replace waters by K+ and Cl-, no ion nearer than `distance` to another or to an atom of the solute.

    Of the candidates, those whose oxygen is farthest from hydrogens of other waters become K+.

    Returns:
        Remaining waters; positions of K+ and of Cl-, Å.

    Raises:
        CommandError: there are not enough places.
    """
    total = sum(counts)
    if not total:
        return waters, np.empty((0, 3)), np.empty((0, 3))
    sites = choose_sites(waters, solute, edges, total, distance, random)
    if len(sites) < total:
        raise CommandError(
            f"ions: expected places for {counts[0]} K+ and {counts[1]} Cl- at least {distance:g} Å from each other and "
            f"from the solute, found {len(sites)}; lower the concentration or --ion-distance, or enlarge the box"
        )
    nearest = nearest_hydrogen(waters, sites, edges)
    order = np.argsort(-nearest, kind="stable")
    cations, anions = sites[order[: counts[0]]], np.sort(sites[order[counts[0] :]][: counts[1]])
    left = np.delete(waters, np.concatenate([cations, anions]), axis=0)
    return left, waters[cations, 0], waters[anions, 0]


def choose_sites(
    waters: np.ndarray,
    solute: np.ndarray,
    edges: np.ndarray,
    total: int,
    distance: float,
    random: np.random.Generator,
) -> np.ndarray:
    """Choose up to `total` waters, no two closer than `distance`, of a random pool those freest of hydrogens."""
    cell = np.diag(edges)
    pool = random.permutation(len(waters))
    for limit in (CANDIDATES_PER_ION * total + 100, len(waters)):
        candidates = pool[:limit]
        if len(solute):
            far = np.ones(len(candidates), bool)
            for found in PointGrid(waters[candidates, 0], cell, PERIODIC, distance).pairs(solute):
                far[found.j] = False
            candidates = candidates[far]
        candidates = candidates[np.argsort(-nearest_hydrogen(waters, candidates, edges), kind="stable")]
        chosen = candidates[first_apart(waters[candidates, 0], cell, distance, total)]
        if len(chosen) == total:
            break
    return chosen


def first_apart(points: np.ndarray, cell: np.ndarray, distance: float, most: int) -> np.ndarray:
    """Go through the points in order and keep each that is `distance` or more from all kept before; up to `most`."""
    neighbors: dict[int, list[int]] = {}
    for found in close_pairs(points, cell, PERIODIC, distance, once=True):
        for earlier, later in zip(found.i.tolist(), found.j.tolist(), strict=True):
            neighbors.setdefault(later, []).append(earlier)
    kept = np.zeros(len(points), bool)
    count = 0
    for k in range(len(points)):
        if count < most and not any(kept[other] for other in neighbors.get(k, ())):
            kept[k] = True
            count += 1
    return np.flatnonzero(kept)


def nearest_hydrogen(waters: np.ndarray, rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Distance from the oxygen of some waters to the nearest hydrogen of another, Å, up to FREE_OF_HYDROGEN."""
    nearest = np.full(len(rows), FREE_OF_HYDROGEN)
    grid = PointGrid(waters[rows, 0], np.diag(edges), PERIODIC, FREE_OF_HYDROGEN)
    for found in grid.pairs(waters[:, 1:].reshape(-1, 3)):
        other = found.i // 2 != rows[found.j]
        np.minimum.at(nearest, found.j[other], found.distance[other])
    return nearest
