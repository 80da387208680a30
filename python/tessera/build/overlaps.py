# SPDX-License-Identifier: MIT
"""Refuse structures with atoms on top of each other."""

from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from tessera.build.pairs import close_pairs
from tessera.build.system import PERIODIC, System
from tessera.commands import CommandError

#: Å, closest that atoms of different molecules may be: both heavy (a disulfide bridge between chains has 2.05), or one
#: hydrogen at least (liquid water at 300 K reaches 1.4).
FOREIGN_HEAVY, FOREIGN_HYDROGEN = 1.9, 1.2
#: Å, closest that atoms of one molecule may be (O-H: 0.9 at least).
SAME_MOLECULE = 0.6


class Contact(NamedTuple):
    """Two atoms and their distance, Å."""

    distance: float
    first: int
    second: int


def closest_contact(system: System) -> Contact | None:
    """Check every pair and return the closest of two different molecules, if any is within 1.9 Å.

    Raises:
        CommandError: two atoms overlap; the closest such pair is named.
    """
    heavy = system.numbers > 1
    worst, closest = None, None
    pairs = close_pairs(system.positions, system.cell, PERIODIC, FOREIGN_HEAVY, once=True)
    for found in tqdm(pairs, desc="overlaps", unit=" chunks", leave=False, disable=None):
        foreign = system.molecules[found.i] != system.molecules[found.j]
        limit = np.where(heavy[found.i] & heavy[found.j], FOREIGN_HEAVY, FOREIGN_HYDROGEN)
        bad = found.distance < np.where(foreign, limit, SAME_MOLECULE)
        worst = nearest(worst, found, bad)
        closest = nearest(closest, found, foreign)
    if worst is not None:
        names = f"{system.name(worst.first)}, and {system.name(worst.second)}"
        raise CommandError(
            f"atoms overlap; the closest pair is {worst.distance:.3f} Å apart: {names}. Expected {FOREIGN_HEAVY:g} Å "
            f"between heavy atoms of two molecules, {FOREIGN_HYDROGEN:g} Å with a hydrogen, {SAME_MOLECULE:g} Å inside "
            f"one. Check the input (doubled atoms, copies that touch: raise --gap, --pad or --edge)"
        )
    return closest


def nearest(known: Contact | None, found: tuple, keep: np.ndarray) -> Contact | None:
    """Closer of the known contact and the closest kept pair of a chunk."""
    rows = np.flatnonzero(keep)
    if not len(rows):
        return known
    row = rows[found.distance[rows].argmin()]
    contact = Contact(float(found.distance[row]), int(found.i[row]), int(found.j[row]))
    return contact if known is None or contact < known else known
