# SPDX-License-Identifier: MIT
"""Write a system as a LAMMPS data file or as extended XYZ, in chunks."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np
from ase.data import atomic_masses, atomic_numbers, chemical_symbols
from tqdm import tqdm

from tessera.build.system import System
from tessera.commands import CommandError

STYLES = ("atomic", "full")
#: Atoms formatted at once.
CHUNK = 100_000


def writer_of(path: Path, style: str) -> Callable[[System, str, IO[str]], None]:
    """Choose the format by the name: .data and .lmp, or .extxyz and .xyz; each may end with .gz.

    Raises:
        CommandError: the name ends otherwise, or its folder does not exist.
    """
    name = path.name.removesuffix(".gz")
    if not path.parent.is_dir():
        raise CommandError(f"{path}: expected an existing folder, found none at {path.parent}")
    if name.endswith((".extxyz", ".xyz")):
        return write_extxyz
    if name.endswith((".data", ".lmp")):
        return lambda system, title, file: write_data(system, title, file, style)
    raise CommandError(
        f"{path}: expected a name *.data, *.lmp, *.extxyz or *.xyz (or .gz of them), found '{path.name}'"
    )


def write(system: System, title: str, path: Path, style: str) -> None:
    """Write one file; `style` is that of a data file.

    Raises:
        CommandError: the name's ending is unknown, or the file cannot be written.
    """
    writer = writer_of(path, style)
    try:
        if path.suffix == ".gz":
            with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:  # same bytes each time
                writer(system, title, TextSink(packed))
        else:
            with path.open("w") as file:
                writer(system, title, file)
    except OSError as error:
        raise CommandError(f"{path}: cannot be written ({error})") from error


class TextSink:
    """The part of a text file that the writers use, over a binary one."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Encode and pass on."""
        self._file.write(text.encode())


def write_data(system: System, title: str, file: IO[str], style: str) -> None:
    """Write a LAMMPS data file, units metal.

    `full` has molecules and formal charges (which Tessera does not read) but no bonds: bonds are the model's business.
    """
    elements = system.elements
    file.write(f"{title}; pair_coeff elements: {' '.join(elements)}\n\n")
    file.write(f"{len(system.numbers)} atoms\n{len(elements)} atom types\n\n")
    for axis, edge in zip("xyz", system.edges, strict=True):
        file.write(f"0.0 {edge:.6f} {axis}lo {axis}hi\n")
    file.write("\nMasses\n\n")
    for number, symbol in enumerate(elements, 1):
        file.write(f"{number} {atomic_masses[atomic_numbers[symbol]]:.4f}  # {symbol}\n")
    file.write(f"\nAtoms # {style}\n\n")
    types = system.types
    for rows, positions in chunks(system):
        ids = np.arange(rows.start + 1, rows.start + 1 + len(positions))
        columns = (
            [ids, types[rows]]
            if style == "atomic"
            else [ids, system.molecules[rows], types[rows], system.charges[rows]]
        )
        line = " ".join(["%d"] * len(columns) + ["%.5f"] * 3) + "\n"
        file.write(format_rows(line, columns, positions))


def write_extxyz(system: System, title: str, file: IO[str]) -> None:
    """Write extended XYZ: species, positions (Å), molecule, and formal charge."""
    lattice = " ".join(f"{value:.6f}" for value in system.cell.ravel())
    file.write(
        f'{len(system.numbers)}\nLattice="{lattice}" Properties=species:S:1:pos:R:3:molecule:I:1:formal_charge:I:1 '
    )
    file.write(f'pbc="T T T" title="{title}"\n')
    symbols = np.array(chemical_symbols)
    for rows, positions in chunks(system):
        columns = [symbols[system.numbers[rows]], *positions.T, system.molecules[rows], system.charges[rows]]
        line = "%s %.5f %.5f %.5f %d %d\n"
        file.write(line * len(positions) % tuple(interleave(columns)))


def chunks(system: System) -> Iterator[tuple[slice, np.ndarray]]:
    """Slices of atoms with their positions in the box, rounded as they are written so that none lands on the edge."""
    for start in tqdm(range(0, len(system.numbers), CHUNK), desc="write", leave=False, disable=None):
        rows = slice(start, start + CHUNK)
        positions = np.round(system.wrapped(rows), 5)
        yield rows, np.where(positions >= system.edges - 5e-6, 0.0, positions)


def format_rows(line: str, columns: list[np.ndarray], positions: np.ndarray) -> str:
    """One formatted line an atom."""
    return line * len(positions) % tuple(interleave([*columns, *positions.T]))


def interleave(columns: list[np.ndarray]) -> list:
    """Values row after row."""
    values: list = [None] * (len(columns) * len(columns[0]))
    for k, column in enumerate(columns):
        values[k :: len(columns)] = column.tolist()
    return values
