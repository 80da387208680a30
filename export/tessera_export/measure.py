# SPDX-License-Identifier: MIT
"""Peak memory of an artifact as it runs, to correct what was counted in its graph.

The count knows nothing of the compiler's fusions, which spare tensors, nor of the libraries' workspaces. Values do not
matter for memory, so the runs are on random edges.
"""

import logging
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from tessera.model import E2Former, Graph, edge_list
from tessera_export.compiled import CompiledModel
from tessera_export.errors import ExportError
from tessera_export.memory import MEBIBYTE, WATER_DENSITY, Extents, MemoryModel

logger = logging.getLogger(__name__)

#: Owned rows of the two runs; their difference leaves out what does not grow with the system.
SIZES = (1000, 2000)
#: Part of the free memory that the larger run may fill by the count.
LARGEST_SHARE = 0.5
SEED = 20261


def measured_memory(path: Path, counted: MemoryModel, model: E2Former) -> MemoryModel:
    """Run the artifact at `path` on the current GPU at two sizes and correct `counted` by what it took.

    Args:
        path: an artifact for a GPU, compiled from the graph behind `counted`.
        counted: as `memory.memory_model` returns it.
        model: on the CPU; gives elements and cutoffs.

    Raises:
        ExportError: the GPU has no room for the runs, or the larger one took no more than the smaller one.
    """
    free, _ = torch.cuda.mem_get_info()
    needed = counted.predict(Extents.liquid(SIZES[1], model.cutoffs))
    if needed > LARGEST_SHARE * free:
        raise ExportError(
            f"memory: expected {needed / LARGEST_SHARE / MEBIBYTE:.0f} MiB free on the GPU, to measure a run of "
            f"{SIZES[1]} atoms, found {free / MEBIBYTE:.0f}; end other programs, or give a smaller --recompute"
        )
    counts, peaks = [], []
    for rows in SIZES:
        graph = random_graph(model.cutoffs, len(model.elements), rows)
        counts.append(counted.predict(extents_of(graph)) - counted.bytes)
        peaks.append(_peak_of_run(path, graph))
        logger.debug("memory of %d atoms: counted %.1f MiB, measured %.1f", rows, counts[-1] / MEBIBYTE,
                     peaks[-1] / MEBIBYTE)  # fmt: skip
    return correct(counted, counts, peaks)


def correct(counted: MemoryModel, counts: Sequence[float], peaks: Sequence[float]) -> MemoryModel:
    """Scale `counted` so that it gives the measured peaks of two sizes.

    Args:
        counted: the model.
        counts: bytes of the smaller and the larger run by the count, without its constant part.
        peaks: bytes that they took, without the weights.

    Raises:
        ExportError: the larger run took no more than the smaller one.
    """
    scale = (peaks[1] - peaks[0]) / (counts[1] - counts[0])
    if not scale > 0.0:
        raise ExportError(
            f"memory: expected the larger of two runs to take more than {peaks[0] / MEBIBYTE:.1f} MiB, found "
            f"{peaks[1] / MEBIBYTE:.1f}; end other programs on the GPU and export again"
        )
    return counted.corrected(scale, max(0.0, peaks[0] - scale * counts[0]))


def _peak_of_run(path: Path, graph: Graph) -> int:
    """Bytes that the run adds to those allocated before; the weights are loaded by then, and not torch's to count."""
    compiled = CompiledModel(path)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    compiled.run(graph)
    return torch.cuda.max_memory_allocated() - before


def random_graph(cutoffs: Sequence[float], num_elements: int, rows: int) -> Graph:
    """Draw a graph with as many edges as water has, between random rows; no two lists agree on anything."""
    generator = torch.Generator().manual_seed(SEED)
    lists = []
    for cutoff in cutoffs:
        degree = round(WATER_DENSITY * 4.0 / 3.0 * math.pi * cutoff**3)
        receiver = torch.arange(rows).repeat_interleave(degree)
        sender = torch.randint(0, rows, (rows * degree,), generator=generator)
        direction = torch.nn.functional.normalize(torch.randn(rows * degree, 3, generator=generator).double())
        distance = cutoff * (0.3 + 0.7 * torch.rand(rows * degree, 1, generator=generator).double())
        lists.append(edge_list(receiver, sender, direction * distance, rows))
    return Graph(
        plan=torch.zeros(1, dtype=torch.int64),
        element=torch.randint(0, num_elements, (rows,), generator=generator),
        weight=torch.ones(rows, dtype=torch.float64),
        charge=torch.tensor([0]),
        multiplicity=torch.tensor([1]),
        lists=lists,
    )


def extents_of(graph: Graph) -> Extents:
    """Count the rows, halo rows and edges of a graph."""
    return Extents(
        len(graph.element),
        tuple(edges.num_halo for edges in graph.lists),
        tuple(len(edges.receiver) for edges in graph.lists),
    )
