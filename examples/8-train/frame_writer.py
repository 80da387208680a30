# SPDX-License-Identifier: MIT
"""Labelled frames to extended XYZ with as many digits as the labels have."""

import gzip
from collections import Counter
from pathlib import Path

import numpy as np
from ase import Atoms


class FrameWriter:
    """Appends frames to a gzipped extended XYZ file.

    Attributes:
        split: written with every frame; `val` frames are held out (`data.split_key: split`).
        counts: frames by kind.
        num_atoms: written so far.
    """

    def __init__(self, path: Path) -> None:
        self._file = gzip.open(path, "wt", compresslevel=9)  # noqa: SIM115  (closed by close())
        self.split, self.counts, self.num_atoms = "train", Counter(), 0

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def add(self, atoms: Atoms, energy: float, forces: np.ndarray, stress: np.ndarray | None, **words: object) -> None:
        """Write one frame: eV, eV/Å, eV/Å³; `words` go into the comment line."""
        words = {"config_type": "", **words, "split": self.split, "charge": int(atoms.info["charge"])}
        comment = " ".join(f"{key}={value}" for key, value in words.items())
        periodic = " ".join("T" if axis else "F" for axis in atoms.pbc)
        cell = ""
        if stress is not None:
            lattice = " ".join(f"{value:.6f}" for value in atoms.cell.array.ravel())
            cell = f'Lattice="{lattice}" stress="{" ".join(f"{value:.7f}" for value in stress.ravel())}" '
        head = f'{cell}Properties=species:S:1:pos:R:3:forces:R:3 energy={energy:.6f} {comment} pbc="{periodic}"'
        rows = (
            f"{symbol} {x:.5f} {y:.5f} {z:.5f} {a:.4f} {b:.4f} {c:.4f}"
            for symbol, (x, y, z), (a, b, c) in zip(atoms.get_chemical_symbols(), atoms.positions, forces, strict=True)
        )
        self._file.write("\n".join([str(len(atoms)), head, *rows, ""]))
        self._file.flush()
        self.counts[words["config_type"]] += 1
        self.num_atoms += len(atoms)
