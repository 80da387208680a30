# SPDX-License-Identifier: MIT
"""Solutes from files: PDB here, mmCIF in :mod:`tessera.build.read_mmcif`; `.gz` of either."""

import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from tessera.build.molecule import AtomRecord, Molecule, make_molecule
from tessera.build.read_mmcif import read_mmcif
from tessera.commands import CommandError


def read_molecule(path: Path) -> Molecule:
    """Read the first model of a PDB (.pdb, .ent) or mmCIF (.cif, .mmcif) file, `.gz` or not.

    Waters are left out (builders add water of their own), of alternate locations the first is kept.

    Raises:
        CommandError: the file is missing, of another kind or malformed.
    """
    if not path.is_file():
        raise CommandError(f"{path}: no such file; expected a structure (.pdb, .cif, or .gz of them)")
    name = path.name.removesuffix(".gz").lower()
    readers = {"pdb": read_pdb, "ent": read_pdb, "cif": read_mmcif, "mmcif": read_mmcif}
    reader = readers.get(name.rpartition(".")[2])
    if reader is None:
        raise CommandError(f"{path}: expected a file named *.pdb, *.ent, *.cif or *.mmcif, found '{path.name}'")
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            return make_molecule(*reader(file, path), path)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise CommandError(f"{path}: not readable ({error})") from error


def read_pdb(lines: Iterable[str], path: Path) -> tuple[list[AtomRecord], list[np.ndarray]]:
    """Read atoms of the first model and the BIOMT operators of remark 350 (wwPDB format, version 3.30).

    Returns:
        Atoms in file order; operators [3, 4] of the first biological assembly.
    """
    records: list[AtomRecord] = []
    operator_rows: list[list[float]] = []
    assemblies = 0
    for number, line in numbered(lines):
        try:
            if line.startswith(("ATOM  ", "HETATM")):
                records.append(parse_atom(line))
            elif line.startswith("REMARK 350 BIOMOLECULE:"):
                assemblies += 1
            elif line.startswith("REMARK 350   BIOMT") and assemblies <= 1:
                operator_rows.append([float(word) for word in line[23:].split()])
        except ValueError as error:
            raise CommandError(
                f"{path}, line {number}: expected a PDB record, found '{line.rstrip()}' ({error})"
            ) from error
        if line.startswith("ENDMDL"):
            break
    if len(operator_rows) % 3 or any(len(row) != 4 for row in operator_rows):
        raise CommandError(f"{path}: expected three BIOMT lines of four numbers for each operator in remark 350")
    return records, [np.array(operator_rows[k : k + 3]) for k in range(0, len(operator_rows), 3)]


def numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Count lines from 1, as editors do."""
    yield from enumerate(lines, 1)


def parse_atom(line: str) -> AtomRecord:
    """Read the fixed columns of ATOM and HETATM."""
    return AtomRecord(
        name=line[12:16].strip(),
        residue_name=line[17:21].strip(),
        chain=line[21].strip(),
        residue=line[22:27].strip(),
        element=line[76:78].strip().strip("+-0123456789"),
        alternate=line[16].strip(),
        position=(float(line[30:38]), float(line[38:46]), float(line[46:54])),
    )
