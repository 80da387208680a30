# SPDX-License-Identifier: MIT
"""Label small boxes of water with the bundled model: frames.extxyz for this lesson."""

from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

from tessera.build.recipes import Salt, build_solution
from tessera.checkpoint import load_checkpoint
from tessera.model import build_graph, energy_and_edge_gradients, forces_and_strain

HERE = Path(__file__).resolve().parent
FRAMES, EDGE, RATTLE = 20, 7.5, 0.04
"""Boxes, their edge in Å, and the scatter of displacements in Å."""

model = load_checkpoint(HERE.parent / "models" / "tessera-demo.pt")
frames = []
for seed in range(FRAMES):
    random = np.random.default_rng(seed)
    system = build_solution(np.full(3, EDGE), Salt(0.0, 4.0), seed)
    atoms = Atoms(system.numbers, system.positions, cell=system.cell, pbc=True)
    atoms.positions += random.normal(scale=RATTLE, size=atoms.positions.shape)
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc)
    energy, gradients = energy_and_edge_gradients(model, graph)
    forces, strain = forces_and_strain(graph, gradients)
    atoms.calc = SinglePointCalculator(
        atoms, energy=float(energy.sum()), forces=forces.numpy(), stress=strain.numpy() / atoms.get_volume()
    )
    frames.append(atoms)
write(HERE / "frames.extxyz", frames, format="extxyz")
print(f"wrote {FRAMES} frames, {sum(map(len, frames))} atoms")
