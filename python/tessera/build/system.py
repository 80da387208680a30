# SPDX-License-Identifier: MIT
"""What a builder makes: atoms in a periodic box, with what is needed to write them and to name them."""

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from ase.data import atomic_masses, atomic_numbers, chemical_symbols

from tessera.commands import CommandError

#: Å^3 of one g/cm^3: mass density in g/cm^3 is this times the masses (u) over the volume (Å^3).
GRAMS_PER_CM3 = 1.66053907
#: Periodic along all axes; every builder makes such a box.
PERIODIC = (True, True, True)


class Kind(IntEnum):
    """What an atom belongs to."""

    SOLUTE = 0
    WATER = 1
    ION = 2


@dataclass(frozen=True)
class System:
    """Atoms in a periodic rectangular box whose corner is the origin.

    Attributes:
        numbers: [N], atomic numbers, uint8.
        positions: [N, 3], Å, anywhere (writers wrap them).
        edges: [3], Å, of the box.
        molecules: [N], int32, from 1; a chain of a copy, a water, an ion.
        kinds: [N], uint8, values of :class:`Kind`.
        charges: [N], int8, formal charge, e: on one atom of each charged group.
        solute_labels: names of the solute's atoms; copy after copy repeats them.
        type_order: symbols of the atom types, or empty for those present by atomic number.
    """

    numbers: np.ndarray
    positions: np.ndarray
    edges: np.ndarray
    molecules: np.ndarray
    kinds: np.ndarray
    charges: np.ndarray
    solute_labels: tuple[str, ...] = ()
    type_order: tuple[str, ...] = ()

    @property
    def cell(self) -> np.ndarray:
        """[3, 3], Å."""
        return np.diag(self.edges)

    @property
    def volume(self) -> float:
        """Å^3."""
        return float(np.prod(self.edges))

    @property
    def mass_density(self) -> float:
        """g/cm^3."""
        return float(atomic_masses[self.numbers].sum() / self.volume * GRAMS_PER_CM3)

    @property
    def elements(self) -> list[str]:
        """Symbols of the atom types, in their order."""
        return list(self.type_order) or [chemical_symbols[number] for number in np.unique(self.numbers)]

    @property
    def types(self) -> np.ndarray:
        """[N], LAMMPS atom types from 1."""
        table = np.zeros(len(chemical_symbols), np.int64)
        table[[atomic_numbers[symbol] for symbol in self.elements]] = np.arange(1, len(self.elements) + 1)
        return table[self.numbers]

    def count(self, kind: Kind) -> int:
        """Atoms of a kind."""
        return int((self.kinds == kind).sum())

    def wrapped(self, rows: slice = slice(None)) -> np.ndarray:
        """Positions in [0, edge), Å."""
        inside = self.positions[rows] % self.edges
        return np.where(inside >= self.edges, 0.0, inside)  # -1e-20 % L is L

    def name(self, row: int) -> str:
        """Name an atom as a person would, for messages."""
        symbol = chemical_symbols[self.numbers[row]]
        if self.kinds[row] == Kind.SOLUTE and self.solute_labels:
            copy, atom = divmod(row, len(self.solute_labels))
            return f"atom {row + 1}, {self.solute_labels[atom]} of copy {copy + 1}"
        return f"atom {row + 1}, {symbol} of {Kind(self.kinds[row]).name.lower()} molecule {self.molecules[row]}"


def with_types(system: System, symbols: list[str]) -> System:
    """Fix the order of the atom types; elements may be listed that no atom has, so that one input serves many systems.

    Raises:
        CommandError: a symbol is unknown or repeated, or an element of the system is not listed.
    """
    unknown = [symbol for symbol in symbols if symbol not in atomic_numbers or symbol == "X"]
    if unknown or len(set(symbols)) != len(symbols):
        raise CommandError(f"--types: expected different symbols of elements, found {','.join(symbols)}")
    missing = [symbol for symbol in system.elements if symbol not in symbols]
    if missing:
        raise CommandError(f"--types: expected all elements of the system, found no {', '.join(missing)}")
    return replace(system, type_order=tuple(symbols))


def assemble(
    edges: np.ndarray, solute: System | None, waters: np.ndarray, ions: dict[int, tuple[int, np.ndarray]]
) -> System:
    """Put solute, waters and ions into one system, in this order.

    Args:
        edges: [3], Å.
        solute: atoms in place (its own edges are ignored), or none.
        waters: [waters, 3, 3], Å: oxygen, hydrogen, hydrogen.
        ions: by atomic number: charge and positions [ions, 3], Å.
    """
    parts = [] if solute is None else [solute]
    next_molecule = 1 if solute is None else int(solute.molecules.max()) + 1
    num = len(waters)
    ids = np.arange(next_molecule, next_molecule + num, dtype=np.int32)
    parts.append(
        System(
            np.tile(np.array([8, 1, 1], np.uint8), num),
            waters.reshape(-1, 3),
            edges,
            np.repeat(ids, 3),
            np.full(3 * num, Kind.WATER, np.uint8),
            np.zeros(3 * num, np.int8),
        )
    )
    next_molecule += num
    for number, (charge, places) in ions.items():
        num = len(places)
        ids = np.arange(next_molecule, next_molecule + num, dtype=np.int32)
        kinds = np.full(num, Kind.ION, np.uint8)
        parts.append(System(np.full(num, number, np.uint8), places, edges, ids, kinds, np.full(num, charge, np.int8)))
        next_molecule += num
    names = ("numbers", "positions", "molecules", "kinds", "charges")
    numbers, positions, molecules, kinds, charges = (np.concatenate([getattr(p, n) for p in parts]) for n in names)
    labels = () if solute is None else solute.solute_labels
    return System(numbers, positions, np.asarray(edges, float), molecules, kinds, charges, labels)
