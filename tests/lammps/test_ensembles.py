# SPDX-License-Identifier: MIT
"""Every way LAMMPS moves atoms and box: integrators, barostats, minimizers, constraints, replicas; on many ranks."""

import re
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from lammps_program import Finished, run, run_well, thermo
from water_systems import SMALL, SYSTEMS, atom_ids, water, write_data

RERUN_RTOL = 1e-8  # of the largest value: a dump holds the box in ~16 digits, and pressures are differences
SAME_FORCE_ATOL = 1e-9  # eV/Å: one configuration, other row order
SAME_RUN_RTOL = 1e-10  # energies of a few steps; rounding grows along a trajectory
SAME_MINIMUM_ATOL = 1e-4  # eV: rounding grows along the path, and forces of FORCE_NORM are left at its end
FORCE_NORM = 0.02  # eV/Å
NUMDIFF_ATOL = 1e-4  # eV/Å: second-order differences over 2e-4 Å, and the small steps of the softmax at a cutoff
CONSTRAINT_ATOL = 1e-6  # Å: fix shake iterates to a relative 1e-8, a rigid body is exact

START = """units metal
atom_style {style}
atom_modify map yes
read_data box.data
{bonds}
pair_style tessera {options}
pair_coeff * * {model} H O
velocity all create 300.0 4711 loop geom
timestep 0.00025
thermo_style custom step pe ke etotal vol xy pxx pyy pzz pxy pxz pyz fmax
thermo_modify format float %.15g
thermo 1
"""
DUMP = """dump all all custom 2 forces.dump id type x y z ix iy iz vx vy vz fx fy fz
dump_modify all sort id format float %.17g
"""
RERUN = "thermo 2\n" + DUMP + "rerun run.dump dump x y z ix iy iz vx vy vz box yes format native\n"
REPEATED = ("PotEng", "KinEng", "Pxx", "Pyy", "Pzz", "Pxy", "Pxz", "Pyz")


def start(model: Path, *, options: str = "skin 1.0", style: str = "atomic", bonds: str = "") -> str:
    return START.format(model=model, options=options, style=style, bonds=bonds)


@pytest.fixture
def box(tmp_path):
    write_data(tmp_path / "box.data", SMALL, ["H", "O"])
    return tmp_path


@pytest.fixture
def tilted(tmp_path):
    write_data(tmp_path / "box.data", SYSTEMS["triclinic"](), ["H", "O"])
    return tmp_path


@pytest.fixture
def first(artifact):
    return artifact("first", "float64")


def assert_equals_its_rerun(model: Path, motion: str, folder: Path, ranks: int) -> dict[str, np.ndarray]:
    """Run `motion` on `ranks` ranks, then each frame alone: one rank, no skin, everything built anew."""
    done = run_well(start(model) + DUMP + motion, folder, ranks=ranks)
    table, frames = thermo(done.text)[0], done.dump("forces.dump")
    (folder / "forces.dump").rename(folder / "run.dump")
    again = run_well(start(model, options="skin 0.0 rebuild 1") + RERUN, folder)
    for name in REPEATED:
        expected = thermo(again.text)[0][name]
        atol = RERUN_RTOL * np.abs(expected).max()
        np.testing.assert_allclose(table[name][::2], expected, rtol=0, atol=atol, err_msg=name)
    for found, expected in zip(frames, again.dump("forces.dump"), strict=True):
        if "langevin" in motion:
            break  # it adds its own forces to those of the dump
        np.testing.assert_allclose(found[:, 11:], expected[:, 11:], rtol=0, atol=SAME_FORCE_ATOL)
    return table


ENSEMBLES = {
    "nve": "fix 1 all nve\n",
    "nvt": "fix 1 all nvt temp 300 300 0.025\n",
    "langevin": "fix 1 all nve\nfix 2 all langevin 300 300 0.01 8123\n",
    "iso": "fix 1 all npt temp 300 300 0.025 iso 0 0 0.25\n",
    "aniso": "fix 1 all npt temp 300 300 0.025 aniso 0 0 0.25\n",
    "tri": "fix 1 all npt temp 300 300 0.025 tri 0 0 0.25\n",
}


