# SPDX-License-Identifier: MIT
"""Structures for `tessera plan`: read from a file, or water of any size."""

import gzip
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tessera.commands import CommandError

#: Atoms per Å^3 of liquid water.
WATER_DENSITY = 0.1
#: Å, standard deviation by which tiled atoms are displaced, so that no tile repeats another.
WATER_JITTER = 0.3
#: Å, an O-H vector along and across the molecule's axis (gas phase: 0.957 Å, 104.5 degrees).
OH_ALONG, OH_ACROSS = 0.586, 0.757
#: Column of x in the Atoms section by the number of columns: atomic, charge or molecular, full; then with image flags.
X_COLUMN = {5: 2, 6: 3, 7: 4, 8: 2, 9: 3, 10: 4}


@dataclass(frozen=True)
class Structure:
    """Where the atoms are; nothing else decides a cut.

    Attributes:
        positions: [atoms, 3], Å.
        cell: [3, 3], rows are lattice vectors, Å.
        origin: [3], corner of the cell, Å.
        periodic: by axis.
    """

    positions: np.ndarray
    cell: np.ndarray
    origin: np.ndarray
    periodic: tuple[bool, bool, bool]


def read_structure(path: Path) -> Structure:
    """Read a LAMMPS data file (.data, .data.gz; units metal or real) or the last frame of an .extxyz file.

    Raises:
        CommandError: the file is missing, of another kind, or malformed.
    """
    if not path.is_file():
        raise CommandError(f"{path}: no such file; expected a structure (.data, .data.gz, .extxyz) or --water COUNT")
    name = path.name.removesuffix(".gz")
    if name.endswith((".extxyz", ".xyz")):
        return read_extxyz(path)
    if name.endswith((".data", ".lmp")) or name.startswith("data."):
        return read_lammps_data(path)
    raise CommandError(f"{path}: expected a file named *.data, *.data.gz or *.extxyz, found '{path.name}'")


def read_extxyz(path: Path) -> Structure:
    """Read the last frame's positions, lattice and pbc."""
    import ase.io  # noqa: PLC0415

    try:
        atoms = ase.io.read(path, format="extxyz")
    except Exception as error:
        raise CommandError(f"{path}: not readable as extended XYZ ({error})") from error
    periodic = tuple(bool(flag) for flag in atoms.pbc)
    cell = np.array(atoms.cell)
    if any(periodic) and abs(np.linalg.det(cell)) < 1e-12:
        raise CommandError(f"{path}: periodic along {periodic}, but its Lattice has no volume; add the three vectors")
    return Structure(np.array(atoms.positions), atoms.cell.complete().array, np.zeros(3), periodic)


def read_lammps_data(path: Path) -> Structure:
    """Read positions and box; the column of x follows from the number of columns, so no atom_style is needed."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        lines = iter(file)
        header = read_header(lines, path)
        rows = [line for line in itertools.islice(lines, header["atoms"] + 1) if line.strip()]
        rows = rows[: header["atoms"]]
    num_columns = len(rows[0].split("#")[0].split()) if rows else 0
    if len(rows) != header["atoms"] or num_columns not in X_COLUMN:
        raise CommandError(
            f"{path}: expected {header['atoms']} lines of 5 to 10 columns in the section Atoms, found {len(rows)} of "
            f"{num_columns}; atom styles atomic, charge, molecular and full are known"
        )
    first = X_COLUMN[num_columns]
    try:
        positions = np.loadtxt(rows, usecols=(first, first + 1, first + 2), ndmin=2)
    except ValueError as error:
        raise CommandError(f"{path}: the section Atoms is malformed ({error})") from error
    (xlo, xhi), (ylo, yhi), (zlo, zhi) = (header[axis] for axis in "xyz")
    xy, xz, yz = header["tilt"]
    cell = np.array([[xhi - xlo, 0, 0], [xy, yhi - ylo, 0], [xz, yz, zhi - zlo]])
    return Structure(positions, cell, np.array([xlo, ylo, zlo]), (True, True, True))


def read_header(lines: Iterator[str], path: Path) -> dict[str, Any]:
    """Read up to the section Atoms: `atoms`, the bounds `x`, `y`, `z`, and `tilt`."""
    header: dict[str, Any] = {"tilt": (0.0, 0.0, 0.0)}
    try:
        for line in lines:
            words = line.split("#")[0].split()
            if words[:1] == ["Atoms"]:
                break
            if words[1:] == ["atoms"]:
                header["atoms"] = int(words[0])
            elif words[3:] == ["xy", "xz", "yz"]:
                header["tilt"] = tuple(float(word) for word in words[:3])
            elif words[2:] in (["xlo", "xhi"], ["ylo", "yhi"], ["zlo", "zhi"]):
                header[words[2][0]] = (float(words[0]), float(words[1]))
    except ValueError as error:
        raise CommandError(f"{path}: not a LAMMPS data file ({error})") from error
    missing = [key for key in ("atoms", "x", "y", "z") if key not in header]
    if missing:
        raise CommandError(f"{path}: not a LAMMPS data file: no line for {', '.join(missing)} before the section Atoms")
    return header


def make_water(count: float, seed: int = 1) -> Structure:
    """Fill a periodic cube with water at 0.1 atoms/Å^3: a whole number of tiles, as near to `count` atoms as it goes.

    Every copy of the tile is shifted within itself by a random vector and every atom is displaced, so that no two
    regions are alike. Good for counting neighbors, not for dynamics.

    Raises:
        CommandError: `count` is less than one tile.
    """
    random = np.random.default_rng(seed)
    tile = make_water_tile(random)
    edge, per_tile = float(tile.cell[0, 0]), len(tile.positions)
    if not count >= per_tile:
        raise CommandError(f"--water {count:g}: expected at least {per_tile} atoms, one tile of water")
    num_tiles = round((count / per_tile) ** (1 / 3))
    positions = np.empty((num_tiles**3, per_tile, 3))
    for n, corner in enumerate(itertools.product(range(num_tiles), repeat=3)):
        shifted = (tile.positions + random.uniform(0, edge, 3)) % edge
        positions[n] = np.array(corner) * edge + shifted + random.normal(0, WATER_JITTER, (per_tile, 3))
    cell = np.eye(3) * (num_tiles * edge)
    return Structure(positions.reshape(-1, 3), cell, np.zeros(3), (True, True, True))


def make_water_tile(random: np.random.Generator) -> Structure:
    """Make a periodic cube of 216 rigid waters of random orientation, 648 atoms."""
    edge = (648 / WATER_DENSITY) ** (1 / 3)
    sites = (np.array(list(itertools.product(range(6), repeat=3))) + 0.5) * (edge / 6)
    sites = sites + random.normal(0, WATER_JITTER, sites.shape)
    axis, other = random.normal(size=(2, 216, 3))
    axis = axis / np.linalg.norm(axis, axis=1, keepdims=True)
    other = np.cross(axis, other)
    other = other / np.linalg.norm(other, axis=1, keepdims=True)
    along, across = OH_ALONG * axis, OH_ACROSS * other
    positions = np.stack([sites, sites + along + across, sites + along - across], axis=1).reshape(-1, 3)
    return Structure(positions, np.eye(3) * edge, np.zeros(3), (True, True, True))
