# SPDX-License-Identifier: MIT
"""Frames side by side in one graph, with labels and weights, as the training step reads them."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tessera.model import E2Former, EdgeList, Graph, edge_list
from tessera.model.graph import element_indices
from tessera.train.edges import FrameEdges
from tessera.train.frames import Frame

PADDING_ROWS = 2
"""Rows, and edges a list, that every pack has beyond its frames': compiled code takes extents from 2."""
PADDING_DISTANCE = 1e3
"""Length of a padding edge in cutoffs: no model sees it (ARCHITECTURE.md, The artifact)."""
_GRAPH = ("plan", "element", "weight", "charge", "multiplicity")
_LIST = ("halo_element", "vector", "receiver", "sender", "receiver_range", "sender_order", "sender_range", "halo_rows")


@dataclasses.dataclass(frozen=True)
class Counts:
    """What the labels of one whole batch number, over all ranks: the loss is a mean over these."""

    energies: int
    force_atoms: int
    stresses: int

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> "Counts":
        """Count the labels of some frames."""
        return cls(
            energies=sum(frame.energy is not None for frame in frames),
            force_atoms=sum(len(frame.numbers) for frame in frames if frame.forces is not None),
            stresses=sum(frame.stress is not None for frame in frames),
        )


@dataclasses.dataclass(frozen=True)
class Labels:
    """Labels and weights; N rows (padding too), F frames (the last one holds the padding, with weights 0)."""

    frame: Tensor
    """int64 [N], frame of each row."""
    energy: Tensor
    """float64 [F], eV."""
    energy_weight: Tensor
    """float64 [F], 1 / energies of the batch, 0 without label."""
    per_atom: Tensor
    """float64 [F], 1 / atoms."""
    forces: Tensor
    """float64 [N, 3], eV/Å."""
    force_weight: Tensor
    """float64 [N], 1 / force components of the batch, 0 without label."""
    virial: Tensor
    """float64 [F, 3, 3], dE/dstrain = stress times volume, eV."""
    virial_weight: Tensor
    """float64 [F], 1 / stress components of the batch, 0 without label."""


@dataclasses.dataclass(frozen=True)
class Pack:
    """Frames of equal charge and multiplicity, which the network takes once a graph."""

    graph: Graph
    labels: Labels

    def flat(self) -> tuple[Tensor, ...]:
        """All tensors in a fixed order."""
        graph = [getattr(self.graph, name) for name in _GRAPH]
        lists = [getattr(edges, name) for edges in self.graph.lists for name in _LIST]
        return (*graph, *(getattr(self.labels, field.name) for field in dataclasses.fields(Labels)), *lists)

    @classmethod
    def unflat(cls, tensors: Sequence[Tensor]) -> "Pack":
        """Inverse of :meth:`flat`."""
        first, second = len(_GRAPH), len(_GRAPH) + len(dataclasses.fields(Labels))
        lists = [
            EdgeList(**dict(zip(_LIST, tensors[start : start + len(_LIST)], strict=True)))
            for start in range(second, len(tensors), len(_LIST))
        ]
        graph = Graph(**dict(zip(_GRAPH, tensors[:first], strict=True)), lists=lists)
        return cls(graph, Labels(*tensors[first:second]))

    def to(self, device: torch.device) -> "Pack":
        """Copy to a device."""
        return Pack.unflat([tensor.to(device) for tensor in self.flat()])


def make_packs(model: E2Former, frames: Sequence[Frame], edges: Sequence[FrameEdges], counts: Counts) -> list[Pack]:
    """Lay frames out as few graphs, one for each charge and multiplicity among them.

    Args:
        model: its elements and cutoffs are read.
        frames: of one rank.
        edges: of these frames, within the longest cutoff or more.
        counts: of the whole batch.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    for place, frame in enumerate(frames):
        groups.setdefault((frame.charge, frame.multiplicity), []).append(place)
    return [
        _pack(model, [frames[place] for place in places], [edges[place] for place in places], counts)
        for places in groups.values()
    ]


def _pack(model: E2Former, frames: list[Frame], edges: list[FrameEdges], counts: Counts) -> Pack:
    sizes = [len(frame.numbers) for frame in frames]
    first = np.concatenate([[0], np.cumsum(sizes)])
    num_real = int(first[-1])
    receiver = np.concatenate([one.receiver + start for one, start in zip(edges, first, strict=False)])
    sender = np.concatenate([one.sender + start for one, start in zip(edges, first, strict=False)])
    vector = np.concatenate([one.vectors(frame) for one, frame in zip(edges, frames, strict=True)])
    distance = np.linalg.norm(vector, axis=1)
    padding = np.arange(num_real, num_real + PADDING_ROWS)
    lists = []
    for cutoff in model.cutoffs:
        kept = distance <= cutoff
        far = np.zeros((PADDING_ROWS, 3))
        far[:, 0] = PADDING_DISTANCE * cutoff
        lists.append(
            edge_list(
                torch.from_numpy(np.concatenate([receiver[kept], padding]).astype(np.int64)),
                torch.from_numpy(np.concatenate([sender[kept], padding]).astype(np.int64)),
                torch.from_numpy(np.concatenate([vector[kept], far])),
                num_owned=num_real + PADDING_ROWS,
            )
        )
    element = element_indices(model, np.concatenate([frame.numbers for frame in frames]))
    weight = torch.ones(num_real + PADDING_ROWS, dtype=torch.float64)
    weight[num_real:] = 0.0
    graph = Graph(
        plan=torch.zeros(1, dtype=torch.int64),
        element=torch.nn.functional.pad(element, (0, PADDING_ROWS)),
        weight=weight,
        charge=torch.tensor([frames[0].charge]),
        multiplicity=torch.tensor([frames[0].multiplicity]),
        lists=lists,
    )
    return Pack(graph, _labels(frames, sizes, counts))


def _labels(frames: list[Frame], sizes: list[int], counts: Counts) -> Labels:
    def by_frame(values: list[float], padding: float = 0.0) -> Tensor:
        return torch.tensor([*values, padding], dtype=torch.float64)

    forces = [np.zeros((size, 3)) if f.forces is None else f.forces for f, size in zip(frames, sizes, strict=True)]
    with_forces = np.repeat([frame.forces is not None for frame in frames], sizes)
    virials = [np.zeros((3, 3)) if frame.stress is None else frame.stress * frame.volume for frame in frames]
    place = np.repeat(np.arange(len(frames)), sizes)
    return Labels(
        frame=torch.from_numpy(np.concatenate([place, np.full(PADDING_ROWS, len(frames))])),
        energy=by_frame([frame.energy or 0.0 for frame in frames]),
        energy_weight=by_frame([(frame.energy is not None) / max(counts.energies, 1) for frame in frames]),
        per_atom=by_frame([1.0 / size for size in sizes], 1.0),
        forces=torch.from_numpy(np.concatenate([*forces, np.zeros((PADDING_ROWS, 3))])),
        force_weight=torch.from_numpy(
            np.concatenate([with_forces / max(3 * counts.force_atoms, 1), np.zeros(PADDING_ROWS)])
        ),
        virial=torch.from_numpy(np.stack([*virials, np.zeros((3, 3))])),
        virial_weight=by_frame([(frame.stress is not None) / max(9 * counts.stresses, 1) for frame in frames]),
    )
