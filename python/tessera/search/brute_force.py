# SPDX-License-Identifier: MIT
"""All pairs and images within a cutoff by testing every one of them."""

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Neighbors:
    """Directed edges (receiver <- sender image), sorted by (receiver, sender, shift)."""

    receiver: np.ndarray
    """int64 [E]."""
    sender: np.ndarray
    """int64 [E]."""
    shift: np.ndarray
    """int64 [E, 3], refers to the positions as given."""
    vector: np.ndarray
    """float64 [E, 3], Å, position[receiver] - position[sender] - shift . cell."""


def neighbor_list(
    positions: np.ndarray, cell: np.ndarray | None, pbc: Sequence[bool] | np.ndarray, cutoff: float
) -> Neighbors:
    """Find every edge with distance <= cutoff, by testing all pairs and images.

    The contract is `brute_force_search` of csrc/tessera/search/cell_search.hpp: any periodic subset of axes, tilted
    cells, cells smaller than the cutoff, atoms outside the cell. An atom is no neighbor of its own unshifted self.

    Args:
        positions: Å, [N, 3].
        cell: Å, [3, 3], rows are lattice vectors; rows of axes that are not periodic are not read.
        pbc: which axes are periodic, [3].
        cutoff: Å.

    Raises:
        ValueError: a periodic axis without a lattice vector of its own, or positions or a cutoff that are not finite.
    """
    positions = np.asarray(positions, dtype=np.float64)
    periodic = np.asarray(pbc, dtype=bool)
    if not np.isfinite(positions).all() or not np.isfinite(cutoff) or cutoff <= 0:
        raise ValueError(f"expected finite positions and a positive cutoff, found cutoff {cutoff}; check the input")
    lattice = complete_lattice(cell, periodic)
    inverse = np.linalg.inv(lattice)
    # The images that wrap every atom into the cell; along an open axis atoms stay where they are.
    home = np.where(periodic, np.floor(positions @ inverse), 0).astype(np.int64)
    wrapped = positions - home @ lattice
    # |fractional distance| along axis k is at most cutoff * |column k of the inverse|, and wrapped atoms differ by < 1.
    reach = np.where(periodic, np.floor(cutoff * np.linalg.norm(inverse, axis=0)).astype(np.int64) + 1, 0)
    counts = [np.arange(-extent, extent + 1) for extent in reach]
    parts = [_pairs_of_image(wrapped, lattice, np.array(image), cutoff)
             for image in np.stack(np.meshgrid(*counts, indexing="ij"), axis=-1).reshape(-1, 3)]  # fmt: skip
    receiver, sender, image = (np.concatenate([part[place] for part in parts]) for place in range(3))
    # r_i - r_j - shift . cell with wrapped positions becomes, for the positions as given, shift + home_i - home_j.
    shift = image + home[receiver] - home[sender]
    order = np.lexsort((shift[:, 2], shift[:, 1], shift[:, 0], sender, receiver))
    receiver, sender, shift = receiver[order], sender[order], shift[order]
    vector = wrapped[receiver] - wrapped[sender] - image[order] @ lattice
    return Neighbors(receiver, sender, shift, vector)


def complete_lattice(cell: np.ndarray | None, periodic: np.ndarray) -> np.ndarray:
    """Replace the vectors of open axes by unit vectors orthogonal to the periodic ones, [3, 3] in Å."""
    lattice = np.zeros((3, 3)) if cell is None else np.array(cell, dtype=np.float64).reshape(3, 3)
    rows = lattice[periodic]
    rank = np.linalg.matrix_rank(rows) if len(rows) else 0
    if rank < len(rows) or not np.isfinite(rows).all():
        raise ValueError(
            f"expected {len(rows)} independent lattice vectors for the periodic axes, found {rows.tolist()}; "
            "give the cell in Å or switch the periodic axes off"
        )
    lattice[~periodic] = np.linalg.svd(np.vstack([rows, np.zeros((3 - len(rows), 3))]))[2][len(rows) :]
    return lattice


def _pairs_of_image(
    wrapped: np.ndarray, lattice: np.ndarray, image: np.ndarray, cutoff: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of one image: receiver [P], sender [P], image [P, 3]."""
    delta = wrapped[:, None, :] - (wrapped + image @ lattice)[None, :, :]
    inside = np.einsum("ijk,ijk->ij", delta, delta) <= cutoff * cutoff
    if not image.any():
        np.fill_diagonal(inside, val=False)
    receiver, sender = np.nonzero(inside)
    return receiver, sender, np.broadcast_to(image, (len(receiver), 3))
