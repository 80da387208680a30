# SPDX-License-Identifier: MIT
"""Structures that a small model must know, labelled by a larger one: short contacts, strain, peptides, sulfur, boxes.

    pip install torch==2.13.0 so3krates-torch==0.2.1 openmm==8.6.1 pdbfixer==1.12.0 scipy    # none is needed by Tessera
    python make_frames.py --output frames.extxyz.gz --minutes 45 --seed 11

The teacher is SO3LR (MIT licence, inside the wheel of so3krates-torch) for all elements but potassium, plus a classical
K+: 12-6 terms and a damped Coulomb sum on the charges of the AMBER14 force field, which also samples the start
structures (OpenMM). Snapshots come from short Langevin runs with the teacher. Energies in eV with an offset of about
-165 eV an atom, forces in eV/Å, stress in eV/Å³ (ASE's sign). A tenth of the blocks (one start structure each) is held
out as `split=val`. Frames with a force above 40 eV/Å are dropped.
"""

import argparse
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import frame_writer
import molecules
import numpy as np
from ase import Atoms
from matscipy.neighbours import neighbour_list
from scipy.special import erfc
from so3krates_torch.calculator.so3 import SO3LRCalculator

LARGEST_FORCE = 40.0
"""eV/Å; structures beyond teach little but steepness."""
COULOMB = 14.399645
"""eV Å of two unit charges."""
BOLTZMANN = 8.617333e-5
"""eV/K."""
ACCELERATION = 9.648533e-3
"""Å/fs² of 1 eV/Å on 1 u."""
DAMPING, REACH = 0.15, 12.0
"""Of the classical K+: 1/Å and Å."""
warnings.filterwarnings("ignore")  # of the teacher's package, one a call


