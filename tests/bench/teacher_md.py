# SPDX-License-Identifier: MIT
"""Molecular dynamics of the demo model's teacher, in several replicas of one cubic box at once.

    python tests/bench/teacher_md.py start1.extxyz start2.extxyz ... --output frames.extxyz --seconds 300 --device cuda

The teacher is that of examples/8-train/make_frames.py: SO3LR (pip install so3krates-torch==0.2.1) for all elements
but potassium, plus a classical K+. Langevin dynamics (BAOAB) at 300 K, 0.5 fs: friction time 20 fs for the first
picosecond, then 200 fs. After `--skip` ps a frame of each replica goes to the output every 50 fs, which
`tessera analyze` reads.
Replicas share one evaluation, because a GPU takes as long for one small box as for eight. A run ends where a chloride
comes nearer than 2.2 Å to anything but hydrogen: with 3 KCl in a box none did, with 23 the first did after 1 ps.
"""

import argparse
import math
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from ase import Atoms
from ase.geometry import find_mic
from ase.io import read, write
from torch import Tensor

warnings.filterwarnings("ignore")  # of the teacher's package, one a call
COULOMB = 14.399645
"""eV Å of two unit charges."""
BOLTZMANN, ACCELERATION = 8.617333e-5, 9.648533e-3
"""eV/K; Å/fs² of 1 eV/Å on 1 u."""
DAMPING, REACH, SKIN = 0.15, 12.0, 1.0
"""Of the classical K+, 1/Å; of all long-range terms, Å; of the list of pairs, Å."""
PARAMETERS = {
    "O": (-0.834, 3.15075, 0.635968 / 96.485),
    "H": (0.417, 1.0, 0.0),
    "K": (1.0, 3.0379, 0.8103691 / 96.485),
    "Cl": (-1.0, 4.4777, 0.1489127 / 96.485),
}
"""Charge (e), sigma (Å), epsilon (eV): TIP3P and Joung-Cheatham, as in the labels."""
TEMPERATURE, STEP = 300.0, 0.5
"""K, fs."""
SETTLING, STRONG, WEAK = 1000.0, 20.0, 200.0
"""fs with the strong friction; friction times, fs."""
NEAREST_TO_CHLORIDE = 2.2
"""Å: nothing but hydrogen comes so near to Cl-; told a charge of -23 e, the teacher forms bonds there."""
GENTLE_STEPS, LONGEST_MOVE = 400, 0.01
"""The first steps move nothing by more than this in half a step, Å."""


