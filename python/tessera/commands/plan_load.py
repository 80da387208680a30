# SPDX-License-Identifier: MIT
"""What a cut costs a rank: message sizes and memory, from the counts of `_C.plan_cuts` and the shape of a model."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessera.commands import CommandError
from tessera.commands.plan_structure import Structure

#: Bytes of one edge in the list (receiver, sender, shift) and in the artifact's inputs and outputs (ARCHITECTURE.md).
EDGE_BYTES = 28 + 72
#: Rows of a node's moments and features that a layer keeps for the backward pass (specification, section 7: 29 C).
NODE_ROWS = 29


@dataclass(frozen=True)
class ModelSize:
    """What decides messages and memory.

    The defaults are the public stack at paper width (E2Former V2 specification, section 6): C = 256, H = 128 heads of
    8 scalars, lmax 2, 256 Gaussians.

    Attributes:
        payload: floats of one row in one message: Key and Value.
        channels: C.
        edge_floats: floats of one edge that a layer keeps (specification, section 7): the input of the edge network
            (B + 256), three activations in each of its two hidden layers (6 b) and six numbers a head.
        float_bytes: 4 or 8.
        layers: attention layers by cutoff; None stands for 3 and 1 at two cutoffs, and 1 at each otherwise.
    """

    payload: int = 3328
    channels: int = 256
    edge_floats: int = 512 + 6 * 128 + 6 * 128
    float_bytes: int = 4
    layers: tuple[int, ...] | None = None

    @classmethod
    def from_passport(cls, passport: dict[str, Any]) -> "ModelSize":
        """Read the sizes from an artifact's passport."""
        config = passport["model_config"]
        num_heads, num_basis = config["num_heads"], config["num_basis"]
        return cls(
            payload=num_heads * config["head_scalars"] + (config["lmax"] + 1) ** 2 * config["channels"],
            channels=config["channels"],
            edge_floats=num_basis + 256 + 6 * min(128, num_basis // 2) + 6 * num_heads,
            float_bytes=8 if passport["dtype"] == "float64" else 4,
            layers=tuple(
                sum(stage["list"] == k for stage in passport["stages"]) for k in range(len(passport["cutoffs"]))
            ),
        )

    def layers_of(self, num_cutoffs: int) -> tuple[int, ...]:
        """Attention layers at each cutoff.

        Raises:
            CommandError: the layers are of another number of cutoffs.
        """
        if self.layers is None:
            return (3, 1) if num_cutoffs == 2 else (1,) * num_cutoffs
        if len(self.layers) != num_cutoffs:
            raise CommandError(f"expected layers for {num_cutoffs} cutoffs, found {len(self.layers)}: {self.layers}")
        return self.layers


@dataclass(frozen=True)
class ListLoad:
    """One cutoff: arrays are [ranks].

    Attributes:
        cutoff: Å.
        layers: attention layers that use it.
        peers: ranks that it reads from.
        halo_rows: rows that it reads.
        sent_rows: rows that it sends, once a reader.
        edges: edges whose receiver it owns.
        message_bytes: bytes that it receives in one layer, forward (backward sends as many home).
        local_fraction: part of all edges whose two atoms are on one rank.
        expected_local_fraction: 1 - 9 rc / (8 L), the same for cubes of edge L; None where L < rc.
    """

    cutoff: float
    layers: int
    peers: np.ndarray
    halo_rows: np.ndarray
    sent_rows: np.ndarray
    edges: np.ndarray
    message_bytes: np.ndarray
    local_fraction: float
    expected_local_fraction: float | None


@dataclass(frozen=True)
class RankPlan:
    """One number of ranks: arrays are [ranks].

    Attributes:
        num_ranks: K.
        owned: atoms.
        lists: one a cutoff, ascending.
        candidates: ranks that each filter would ask, itself included, by name.
        memory_bytes: estimate of what one rank holds at the end of the forward pass. The bundled model in float64 on
            one CPU rank took 478 MiB at 648 atoms of water (estimate 483) and 3742 MiB at 5184 (estimate 3871).
    """

    num_ranks: int
    owned: np.ndarray
    lists: tuple[ListLoad, ...]
    candidates: dict[str, np.ndarray]
    memory_bytes: np.ndarray


def plan_ranks(
    structure: Structure,
    ranks: Sequence[int],
    cutoffs: Sequence[float],
    size: ModelSize,
    *,
    curve: str = "hilbert",
    num_threads: int = 1,
    progress: Callable[[float], None] | None = None,
) -> list[RankPlan]:
    """Simulate the cut into each number of ranks.

    Args:
        structure: the atoms.
        ranks: numbers of ranks, each 1 to 65535.
        cutoffs: Å, ascending.
        size: of the model.
        curve: `hilbert` or `morton`.
        num_threads: of the pair count.
        progress: called now and then with the part done.

    Raises:
        CommandError: parameters that do not fit each other.
    """
    from tessera import _C  # noqa: PLC0415 (loads libtorch)

    if not cutoffs or cutoffs[0] <= 0 or any(a >= b for a, b in itertools.pairwise(cutoffs)):
        raise CommandError(f"--cutoffs: expected ascending lengths above 0 Å, found {list(cutoffs)}")
    size.layers_of(len(cutoffs))
    try:
        reports = _C.plan_cuts(
            structure.positions, structure.cell, structure.origin, structure.periodic, curve, list(ranks),
            list(cutoffs), num_threads=num_threads, progress=progress,
        )  # fmt: skip
    except _C.TesseraError as error:
        raise CommandError(str(error)) from error
    volume = occupied_volume(structure)
    return [make_plan(report, cutoffs, size, volume) for report in reports]


def occupied_volume(structure: Structure) -> float:
    """Volume of the cell, with axes that are not periodic cut down to the extent of the atoms, Å^3."""
    volume = abs(np.linalg.det(structure.cell))
    if len(structure.positions) > 0:
        fractions = (structure.positions - structure.origin) @ np.linalg.inv(structure.cell)
        for axis in range(3):
            volume *= 1.0 if structure.periodic[axis] else np.ptp(fractions[:, axis])
    return float(volume)


def make_plan(report: dict[str, Any], cutoffs: Sequence[float], size: ModelSize, volume: float) -> RankPlan:
    """Turn the counts of one number of ranks into loads."""
    edge = (volume / report["num_ranks"]) ** (1 / 3)
    row_bytes = size.payload * size.float_bytes
    lists = []
    memory = np.zeros(report["num_ranks"])
    for cutoff, layers, counts in zip(cutoffs, size.layers_of(len(cutoffs)), report["lists"], strict=True):
        total = counts["edges"].sum()
        lists.append(
            ListLoad(
                cutoff=cutoff,
                layers=layers,
                peers=counts["peers"],
                halo_rows=counts["halo_rows"],
                sent_rows=counts["sent_rows"],
                edges=counts["edges"],
                message_bytes=counts["halo_rows"] * row_bytes,
                local_fraction=float(counts["local_edges"].sum() / total) if total else 1.0,
                expected_local_fraction=1 - 9 * cutoff / (8 * edge) if edge > cutoff else None,
            )
        )
        memory += counts["edges"] * (EDGE_BYTES + layers * size.edge_floats * size.float_bytes)
        memory += layers * (report["owned"] + counts["halo_rows"]) * row_bytes
        memory += layers * report["owned"] * NODE_ROWS * size.channels * size.float_bytes
    names = {"rank-box": "rank_box", "multi-box": "multi_box", "key-range": "key_range"}
    candidates = {name: report[f"{key}_candidates"] for name, key in names.items()}
    return RankPlan(report["num_ranks"], report["owned"], tuple(lists), candidates, memory)
