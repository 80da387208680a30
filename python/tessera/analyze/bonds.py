# SPDX-License-Identifier: MIT
"""Covalent bonds of the first frame, and which of them break."""

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
    """

    def __init__(self, frame: Frame, limits: Mapping[str, float]) -> None:
        radii = np.where(np.isin(frame.numbers, IONS), 0.0, covalent_radii[frame.numbers])
        first, second = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        reach = max(2 * BONDED * float(radii.max()), 1e-3)
        for found in close_pairs(frame.positions, frame.cell, frame.periodic, reach, once=True):
            pair = np.stack([frame.numbers[found.i], frame.numbers[found.j]])
            hydrogen_halide = (pair == 1).any(axis=0) & np.isin(pair, HALOGENS).any(axis=0)
            both = (radii[found.i] > 0) & (radii[found.j] > 0)
            keep = both & ~hydrogen_halide & (found.distance < BONDED * (radii[found.i] + radii[found.j]))
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

    def follow(self, frame: Frame) -> None:
        """Measure all bonds in a frame, to the nearest image."""
        vectors = frame.positions[self.second] - frame.positions[self.first]
        fractions = vectors @ np.linalg.inv(frame.cell)
        vectors = vectors - np.where(frame.periodic, np.round(fractions), 0.0) @ frame.cell
        lengths = np.linalg.norm(vectors, axis=1)
        self.longest = np.maximum(self.longest, lengths)
        self.broken |= lengths > self.limits

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
