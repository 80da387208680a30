# SPDX-License-Identifier: MIT
"""Choose how fine the tables of edge networks must be, by the error of the forces."""

import copy
import logging
import math
from dataclasses import dataclass

from torch import Tensor

import tessera.ops
from tessera.model import E2Former, Graph, energy_and_edge_gradients, forces_and_strain
from tessera.model.elements import ATOMIC_NUMBERS
from tessera.model.radial_table import table_bytes, tabulate
from tessera_export.errors import ExportError
from tessera_export.systems import verification_systems

logger = logging.getLogger(__name__)

#: Intervals in one width of the radial basis, first try; and the most. The error falls about as their sixth power.
FIRST_INTERVALS, MOST_INTERVALS = 8, 256
ORDER = 5.5
#: A table is compared on the first so many verification systems (random liquids of 20 and 67 atoms).
NUM_SYSTEMS = 2
#: Bytes that tables may take without being asked for.
MOST_BYTES = 2**29


@dataclass(frozen=True)
class Tables:
    """A model whose edge networks are tables.

    Attributes:
        model: in the dtype of the one that it was made of.
        intervals_per_width: intervals in one width of the radial basis.
        force_error: largest difference of a force component, both computed in float64, eV/Å.
        num_bytes: of all tables.
    """

    model: E2Former
    intervals_per_width: int
    force_error: float
    num_bytes: int

    def to_dict(self) -> dict[str, object]:
        """Return what the passport keeps."""
        return {"intervals_per_width": self.intervals_per_width, "force_error": self.force_error}


def choose_tables(model: E2Former, tolerance: float, charges: tuple[int, int]) -> Tables:
    """Tabulate `model` as coarsely as `tolerance` allows.

    The interpolation alone is judged: exact and tabulated forces are both computed in float64.

    Args:
        model: with the elements that the artifact will know, on the CPU, gradients of parameters switched off.
        tolerance: largest error of a force component in random liquids, eV/Å.
        charges: smallest and largest total charge that the model takes, e.

    Raises:
        ExportError: the tolerance is not positive, or no table of MOST_INTERVALS a width reaches it.
    """
    if not tolerance > 0.0:
        raise ExportError(f"--radial-tolerance {tolerance:g}: expected a positive number of eV/Å; change it")
    exact = copy.deepcopy(model).double()
    numbers = [ATOMIC_NUMBERS[symbol] for symbol in model.elements]
    systems = verification_systems(numbers, max(model.cutoffs), charges)[:NUM_SYSTEMS]
    graphs = [system.graph(model) for system in systems]
    expected = [_forces(exact, graph) for graph in graphs]
    intervals, found = FIRST_INTERVALS, math.inf
    while intervals <= MOST_INTERVALS:
        tabled = tabulate(exact, intervals)
        errors = [
            float((_forces(tabled, graph) - forces).abs().max()) for graph, forces in zip(graphs, expected, strict=True)
        ]
        found = max(errors)
        logger.debug("%d intervals a width: forces differ by %.1e", intervals, found)
        if found <= tolerance:
            return Tables(tabulate(model, intervals), intervals, found, table_bytes(model, intervals))
        intervals = max(intervals + 1, math.ceil(intervals * (found / tolerance) ** (1.0 / ORDER)))
    raise ExportError(
        f"--radial-tolerance {tolerance:g}: expected tables of at most {MOST_INTERVALS} intervals a width to reach it, "
        f"found an error of {found:.1e} with the finest that was tried; raise it, or give --radial exact"
    )


def fits(model: E2Former) -> bool:
    """Whether tables for all pairs of the model's elements stay below MOST_BYTES, at the first try's intervals."""
    return table_bytes(model, FIRST_INTERVALS) <= MOST_BYTES


def _forces(model: E2Former, graph: Graph) -> Tensor:
    model.set_fused(is_fused=True)
    return forces_and_strain(graph, energy_and_edge_gradients(model, graph, tessera.ops)[1])[0]
