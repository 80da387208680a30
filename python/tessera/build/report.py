# SPDX-License-Identifier: MIT
"""What was built: counts, densities, edges an atom, closest contact, and the line for LAMMPS."""

from collections.abc import Iterator

import numpy as np
from ase.data import chemical_symbols

from tessera.build.overlaps import Contact
from tessera.build.pairs import PointGrid
from tessera.build.system import PERIODIC, Kind, System
from tessera.build.water import format_edges

CUTOFFS = (5.0, 8.0)
#: Atoms of a kind whose edges are counted; of more, this many drawn at random (the mean's error is below 0.1).
SAMPLE = 20_000


def mean_edges(system: System, random: np.random.Generator) -> dict[Kind, dict[float, float]]:
    """Mean number of neighbors within each cutoff, by kind: edges an atom receives in a model with that cutoff."""
    means: dict[Kind, dict[float, float]] = {}
    for kind in Kind:
        rows = np.flatnonzero(system.kinds == kind)
        if not len(rows):
            continue
        rows = np.sort(random.choice(rows, SAMPLE, replace=False)) if len(rows) > SAMPLE else rows
        means[kind] = {}
        for cutoff in CUTOFFS:
            grid = PointGrid(system.positions, system.cell, PERIODIC, cutoff)
            total = sum(len(found.i) for found in grid.pairs(system.positions[rows]))
            means[kind][cutoff] = total / len(rows) - 1  # the atom itself
    return means


def describe(
    system: System, contact: Contact | None, random: np.random.Generator, model: str = "model.pt2"
) -> Iterator[str]:
    """Lines of the report."""
    num = len(system.numbers)
    kinds = {kind: system.count(kind) for kind in Kind}
    ions = system.numbers[system.kinds == Kind.ION]
    yield f"box            {format_edges(system.edges)}, periodic"
    waters = kinds[Kind.WATER] // 3
    yield f"atoms          {num} ({kinds[Kind.SOLUTE]} of the solute, {waters} waters, {count_ions(ions)})"
    yield f"formal charge  {int(system.charges.sum(dtype=int)):+d} e in total, solute {solute_charge(system):+d} e"
    yield f"density        {system.mass_density:.4f} g/cm3, {num / system.volume:.5f} atoms/Å3"
    if contact is None:
        yield "closest pair   of two molecules: none within 1.9 Å"
    else:
        names = f"{system.name(contact.first)}; {system.name(contact.second)}"
        yield f"closest pair   of two molecules: {contact.distance:.3f} Å ({names})"
    for kind, means in mean_edges(system, random).items():
        values = ", ".join(f"{mean:.1f} at {cutoff:g} Å" for cutoff, mean in means.items())
        sampled = f" (of {SAMPLE} drawn)" if kinds[kind] > SAMPLE else ""
        yield f"edges an atom  {kind.name.lower():<7} {values}{sampled}"
    yield f"LAMMPS         pair_coeff * * {model} {' '.join(system.elements)}"


def count_ions(numbers: np.ndarray) -> str:
    """`3 K, 3 Cl`, or `no ions`."""
    counts = [f"{(numbers == n).sum()} {chemical_symbols[n]}" for n in np.unique(numbers)[::-1]]
    return ", ".join(counts) or "no ions"


def solute_charge(system: System) -> int:
    """Charge of the solute, e."""
    return int(system.charges[system.kinds == Kind.SOLUTE].sum(dtype=int))
