# SPDX-License-Identifier: MIT
"""Frames of a trajectory, one at a time: LAMMPS text dumps, and xyz or extxyz through ASE."""

import gzip
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from ase.data import atomic_numbers

from tessera.commands import CommandError

#: Names of a coordinate by what the dump wrote: Å, or parts of the box (`s`), wrapped or not (`u`).
COORDINATES = (("xu", "yu", "zu", False), ("x", "y", "z", False), ("xsu", "ysu", "zsu", True), ("xs", "ys", "zs", True))


@dataclass(frozen=True)
class Frame:
    """One moment.

    Attributes:
        numbers: [N], atomic numbers.
        positions: [N, 3], Å; rows keep their meaning from frame to frame (sorted by id where there are ids).
        cell: [3, 3], Å.
        periodic: by axis.
        step: the MD step, where the file says it.
    """

    numbers: np.ndarray
    positions: np.ndarray
    cell: np.ndarray
    periodic: tuple[bool, bool, bool]
    step: int | None = None


def read_frames(path: Path, elements: Sequence[str] | None, frames: slice = slice(None)) -> Iterator[Frame]:
    """Yield the frames that `frames` selects; memory holds one frame.

    Args:
        path: .xyz or .extxyz, else a LAMMPS dump in custom text style; .gz of it.
        elements: of the atom types 1, 2, ..., as in `pair_coeff`; needed for a dump without the column `element`.
        frames: start, stop and step, none negative.

    Raises:
        CommandError: the file is missing or malformed, elements are unknown, or atoms come and go.
    """
    if not path.is_file():
        raise CommandError(f"{path}: no such file; expected a LAMMPS dump (custom text), .xyz or .extxyz")
    is_xyz = path.name.removesuffix(".gz").endswith((".xyz", ".extxyz"))
    source = read_xyz(path) if is_xyz else read_dump(path, elements)
    first: Frame | None = None
    for frame in itertools.islice(source, frames.start, frames.stop, frames.step):
        first = first or frame
        if not np.array_equal(frame.numbers, first.numbers):
            raise CommandError(
                f"{path}, step {frame.step}: expected the {len(first.numbers)} atoms of the first frame with the same "
                f"elements, found {len(frame.numbers)}; dump with `id`, all atoms each time"
            )
        yield frame
    if first is None:
        raise CommandError(f"{path}: expected at least one frame in the selection, found none")


def read_xyz(path: Path) -> Iterator[Frame]:
    """Yield frames that ASE reads."""
    import ase.io  # noqa: PLC0415

    try:
        for atoms in ase.io.iread(path, index=":", format="extxyz"):
            periodic = tuple(bool(flag) for flag in atoms.pbc)
            cell = atoms.cell.complete().array if any(periodic) else np.eye(3)
            yield Frame(np.array(atoms.numbers), np.array(atoms.positions), cell, periodic)
    except (ValueError, KeyError, OSError, IndexError) as error:
        raise CommandError(f"{path}: not readable as xyz or extended XYZ ({error})") from error


