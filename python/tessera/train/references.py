# SPDX-License-Identifier: MIT
"""Energies of single elements by least squares."""

import logging
from collections.abc import Sequence

import numpy as np

from tessera.model.elements import ATOMIC_NUMBERS
from tessera.train.errors import TrainError
from tessera.train.frames import Frame

logger = logging.getLogger(__name__)


def fit_references(
    frames: Sequence[Frame], elements: Sequence[str], known: Sequence[float] | None = None
) -> dict[str, float]:
    """Fit E = sum over atoms of e(element) to the labelled energies, each frame weighing 1 / atoms.

    Where compositions do not tell elements apart (pure water fixes 2 e(H) + e(O) alone), the solution of least norm is
    taken: sums over such compositions are right, single values are not meaningful, which is logged. An element in
    no labelled frame gets 0.

    Args:
        frames: those without energy are left out.
        elements: symbols.
        known: eV, what the model has of each frame without training (its repulsion); taken off before the fit.

    Returns:
        eV by symbol.

    Raises:
        TrainError: no frame has an energy.
    """
    known = [0.0] * len(frames) if known is None else known
    labelled = [frame for frame in frames if frame.energy is not None]
    if not labelled:
        raise TrainError("references: expected frames with energies to fit, found none; set data.energy_key")
    numbers = np.array([ATOMIC_NUMBERS[symbol] for symbol in elements])
    counts = np.array([(frame.numbers[:, None] == numbers).sum(0) for frame in labelled], dtype=np.float64)
    sizes = counts.sum(1)
    energies = np.array([
        frame.energy - own for frame, own in zip(frames, known, strict=True) if frame.energy is not None
    ])  # fmt: skip
    solution, _, rank, _ = np.linalg.lstsq(counts / sizes[:, None], energies / sizes, rcond=1e-8)
    if rank < len(elements):
        absent = [symbol for symbol, column in zip(elements, counts.T, strict=True) if not column.any()]
        logger.warning(
            "the compositions of %d frames fix %d combinations of %d reference energies; the others are those of least "
            "norm, good for these compositions only%s",
            len(labelled), rank, len(elements), f" (no {', '.join(absent)} in the data)" if absent else "",
        )  # fmt: skip
    return dict(zip(elements, map(float, solution), strict=True))
