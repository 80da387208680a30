# SPDX-License-Identifier: MIT
"""Labelled structures, read from extended XYZ."""

import dataclasses
import gzip
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.geometry import complete_cell
from ase.io import iread

from tessera.train.errors import TrainError
from tessera.train.settings import DataSettings

GPA = 1.0 / 160.21766208
"""One GPa in eV/Å³."""
STRESS_UNITS = {"eV/A^3": 1.0, "GPa": GPA}


@dataclasses.dataclass(frozen=True)
class Frame:
    """One structure with its labels; N atoms."""

    source: str
    """File and place, for messages."""
    numbers: np.ndarray
    """int64 [N]."""
    positions: np.ndarray
    """float64 [N, 3], Å."""
    cell: np.ndarray
    """float64 [3, 3], Å, rows are lattice vectors; completed where an axis has none."""
    periodic: tuple[bool, bool, bool]
    charge: int
    multiplicity: int
    energy: float | None
    """eV."""
    forces: np.ndarray | None
    """[N, 3], eV/Å."""
    stress: np.ndarray | None
    """[3, 3], eV/Å³, dE/dstrain / volume (ASE's sign: a compressed system has negative diagonal entries)."""
    split: str | None
    """What the split key says."""
    kind: str | None = None
    """What the kind key says."""

    @property
    def volume(self) -> float:
        """Å³ of the cell; means something only where all axes are periodic."""
        return float(abs(np.linalg.det(self.cell)))


def read_frames(files: Sequence[Path], data: DataSettings) -> list[Frame]:
    """Read all frames of some files.

    Args:
        files: extended XYZ, plain or .gz.
        data: names of the labels, unit of stress.

    Raises:
        TrainError: a file is missing, unreadable or empty, or a label is malformed.
    """
    frames: list[Frame] = []
    for path in files:
        if not path.is_file():
            raise TrainError(f"expected an extended XYZ file at {path}, found none; correct data.files")
        count = len(frames)
        for place, atoms in enumerate(_read(path)):
            frames.append(_frame(atoms, f"{path}, frame {place}", data))
        if len(frames) == count:
            raise TrainError(f"expected frames in {path}, found none; give a file with structures")
    return frames


def _read(path: Path) -> Iterator[Atoms]:
    try:
        # ASE seeks from frame to frame, and each step back in a compressed file starts over.
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        yield from iread(io.StringIO(text.decode()), index=":", format="extxyz")
    except TrainError:
        raise
    except Exception as error:  # ASE raises many kinds for malformed text
        raise TrainError(f"expected extended XYZ in {path}, found text that ASE refuses: {error}") from error


def _frame(atoms: Atoms, source: str, data: DataSettings) -> Frame:
    energy = _label(atoms, data.energy_key, atoms.info)
    forces = _label(atoms, data.forces_key, atoms.arrays)
    stress = _label(atoms, data.stress_key, atoms.info)
    if energy is None and forces is None:
        known = sorted({*atoms.info, *atoms.arrays, *(atoms.calc.results if atoms.calc else ())})
        raise TrainError(
            f"{source}: expected '{data.energy_key}' or '{data.forces_key}', found {', '.join(known)}; "
            "set data.energy_key and data.forces_key"
        )
    try:
        frame = Frame(
            source=source,
            numbers=atoms.numbers.astype(np.int64),
            positions=np.array(atoms.positions, dtype=np.float64),
            cell=np.array(complete_cell(atoms.cell), dtype=np.float64),
            periodic=tuple(bool(axis) for axis in atoms.pbc),
            charge=_integer(atoms.info.get("charge", 0), "charge", source),
            multiplicity=_integer(atoms.info.get("spin", 1), "spin", source),
            energy=None if energy is None else float(energy),
            forces=None if forces is None else np.array(forces, dtype=np.float64).reshape(len(atoms), 3),
            stress=None if stress is None else _stress(stress, source) * STRESS_UNITS[data.stress_unit],
            split=None if data.split_key is None else str(atoms.info.get(data.split_key)),
            kind=None if data.kind_key is None else str(atoms.info.get(data.kind_key)),
        )
    except (TypeError, ValueError) as error:
        if isinstance(error, TrainError):
            raise
        raise TrainError(f"{source}: expected numbers as labels, forces [atoms, 3]; {error}") from error
    return _checked(frame)


def _label(atoms: Atoms, key: str, where: dict[str, Any]) -> Any:
    """Return a label; ASE moves those with its own names to a calculator."""
    if key in where:
        return where[key]
    return atoms.calc.results.get(key) if atoms.calc is not None else None


def _integer(value: Any, name: str, source: str) -> int:
    if float(value) != int(value):
        raise TrainError(f"{source}: expected an integer {name}, found {value}; correct the file")
    return int(value)


def _stress(found: Any, source: str) -> np.ndarray:
    """3x3, nine numbers, or six in Voigt order (xx yy zz yz xz xy)."""
    stress = np.array(found, dtype=np.float64)
    if stress.size == 6:
        xx, yy, zz, yz, xz, xy = stress.ravel()
        return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    if stress.size != 9:
        raise TrainError(f"{source}: expected 6 or 9 numbers of stress, found {stress.size}; correct the file")
    return stress.reshape(3, 3)


def _checked(frame: Frame) -> Frame:
    for name in ("positions", "energy", "forces", "stress"):
        values = getattr(frame, name)
        if values is not None and not np.isfinite(values).all():
            raise TrainError(f"{frame.source}: expected finite {name}, found numbers that are not; remove the frame")
    if len(frame.numbers) == 0:
        raise TrainError(f"{frame.source}: expected atoms, found none; remove the frame")
    if frame.stress is not None and not all(frame.periodic):
        raise TrainError(
            f"{frame.source}: expected stress only where all three axes are periodic, found pbc {frame.periodic}; "
            "remove the label"
        )
    return frame
