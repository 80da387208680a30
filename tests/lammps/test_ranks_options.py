# SPDX-License-Identifier: MIT
"""Options of the pair style that concern all ranks."""

import re

import numpy as np
import pytest
from lammps_program import run_well
from water_systems import SYSTEMS, in_atom_order, write_data

from many_ranks import dense_beside_water

#: Sums in another order, in float64.
ENERGY_RTOL = 1e-10
FORCE_ATOL = 1e-9  # eV/Å
MASSES = {"H": 1.008, "C": 12.011, "O": 15.999}

START = """units metal
atom_style atomic
read_data box.data
pair_style tessera {options}
pair_coeff * * {model} {elements}
run 0
print "energy: $(pe:%.17g)"
write_dump all custom forces.dump id fx fy fz modify sort id format float %.17g
"""


def run_with(folder, model, options, *, elements="H O", ranks=1):
    return run_well(START.format(model=model, options=options, elements=elements), folder, ranks=ranks)


def test_the_charge_reaches_the_model_on_every_rank(tmp_path, demo):
    atoms = SYSTEMS["orthogonal"]()
    write_data(tmp_path / "box.data", atoms, ["H", "O"])
    neutral = run_with(tmp_path, demo, "")
    expected = run_with(tmp_path, demo, "charge 1")
    change = expected.dump("forces.dump")[0][:, 1:] - neutral.dump("forces.dump")[0][:, 1:]
    moved = in_atom_order(atoms, np.abs(change).max(1))
    assert np.median(moved) > 1e-5, "eV/Å: the charge is felt all over the box, and so on every rank"
    done = run_with(tmp_path, demo, "charge 1", ranks=3)
    assert done.values("energy").item() == pytest.approx(expected.values("energy").item(), rel=ENERGY_RTOL)
    np.testing.assert_allclose(done.dump("forces.dump")[0], expected.dump("forces.dump")[0], rtol=0, atol=FORCE_ATOL)


def test_balance_edges_evens_the_edges_and_changes_no_result(tmp_path, artifact):
    write_data(tmp_path / "box.data", dense_beside_water(), ["H", "C", "O"], masses=MASSES)
    model = artifact("first", "float64")
    runs = {by: run_with(tmp_path, model, f"balance {by}", elements="H C O", ranks=4) for by in ("atoms", "edges")}
    excess = {}
    for by, done in runs.items():
        _, mean, most = map(float, re.search(r"edges: (\S+) min, (\S+) avg, (\S+) max", done.text).groups())
        excess[by] = most / mean - 1
    assert excess["edges"] < 0.5 * excess["atoms"]
    atoms, edges = runs["atoms"], runs["edges"]
    assert edges.values("energy").item() == pytest.approx(atoms.values("energy").item(), rel=ENERGY_RTOL)
    np.testing.assert_allclose(edges.dump("forces.dump")[0], atoms.dump("forces.dump")[0], rtol=0, atol=FORCE_ATOL)