class Teacher:
    """SO3LR without the K+, and a classical K+ in front of it."""

    def __init__(self) -> None:
        self._calculator = SO3LRCalculator(default_dtype="float32", compute_stress=True, r_max_lr=REACH)

    def label(self, atoms: Atoms, parameters: np.ndarray) -> tuple[float, np.ndarray, np.ndarray | None]:
        """Return energy (eV), forces (eV/Å) and stress (eV/Å³, None without a periodic cell).

        Args:
            atoms: with `info["charge"]`.
            parameters: [N, 3], charge (e), sigma (Å), epsilon (eV) of each atom in the classical force field.
        """
        ions = atoms.numbers == 19
        rest = atoms[~ions]
        rest.info = {"charge": int(atoms.info["charge"]) - int(ions.sum())}
        rest.calc = self._calculator
        forces, periodic = np.zeros((len(atoms), 3)), atoms.pbc.any()
        energy, strain = self._ions(atoms, ions, parameters, forces)
        stress = strain / atoms.get_volume() if periodic else None
        if len(rest):
            energy += float(rest.get_potential_energy())
            forces[~ions] += rest.get_forces()
            if periodic:
                stress += rest.get_stress(voigt=False)
        return energy, forces, stress

    def _ions(
        self, atoms: Atoms, ions: np.ndarray, parameters: np.ndarray, forces: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """K+ with everything, shifted so that energy and force vanish at REACH; adds to `forces`."""
        if not ions.any():
            return 0.0, np.zeros((3, 3))
        i, j, vector, r = neighbour_list("ijDd", _boxed(atoms), REACH)
        own = ions[i]
        i, j, vector, r = i[own], j[own], vector[own], r[own]
        share = np.where(ions[j], 0.5, 1.0)  # pairs of two ions come twice
        charge, sigma, epsilon = parameters.T
        product = COULOMB * charge[i] * charge[j]
        sigma, epsilon = 0.5 * (sigma[i] + sigma[j]), np.sqrt(epsilon[i] * epsilon[j])

        def energy(r: np.ndarray | float) -> np.ndarray:
            return product * erfc(DAMPING * r) / r + 4 * epsilon * ((sigma / r) ** 12 - (sigma / r) ** 6)

        def slope(r: np.ndarray | float) -> np.ndarray:
            gauss = 2 * DAMPING / np.sqrt(np.pi) * np.exp(-((DAMPING * r) ** 2)) / r
            return -product * (erfc(DAMPING * r) / r**2 + gauss) - 24 * epsilon / r * (
                2 * (sigma / r) ** 12 - (sigma / r) ** 6
            )

        pull = (share * (slope(r) - slope(REACH)) / r)[:, None] * vector
        np.add.at(forces, i, pull)
        np.add.at(forces, j, -pull)
        total = share * (energy(r) - energy(REACH) - slope(REACH) * (r - REACH))
        return float(total.sum()), vector.T @ pull


def _boxed(atoms: Atoms) -> Atoms:
    """Put a cell around a cluster: the neighbor search wants one."""
    boxed = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
    if not atoms.pbc.any():
        boxed.center(vacuum=REACH)
    return boxed


def langevin(
    label: Callable[[Atoms], tuple],
    atoms: Atoms,
    temperature: float,
    steps: int,
    every: int,
    random: np.random.Generator,
) -> Iterator[Atoms]:
    """Yield copies every few steps of 0.5 fs: BAOAB (Leimkuhler, Matthews 2013), friction 1/20 fs; to 60 eV/Å."""
    step, decay = 0.5, np.exp(-0.5 / 20.0)
    atoms = atoms.copy()
    mass = atoms.get_masses()[:, None]
    spread = np.sqrt(BOLTZMANN * temperature * ACCELERATION / mass)
    velocity = random.standard_normal((len(atoms), 3)) * spread
    forces = label(atoms)[1]
    for count in range(1, steps + 1):
        velocity += 0.5 * step * ACCELERATION * forces / mass
        atoms.positions += 0.5 * step * velocity
        velocity = decay * velocity + np.sqrt(1 - decay**2) * random.standard_normal(velocity.shape) * spread
        atoms.positions += 0.5 * step * velocity
        forces = label(atoms)[1]
        if not np.abs(forces).max() < 60.0:
            return
        velocity += 0.5 * step * ACCELERATION * forces / mass
        if count % every == 0:
            yield atoms.copy()


class Maker:
    """Makes blocks of frames: one start structure and what follows from it."""

    def __init__(self, writer: frame_writer.FrameWriter, random: np.random.Generator, model: Path) -> None:
        self.teacher, self.writer, self.random, self.model = Teacher(), writer, random, model

    def save(self, atoms: Atoms, parameters: np.ndarray, kind: str, how: str, temperature: float = 0) -> None:
        """Label and write one frame unless its forces are too large."""
        energy, forces, stress = self.teacher.label(atoms, parameters)
        if np.isfinite(energy) and np.abs(forces).max() < LARGEST_FORCE:
            self.writer.add(atoms, energy, forces, stress, config_type=kind, how=how, temperature=int(temperature))

    def run(self, start: molecules.Start, kind: str, temperature: float, steps: int = 48, every: int = 12) -> None:
        """Write the start, a displaced copy now and then, and a short run with the teacher."""
        atoms, parameters = start
        self.save(atoms, parameters, kind, "mm", temperature)
        if self.random.random() < 0.4:
            copy = atoms.copy()
            copy.positions += self.random.normal(0, self.random.choice([0.03, 0.06, 0.1]), copy.positions.shape)
            self.save(copy, parameters, kind, "rattle")
        label = lambda one: self.teacher.label(one, parameters)  # noqa: E731
        for snapshot in langevin(label, atoms, min(temperature, 800), steps, every, self.random):
            self.save(snapshot, parameters, kind, "teacherMD", temperature)

    def contact(self) -> None:
        """Clusters in which one pair of molecules or ions is pushed together until it resists, over many distances."""
        for _ in range(8):
            atoms, parameters = molecules.water_cluster(self.random)
            for squeezed in molecules.squeezed(atoms, self.random):
                self.save(squeezed, parameters, "contact", "squeezed")

    def touch(self) -> None:
        """Two capped residues in vacuum: water, ions or the other one pushed against any atom of the first."""
        both = [molecules.peptide(self.random, length=1, in_water=False, temperature=400.0) for _ in range(2)]
        for turn in range(16):
            for atoms, parameters in molecules.touched(both[turn % 2], both[1 - turn % 2], self.random):
                self.save(atoms, parameters, "touch", "squeezed")

    def strain(self) -> None:
        """Clusters with stretched bonds and bent angles, and peptides in vacuum with every bond displaced."""
        for _ in range(15):
            self.save(*molecules.water_cluster(self.random, strained=True), "strain", "random")
        atoms, parameters = molecules.peptide(self.random, length=1, in_water=False)
        for _ in range(6):
            copy = atoms.copy()
            copy.positions += self.random.normal(0, self.random.uniform(0.05, 0.15), copy.positions.shape)
            self.save(copy, parameters, "strain", "rattle")

    def peptide(self) -> None:
        """Two or three residues in water with counter-ions, or now and then in vacuum."""
        length, temperature = int(self.random.integers(2, 4)), float(self.random.choice([300, 350, 450]))
        start = molecules.peptide(self.random, length, in_water=self.random.random() < 0.6, temperature=temperature)
        self.run(start, "peptide", temperature)

    def sulfur(self) -> None:
        """Cysteine, methionine or a disulfide, in water or vacuum."""
        temperature, in_water = float(self.random.choice([300, 350, 450])), self.random.random() < 0.6
        which = self.random.choice(["CYS", "MET", "disulfide"])
        if which == "disulfide":
            start = molecules.disulfide(self.random, in_water, temperature)
        else:
            start = molecules.peptide(self.random, 1, in_water, temperature, residue=str(which))
        self.run(start, "sulfur", temperature)

    def box(self) -> None:
        """100 to 216 waters, some with salt, at several densities; few frames."""
        temperature = float(self.random.choice([300, 350, 500]))
        start = molecules.solution(self.random, int(self.random.integers(100, 217)), temperature)
        self.run(start, "box", temperature, steps=12, every=6)

    def hot(self) -> None:
        """Hot dynamics of a model to be improved: where it goes wrong, the teacher speaks."""
        atoms, parameters = molecules.solution(self.random, int(self.random.integers(30, 50)), 400.0)
        predict = molecules.predictor(self.model)
        temperature = float(self.random.choice([600, 900, 1300]))
        for snapshot in langevin(predict, atoms, temperature, 120, 20, self.random):
            self.save(snapshot, parameters, "hot", "modelMD", temperature)


SHARES = {"contact": 0.12, "touch": 0.1, "strain": 0.08, "peptide": 0.28, "sulfur": 0.24, "box": 0.06, "hot": 0.12}
"""Part of the time that each kind gets."""


def main() -> None:
    """Make blocks until the time is over, always of the kind that is furthest behind its share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("frames.extxyz.gz"))
    parser.add_argument("--minutes", type=float, default=45.0)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--only", choices=sorted(SHARES), help="one kind, for a look")
    parser.add_argument(
        "--model", type=Path, default=Path(__file__).resolve().parent.parent / "models" / "tessera-demo.pt",
        help="the model whose hot dynamics are labelled",
    )  # fmt: skip
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    spent: Counter[str] = Counter({arguments.only: 0.0} if arguments.only else dict.fromkeys(SHARES, 0.0))
    started = time.perf_counter()
    with closing(frame_writer.FrameWriter(arguments.output)) as writer:
        maker = Maker(writer, random, arguments.model)
        while (now := time.perf_counter()) - started < 60 * arguments.minutes:
            kind = min(spent, key=lambda name: spent[name] / SHARES[name])
            writer.split = "val" if random.random() < 0.1 else "train"
            try:
                getattr(maker, kind)()
            except molecules.NoStructureError as error:  # a start that cannot be built is no loss: another one is drawn
                print(f"{kind}: {error}")
            spent[kind] += time.perf_counter() - now
            minutes = (time.perf_counter() - started) / 60
            print(f"{minutes:5.1f} min  {writer.num_atoms} atoms  {dict(writer.counts)}", flush=True)


if __name__ == "__main__":
    main()
