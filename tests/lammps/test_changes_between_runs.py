# SPDX-License-Identifier: MIT
"""After a command between two runs, and in a rerun, results are those of a fresh start from the same configuration."""

from itertools import pairwise

import numpy as np
import pytest
from command_cases import WATERS
from lammps_program import run_well
from water_systems import atom_ids, write_data

ENERGY_RTOL = 1e-10  # sums in another order, in float64
FORCE_ATOL = 1e-9  # eV/Å
PRESSURE_RTOL = 1e-8  # of the largest component: a tilted box is written in ~16 digits
CHANGED = 1e-6  # eV: far above the rounding of the energy

MODEL = """pair_style tessera skin 2.0
pair_coeff * * {model} H O NULL
"""
SHOW = """run 0
print "{name} energy: $(pe:%.17g)"
print "{name} pressure: $(pxx:%.17g) $(pyy:%.17g) $(pzz:%.17g) $(pxy:%.17g) $(pxz:%.17g) $(pyz:%.17g)"
write_dump all custom {name}.dump id fx fy fz modify sort id format float %.17g
"""
MASSES = {"H": 1.008, "O": 15.999, "He": 4.0026}


def types_by_id() -> list[int]:
    """The type that each atom is read with."""
    return [1 if WATERS.symbols[k] == "H" else 2 for k in np.argsort(atom_ids(WATERS))]


#: name -> (commands, boundary after them). Each starts from what the one before has left.
CHANGES = {
    "larger": ("change_box all x scale 1.02 z scale 0.99 remap", "p p p"),
    "tilted": ("change_box all triclinic xy final 1.7 yz final -0.9 remap", "p p p"),
    "upright": ("change_box all xy final 0 yz final 0 remap\nchange_box all ortho", "p p p"),
    "moved": ("displace_atoms all random 0.05 0.05 0.05 4711", "p p p"),
    "shifted": ("displace_atoms all move 5.1 -3.3 2.2\nchange_box all x delta 0.4 0.4", "p p p"),
    "open": ("change_box all boundary p p f", "p p f"),
    "closed": ("change_box all boundary p p p", "p p p"),
    "swapped": ("set atom 1*3 type 2\nset atom 4*9 type 1", "p p p"),
    "unseen": ("set atom 11*13 type 3", "p p p"),
    "seen_again": ("\n".join(f"set atom {one} type {types_by_id()[one - 1]}" for one in (11, 12, 13)), "p p p"),
    "sparse_ids": ("delete_atoms group some compress no", "p p p"),
    "dense_ids": ("reset_atoms id sort yes", "p p p"),
    "replicated": ("replicate 1 1 2", "p p p"),
}


def changes(model) -> str:
    lines = "units metal\natom_style atomic\natom_modify map yes\nread_data box.data\n" + MODEL.format(model=model)
    lines += "group some id 20:25\n" + SHOW.format(name="first")
    for name, (commands, _) in CHANGES.items():
        lines += commands + "\n" + SHOW.format(name=name) + f"write_data {name}.data nocoeff\n"
    return lines


def fresh(model) -> str:
    lines = ""
    for name, (_, boundary) in CHANGES.items():
        lines += f"clear\nunits metal\natom_style atomic\nboundary {boundary}\nread_data {name}.data\n"
        lines += MODEL.format(model=model) + SHOW.format(name=name)
    return lines


@pytest.fixture(scope="module", params=[1, 2, 4])
def runs(request, artifact, tmp_path_factory):
    """The one program with all changes, and the one that starts fresh from each configuration, on one rank."""
    model, folder = artifact("first", "float64"), tmp_path_factory.mktemp("changes")
    write_data(folder / "box.data", WATERS, list(MASSES), masses=MASSES)
    return run_well(changes(model), folder, ranks=request.param), run_well(fresh(model), folder)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_leaves_what_a_fresh_start_finds(runs, name):
    changed, started = runs
    energies = [done.values(f"{name} energy").item() for done in runs]
    assert energies[0] == pytest.approx(energies[1], rel=ENERGY_RTOL)
    expected = started.values(f"{name} pressure")
    scale = np.abs(expected).max()
    np.testing.assert_allclose(changed.values(f"{name} pressure"), expected, rtol=0, atol=PRESSURE_RTOL * scale)
    found, expected = (done.dump(f"{name}.dump")[0] for done in runs)
    np.testing.assert_allclose(found, expected, rtol=0, atol=FORCE_ATOL)


def test_each_change_is_one(runs):
    """But for a shifted box and new ids; else equal energies would show nothing."""
    energies = {name: runs[0].values(f"{name} energy").item() for name in ("first", *CHANGES)}
    for before, name in pairwise(energies):
        if name in {"shifted", "dense_ids"}:
            assert energies[name] == pytest.approx(energies[before], rel=ENERGY_RTOL)
        else:
            assert abs(energies[name] - energies[before]) > CHANGED, name
    assert energies["seen_again"] == pytest.approx(energies["swapped"], rel=ENERGY_RTOL)


RERUN = """units metal
atom_style atomic
read_data box.data
pair_style tessera skin 2.0
pair_coeff * * {model} H O NULL
velocity all create 300.0 8123 loop all
timestep 0.0005
fix all all nve
dump run all custom 2 run.dump id type x y z fx fy fz
dump_modify run sort id format float %.17g
run 6
undump run
dump again all custom 2 again.dump id type x y z fx fy fz
dump_modify again sort id format float %.17g
rerun run.dump dump x y z box yes format native
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rerun_on_many_ranks_has_the_forces_of_the_run(tmp_path, artifact, ranks):
    write_data(tmp_path / "box.data", WATERS, list(MASSES), masses=MASSES)
    done = run_well(RERUN.format(model=artifact("first", "float64")), tmp_path, ranks=ranks)
    ran, again = done.dump("run.dump"), done.dump("again.dump")
    assert len(ran) == len(again) == 4
    for frame, repeated in zip(ran, again, strict=True):
        np.testing.assert_allclose(repeated[:, 5:], frame[:, 5:], rtol=0, atol=FORCE_ATOL)
    assert np.abs(ran[-1][:, 5:] - ran[0][:, 5:]).max() > 1e-3, "eV/Å: the frames differ"
