# SPDX-License-Identifier: MIT
"""Covalent bonds of the first frame, which of them break, and other pairs that come as near as bonded ones."""

from collections.abc import Mapping

import numpy as np
from ase.data import covalent_radii

from tessera.analyze.frames import Frame
from tessera.analyze.names import pair_name
from tessera.build.pairs import close_pairs

#: A pair of the first frame is bonded if it is closer than this times the sum of covalent radii (Cordero 2008, in ASE).
BONDED = 1.2
#: A bond is broken when longer than this times that sum: O-H 1.31 Å, C-H 1.44 Å, C-C 2.05 Å.
BROKEN = 1.35
#: Two atoms without one or two bonds between them that come closer than this times that sum are as near as bonded: O-H
#: 1.12 Å, O-O 1.52 Å. Strong hydrogen bonds, O-H 1.3 Å, stay outside.
FORMED = 1.15
#: Metals that are ions in water: no covalent bonds. A hydrogen near a halide is a hydrogen bond.
IONS = (3, 11, 12, 19, 20, 30, 37, 55)
HALOGENS = (9, 17, 35, 53)


class Bonds:
    """Bonds of the first frame; follows their lengths.

    Args:
        frame: the first frame.
        limits: Å, by pair name such as `H-O`, where other than BROKEN times the radii.

    Attributes:
        first, second: [bonds], rows of atoms, first < second.
        names: [bonds], pair names.
        limits: [bonds], Å.
        longest: [bonds], Å, over the frames seen.
        broken: [bonds], whether the bond was ever longer than its limit.
        formed: shortest distance (Å) of each other pair that was as near as bonded, by `i * N + j`, i < j.
    """

    def __init__(self, frame: Frame, limits: Mapping[str, float]) -> None:
        self._numbers = frame.numbers
        self._radii = radii = np.where(np.isin(frame.numbers, IONS), 0.0, covalent_radii[frame.numbers])
        first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        reach = max(2 * BONDED * float(radii.max()), 1e-3)
        for found in close_pairs(frame.positions, frame.cell, frame.periodic, reach, once=True):
            keep = self._is_within(BONDED, found.i, found.j, found.distance)
            first.append(found.i[keep])
            second.append(found.j[keep])
        self.first, self.second = np.concatenate(first), np.concatenate(second)
        order = np.lexsort((self.second, self.first))
        self.first, self.second = self.first[order], self.second[order]
        pairs = zip(frame.numbers[self.first].tolist(), frame.numbers[self.second].tolist(), strict=True)
        self.names = np.array([pair_name(a, b) for a, b in pairs], dtype=object)
        usual = BROKEN * (radii[self.first] + radii[self.second])
        self.limits = np.array([limits.get(name, value) for name, value in zip(self.names, usual, strict=True)])
        self.longest = np.zeros(len(self.first))
        self.broken = np.zeros(len(self.first), bool)
        self.excluded = self._near_keys(len(frame.numbers))
        self.formed: dict[int, float] = {}

    def follow(self, frame: Frame) -> None:
        """Measure all bonds in a frame, to the nearest image."""
        vectors = frame.positions[self.second] - frame.positions[self.first]
        fractions = vectors @ np.linalg.inv(frame.cell)
        vectors = vectors - np.where(frame.periodic, np.round(fractions), 0.0) @ frame.cell
        lengths = np.linalg.norm(vectors, axis=1)
        self.longest = np.maximum(self.longest, lengths)
        self.broken |= lengths > self.limits

    def note_contacts(self, i: np.ndarray, j: np.ndarray, distance: np.ndarray) -> None:
        """Remember those of a frame's pairs (i < j, Å) that are as near as bonded; pairs in `excluded` are left out."""
        near = self._is_within(FORMED, i, j, distance)
        keys = i[near] * len(self._numbers) + j[near]
        for key, length in zip(keys.tolist(), distance[near].tolist(), strict=True):
            self.formed[key] = min(length, self.formed.get(key, np.inf))

    def formed_names(self) -> dict[str, list[float]]:
        """Distances (Å) of `formed` by pair name."""
        by_name: dict[str, list[float]] = {}
        for key, length in self.formed.items():
            name = pair_name(*(int(self._numbers[atom]) for atom in divmod(key, len(self._numbers))))
            by_name.setdefault(name, []).append(length)
        return dict(sorted(by_name.items()))

    def _is_within(self, factor: float, i: np.ndarray, j: np.ndarray, distance: np.ndarray) -> np.ndarray:
        """Whether pairs that can be bonded are closer than `factor` times the sum of covalent radii."""
        numbers, radii = self._numbers, self._radii
        pair = np.stack([numbers[i], numbers[j]])
        hydrogen_halide = (pair == 1).any(axis=0) & np.isin(pair, HALOGENS).any(axis=0)
        return (radii[i] > 0) & (radii[j] > 0) & ~hydrogen_halide & (distance < factor * (radii[i] + radii[j]))

    def _near_keys(self, num_atoms: int) -> np.ndarray:
        """Pairs with one or two bonds between them, as sorted `i * N + j`, i < j."""
        ends = np.concatenate([self.first, self.second])
        others = np.concatenate([self.second, self.first])[np.argsort(ends, kind="stable")]
        start = np.searchsorted(np.sort(ends), np.arange(num_atoms + 1))
        keys = [self.first * num_atoms + self.second]
        degree = np.diff(start)
        for a in range(int(degree.max(initial=0))):
            for b in range(a + 1, int(degree.max(initial=0))):
                middle = np.flatnonzero(degree > b)
                i, j = others[start[middle] + a], others[start[middle] + b]
                keys.append(np.minimum(i, j) * num_atoms + np.maximum(i, j))
        return np.unique(np.concatenate(keys))
