# SPDX-License-Identifier: MIT
"""Small periodic water boxes, and how they look to LAMMPS."""

from pathlib import Path

import numpy as np
from ase import Atoms

O_H = 0.97  # Å
HALF_ANGLE = np.deg2rad(52.0)
SPACING = 3.1  # Å a molecule: the density of water
MASSES = {"H": 1.008, "O": 15.999}


def water(shape: tuple[int, int, int], seed: int, *, tilt: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Atoms:
    """Waters on a rattled grid in a box with LAMMPS's tilt factors xy, xz, yz (Å); turned at random."""
    rng = np.random.default_rng(seed)
    lengths = SPACING * np.array(shape)
    cell = np.diag(lengths)
    cell[1, 0], cell[2, 0], cell[2, 1] = tilt
    positions = []
    for corner in np.ndindex(*shape):
        oxygen = (np.array(corner) + 0.5) / np.array(shape) @ cell + rng.uniform(-0.15, 0.15, 3)
        frame = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        along, across = O_H * np.cos(HALF_ANGLE) * frame[0], O_H * np.sin(HALF_ANGLE) * frame[1]
        positions += [oxygen, oxygen + along + across, oxygen + along - across]
    return Atoms("OH2" * int(np.prod(shape)), positions=positions, cell=cell, pbc=True)


#: Named boxes. The demo model sees 4.5 and 6.0 Å, so in `multi_image` atoms see several images of their neighbours.
SYSTEMS = {
    "orthogonal": lambda: water((3, 2, 3), seed=1),
    "triclinic": lambda: water((2, 3, 2), seed=2, tilt=(1.9, -1.3, 2.2)),
    "multi_image": lambda: water((1, 2, 2), seed=4),
}

#: The cheapest box in which molecules are not their own neighbours at 4.5 Å, for runs of many steps.
SMALL = water((2, 2, 2), seed=5)


def write_data(
    path: Path,
    atoms: Atoms,
    types: list[str],
    *,
    masses: dict[str, float] | None = None,
    type_of_atom: list[int] | None = None,
    tilted: bool | None = None,
) -> Path:
    """Write a LAMMPS data file, atom_style atomic; ids are shuffled so that order and id never coincide.

    Args:
        types: element of each LAMMPS type; an atom gets the first type of its element unless `type_of_atom` says more.
        tilted: write tilt factors; default: if the cell has any.
    """
    cell = atoms.cell.array
    assert np.allclose(cell, np.tril(cell)), "expected a cell in LAMMPS's orientation"
    tilts = (cell[1, 0].item(), cell[2, 0].item(), cell[2, 1].item())
    masses = masses or MASSES
    type_of_atom = type_of_atom or [types.index(symbol) + 1 for symbol in atoms.symbols]
    lines = ["water", "", f"{len(atoms)} atoms", f"{len(types)} atom types", ""]
    lines += [f"0.0 {cell[k, k].item()!r} {axis}lo {axis}hi" for k, axis in enumerate("xyz")]
    if any(tilts) if tilted is None else tilted:
        lines.append(f"{tilts[0]!r} {tilts[1]!r} {tilts[2]!r} xy xz yz")
    lines += ["", "Masses", "", *(f"{k + 1} {masses[name]}" for k, name in enumerate(types))]
    lines += ["", "Atoms # atomic", ""]
    ids = atom_ids(atoms)
    for k, position in enumerate(atoms.positions):
        lines.append(f"{ids[k]} {type_of_atom[k]} " + " ".join(f"{x!r}" for x in position.tolist()))
    path.write_text("\n".join(lines) + "\n")
    return path


def atom_ids(atoms: Atoms) -> np.ndarray:
    """The id that write_data() gives each atom."""
    return np.random.default_rng(len(atoms)).permutation(len(atoms)) + 1


def in_atom_order(atoms: Atoms, by_id: np.ndarray) -> np.ndarray:
    """Rows sorted by id (a dump) in the order of `atoms`."""
    return by_id[atom_ids(atoms) - 1]
