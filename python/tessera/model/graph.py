# SPDX-License-Identifier: MIT
"""The inputs of a forward pass: rows, edges, halos (ARCHITECTURE.md, The artifact)."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from tessera.model.elements import ATOMIC_NUMBERS, SYMBOLS
from tessera.search.brute_force import neighbor_list


@dataclasses.dataclass
class EdgeList:
    """The edges of one cutoff; N owned rows, H halo rows, E edges.

    An extended row is an owned row (< N) or N + k for halo row k. Edges are sorted by receiver.
    """

    halo_element: Tensor
    """int64 [H], index into the model's elements."""
    vector: Tensor
    """float64 [E, 3], Å, receiver minus sender."""
    receiver: Tensor
    """int64 [E], ascending, < N."""
    sender: Tensor
    """int64 [E], extended row."""
    receiver_range: Tensor
    """int64 [N, 2], first and one-past-last edge."""
    sender_order: Tensor
    """int64 [E], edges sorted by (sender, edge)."""
    sender_range: Tensor
    """int64 [N + H, 2], first and one-past-last position in `sender_order`."""
    halo_rows: Tensor | None = None
    """int64 [H], the owned row that each halo row copies; only the reference exchange reads it."""

    @property
    def num_owned(self) -> int:
        """Number of receivers, N."""
        return self.receiver_range.shape[0]

    @property
    def num_halo(self) -> int:
        """Number of halo rows, H."""
        return self.halo_element.shape[0]

    def owned_sender(self) -> Tensor:
        """Owned row behind each sender, int64 [E]: halo rows are replaced by the rows that they copy."""
        if self.num_halo == 0:
            return self.sender
        if self.halo_rows is None:
            raise ValueError(f"expected halo_rows for {self.num_halo} halo rows, found None; say whom they copy")
        owned = torch.arange(self.num_owned, device=self.sender.device)
        return torch.cat([owned, self.halo_rows])[self.sender]


@dataclasses.dataclass
class Graph:
    """One system as a model sees it."""

    plan: Tensor
    """int64 [1], handle of the halo exchanges; the reference exchange ignores it."""
    element: Tensor
    """int64 [N], index into the model's elements."""
    weight: Tensor
    """float64 [N], 1 for a real row, 0 for padding."""
    charge: Tensor
    """int64 [1], e; [N], one a row, where systems of several charges stand side by side (training)."""
    multiplicity: Tensor
    """int64, as many as charges."""
    lists: list[EdgeList]
    """One a cutoff, ascending."""


class HasElements(Protocol):
    """What :func:`build_graph` must know of a model."""

    @property
    def elements(self) -> Sequence[str] | None:
        """Chemical symbols in table order."""

    @property
    def cutoffs(self) -> Sequence[float]:
        """Å, one a list, ascending."""


def build_graph(
    model: HasElements,
    numbers: Sequence[int] | np.ndarray,
    positions: np.ndarray,
    cell: np.ndarray | None = None,
    pbc: Sequence[bool] | np.ndarray = (False, False, False),
    charge: int = 0,
    multiplicity: int = 1,
) -> Graph:
    """Find the neighbors of every atom and lay the system out as one rank's graph without halo rows.

    Args:
        model: a model, or a config whose `elements` are set.
        numbers: atomic numbers, [N].
        positions: Å, [N, 3]; they need not lie inside the cell.
        cell: Å, [3, 3], rows are lattice vectors; None where nothing is periodic.
        pbc: which axes are periodic, [3].
        charge: total charge, e.
        multiplicity: spin multiplicity.

    Raises:
        ValueError: an element the model does not know, or arrays of other shapes.
    """
    positions = np.asarray(positions, dtype=np.float64)
    element = element_indices(model, numbers)
    if positions.shape != (len(element), 3):
        raise ValueError(f"expected positions of shape ({len(element)}, 3), found {positions.shape}; one row an atom")
    found = neighbor_list(positions, cell, pbc, max(model.cutoffs))
    distance = np.linalg.norm(found.vector, axis=1)
    lists = []
    for cutoff in model.cutoffs:
        kept = distance <= cutoff
        lists.append(
            edge_list(
                torch.from_numpy(found.receiver[kept]),
                torch.from_numpy(found.sender[kept]),
                torch.from_numpy(found.vector[kept]),
                num_owned=len(element),
            )
        )
    return Graph(
        plan=torch.zeros(1, dtype=torch.int64),
        element=element,
        weight=torch.ones(len(element), dtype=torch.float64),
        charge=torch.tensor([int(charge)]),
        multiplicity=torch.tensor([int(multiplicity)]),
        lists=lists,
    )


def element_indices(model: HasElements, numbers: Sequence[int] | np.ndarray) -> Tensor:
    """Return each atom's position in `model.elements`, int64 [N].

    Raises:
        ValueError: the model has no elements, or an atom's element is not among them.
    """
    if model.elements is None:
        raise ValueError("expected a model or config with elements, found none; set `elements` in the config")
    index = {ATOMIC_NUMBERS[symbol]: place for place, symbol in enumerate(model.elements)}
    unknown = sorted({int(number) for number in numbers} - set(index))
    if unknown:
        names = ", ".join(SYMBOLS[number] if 0 < number < len(SYMBOLS) else str(number) for number in unknown)
        raise ValueError(
            f"expected elements among {', '.join(model.elements)}, found {names}; use a model that was trained on them"
        )
    return torch.tensor([index[int(number)] for number in numbers], dtype=torch.int64)


def edge_list(
    receiver: Tensor,
    sender: Tensor,
    vector: Tensor,
    num_owned: int,
    halo_element: Tensor | None = None,
    halo_rows: Tensor | None = None,
) -> EdgeList:
    """Index edges that are sorted by receiver: CSR by receiver, CSC by sender.

    Args:
        receiver: int64 [E], ascending.
        sender: int64 [E], extended rows.
        vector: float64 [E, 3], Å, receiver minus sender.
        num_owned: N.
        halo_element: int64 [H]; None stands for no halo rows.
        halo_rows: int64 [H], owned row behind each halo row.
    """
    if halo_element is None:
        halo_element = torch.zeros(0, dtype=torch.int64)
    if halo_rows is None and halo_element.shape[0] == 0:
        halo_rows = torch.zeros(0, dtype=torch.int64)
    order = torch.argsort(sender, stable=True)
    return EdgeList(
        halo_element=halo_element,
        vector=vector,
        receiver=receiver,
        sender=sender,
        receiver_range=_ranges(receiver, num_owned),
        sender_order=order,
        sender_range=_ranges(sender[order], num_owned + halo_element.shape[0]),
        halo_rows=halo_rows,
    )


def _ranges(rows: Tensor, count: int) -> Tensor:
    """First and one-past-last place of each row in a sorted array, int64 [count, 2]."""
    ids = torch.arange(count, device=rows.device)
    return torch.stack([torch.searchsorted(rows, ids), torch.searchsorted(rows, ids, right=True)], dim=1)
