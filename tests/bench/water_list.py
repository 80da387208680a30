# SPDX-License-Identifier: MIT
"""Lists of a box of water in the order of the Hilbert curve, as a rank's rows are, for benches of single kernels."""

import dataclasses

import numpy as np
import torch

from many_ranks import water_216
from tessera import _C
from tessera.model import EdgeList, edge_list

BITS = 10
"""Of the grid along each axis, through which the curve runs."""
SCATTER = 0x9E3779B1
"""Of csrc/tessera/search/sender_order.hpp."""


def hilbert_keys(positions: np.ndarray, cell_lengths: np.ndarray) -> np.ndarray:
    """Return each point's place on the Hilbert curve of its box, int64 [N] (Skilling, AIP Conf. Proc. 707, 381)."""
    fraction = (positions / cell_lengths) % 1.0
    axes = np.minimum((fraction * 2**BITS).astype(np.int64), 2**BITS - 1).T.copy()
    step = 1 << (BITS - 1)
    while step > 1:  # undo the turns of each level, coarse to fine
        for axis in range(3):
            is_high = (axes[axis] & step) != 0
            swap = np.where(is_high, 0, (axes[0] ^ axes[axis]) & (step - 1))
            axes[0] ^= np.where(is_high, step - 1, swap)
            axes[axis] ^= swap
        step >>= 1
    for axis in (1, 2):  # Gray code
        axes[axis] ^= axes[axis - 1]
    turns = np.zeros_like(axes[0])
    step = 1 << (BITS - 1)
    while step > 1:
        turns ^= np.where((axes[2] & step) != 0, step - 1, 0)
        step >>= 1
    axes ^= turns
    keys = np.zeros_like(axes[0])
    for bit in range(BITS - 1, -1, -1):
        for axis in range(3):
            keys = (keys << 1) | ((axes[axis] >> bit) & 1)
    return keys


def water_list(repeat: tuple[int, int, int], cutoff: float, *, is_sorted: bool = True) -> tuple[EdgeList, torch.Tensor]:
    """Return the list of 216 waters times `repeat` at a cutoff in Å, and elements (0 is H, 1 is O), int64 [N].

    Rows stand in curve order, or as in the file.
    """
    atoms = water_216() * repeat
    positions, cell = atoms.get_positions(), np.asarray(atoms.cell.array)
    element = (atoms.get_atomic_numbers() == 8).astype(np.int64)
    if is_sorted:
        order = np.argsort(hilbert_keys(positions, np.diagonal(cell)), kind="stable")
        positions, element = positions[order], element[order]
    receiver, sender, shift = _C.cell_search(positions, cell, [True] * 3, cutoff)
    vector = positions[receiver] - positions[sender] - shift @ cell
    edges = edge_list(
        torch.from_numpy(receiver).long(), torch.from_numpy(sender).long(), torch.from_numpy(vector), len(positions)
    )
    return edges, torch.from_numpy(element)


def scattered(edges: EdgeList) -> EdgeList:
    """Return a list with the senders of a receiver, and the receivers of a sender, in scattered order, as on a GPU."""

    def key(rows: torch.Tensor) -> np.ndarray:
        return (rows.numpy().astype(np.uint64) * SCATTER) % 2**32

    order = torch.from_numpy(np.lexsort((key(edges.sender), edges.receiver.numpy())))
    receiver, sender = edges.receiver[order], edges.sender[order]
    by_sender = torch.from_numpy(np.lexsort((key(receiver), sender.numpy())))
    return dataclasses.replace(
        edges, receiver=receiver, sender=sender, vector=edges.vector[order], sender_order=by_sender
    )
