# SPDX-License-Identifier: MIT
"""A solute as a file describes it: atoms, residues, chains and the operators of its assembly."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase.data import atomic_numbers

from tessera.commands import CommandError

#: Names of water residues.
WATER_NAMES = frozenset({"HOH", "WAT", "H2O", "DOD", "TIP", "TIP3", "TP3", "SOL", "SPC"})
#: By residue and atom name alike: ions of one atom, charge.
ION_CHARGES = {"K": 1, "NA": 1, "CL": -1, "LI": 1, "RB": 1, "CS": 1, "MG": 2, "CA": 2, "ZN": 2, "BR": -1, "F": -1}


@dataclass(frozen=True)
class Molecule:
    """Atoms of a solute.

    Attributes:
        numbers: [N], atomic numbers.
        positions: [N, 3], Å.
        atom_names: [N], such as `CA`.
        residues: [N], index of each atom's residue, ascending from 0.
        residue_names: [residues], such as `ALA`.
        residue_labels: [residues], such as `ALA 14 of chain A`.
        chains: [N], index of each atom's chain, ascending from 0.
        operators: [K, 3, 4], rotation and translation (Å) of each copy in the assembly; one identity if none is stated.
        num_waters: waters of the file, left out here.
    """

    numbers: np.ndarray
    positions: np.ndarray
    atom_names: tuple[str, ...]
    residues: np.ndarray
    residue_names: tuple[str, ...]
    residue_labels: tuple[str, ...]
    chains: np.ndarray
    operators: np.ndarray
    num_waters: int = 0

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of each atom, such as `CA of ALA 14 of chain A`."""
        pairs = zip(self.atom_names, self.residues.tolist(), strict=True)
        return tuple(f"{name} of {self.residue_labels[residue]}" for name, residue in pairs)


@dataclass(frozen=True)
class AtomRecord:
    """One atom of a file, PDB or mmCIF; `residue` tells residues of one name apart."""

    name: str
    residue_name: str
    chain: str
    residue: str
    element: str
    alternate: str
    position: tuple[float, float, float]


def make_molecule(records: list[AtomRecord], operators: list[np.ndarray], path: Path) -> Molecule:
    """Sort out waters and alternate places: of each residue the first alternate location is kept.

    Raises:
        CommandError: no atom is left, or an element is unknown.
    """
    kept: list[AtomRecord] = []
    residues, chains, names, labels = [], [], [], []
    waters, last, last_chain, alternate = set(), None, None, ""
    for record in records:
        key = (record.chain, record.residue, record.residue_name)
        if record.residue_name in WATER_NAMES:
            waters.add(key)
            continue
        if key != last:
            last, alternate = key, ""
            names.append(record.residue_name)
            labels.append(f"{record.residue_name} {record.residue} of chain {record.chain}")
        alternate = alternate or record.alternate
        if record.alternate not in ("", alternate):
            continue
        chains.append(chains[-1] + (record.chain != last_chain) if chains else 0)
        last_chain = record.chain
        residues.append(len(names) - 1)
        kept.append(record)
    if not kept:
        raise CommandError(f"{path}: expected atoms of a solute, found none ({len(waters)} waters)")
    return Molecule(
        np.array([element_number(record, path) for record in kept], np.uint8),
        np.array([record.position for record in kept]),
        tuple(record.name for record in kept),
        np.array(residues),
        tuple(names),
        tuple(labels),
        np.array(chains),
        np.array(operators) if operators else np.eye(3, 4)[None],
        len(waters),
    )


def element_number(record: AtomRecord, path: Path) -> int:
    """Atomic number: from the element's field, or else from the atom's name (`CA` is calcium only in residue CA)."""
    symbol = record.element.capitalize()
    if not symbol:
        bare = record.name.lstrip("0123456789").rstrip("+-")
        symbol = bare.capitalize() if bare.upper() == record.residue_name.strip("+-") else bare[:1].upper()
    symbol = "H" if symbol == "D" else symbol
    if symbol not in atomic_numbers or symbol == "X":
        raise CommandError(
            f"{path}: expected the element of atom {record.name} of {record.residue_name} {record.residue}, found "
            f"'{record.element}'; fill columns 77-78 of its line (mmCIF: type_symbol)"
        )
    return atomic_numbers[symbol]
