# SPDX-License-Identifier: MIT
"""Frames side by side in one graph, with labels and weights, as the training step reads them."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

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
class Extents:
    """How large a pack is, padding included."""

    rows: int
    frames: int
    edges: tuple[int, ...]
    """One a list."""


Room = Callable[[Extents], Extents]
"""What a pack needs at least to what it gets, none of it less."""


@dataclasses.dataclass(frozen=True)
class Labels:
    """Labels and weights; N rows (padding too), F frames (the last ones are padding, with weights 0)."""

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
    """float64 [N], 1 / force components of the batch times the element's factor, 0 without label."""
    virial: Tensor
    """float64 [F, 3, 3], dE/dstrain = stress times volume, eV."""
    virial_weight: Tensor
    """float64 [F], 1 / stress components of the batch, 0 without label."""


@dataclasses.dataclass(frozen=True)
class Pack:
    """Frames side by side, whatever their charges."""

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

    def pin_memory(self) -> "Pack":
        """Copy to page-locked memory, from which a GPU copies by itself."""
        return Pack.unflat([tensor.pin_memory() for tensor in self.flat()])


def _within_cutoffs(model: E2Former, vector: np.ndarray) -> list[np.ndarray]:
    distance = np.sqrt(np.einsum("ij,ij->i", vector, vector))
    return [distance <= cutoff for cutoff in model.cutoffs]


def _padded(rows: int, frames: int, edges: Sequence[int]) -> Extents:
    return Extents(rows + PADDING_ROWS, frames + 1, tuple(count + PADDING_ROWS for count in edges))


class FrameSizes:
    """What each frame adds to the extents of a pack.

    Args:
        model: its cutoffs are read.
        frames: all that batches are taken from.
        edges: of these frames, within the longest cutoff or more.
    """

    def __init__(self, model: E2Former, frames: Sequence[Frame], edges: Sequence[FrameEdges]) -> None:
        self._sizes = np.array([
            [len(frame.numbers), 1, *(inside.sum() for inside in _within_cutoffs(model, own.vectors(frame)))]
            for frame, own in zip(frames, edges, strict=True)
        ])  # fmt: skip

    def hold(self, batches: Iterable[Sequence[int]]) -> Extents:
        """Return the smallest extents that hold the pack of each batch (places of frames)."""
        rows, frames, *lists = np.max([self._sizes[list(batch)].sum(0) for batch in batches], axis=0)
        return _padded(int(rows), int(frames), [int(count) for count in lists])


def make_pack(
    model: E2Former,
    frames: Sequence[Frame],
    edges: Sequence[FrameEdges],
    counts: Counts,
    room: Room | None = None,
    element_forces: Mapping[str, float] = MappingProxyType({}),
) -> Pack:
    """Lay frames out as one graph.

    Args:
        model: its elements and cutoffs are read.
        frames: of one rank, one at least.
        edges: of these frames, within the longest cutoff or more.
        counts: of the whole batch.
        room: gives more than is needed, so that packs of many batches have equal extents; None gives what is needed.
        element_forces: factors on the weights of elements' forces; 1 for those not named.
    """
    sizes = [len(frame.numbers) for frame in frames]
    first = np.concatenate([[0], np.cumsum(sizes)])
    receiver = np.concatenate([one.receiver + start for one, start in zip(edges, first, strict=False)])
    sender = np.concatenate([one.sender + start for one, start in zip(edges, first, strict=False)])
    vector = np.concatenate([one.vectors(frame) for one, frame in zip(edges, frames, strict=True)])
    kept = [np.flatnonzero(inside) for inside in _within_cutoffs(model, vector)]
    extents = _padded(int(first[-1]), len(frames), [len(places) for places in kept])
    if room is not None:
        extents = room(extents)
    num_real, num_padding = int(first[-1]), extents.rows - int(first[-1])
    lists = []
    for cutoff, places, count in zip(model.cutoffs, kept, extents.edges, strict=True):
        far = np.zeros((count - len(places), 3))
        far[:, 0] = PADDING_DISTANCE * cutoff
        padding = num_real + np.arange(len(far)) * num_padding // len(far)  # spread over the padding rows
        lists.append(
            edge_list(
                torch.from_numpy(np.concatenate([receiver[places], padding]).astype(np.int64)),
                torch.from_numpy(np.concatenate([sender[places], padding]).astype(np.int64)),
                torch.from_numpy(np.concatenate([vector[places], far])),
                num_owned=extents.rows,
            )
        )

    def by_row(values: list[int], padding: int) -> Tensor:
        rows = np.full(extents.rows, padding)
        rows[:num_real] = np.repeat(values, sizes)
        return torch.from_numpy(rows)

    weight = torch.zeros(extents.rows, dtype=torch.float64)
    weight[:num_real] = 1.0
    element = element_indices(model, np.concatenate([frame.numbers for frame in frames]))
    graph = Graph(
        plan=torch.zeros(1, dtype=torch.int64),
        element=torch.nn.functional.pad(element, (0, num_padding)),
        weight=weight,
        charge=by_row([frame.charge for frame in frames], 0),
        multiplicity=by_row([frame.multiplicity for frame in frames], 1),
        lists=lists,
    )
    labels = _labels(frames, by_row(list(range(len(frames))), extents.frames - 1), counts, extents)
    if element_forces:
        factor = torch.tensor([element_forces.get(name, 1.0) for name in model.elements], dtype=torch.float64)
        labels = dataclasses.replace(labels, force_weight=labels.force_weight * factor[graph.element])
    return Pack(graph, labels)


def _labels(frames: Sequence[Frame], frame_of_row: Tensor, counts: Counts, extents: Extents) -> Labels:
    def by_frame(values: list[float], padding: float = 0.0) -> Tensor:
        return torch.tensor([*values, *[padding] * (extents.frames - len(values))], dtype=torch.float64)

    sizes = [len(frame.numbers) for frame in frames]
    forces = [np.zeros((size, 3)) if f.forces is None else f.forces for f, size in zip(frames, sizes, strict=True)]
    with_forces = np.repeat([frame.forces is not None for frame in frames], sizes)
    num_padding = extents.rows - len(with_forces)
    virials = np.zeros((extents.frames, 3, 3))
    for place, frame in enumerate(frames):
        if frame.stress is not None:
            virials[place] = frame.stress * frame.volume
    return Labels(
        frame=frame_of_row,
        energy=by_frame([frame.energy or 0.0 for frame in frames]),
        energy_weight=by_frame([(frame.energy is not None) / max(counts.energies, 1) for frame in frames]),
        per_atom=by_frame([1.0 / size for size in sizes], 1.0),
        forces=torch.from_numpy(np.concatenate([*forces, np.zeros((num_padding, 3))])),
        force_weight=torch.from_numpy(
            np.concatenate([with_forces / max(3 * counts.force_atoms, 1), np.zeros(num_padding)])
        ),
        virial=torch.from_numpy(virials),
        virial_weight=by_frame([(frame.stress is not None) / max(9 * counts.stresses, 1) for frame in frames]),
    )
