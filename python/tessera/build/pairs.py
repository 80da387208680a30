# SPDX-License-Identifier: MIT
"""Pairs closer than a cutoff by a cell list in numpy: time and memory grow with the number of atoms, in any cell."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

#: Points whose neighbors are listed at once; bounds the memory of a chunk, whatever the number of atoms.
CHUNK = 16384


class Pairs(NamedTuple):
    """A chunk of pairs: `distance[k]`, Å, from point `i[k]` to the image of `j[k]` that `shift[k]` names.

    Attributes:
        i, j: [pairs], rows of the points and of the others.
        distance: [pairs], Å.
        shift: [pairs, 3], int: the image of `j` is displaced by `shift @ cell` from its wrapped position.
    """

    i: np.ndarray
    j: np.ndarray
    distance: np.ndarray
    shift: np.ndarray


class PointGrid:
    """Points sorted into bins at least as wide as they may be, so that neighbors are in the bins around.

    Every image within the cutoff is found, also in a cell narrower than the cutoff. Along an axis that is not
    periodic the bins cover the points, and nothing is wrapped.

    Args:
        points: [N, 3], Å.
        cell: [3, 3], rows are lattice vectors, Å; must have a volume, also along axes that are not periodic.
        periodic: by axis.
        cutoff: Å, above 0.

    Raises:
        ValueError: the cutoff or the cell's volume is not above 0, or a position is not finite.
    """

    def __init__(self, points: np.ndarray, cell: np.ndarray, periodic: tuple[bool, bool, bool], cutoff: float) -> None:
        if not cutoff > 0:
            raise ValueError(f"expected a cutoff above 0 Å, found {cutoff}")
        volume = abs(np.linalg.det(cell))
        if not volume > 0:
            raise ValueError(f"expected a cell with a volume, found {np.asarray(cell).tolist()}")
        if not np.isfinite(points).all():
            raise ValueError(
                f"expected finite positions, found {(~np.isfinite(points)).any(axis=1).sum()} that are not"
            )
        self.cell, self.periodic, self.cutoff = np.asarray(cell, float), np.asarray(periodic, bool), cutoff
        self._inverse = np.linalg.inv(self.cell)
        widths = 1 / np.linalg.norm(self._inverse, axis=0)
        fractions = points @ self._inverse
        self._low, self._extent = np.zeros(3), np.ones(3)
        if len(points):
            open_axes = ~self.periodic
            self._low[open_axes] = fractions.min(axis=0)[open_axes]
            # At least a cutoff wide, so that a flat cluster has bins of a useful size.
            extent = np.maximum(np.ptp(fractions, axis=0) * (1 + 1e-9), cutoff / widths)
            self._extent[open_axes] = extent[open_axes]
        lengths = widths * self._extent
        most = max(1.0, (4.0 * len(points) + 1) ** (1 / 3)) * lengths / lengths.prod() ** (1 / 3)
        self._num = np.maximum(1, np.minimum(lengths / cutoff, np.maximum(most, 1))).astype(np.int64)
        self._span = np.ceil(cutoff / (lengths / self._num) - 1e-12).astype(np.int64)
        wrapped, bins = self._place(points)
        key = self._key(bins)
        self._order = np.argsort(key, kind="stable")
        self._points, self._bins = wrapped[self._order], bins[self._order]
        self._start = np.searchsorted(key[self._order], np.arange(self._num.prod() + 1))

    def pairs(self, points: np.ndarray) -> Iterator[Pairs]:
        """Yield all pairs of `points` (rows `i`) and the grid's points (rows `j`), self pairs included, in chunks."""
        wrapped, bins = self._place(points)
        # In bin order, neighbors in space are neighbors in memory.
        order = np.argsort(self._key(np.clip(bins, 0, self._num - 1)), kind="stable")
        for first in range(0, len(points), CHUNK):
            rows = order[first : first + CHUNK]
            for found in self._pairs_of(wrapped[rows], bins[rows]):
                yield found._replace(i=rows[found.i])

    def own_pairs(self) -> Iterator[Pairs]:
        """Yield pairs among the grid's own points, each once, in chunks; an atom with its own images, too."""
        for first in range(0, len(self._points), CHUNK):
            rows = slice(first, first + CHUNK)
            for found in self._pairs_of(self._points[rows], self._bins[rows], first):
                yield found._replace(i=self._order[first + found.i])

    def _place(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions wrapped into the cell, and their bins [N, 3]."""
        fractions = points @ self._inverse
        images = np.where(self.periodic, np.floor(fractions), 0.0)
        bins = np.floor((fractions - images - self._low) / self._extent * self._num)
        # Points far outside an open axis have no neighbors there; the bound keeps the integer small.
        bins = np.clip(bins, -self._span - 1, self._num + self._span).astype(np.int64)
        bins = np.where(self.periodic, np.clip(bins, 0, self._num - 1), bins)
        return points - images @ self.cell, bins

    def _key(self, bins: np.ndarray) -> np.ndarray:
        return (bins[:, 0] * self._num[1] + bins[:, 1]) * self._num[2] + bins[:, 2]

    def _pairs_of(self, points: np.ndarray, bins: np.ndarray, own: int | None = None) -> Iterator[Pairs]:
        """Pairs of one chunk: a run of bins along z is contiguous in memory, so only x and y are looped over.

        With `own`, the points are those of the grid from that place on, and of two opposite bins one is visited.
        """
        num_z, span_z = int(self._num[2]), int(self._span[2])
        images = range(-(span_z // num_z) - 1, (num_z - 1 + span_z) // num_z + 1) if self.periodic[2] else range(1)
        for dx, dy in itertools.product(*(range(-span, span + 1) for span in self._span[:2])):
            if own is not None and (dx, dy) < (0, 0):
                continue
            middle = own is not None and (dx, dy) == (0, 0)
            column = bins[:, :2] + (dx, dy)
            image = np.where(self.periodic[:2], column // self._num[:2], 0)
            column = column - image * self._num[:2]
            inside = ((column >= 0) & (column < self._num[:2])).all(axis=1)
            base = (column[:, 0] * self._num[1] + column[:, 1]) * num_z
            for z in images:
                low = np.maximum(bins[:, 2] - (0 if middle else span_z), z * num_z)
                high = np.minimum(bins[:, 2] + span_z, z * num_z + num_z - 1)
                rows = np.flatnonzero(inside & (low <= high))
                if len(rows):
                    start = self._start[base[rows] + low[rows] - z * num_z]
                    stop = self._start[base[rows] + high[rows] - z * num_z + 1]
                    if middle and z == 0:
                        start = np.maximum(start, own + rows + 1)
                    yield self._measure(
                        points, rows, start, stop, np.column_stack([image[rows], np.full(len(rows), z)])
                    )

    def _measure(
        self, points: np.ndarray, rows: np.ndarray, start: np.ndarray, stop: np.ndarray, shift: np.ndarray
    ) -> Pairs:
        """Expand runs [start, stop) of sorted points and keep the pairs within the cutoff."""
        count = np.maximum(stop - start, 0)
        which = np.repeat(np.arange(len(rows)), count)
        place = np.arange(len(which)) + np.repeat(start - (np.cumsum(count) - count), count)
        vector = self._points[place] - (points[rows] - shift @ self.cell)[which]
        square = np.einsum("ka,ka->k", vector, vector)
        near = np.flatnonzero(square <= self.cutoff**2)
        which = which[near]
        return Pairs(rows[which], self._order[place[near]], np.sqrt(square[near]), shift[which])


def close_pairs(
    points: np.ndarray, cell: np.ndarray, periodic: tuple[bool, bool, bool], cutoff: float, *, once: bool = False
) -> Iterator[Pairs]:
    """Yield all pairs within the cutoff, [i, j] and [j, i], without an atom paired with itself; in chunks.

    Args:
        points: [N, 3], Å.
        cell: [3, 3], Å.
        periodic: by axis.
        cutoff: Å.
        once: each pair once, with i < j; pairs of an atom with its own images are left out.
    """
    grid = PointGrid(points, cell, periodic, cutoff)
    if once:
        for found in grid.own_pairs():
            i, j, keep = np.minimum(found.i, found.j), np.maximum(found.i, found.j), found.i != found.j
            sign = np.where(found.i < found.j, 1, -1)[:, None]
            yield Pairs(i[keep], j[keep], found.distance[keep], (sign * found.shift)[keep])
        return
    for found in grid.pairs(points):
        keep = (found.i != found.j) | found.shift.any(axis=1)
        yield Pairs(*(column[keep] for column in found))