@pytest.mark.parametrize(
    ("name", "ranks"), [("nve", 4), ("nvt", 2), ("langevin", 2), ("iso", 2), ("aniso", 1), ("tri", 4)]
)
def test_many_ranks_in_each_ensemble_equal_one_rank_frame_by_frame(tilted, first, name, ranks):
    table = assert_equals_its_rerun(first, ENSEMBLES[name] + "run 10\n", tilted, ranks)
    assert np.ptp(table["PotEng"]) > 1e-3, "eV: atoms moved"
    assert (np.ptp(table["Volume"]) > 0) == (name in ("iso", "aniso", "tri"))


RAMPS = {  # (motion, least relative change of the volume, least number of rebuilds)
    "squeezed": ("fix 2 all deform 1 x erate -40 y erate -40 z erate -40 remap x\n", 0.2, 2),
    "stretched": ("fix 2 all deform 1 x erate 60 z erate 20 remap x\n", 0.2, 1),
    "sheared past a swap": ("fix 2 all deform 1 xy erate 120 xz erate -40 remap x flip yes\n", 0.0, 2),
    "velocities remapped": ("fix 2 all deform 1 y erate -40 xy erate 40 remap v\n", 0.05, 2),
    "atoms left behind": ("fix 2 all deform 1 x erate -40 y erate -40 remap none\n", 0.2, 2),
    "images far from the box": ("set atom 1*5 image 7 -3 2\nfix 2 all deform 1 x erate -40 xz erate 40\n", 0.1, 2),
    "hard barostat": ("unfix 1\nfix 1 all npt temp 300 300 0.01 iso 1e6 1e6 0.01\n", 0.05, 1),
}


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        *(("squeezed", 4), ("stretched", 2), ("sheared past a swap", 4), ("velocities remapped", 1)),
        *(("atoms left behind", 1), ("images far from the box", 2), ("hard barostat", 2)),
    ],
)
def test_a_fast_ramp_of_the_cell_rebuilds_in_time(tilted, first, name, ranks):
    """Pairs of far faces come close by the strain alone. fix deform moves the box after the forces, so no rerun."""
    motion, change, least = RAMPS[name]
    script = start(first, options="{}") + "fix 1 all nve\n" + motion + "run 20\n"
    kept = run_well(script.format("skin 1.5"), tilted, ranks=ranks)
    built = run_well(script.format("skin 0.0 rebuild 1"), tilted)
    table, expected = thermo(kept.text)[0], thermo(built.text)[0]
    assert np.ptp(table["Volume"]) / table["Volume"][0] >= change
    if "swap" in name:
        assert np.abs(np.diff(table["Xy"])).max() > 5.0, "Å: the cell was swapped"
    if "images" not in name:  # those move by the box length times the strain, and each step asks for a new list
        assert least <= rebuilds(kept) < rebuilds(built) == 21
    np.testing.assert_allclose(table["PotEng"], expected["PotEng"], rtol=SAME_RUN_RTOL)
    for pressure in REPEATED[2:]:
        atol = RERUN_RTOL * np.abs(expected["Pxx"]).max()
        np.testing.assert_allclose(table[pressure], expected[pressure], rtol=0, atol=atol, err_msg=pressure)


def rebuilds(done: Finished) -> int:
    return int(re.search(r"Tessera: \d+ steps on \d+ rank\(s\), (\d+) rebuilds", done.text)[1])


@pytest.mark.parametrize(("style", "ranks"), [("cg", 2), ("fire", 2)])
def test_minimizers_reach_one_minimum_on_one_rank_and_many(tmp_path, demo, style, ranks):
    """From beside a minimum: on the way down from elsewhere rounding chooses between many."""
    write_data(tmp_path / "box.data", water((1, 1, 2), seed=8), ["H", "O"])
    down = f"min_style {style}\nmin_modify norm max\nminimize 0 {FORCE_NORM} 300 600\n"
    beside = "displace_atoms all random 0.02 0.02 0.02 17\nwrite_data box.data nocoeff\n"
    run_well(start(demo) + down + beside, tmp_path, ranks=1)
    tables = []
    for count in (1, ranks):
        tables.append(thermo(run_well(start(demo) + down, tmp_path, ranks=count).text)[0])
        assert tables[-1]["PotEng"][-1] < tables[-1]["PotEng"][0] - 0.01
        assert tables[-1]["Fmax"][-1] < FORCE_NORM
    ends = [table["PotEng"][-1] for table in tables]
    assert ends[0] == pytest.approx(ends[1], rel=0, abs=SAME_MINIMUM_ATOL)


