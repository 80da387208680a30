# SPDX-License-Identifier: MIT
"""The neighbors of every frame, found once."""

import dataclasses

import numpy as np

from tessera.build.pairs import PointGrid
from tessera.train.errors import TrainError
from tessera.train.frames import Frame


@dataclasses.dataclass(frozen=True)
class FrameEdges:
    """Directed edges of one frame within the longest cutoff, sorted by receiver; 14 bytes each."""

    receiver: np.ndarray
    """int32 [E], ascending."""
    sender: np.ndarray
    """int32 [E]."""
    shift: np.ndarray
    """int16 [E, 3]; the image of the sender is displaced by shift @ cell from its position as given."""

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.receiver.nbytes + self.sender.nbytes + self.shift.nbytes

    def vectors(self, frame: Frame) -> np.ndarray:
        """Receiver minus sender's image, float64 [E, 3], Å."""
        displaced = frame.positions[self.sender] + self.shift.astype(np.float64) @ frame.cell
        return frame.positions[self.receiver] - displaced


def find_edges(frame: Frame, cutoff: float) -> FrameEdges:
    """Find all edges with distance <= cutoff (Å) by a cell list: time and memory grow with the number of edges.

    Images of the atom itself count where the cell is smaller than the cutoff.

    Raises:
        TrainError: the cell of a periodic frame has no volume.
    """
    try:
        grid = PointGrid(frame.positions, frame.cell, frame.periodic, cutoff)
    except ValueError as error:
        raise TrainError(f"{frame.source}: {error}; correct the file") from error
    # The grid's shifts refer to wrapped positions.
    fractions = frame.positions @ np.linalg.inv(frame.cell)
    home = np.where(frame.periodic, np.floor(fractions), 0.0).astype(np.int64)
    parts = []
    for found in grid.pairs(frame.positions):
        kept = (found.i != found.j) | found.shift.any(axis=1)
        i, j, shift = found.i[kept], found.j[kept], found.shift[kept]
        parts.append((i.astype(np.int32), j.astype(np.int32), (shift + home[i] - home[j]).astype(np.int16)))
    receiver, sender, shift = (np.concatenate([part[place] for part in parts]) for place in range(3))
    order = np.lexsort((*shift.T, sender, receiver))
    return FrameEdges(receiver[order], sender[order], shift[order])