def read_dump(path: Path, elements: Sequence[str] | None) -> Iterator[Frame]:
    """Yield frames of `dump custom` (text)."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        try:
            while (line := file.readline()).strip():
                if not line.startswith("ITEM: TIMESTEP"):
                    raise CommandError(f"{path}: expected 'ITEM: TIMESTEP', found '{line.strip()}'")
                yield read_dump_frame(file, path, elements)
        except (UnicodeDecodeError, ValueError, IndexError) as error:
            raise CommandError(f"{path}: not a LAMMPS dump in text style, or cut short ({error})") from error


def read_dump_frame(file: IO[str], path: Path, elements: Sequence[str] | None) -> Frame:
    """Read what follows `ITEM: TIMESTEP`."""
    step = int(file.readline())
    count, box, names = 0, None, []
    while not names:
        words = file.readline().split()
        if words[:2] == ["ITEM:", "NUMBER"]:
            count = int(file.readline())
        elif words[:3] == ["ITEM:", "BOX", "BOUNDS"]:
            box = read_box(words[3:], [[float(word) for word in file.readline().split()] for _ in range(3)], path)
        elif words[:2] == ["ITEM:", "ATOMS"]:
            names = words[2:]
        elif words[:2] in (["ITEM:", "UNITS"], ["ITEM:", "TIME"]):
            file.readline()
        else:
            raise CommandError(f"{path}, step {step}: expected a header of a dump, found '{' '.join(words)}'")
    if box is None:
        raise CommandError(f"{path}, step {step}: expected 'ITEM: BOX BOUNDS' before the atoms")
    cell, origin, periodic = box
    lines = list(itertools.islice(file, count))
    if len(lines) < count:
        raise CommandError(
            f"{path}, step {step}: expected {count} atoms, found {len(lines)}: the file was cut short; leave this "
            "frame out with --frames START:STOP"
        )
    positions = read_positions(lines, names, cell, origin, f"{path}, step {step}")
    numbers = read_numbers(lines, names, elements, f"{path}, step {step}")
    if "id" in names:
        order = np.argsort(np.loadtxt(lines, usecols=names.index("id"), dtype=np.int64, ndmin=1), kind="stable")
        numbers, positions = numbers[order], positions[order]
    return Frame(numbers, positions, cell, periodic, step)


def read_box(
    words: list[str], rows: list[list[float]], path: Path
) -> tuple[np.ndarray, np.ndarray, tuple[bool, bool, bool]]:
    """Cell, origin, periodic axes; the bounds of a tilted box enclose it (LAMMPS manual, Howto_triclinic)."""
    if words[:2] == ["abc", "origin"]:
        raise CommandError(
            f"{path}: expected a box of bounds and tilts, found 'abc origin'; dump without triclinic/general"
        )
    tilted = words[:3] == ["xy", "xz", "yz"]
    flags = words[3:] if tilted else words
    xy, xz, yz = (row[2] for row in rows) if tilted else (0.0, 0.0, 0.0)
    low, high = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    low -= (min(0.0, xy, xz, xy + xz), min(0.0, yz), 0.0)
    high -= (max(0.0, xy, xz, xy + xz), max(0.0, yz), 0.0)
    x, y, z = high - low
    periodic = tuple(flag == "pp" for flag in flags)
    if len(periodic) != 3:
        raise CommandError(f"{path}: expected three boundary flags in 'ITEM: BOX BOUNDS', found {flags}")
    return np.array([[x, 0, 0], [xy, y, 0], [xz, yz, z]]), low, periodic


def read_positions(lines: list[str], names: list[str], cell: np.ndarray, origin: np.ndarray, where: str) -> np.ndarray:
    """Read [N, 3], Å, relative to the corner of the box."""
    for *axes, scaled in COORDINATES:
        if set(axes) <= set(names):
            values = np.loadtxt(lines, usecols=[names.index(axis) for axis in axes], ndmin=2).reshape(-1, 3)
            return values @ cell if scaled else values - origin
    raise CommandError(f"{where}: expected columns x y z (or xu, xs, xsu, ...), found {' '.join(names)}")


def read_numbers(lines: list[str], names: list[str], elements: Sequence[str] | None, where: str) -> np.ndarray:
    """Atomic numbers [N]: from the column `element`, else from `type` and the elements of the types."""
    if elements is None and "element" in names:
        column = names.index("element")
        symbols = [line.split()[column] for line in lines]
    elif "type" in names and elements is not None:
        types = np.loadtxt(lines, usecols=names.index("type"), dtype=np.int64, ndmin=1)
        if len(types) and not (types.min() >= 1 and types.max() <= len(elements)):
            raise CommandError(
                f"{where}: expected types 1 to {len(elements)} (--elements), found {types.min()} to {types.max()}"
            )
        return np.array([number_of(symbol, where) for symbol in elements])[types - 1]
    else:
        raise CommandError(
            f"{where}: expected the column element, or type with --elements H,O,... (as in pair_coeff), found "
            f"{' '.join(names)}"
        )
    table = {symbol: number_of(symbol, where) for symbol in set(symbols)}
    return np.array([table[symbol] for symbol in symbols], np.int64)


def number_of(symbol: str, where: str) -> int:
    """Atomic number of a symbol."""
    if symbol not in atomic_numbers or symbol == "X":
        raise CommandError(f"{where}: expected an element's symbol, found '{symbol}'")
    return atomic_numbers[symbol]