@pytest.mark.parametrize(("ranks", "kind"), [(1, "iso"), (2, "aniso"), (4, "tri")])
def test_a_relaxed_box_lowers_the_enthalpy_and_equals_its_rerun(tilted, first, ranks, kind):
    target = 2e5  # bar
    motion = f"fix 1 all box/relax {kind} {target} vmax 0.01\nminimize 0 0 10 40\n"
    table = assert_equals_its_rerun_at_the_end(first, motion, tilted, ranks)
    bar_per_ev_a3 = 1.6021765e6  # LAMMPS's nktv2p in units metal
    enthalpy = table["PotEng"] + target / bar_per_ev_a3 * table["Volume"]
    assert enthalpy[-1] < enthalpy[0] - 0.01
    assert np.ptp(table["Volume"]) > 0.1


def assert_equals_its_rerun_at_the_end(model: Path, motion: str, folder: Path, ranks: int) -> dict[str, np.ndarray]:
    """As assert_equals_its_rerun(), for the last configuration (a minimizer's dump may skip steps)."""
    last = "write_dump all custom forces.dump id type x y z ix iy iz fx fy fz modify sort id format float %.17g\n"
    done = run_well(start(model) + motion + last, folder, ranks=ranks)
    table, frames = thermo(done.text)[0], done.dump("forces.dump")
    (folder / "forces.dump").rename(folder / "run.dump")
    again = "rerun run.dump dump x y z ix iy iz box yes format native\n" + last
    alone = run_well(start(model, options="skin 0.0 rebuild 1") + again, folder)
    expected = thermo(alone.text)[0]["PotEng"][-1]
    assert table["PotEng"][-1] == pytest.approx(expected, rel=SAME_RUN_RTOL)
    found, expected = frames[0][:, 8:], alone.dump("forces.dump")[0][:, 8:]
    np.testing.assert_allclose(found, expected, rtol=0, atol=SAME_FORCE_ATOL)
    return table


@pytest.mark.parametrize("ranks", [1, 4])
def test_respa_with_the_model_on_one_level_is_verlet(box, first, ranks):
    """With nothing on the inner level its drifts join to one step of the outer."""
    script = start(first) + "timestep {}\nfix 1 all nve\n{}\nrun 5\n"
    verlet = thermo(run_well(script.format(0.0005, ""), box).text)[0]
    for case in ("respa 1", "respa 2 2 pair 2"):
        table = thermo(run_well(script.format(0.0005, f"run_style {case}"), box, ranks=ranks).text)[0]
        np.testing.assert_allclose(table["PotEng"], verlet["PotEng"], rtol=SAME_RUN_RTOL, err_msg=case)
        scale = np.abs(verlet["Pxx"]).max()
        np.testing.assert_allclose(table["Pxx"], verlet["Pxx"], rtol=0, atol=RERUN_RTOL * scale, err_msg=case)


def test_respa_that_splits_the_model_by_distance_is_refused(box, first):
    script = start(first) + "fix 1 all nve\nrun_style respa 2 2 inner 1 4.0 5.0 outer 2\nrun 1\n"
    done = run(script, box, ranks=2)
    assert done.code != 0
    assert "Pair style does not support rRESPA inner/middle/outer" in done.text


