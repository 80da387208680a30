# SPDX-License-Identifier: MIT
"""The pairs of :func:`tessera.search.brute_force.neighbor_list` by FAISS: a second oracle, written by others.

`range_search` (CPU) has no limit on neighbors. The GPU index offers only the k nearest, at most 2048 of them: what such
a search cut off is detected here and refused, since a list that lacks pairs would give wrong forces without a word.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.search.brute_force import Neighbors, complete_lattice

KNN_LIMIT = 2048
"""Most neighbors that FAISS's k-nearest search on a GPU returns."""
FLOAT32_MARGIN = 1e-3
"""Å by which FAISS, which computes in float32, is asked for more; each pair is decided in float64."""


def faiss_neighbor_list(
    positions: np.ndarray,
    cell: np.ndarray | None,
    pbc: Sequence[bool] | np.ndarray,
    cutoff: float,
    *,
    nearest: int | None = None,
) -> Neighbors:
    """Find every edge with distance <= cutoff with a FAISS index over all images in reach.

    Args:
        positions: Å, [N, 3].
        cell: Å, [3, 3], rows are lattice vectors.
        pbc: which axes are periodic, [3].
        cutoff: Å.
        nearest: search the k nearest instead of the range, as FAISS must on a GPU; at most 2048.

    Returns:
        Edges sorted by (receiver, sender, shift), as :func:`neighbor_list` gives them.

    Raises:
        ImportError: neither faiss-cpu nor faiss-gpu is installed.
        ValueError: `nearest` is above 2048, or too small for the pairs within the cutoff.
    """
    import faiss  # noqa: PLC0415 - heavy, and needed by nothing else

    positions = np.asarray(positions, dtype=np.float64)
    lattice = complete_lattice(cell, np.asarray(pbc, dtype=bool))
    images, sender, image, home = _images_in_reach(positions, lattice, np.asarray(pbc, dtype=bool), cutoff)
    wrapped = positions - home @ lattice
    index = faiss.IndexFlatL2(3)
    index.add(images.astype(np.float32))
    radius = cutoff + FLOAT32_MARGIN
    if nearest is None:
        receiver, found = _by_range(index, wrapped, radius)
    else:
        receiver, found = _by_nearest(index, wrapped, radius, nearest)
    delta = wrapped[receiver] - images[found]
    is_self = (sender[found] == receiver) & ~image[found].any(axis=1)
    keep = (np.einsum("ij,ij->i", delta, delta) <= cutoff * cutoff) & ~is_self
    receiver, found = receiver[keep], found[keep]
    shift = image[found] + home[receiver] - home[sender[found]]
    order = np.lexsort((shift[:, 2], shift[:, 1], shift[:, 0], sender[found], receiver))
    receiver, found, shift = receiver[order], found[order], shift[order]
    return Neighbors(receiver, sender[found], shift, wrapped[receiver] - images[found])


def _images_in_reach(
    positions: np.ndarray, lattice: np.ndarray, periodic: np.ndarray, cutoff: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Positions of images [M, 3], their atoms [M], their cells [M, 3], and the cells that atoms lie in [N, 3]."""
    inverse = np.linalg.inv(lattice)
    home = np.where(periodic, np.floor(positions @ inverse), 0).astype(np.int64)
    wrapped = positions - home @ lattice
    reach = np.where(periodic, np.floor(cutoff * np.linalg.norm(inverse, axis=0)).astype(np.int64) + 1, 0)
    cells = np.stack(np.meshgrid(*[np.arange(-n, n + 1) for n in reach], indexing="ij"), axis=-1).reshape(-1, 3)
    images = (wrapped[None] + (cells @ lattice)[:, None]).reshape(-1, 3)
    sender = np.tile(np.arange(len(positions)), len(cells))
    return images, sender, np.repeat(cells, len(positions), axis=0), home


def _by_range(index: Any, queries: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    limits, _, found = index.range_search(queries.astype(np.float32), radius * radius)
    return np.repeat(np.arange(len(queries)), np.diff(limits.astype(np.int64))), found


def _by_nearest(index: Any, queries: np.ndarray, radius: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    if count > KNN_LIMIT:
        raise ValueError(f"expected at most {KNN_LIMIT} nearest neighbors (the limit of FAISS), found {count}")
    distance_sq, found = index.search(queries.astype(np.float32), min(count, index.ntotal))
    inside = (distance_sq <= radius * radius) & (found >= 0)
    full = inside.all(axis=1)
    if count < index.ntotal and full.any():
        atom = int(np.flatnonzero(full)[0])
        raise ValueError(
            f"atom {atom} has at least {count} neighbors within {radius:.3f} Å, and a search of the {count} nearest "
            f"drops what lies beyond: use the range search, or a cutoff with fewer than {count} neighbors"
        )
    receiver, place = np.nonzero(inside)
    return receiver, found[receiver, place]
