# SPDX-License-Identifier: MIT
"""Tiny labelled frames and configs for the tests of training."""

import numpy as np
import yaml
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

ELEMENTS = ("H", "O")
SPRING, REST = 1.5, 1.4
"""eV/Å² and Å of the teacher below."""
LONGEST = 2.5
ENERGIES = {1: -3.0, 8: -20.0}
"""Energies of single elements in the teacher, eV."""


def labelled_frames(count=4, periodic=(True, False), seed=5):
    """Return random molecules with the energies, forces and stress of springs between atoms closer than 2.5 Å."""
    random = np.random.default_rng(seed)
    frames = []
    for place in range(count):
        numbers = [8, 1, 1, 8, 1][: 3 + place % 3]
        positions = random.random((len(numbers), 3)) * 2.2
        cell, pbc = (np.diag([6.0, 6.5, 7.0]), True) if periodic[place % len(periodic)] else (None, False)
        atoms = Atoms(numbers, positions + 1.0, cell=cell, pbc=pbc)
        energy, forces, strain = springs(atoms)
        results = {"energy": energy, "forces": forces}
        if pbc:
            results["stress"] = strain / atoms.get_volume()
        atoms.calc = SinglePointCalculator(atoms, **results)
        frames.append(atoms)
    return frames


def springs(atoms):
    """Energy (eV), forces (eV/Å), dE/dstrain (eV) of springs whose energy ends smoothly at LONGEST."""
    energy = sum(ENERGIES[number] for number in atoms.numbers)
    forces, strain = np.zeros((len(atoms), 3)), np.zeros((3, 3))
    for i in range(len(atoms)):
        for j in range(i):
            vector = atoms.positions[i] - atoms.positions[j]
            length = np.linalg.norm(vector)
            if length >= LONGEST:
                continue
            stretch, rest = length - REST, LONGEST - length
            energy += SPRING * stretch**2 * rest**2
            slope = 2 * SPRING * (stretch * rest**2 - stretch**2 * rest)
            gradient = slope * vector / length
            forces[i] -= gradient
            forces[j] += gradient
            strain += np.outer(vector, gradient)
    return energy, forces, strain


def config(folder, frames=None, **sections):
    """Write frames.extxyz and config.yaml for a model of 8 channels; sections override single keys."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "frames.extxyz", labelled_frames() if frames is None else frames, format="extxyz")
    settings = {
        "data": {"files": ["frames.extxyz"]},
        "model": {
            "lmax": 1, "channels": 8, "heads": 2, "head_scalars": 4, "num_basis": 8, "embedding_cutoff": 2.5,
            "stage_cutoffs": [2.5], "average_degree": 3.0,
        },
        "optimizer": {"epochs": 3, "batch_size": 2, "warmup_steps": 2, "learning_rate": 5e-3},
        "dtype": "float64",
        "compile": False,
    }  # fmt: skip
    for name, values in sections.items():
        settings[name] = {**settings.get(name, {}), **values} if isinstance(values, dict) else values
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    return folder / "config.yaml"