def write_molecules(path: Path, atoms: Atoms) -> None:
    """Data file of atom_style full: molecules of O, H, H with two bonds and an angle."""
    cell = atoms.cell.array
    num_molecules = len(atoms) // 3
    lines = ["water", "", f"{len(atoms)} atoms", "2 atom types", f"{2 * num_molecules} bonds", "1 bond types"]
    lines += [f"{num_molecules} angles", "1 angle types", ""]
    lines += [f"0.0 {cell[k, k].item()!r} {axis}lo {axis}hi" for k, axis in enumerate("xyz")]
    lines += ["", "Masses", "", "1 1.008", "2 15.999", "", "Atoms # full", ""]
    for k, (symbol, position) in enumerate(zip(atoms.symbols, atoms.positions.tolist(), strict=True)):
        kind = {"H": 1, "O": 2}[symbol]
        lines.append(f"{k + 1} {k // 3 + 1} {kind} 0.0 " + " ".join(f"{x!r}" for x in position))
    bonds = [(3 * m + 1, 3 * m + h) for m in range(num_molecules) for h in (2, 3)]
    lines += ["", "Bonds", "", *(f"{k + 1} 1 {i} {j}" for k, (i, j) in enumerate(bonds))]
    lines += ["", "Angles", "", *(f"{m + 1} 1 {3 * m + 2} {3 * m + 1} {3 * m + 3}" for m in range(num_molecules))]
    path.write_text("\n".join(lines) + "\n")


BONDS = "bond_style zero\nbond_coeff 1 0.97\nangle_style zero\nangle_coeff 1 104.0\n"
CONSTRAINTS = {
    "shake": "fix 1 all nve\nfix 2 all shake 1e-8 100 0 b 1 a 1\n",
    "rigid": "fix 1 all rigid/nve molecule\n",
    "rigid/small": "fix 1 all rigid/nve/small molecule\n",
}


@pytest.mark.parametrize(("name", "ranks"), [("shake", 2), ("rigid", 4), ("rigid/small", 2)])
def test_constrained_molecules_keep_their_shape_on_one_rank_and_many(tmp_path, first, name, ranks):
    """Bonds exist here, and special_bonds leaves bonded pairs out of LAMMPS's lists, but not out of the model's."""
    write_molecules(tmp_path / "box.data", SMALL)
    script = start(first, style="full", bonds=BONDS) + DUMP + CONSTRAINTS[name] + "run 10\n"
    runs = [run_well(script, tmp_path, ranks=count) for count in (1, ranks)]
    for done in runs:
        for frame in done.dump("forces.dump"):
            sides = molecule_sides(frame)
            np.testing.assert_allclose(sides[:, :2], 0.97, rtol=0, atol=CONSTRAINT_ATOL)
            np.testing.assert_allclose(sides[:, 2], 2 * 0.97 * np.sin(np.deg2rad(52)), rtol=0, atol=CONSTRAINT_ATOL)
    tables = [thermo(done.text)[0] for done in runs]
    assert np.ptp(tables[0]["PotEng"]) > 1e-3, "eV: molecules moved"
    for table in tables[1:]:
        np.testing.assert_allclose(table["PotEng"], tables[0]["PotEng"], rtol=SAME_RUN_RTOL)
        scale = np.abs(tables[0]["Pxx"]).max()
        np.testing.assert_allclose(table["Pxx"], tables[0]["Pxx"], rtol=0, atol=1e-6 * scale)
    write_data(tmp_path / "box.data", SMALL, ["H", "O"])
    bare = thermo(run_well(start(first) + "run 0\n", tmp_path).text)[0]
    assert tables[0]["PotEng"][0] == pytest.approx(bare["PotEng"][0], rel=SAME_RUN_RTOL)


def molecule_sides(frame: np.ndarray) -> np.ndarray:
    """O-H, O-H and H-H of each molecule, [molecules, 3], Å."""
    lengths = SMALL.cell.lengths()
    o, h, k = (frame[first::3, 2:5] for first in range(3))
    vectors = np.stack([h - o, k - o, k - h], axis=1)
    return np.linalg.norm(vectors - lengths * np.round(vectors / lengths), axis=2)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_forces_are_those_of_fix_numdiff(tmp_path, first, ranks):
    write_data(tmp_path / "box.data", water((1, 2, 2), seed=9), ["H", "O"])
    show = "write_dump all custom forces.dump id fx fy fz f_1[*] modify sort id format float %.17g\n"
    done = run_well(start(first) + "fix 1 all numdiff 1 1e-4\nrun 0\n" + show, tmp_path, ranks=ranks)
    rows = done.dump("forces.dump")[0]
    assert np.abs(rows[:, 1:4]).max() > 0.1, "eV/Å"
    np.testing.assert_allclose(rows[:, 4:], rows[:, 1:4], rtol=0, atol=NUMDIFF_ATOL)


