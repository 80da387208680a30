# SPDX-License-Identifier: MIT
"""A step through LAMMPS takes what it takes from Python (mace 801, 1471; deepmd 5595: several times longer)."""

import re
import time

import numpy as np
import pytest
from gpu import needs_gpu
from lammps_program import run_well

from many_ranks import WATER_216, water_216
from tessera import _C

pytestmark = needs_gpu

SLOWEST = 1.10  # LAMMPS over Python, as the reports ask for; LAMMPS adds its integrator, lists and wrapping
STEPS = 20
STEP_LENGTH = 0.003  # Å: as 0.25 fs at 300 K moves atoms, so that both runs keep their lists
SCRIPT = """units metal
atom_style atomic
read_data {data}
replicate {shape}
pair_style tessera
pair_coeff * * {model} H O
velocity all create 300.0 8123 loop geom
timestep 0.00025
fix all all nve
thermo {steps}
run 3
run {steps}
"""


def seconds_in_python(model, shape: tuple[int, int, int]) -> float:
    """Mean seconds of a step without a rebuild, atoms moving."""
    atoms = water_216().repeat(shape)
    engine = _C.Engine(str(model), skin=1.0)
    elements = np.array([0 if z == 1 else 2 for z in atoms.numbers], dtype=np.int32)
    rng = np.random.default_rng(2)
    begin = 0.0
    moves = rng.normal(0, STEP_LENGTH, (3 + STEPS, len(atoms), 3))
    ids, cell = np.arange(1, len(atoms) + 1), atoms.cell.array.tolist()
    for step, move in enumerate(moves):
        if step == 3:  # the graph is recorded, buffers have their size
            begin = time.perf_counter()
        atoms.positions += move
        engine.compute(atoms.positions, elements, ids, cell, [True] * 3,
                       is_reordered=False, wants_atom_virial=False, charge=0, multiplicity=1)  # fmt: skip
    return (time.perf_counter() - begin) / STEPS


@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 3, 3), (5, 4, 4)], ids=lambda shape: f"{648 * np.prod(shape)} atoms")
def test_a_step_in_lammps_takes_no_longer_than_from_python(artifact, tmp_path, shape):
    model = artifact("first", "float32", device="cuda")
    script = SCRIPT.format(data=WATER_216, shape=" ".join(map(str, shape)), model=model, steps=STEPS)
    text = run_well(script, tmp_path).text
    in_lammps = float(re.findall(r"Loop time of (\S+)", text)[-1]) / STEPS
    in_python = seconds_in_python(model, shape)
    shares = re.findall(r"^Tessera: (\w[\w ]* ms a step) +\S+ +(\S+)", text, re.MULTILINE)
    assert len(shares) >= 6
    print(f"\nGPU step of {648 * np.prod(shape)} atoms: LAMMPS {1e3 * in_lammps:.2f} ms, Python {1e3 * in_python:.2f} "  # noqa: T201
          f"ms; {', '.join(f'{name} {value}' for name, value in shares[-6:])}")  # fmt: skip
    assert in_lammps <= SLOWEST * in_python
