# SPDX-License-Identifier: MIT
"""Overlapping atoms in LAMMPS: a model with a repulsion drives them apart, alike on any number of ranks."""

import numpy as np
import pytest
from ase import Atoms
from lammps_program import run_well
from water_systems import write_data

#: Relative; float64 sums in another order.
SUMS = 1e-10
#: Å; two oxygens at full strength of the repulsion, and how far apart they are after the run (1.06 Å is its end).
OVERLAP, APART = 0.5, 1.0
START = """units metal
atom_style atomic
read_data box.data
timestep 0.0001
pair_style tessera skin 1.0
pair_coeff * * {model} H O
"""
SHOW = """thermo_modify format float %.15g
run 0
print "energy: $(pe:%.17g)"
write_dump all custom forces.dump id fx fy fz x y z modify sort id format float %.17g
"""
MOVE = """fix ensemble all nve/limit 0.05
fix heat all viscous 0.001
run 300
write_dump all custom forces.dump id fx fy fz x y z modify sort id format float %.17g
"""


@pytest.fixture
def box(tmp_path):
    """Eight pairs of overlapping oxygens, across faces of the cell too."""
    edge = 8.0
    corners = np.array(np.meshgrid([0.1, 4.1], [0.1, 4.1], [0.1, 4.1])).reshape(3, -1).T
    directions = np.random.default_rng(5).normal(size=(8, 3))
    offsets = OVERLAP * directions / np.linalg.norm(directions, axis=1)[:, None]
    positions = np.concatenate([corners, corners + offsets])
    atoms = Atoms("O16", positions=positions, cell=edge * np.eye(3), pbc=True)
    write_data(tmp_path / "box.data", atoms, ["H", "O"])
    return tmp_path


def closest(rows, edge=8.0):
    apart = rows[:, None] - rows
    apart -= edge * np.round(apart / edge)
    distance = np.linalg.norm(apart, axis=2)
    return distance[np.triu_indices(len(rows), 1)].min()


def test_forces_on_overlapping_atoms_are_those_of_one_rank(box, artifact):
    script = START.format(model=artifact("repelled", "float64")) + SHOW
    alone, shared = (run_well(script, box, ranks=ranks) for ranks in (1, 2))
    forces = [one.dump("forces.dump")[0][:, 1:4] for one in (alone, shared)]
    assert np.abs(forces[0]).max() > 100  # eV/Å
    assert np.abs(forces[0] - forces[1]).max() < SUMS * np.abs(forces[0]).max()
    assert abs(alone.values("energy") - shared.values("energy")).max() < SUMS * abs(alone.values("energy")).max()


@pytest.mark.parametrize(("name", "survives"), [("tiny", False), ("repelled", True)])
def test_an_overlapping_start_comes_apart_only_with_the_repulsion(box, artifact, name, survives):
    script = START.format(model=artifact(name, "float64")) + MOVE
    rows = run_well(script, box, ranks=2).dump("forces.dump")[0][:, 4:7]
    assert (closest(rows) > APART) == survives
