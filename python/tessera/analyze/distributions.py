# SPDX-License-Identifier: MIT
"""Radial distributions and closest contacts by element pair, from one pass over the pairs of each frame."""

from dataclasses import dataclass

import numpy as np
from ase.data import chemical_symbols

from tessera.analyze.bonds import Bonds
from tessera.analyze.frames import Frame
from tessera.analyze.names import pair_name
from tessera.build.pairs import close_pairs

#: Å, standard deviation of the Gaussian that smooths g(r) before its extrema are looked for.
SMOOTHING = 0.06
#: The first maximum is the highest point between the distance where g(r) first rises above 1 and this times it.
MAXIMUM_RANGE = 1.35
#: Å, half the range around the maximum to which a parabola is fitted: its vertex is the peak.
VERTEX_RANGE = 0.1
#: The first minimum is the lowest point between the peak's distance and this times it (second shells are beyond).
MINIMUM_RANGE = 1.5
#: Pairs counted up to the first minimum below which a maximum is noise (many frames hold the same few pairs).
LEAST_PAIRS = 500


@dataclass(frozen=True)
class Distribution:
    """g(r) of an element pair; pairs with one or two bonds between them are left out.

    Attributes:
        name: such as `K-O`.
        radii: [bins], Å, middles.
        density: [bins], g(r).
        around_first: [bins], number of second atoms within the bin's upper end of a first one.
        around_second: [bins], the reverse.
    """

    name: str
    radii: np.ndarray
    density: np.ndarray
    around_first: np.ndarray
    around_second: np.ndarray


@dataclass(frozen=True)
class Peak:
    """First shell: maximum and minimum of g(r), Å, and coordination numbers up to the minimum."""

    position: float
    height: float
    minimum: float
    around_first: float
    around_second: float


class PairCounts:
    """Counts pairs of a trajectory; memory does not grow with the number of frames.

    Args:
        frame: the first frame.
        bonds: of the first frame.
        reach: Å, up to which pairs are counted.
        bin_width: Å.
    """

    def __init__(self, frame: Frame, bonds: Bonds, reach: float, bin_width: float) -> None:
        self._bonds, self._reach, self._num_atoms = bonds, reach, len(frame.numbers)
        self._elements, self._index = np.unique(frame.numbers, return_inverse=True)
        self._num = np.bincount(self._index)
        self._edges = np.arange(0, round(reach / bin_width) + 1) * bin_width
        size = len(self._elements)
        self._counts = np.zeros((size * size, len(self._edges) - 1))
        self._closest = np.full(size * size, np.inf)
        self._density = 0.0  # sum over frames of 1 / volume
        self._frames = 0

    def add(self, frame: Frame) -> None:
        """Count the pairs of a frame."""
        size, num_bins = len(self._elements), len(self._edges) - 1
        for found in close_pairs(frame.positions, frame.cell, frame.periodic, self._reach, once=True):
            keys = found.i * self._num_atoms + found.j
            place = np.searchsorted(self._bonds.excluded, keys)
            bonded = self._bonds.excluded[np.minimum(place, len(self._bonds.excluded) - 1)] == keys \
                if len(self._bonds.excluded) else np.zeros(len(keys), bool)  # fmt: skip
            i, j, distance = found.i[~bonded], found.j[~bonded], found.distance[~bonded]
            self._bonds.note_contacts(i, j, distance)
            a, b = self._index[i], self._index[j]
            code = np.minimum(a, b) * size + np.maximum(a, b)
            np.minimum.at(self._closest, code, distance)
            bins = (distance / self._edges[1]).astype(np.int64)
            inside = bins < num_bins
            flat = np.bincount((code * num_bins + bins)[inside], minlength=self._counts.size)
            self._counts += flat.reshape(self._counts.shape)
        self._density += 1 / abs(np.linalg.det(frame.cell))
        self._frames += 1

    def closest(self) -> dict[str, float]:
        """Shortest distance by pair name, Å, over all frames; pairs never within reach are left out."""
        size = len(self._elements)
        names = {
            pair_name(self._elements[a], self._elements[b]): float(self._closest[a * size + b])
            for a in range(size)
            for b in range(a, size)
        }
        return {name: value for name, value in names.items() if np.isfinite(value)}

    def distribution(self, name: str) -> Distribution | None:
        """g(r) of a pair, or none where an element is absent or single."""
        symbols = [chemical_symbols[number] for number in self._elements]
        first, second = name.split("-")
        if first not in symbols or second not in symbols:
            return None
        a, b = symbols.index(first), symbols.index(second)
        pairs = self._num[a] * (self._num[a] - 1) / 2 if a == b else float(self._num[a] * self._num[b])
        if not pairs:
            return None
        counts = self._counts[min(a, b) * len(symbols) + max(a, b)]
        shells = 4 / 3 * np.pi * np.diff(self._edges**3)
        around = np.cumsum(counts) / self._frames * (2 if a == b else 1)
        return Distribution(
            name,
            (self._edges[1:] + self._edges[:-1]) / 2,
            counts / (shells * pairs * self._density),
            around / self._num[a],
            around / self._num[b],
        )

    def pairs_seen(self, name: str, radius: float) -> float:
        """Pairs of a name counted up to a radius, over all frames."""
        symbols = [chemical_symbols[number] for number in self._elements]
        a, b = sorted(symbols.index(symbol) for symbol in name.split("-"))
        return float(self._counts[a * len(symbols) + b][self._edges[1:] <= radius].sum())


def first_shell(distribution: Distribution) -> Peak | None:
    """Find the first maximum and minimum; none where g(r) has no maximum above 1 in its range."""
    radii, density = distribution.radii, distribution.density
    smooth = smoothed(density, radii[1] - radii[0])
    above = np.flatnonzero(smooth > 1)
    if not len(above) or above[0] == 0:
        return None
    shell = np.flatnonzero((radii >= radii[above[0]]) & (radii <= MAXIMUM_RANGE * radii[above[0]]))
    top = shell[smooth[shell].argmax()]
    near = np.abs(radii - radii[top]) <= VERTEX_RANGE
    curvature, slope, _ = fit = np.polyfit(radii[near] - radii[top], density[near], 2)
    shift = float(np.clip(-slope / (2 * curvature), -VERTEX_RANGE, VERTEX_RANGE)) if curvature < 0 else 0.0
    position = float(radii[top] + shift)
    valley = np.flatnonzero((radii > position) & (radii <= MINIMUM_RANGE * position))
    if len(valley) == 0 or radii[-1] < MINIMUM_RANGE * position:
        return None
    low = valley[smooth[valley].argmin()]
    return Peak(
        position,
        float(np.polyval(fit, shift)),
        float(radii[low]),
        float(distribution.around_first[low]),
        float(distribution.around_second[low]),
    )


def smoothed(values: np.ndarray, bin_width: float) -> np.ndarray:
    """Smooth by a Gaussian, mirrored at the ends."""
    half = max(1, round(4 * SMOOTHING / bin_width))
    weights = np.exp(-0.5 * (np.arange(-half, half + 1) * bin_width / SMOOTHING) ** 2)
    padded = np.pad(values, half, mode="reflect" if len(values) > half else "edge")
    return np.convolve(padded, weights / weights.sum(), mode="valid")