class ClassicalPotassium:
    """K+ with everything: 12-6 terms and a damped shifted-force Coulomb sum, each pair once."""

    def __init__(self, atoms: Atoms, device: str) -> None:
        table = np.array([PARAMETERS[symbol] for symbol in atoms.get_chemical_symbols()])
        self.charge, self.sigma, self.epsilon = (torch.tensor(column, device=device) for column in table.T)
        self.ions = torch.tensor(np.flatnonzero(atoms.numbers == 19), device=device)
        self.length = float(atoms.cell[0, 0])
        weight = torch.where(torch.tensor(atoms.numbers == 19, device=device), 0.5, 1.0)  # pairs of K+ come twice
        self.weight = weight[None, None, :, None]

    def __call__(self, positions: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return energies [R], eV, and forces [R, N, 3], eV/Å, of replicas [R, N, 3], Å."""
        wrapped = positions - torch.floor(positions / self.length) * self.length
        vector = wrapped[:, None, :, None] + images * self.length - wrapped[:, self.ions][:, :, None, None]
        distance = vector.norm(dim=-1)
        counts = (distance < REACH) & (distance > 1e-6)
        distance = torch.where(counts, distance, REACH)
        energy, slope = self._pair(distance)
        energy = (counts * self.weight * energy).sum((1, 2, 3))
        force = (counts * self.weight * -slope / distance)[..., None] * vector
        forces = force.sum((1, 3))
        forces[:, self.ions] -= force.sum((2, 3))
        return energy, forces

    def _pair(self, distance: Tensor) -> tuple[Tensor, Tensor]:
        """Energy and its derivative, both shifted to 0 at REACH, [R, ions, N, images]."""
        shape = (None, slice(None), slice(None), None)
        charges = (COULOMB * self.charge[self.ions][:, None] * self.charge)[shape]
        sigma = (0.5 * (self.sigma[self.ions][:, None] + self.sigma))[shape]
        epsilon = torch.sqrt(self.epsilon[self.ions][:, None] * self.epsilon)[shape]

        def bare(r: Tensor) -> tuple[Tensor, Tensor]:
            screened = torch.special.erfc(DAMPING * r) / r
            gauss = 2.0 * DAMPING / math.sqrt(math.pi) * torch.exp(-((DAMPING * r) ** 2))
            sixth = (sigma / r) ** 6
            energy = charges * screened + 4.0 * epsilon * (sixth**2 - sixth)
            slope = -charges * (screened + gauss) / r - 24.0 * epsilon / r * (2.0 * sixth**2 - sixth)
            return energy, slope

        energy, slope = bare(distance)
        last_energy, last_slope = bare(torch.full_like(distance[:1, :1, :1, :1], REACH))
        return energy - last_energy - last_slope * (distance - REACH), slope - last_slope


class Teacher:
    """Energies and forces of replicas that hold the same atoms in the same cubic cell.

    Raises:
        ValueError: boxes that differ, or a cell that is no cube of at least half of REACH.
    """

    def __init__(self, boxes: list[Atoms], device: str) -> None:
        from so3krates_torch.calculator.so3 import SO3LRCalculator  # noqa: PLC0415  (not needed to read --help)

        first = boxes[0]
        self.length, self.count = float(first.cell[0, 0]), len(boxes)
        cube = self.length * np.eye(3)
        if not all(np.array_equal(one.numbers, first.numbers) and np.allclose(one.cell, cube) for one in boxes):
            raise ValueError(f"expected boxes of the same atoms in a cube of {self.length:.3f} Å, found others")
        if 2.0 * self.length < REACH + SKIN:
            raise ValueError(f"expected a cube of at least {(REACH + SKIN) / 2} Å, found {self.length:.3f} Å")
        calculator = SO3LRCalculator(default_dtype="float32", compute_stress=False, r_max_lr=REACH, device=device)
        self._model, self._short = calculator.models[0], calculator.r_max
        ions = first.numbers == 19
        self._others = torch.tensor(np.flatnonzero(~ions), device=device)
        self._potassium = ClassicalPotassium(first, device) if ions.any() else None
        self._batch = _template(calculator, [box[~ions] for box in boxes], -int(ions.sum())).to(device).to_dict()
        most = math.ceil((REACH + SKIN) / self.length)
        steps = torch.arange(-most, most + 1, device=device, dtype=torch.float64)
        self._images = torch.cartesian_prod(steps, steps, steps)
        self._listed: Tensor | None = None

    def __call__(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return energies [R], eV, and forces [R, N, 3], eV/Å, of positions, float64 [R, N, 3], Å (not wrapped)."""
        others = positions[:, self._others]
        if self._listed is None or float((others - self._listed).norm(dim=-1).max()) > SKIN / 2:
            self._find_pairs(others)
        flat = others.reshape(-1, 3)
        squared = (flat[self._to] - flat[self._from] + self._shift).square().sum(-1)
        batch = {**self._batch, "positions": flat.to(torch.float32)}
        for suffix, cutoff in (("", self._short), ("_lr", REACH)):
            near = torch.nonzero(squared <= cutoff**2)[:, 0]
            batch[f"edge_index{suffix}"] = torch.stack([self._from[near], self._to[near]])
            batch[f"shifts{suffix}"] = self._shift[near].to(torch.float32)
            batch[f"unit_shifts{suffix}"] = (self._shift[near] / self.length).to(torch.float32)
        output = self._model(batch, compute_stress=False)
        energy, forces = output["energy"].detach().to(torch.float64), torch.zeros_like(positions)
        forces[:, self._others] = output["forces"].detach().to(torch.float64).view_as(others)
        if self._potassium is not None:
            own_energy, own_forces = self._potassium(positions, self._images)
            energy, forces = energy + own_energy, forces + own_forces
        return energy, forces

    def _find_pairs(self, positions: Tensor) -> None:
        """List the pairs within REACH + SKIN of each replica, by all images of all atoms."""
        found = []
        for place, own in enumerate(positions):
            cell = torch.floor(own / self.length)
            inside = own - cell * self.length
            vector = inside[None, :, None] - inside[:, None, None] + self._images * self.length
            first, second, image = torch.nonzero(vector.square().sum(-1) < (REACH + SKIN) ** 2, as_tuple=True)
            kept = (first != second) | (self._images[image].abs().sum(-1) > 0)
            first, second, image = first[kept], second[kept], image[kept]
            shift = (self._images[image] + cell[first] - cell[second]) * self.length
            found.append((first + place * len(own), second + place * len(own), shift))
        self._from, self._to, self._shift = (torch.cat(parts) for parts in zip(*found, strict=True))
        self._listed = positions.clone()


def _template(calculator: object, boxes: list[Atoms], charge: int) -> object:
    """Let the teacher's package lay the boxes out as one batch; its edges are replaced at each step."""
    from so3krates_torch.data.atomic_data import AtomicData  # noqa: PLC0415
    from so3krates_torch.data.utils import config_from_atoms  # noqa: PLC0415
    from so3krates_torch.tools.torch_geometric.dataloader import DataLoader  # noqa: PLC0415

    calculator.key_specification.update(arrays_keys={calculator.charges_key: "Qs"})
    data = []
    for box in boxes:
        box.info = {"charge": charge}
        config = config_from_atoms(box, key_specification=calculator.key_specification)
        data.append(
            AtomicData.from_config(config, z_table=calculator.z_table, cutoff=calculator.r_max, cutoff_lr=REACH)
        )
    return next(iter(DataLoader(dataset=data, batch_size=len(data), shuffle=False, drop_last=False)))


def refuse_bonded_chloride(boxes: list[Atoms], positions: np.ndarray, time: float) -> None:
    """End the run where a chloride has reacted.

    Args:
        boxes: the replicas.
        positions: [R, N, 3], Å.
        time: of the run, ps.
    """
    for number, (box, own) in enumerate(zip(boxes, positions, strict=True), 1):
        heavy = np.flatnonzero(box.numbers > 1)
        for ion in np.flatnonzero(box.numbers == 17):
            others = heavy[heavy != ion]
            distance = find_mic(own[others] - own[ion], box.cell, pbc=True)[1]
            if distance.min() < NEAREST_TO_CHLORIDE:
                other = others[distance.argmin()]
                sys.exit(
                    f"expected ions, found chloride {ion + 1} {distance.min():.2f} Å from atom {other + 1}, "
                    f"{box.symbols[other]}, of replica {number} after {time:.2f} ps; drop the last frames, and take "
                    "smaller boxes: the teacher is told the charge of all chlorides together"
                )


def run(boxes: list[Atoms], options: argparse.Namespace) -> None:
    """Integrate until the time is over; frames go to the output, a line a picosecond to the screen."""
    teacher, device, started = Teacher(boxes, options.device), options.device, time.perf_counter()
    random = torch.Generator(device=device).manual_seed(7)
    position = torch.tensor(np.stack([box.positions for box in boxes]), device=device)
    mass = torch.tensor(boxes[0].get_masses(), device=device)[:, None]
    spread = torch.sqrt(BOLTZMANN * TEMPERATURE * ACCELERATION / mass)

    def noise() -> Tensor:
        return spread * torch.randn(position.shape, generator=random, device=device, dtype=torch.float64)

    velocity, step, temperatures = 0.5 * noise(), 0, []
    _, forces = teacher(position)
    with options.output.open("w", encoding="utf-8") as file:
        while step < options.steps and time.perf_counter() - started < options.seconds:
            kept = math.exp(-STEP / (STRONG if step * STEP < SETTLING else WEAK))
            limit = LONGEST_MOVE if step < GENTLE_STEPS else math.inf
            velocity = velocity + 0.5 * STEP * ACCELERATION * forces / mass
            position = position + (0.5 * STEP * velocity).clamp(-limit, limit)
            velocity = kept * velocity + math.sqrt(1.0 - kept**2) * noise()
            position = position + (0.5 * STEP * velocity).clamp(-limit, limit)
            energy, forces = teacher(position)
            velocity = velocity + 0.5 * STEP * ACCELERATION * forces / mass
            step += 1
            if step % options.every == 0:
                degrees = BOLTZMANN * ACCELERATION * velocity.numel()
                temperatures.append(float((mass * velocity * velocity).sum()) / degrees)
                if not bool(torch.isfinite(energy).all()):
                    sys.exit(f"expected finite energies, found {energy.tolist()} at step {step}")
                places = position.cpu().numpy()
                refuse_bonded_chloride(boxes, places, step * STEP / 1000)
                if step * STEP >= 1000.0 * options.skip:
                    for box, own in zip(boxes, places, strict=True):
                        write(file, Atoms(box.numbers, own, cell=box.cell, pbc=True), format="extxyz")
            if step % (20 * options.every) == 0:
                spent = 1000.0 * (time.perf_counter() - started) / step
                print(
                    f"{step * STEP / 1000:.2f} ps, {spent:.1f} ms a step, {np.mean(temperatures[-20:]):.0f} K",
                    flush=True,
                )
    spent = 1000.0 * (time.perf_counter() - started) / max(step, 1)
    mean = np.mean(temperatures[len(temperatures) // 2 :]) if temperatures else math.nan
    print(f"{len(boxes)} replicas of {len(boxes[0])} atoms, {step * STEP / 1000:.2f} ps each, {spent:.1f} ms a step, "
          f"second half {mean:.1f} K")  # fmt: skip


def main() -> None:
    """Read the boxes and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("start", type=Path, nargs="+", help="one box a replica, all of the same atoms and cube")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--seconds", type=float, default=300.0, help="of wall clock")
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--skip", type=float, default=3.0, help="ps without frames")
    parser.add_argument("--every", type=int, default=100, help="steps from frame to frame")
    options = parser.parse_args()
    try:
        run([read(path) for path in options.start], options)
    except ValueError as error:
        sys.exit(f"teacher_md.py: error: {error}")


if __name__ == "__main__":
    main()