STRAINED_BY_COPIES = {
    "fix numdiff/virial": "fix 1 all numdiff/virial 1 1e-5\n",
    "compute born/matrix numdiff": "compute p all pressure NULL virial\ncompute 1 all born/matrix numdiff 1e-4 p\n\
thermo_style custom step pe c_1[1]\n",
}


@pytest.mark.parametrize("name", STRAINED_BY_COPIES)
def test_what_strains_ghost_atoms_but_not_the_box_is_refused(box, first, name):
    """They move every copy of an atom and leave the box, of which Tessera makes the copies itself."""
    done = run(start(first) + STRAINED_BY_COPIES[name] + "run 0\n", box)
    assert done.code != 0
    assert "pair_style tessera" in done.text
    assert name.split()[1] in done.text


FRESH = """clear
units metal
atom_style atomic
read_data {data}
pair_style tessera skin 0.0
pair_coeff * * {model} H O
run 0
print "fresh: $(pe:%.17g)"
"""


@pytest.mark.parametrize(("replicas", "ranks"), [(4, 1), (2, 2)])
def test_replicas_of_neb_have_worlds_of_their_own(tmp_path, first, replicas, ranks):
    """A model that met in MPI_COMM_WORLD would mix the replicas or wait for ever."""
    atoms = water((1, 1, 2), seed=8)
    write_data(tmp_path / "box.data", atoms, ["H", "O"])
    turned = atoms.positions.copy()
    turned[1:3] = atoms.positions[0] + np.array([[0.97, 0.0, 0.0], [0.0, 0.97, 0.0]])
    lines = [f"{i} {x!r} {y!r} {z!r}" for i, (x, y, z) in zip(atom_ids(atoms), turned.tolist(), strict=True)]
    (tmp_path / "final.txt").write_text("\n".join([str(len(atoms)), *lines]) + "\n")
    script = f"variable r world {' '.join(map(str, range(replicas)))}\n" + start(first).replace("velocity", "#velocity")
    script += "min_style quickmin\nfix 1 all neb 1.0\nneb 0.0 0.0 4 4 1 final final.txt\n"
    script += 'print "end: $(pe:%.17g)" file end.$r\nwrite_data end.data.$r\n'
    run_well(script, tmp_path, ranks=replicas * ranks, arguments=("-partition", f"{replicas}x{ranks}"))
    ends = [float((tmp_path / f"end.{r}").read_text().split()[1]) for r in range(replicas)]
    assert np.ptp(ends) > 1e-3, "eV: replicas are different configurations"
    alone = run_well("".join(FRESH.format(data=f"end.data.{r}", model=first) for r in range(replicas)), tmp_path)
    np.testing.assert_allclose(ends, alone.values("fresh")[:, 0], rtol=SAME_RUN_RTOL)


def test_partitions_of_other_sizes_run_other_systems_and_models(tmp_path, first, demo):
    """-partition 1 2: the second world of two ranks has more atoms, another model and more steps than the first."""
    write_data(tmp_path / "box.data.0", SMALL, ["H", "O"])
    write_data(tmp_path / "box.data.1", water((2, 2, 3), seed=6), ["H", "O"])
    script = "variable r world 0 1\nvariable model world {first} {demo}\nvariable steps world 2 5\n"
    script = script.format(first=first, demo=demo) + start("${model}").replace("box.data", "box.data.$r")
    script += 'fix 1 all nve\nrun ${steps}\nprint "end: $(pe:%.17g)" file end.$r\nwrite_data end.data.$r\n'
    run_well(script, tmp_path, ranks=3, arguments=("-partition", "1", "2"))
    fresh = "".join(FRESH.format(data=f"end.data.{r}", model=model) for r, model in enumerate((first, demo)))
    ends = [float((tmp_path / f"end.{r}").read_text().split()[1]) for r in (0, 1)]
    np.testing.assert_allclose(ends, run_well(fresh, tmp_path).values("fresh")[:, 0], rtol=SAME_RUN_RTOL)
