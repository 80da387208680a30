# SPDX-License-Identifier: MIT
"""Named hard systems and the engine on virtual ranks, for the tests of many ranks."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import molecule
from ase.io import read

from tessera import _C

ROOT = Path(__file__).resolve().parents[1]
WATER_216 = ROOT / "examples" / "2-water" / "water216.data"


def water_216() -> Atoms:
    atoms = read(WATER_216, format="lammps-data", units="metal", atom_style="atomic")
    atoms.set_chemical_symbols(["H" if z == 1 else "O" for z in atoms.arrays["type"]])
    atoms.pbc = True
    return atoms


def tilted() -> Atoms:
    """The same water in a sheared cell, carried along with it."""
    atoms = water_216()
    cell = atoms.cell.array.copy()
    cell[1, 0], cell[2, 0], cell[2, 1] = 4.1, -2.3, 3.7
    atoms.set_cell(cell, scale_atoms=True)
    return atoms


def slab() -> Atoms:
    atoms = water_216()
    atoms.pbc = [True, True, False]
    return atoms


def droplet() -> Atoms:
    """100 molecules around the middle of a box of 120 Å: most of the curve is empty."""
    atoms = water_216()
    centre = atoms.cell.array.sum(0) / 2
    oxygen = np.flatnonzero(atoms.numbers == 8)
    near = oxygen[np.argsort(np.linalg.norm(atoms.positions[oxygen] - centre, axis=1))[:100]]
    keep = np.concatenate([near, near + 1, near + 2])
    drop = atoms[np.sort(keep)]
    drop.set_cell([120.0, 120.0, 120.0])
    drop.positions += 60 - centre
    return drop


def five_atoms() -> Atoms:
    return Atoms("OHHOH", positions=[[1, 1, 1], [1.9, 1, 1], [1, 2, 1], [3.4, 1.2, 1.1], [9, 9, 9]],
                 cell=[10, 10, 10], pbc=True)  # fmt: skip


def corner() -> Atoms:
    """60 atoms within 6 Å of a corner of a box of 60 Å, on both sides of its faces."""
    atoms = water_216()[:60]
    atoms.positions = (atoms.positions - atoms.positions.mean(0)) * 0.5
    atoms.set_cell([60.0, 60.0, 60.0])
    return spread_apart(atoms)


def spread_apart(atoms: Atoms, least: float = 0.8) -> Atoms:
    """Push atoms that are closer than `least` (Å) apart, deterministically."""
    for _ in range(200):
        vectors = atoms.get_all_distances(mic=True, vector=True)
        distances = np.linalg.norm(vectors, axis=2) + 1e3 * np.eye(len(atoms))
        close = distances < least
        if not close.any():
            break
        push = np.where(close, (least * 1.05 - distances) / 2, 0.0) / distances
        atoms.positions -= (vectors * push[:, :, None]).sum(1)
    return atoms


def on_faces() -> Atoms:
    """Atoms exactly on the box faces and on coarse cell boundaries of the curve, in one coordinate each.

    The other two are off the lattice: in a perfect one equal scores tie, and the exact maximum has a kink there.
    """
    rng = np.random.default_rng(11)
    grid = np.stack(np.meshgrid(*[np.arange(6) * 2.0] * 3, indexing="ij"), -1).reshape(-1, 3)
    jitter = rng.uniform(-0.3, 0.3, grid.shape)
    jitter[np.arange(len(grid)), np.arange(len(grid)) % 3] = 0.0
    symbols = [["O", "H", "C"][k] for k in rng.integers(0, 3, len(grid))]
    return Atoms(symbols, positions=grid + jitter, cell=[12.0, 12.0, 12.0], pbc=True)


def small_cell() -> Atoms:
    """One molecule in a cell of 3.2 Å: every atom sees several images of every atom."""
    atoms = molecule("H2O")
    atoms.rattle(0.05, seed=1)
    atoms.set_cell([3.2, 3.3, 3.4])
    atoms.pbc = True
    return atoms


def dense_beside_water() -> Atoms:
    """Carbon and hydrogen twice as dense as the water beside them, so that edges are uneven."""
    atoms = water_216()
    rng = np.random.default_rng(3)
    grid = np.stack(np.meshgrid(*[np.arange(10)] * 3, indexing="ij"), -1).reshape(-1, 3)
    grid = (grid + 0.5) * 18.64 / 10 * np.array([0.5, 1, 1]) + np.array([19.5, 0, 0])
    dense = Atoms(["C" if k % 2 else "H" for k in range(1000)], positions=grid + rng.uniform(-0.1, 0.1, grid.shape))
    joined = atoms + dense
    joined.set_cell([30.0, 18.64, 18.64])
    joined.pbc = True
    return joined


SYSTEMS = {
    "W216": water_216,
    "tilted": tilted,
    "slab p p f": slab,
    "droplet in a large box": droplet,
    "5 atoms": five_atoms,
    "all in one corner": corner,
    "atoms on faces": on_faces,
    "cell smaller than the cutoff": small_cell,
    "dense beside water": dense_beside_water,
}


@dataclass
class RanksResult:
    """What many ranks say together: sums of shares, values by atom."""

    energy: np.ndarray
    forces: np.ndarray
    energies: np.ndarray
    virial: np.ndarray
    atom_virials: np.ndarray
    reports: list[dict] = field(default_factory=list)
    load: str = ""


def run_ranks(path: Path, num_ranks: int, frames: list[Atoms], *, seed: int = 0, migrate: bool = False,
              **options: object) -> RanksResult:  # fmt: skip
    """Compute `frames` in turn on virtual ranks; callers hold random atoms, others in each frame if `migrate`."""
    rng = np.random.default_rng(seed)
    first = frames[0]
    elements = {"H": 0, "C": 1, "O": 2}
    owners = rng.integers(0, num_ranks, (len(frames) if migrate else 1, len(first)))
    out = _C.compute_on_virtual_ranks(
        str(path),
        num_ranks,
        positions=np.array([frame.positions for frame in frames]),
        owners=np.broadcast_to(owners, (len(frames), len(first))).astype(np.int32),
        elements=np.array([elements[s] for s in first.symbols], dtype=np.int32),
        cells=[frame.cell.array.tolist() for frame in frames],
        periodic=[bool(p) for p in first.pbc],
        **options,
    )
    shape = (len(frames), len(first))
    return RanksResult(
        energy=np.array(out["energy"]).sum(1),
        forces=out["forces"].reshape(*shape, 3),
        energies=out["energies"].reshape(shape),
        virial=np.array(out["virial"]).sum(1),
        atom_virials=out["virials"].reshape(*shape, 3, 3),
        reports=out["reports"],
        load=out["load"],
    )
