# SPDX-License-Identifier: MIT
"""Molecular dynamics: ensembles, units, rerun, moving and re-ordered atoms, restarts, the report."""

import re

import numpy as np
import pytest
from lammps_program import run_well, thermo
from water_systems import SMALL, SYSTEMS, write_data

SAME_ENERGY_RTOL = 1e-10  # one configuration, other row order
SAME_FORCE_ATOL = 1e-9  # eV/Å, likewise
VERLET_RATIO_RTOL = 0.1  # the next order of the time step (0.25 fs, O-H period 9 fs)
KCAL_PER_EV = 23.060549  # LAMMPS's own conversion
UNITS_RTOL = 1e-6  # LAMMPS's constants of metal and real agree to 1e-7

START = """units {units}
atom_style atomic
{modify}
read_data box.data
pair_style tessera {options}
pair_coeff * * {model} H O
timestep {timestep}
velocity all create 300.0 {seed} loop geom
thermo_style custom step temp pe ke etotal press vol xy pxx pyy pzz pxy pxz pyz
thermo_modify format float %.15g
thermo 1
"""
FORCES = "dump all all custom {every} forces.dump id type x y z ix iy iz fx fy fz vx vy vz\n\
dump_modify all sort id format float %.17g\n"


def start(model, *, units="metal", options="skin 0.6", modify="", seed=12345):
    timestep = 0.00025 if units == "metal" else 0.25
    return START.format(units=units, options=options, modify=modify, model=model, timestep=timestep, seed=seed)


@pytest.fixture
def box(tmp_path):
    write_data(tmp_path / "box.data", SMALL, ["H", "O"])
    return tmp_path


def test_the_total_energy_wavers_with_the_square_of_the_time_step(box, demo):
    """Velocity Verlet conserves a shadow energy: half the step, a quarter of the waver, if forces fit the energy."""
    wavers = []
    for halving in (1, 2):
        script = start(demo) + f"timestep {0.00025 / halving}\nthermo {halving}\nfix all all nve\nrun {20 * halving}\n"
        table = thermo(run_well(script, box).text)[0]
        assert np.ptp(table["KinEng"]) > 0.1, "eV: energy moves between kinetic and potential"
        wavers.append(np.ptp(table["TotEng"]))
    assert wavers[0] / wavers[1] == pytest.approx(4.0, rel=VERLET_RATIO_RTOL)


@pytest.mark.parametrize(
    "ensemble",
    ["nvt temp 300 300 0.025", "npt temp 300 300 0.025 iso 0 0 0.25", "npt temp 300 300 0.025 tri 0 0 0.25"],
)
def test_a_run_in_each_ensemble_equals_its_rerun(tmp_path, demo, ensemble):
    """Forces and thermo of a frame do not depend on how the run came there (skin, box change, order)."""
    write_data(tmp_path / "box.data", SYSTEMS["triclinic"](), ["H", "O"])
    done = run_well(start(demo) + FORCES.format(every=5) + f"fix all all {ensemble}\nrun 20\n", tmp_path)
    table = thermo(done.text)[0]
    if "npt" in ensemble:
        assert np.ptp(table["Volume"]) > 0
    frames = done.dump("forces.dump")
    (tmp_path / "forces.dump").rename(tmp_path / "run.dump")
    again = "thermo 5\n" + FORCES.format(every=5) + "rerun run.dump dump x y z vx vy vz box yes format native\n"
    rerun = run_well(start(demo, seed=99) + again, tmp_path)
    repeated = thermo(rerun.text)[0]
    for name in ("PotEng", "KinEng", "Pxx", "Pyy", "Pzz", "Pxy", "Pxz", "Pyz"):
        scale = np.abs(repeated[name]).max()
        # a dump holds the tilted box in ~16 digits, and pressures are differences of larger numbers
        np.testing.assert_allclose(repeated[name], table[name][::5], rtol=0, atol=1e-8 * scale, err_msg=name)
    for ran, reran in zip(frames, rerun.dump("forces.dump"), strict=True):
        np.testing.assert_allclose(reran[:, 8:11], ran[:, 8:11], rtol=0, atol=SAME_FORCE_ATOL)


def test_metal_and_real_give_the_same_trajectory(box, demo):
    runs = {}
    for units in ("metal", "real"):
        done = run_well(start(demo, units=units) + FORCES.format(every=20) + "fix all all nve\nrun 20\n", box)
        runs[units] = (thermo(done.text)[0], done.dump("forces.dump"))
    (metal, metal_frames), (real, real_frames) = runs["metal"], runs["real"]
    np.testing.assert_allclose(real["PotEng"], KCAL_PER_EV * metal["PotEng"], rtol=UNITS_RTOL)
    bar_per_atmosphere = 1.01325
    scale = np.abs(metal["Pxx"]).max()
    np.testing.assert_allclose(real["Pxx"] * bar_per_atmosphere, metal["Pxx"], rtol=0, atol=10 * UNITS_RTOL * scale)
    for frame, other in zip(metal_frames, real_frames, strict=True):
        np.testing.assert_allclose(other[:, 2:5], frame[:, 2:5], rtol=0, atol=1e-6)  # Å after 5 fs
        force_scale = np.abs(frame[:, 8:11]).max()
        np.testing.assert_allclose(other[:, 8:11] / KCAL_PER_EV, frame[:, 8:11], rtol=0, atol=1e-5 * force_scale)
    assert np.abs(metal_frames[1][:, 2:5] - metal_frames[0][:, 2:5]).max() > 0.05, "Å: atoms moved"


def test_sorting_and_wrapping_change_nothing(box, demo):
    """The busy run wraps and sorts atoms in every step; a moving frame makes them cross faces.

    Nor does it rebuild: the engine sees atoms unwrapped, and knows them again in another order.
    """
    drift = "velocity all set 700.0 0.0 0.0 sum yes\n"  # Å/ps: 1.75 Å in 10 steps, less than half the skin
    script = drift + FORCES.format(every=2) + "fix all all nve\nrun 10\n"
    never, always = "every 1000 delay 1000 check no", "every 1 delay 0 check no"
    head = start(demo, options="skin 4.0", modify="atom_modify sort {}")
    quiet = run_well(head.format("0 0.0") + f"neigh_modify {never}\n" + script, box)
    busy = run_well(head.format("1 2.0") + f"neigh_modify {always}\n" + script, box)
    wrapped = 0
    for ran, other in zip(quiet.dump("forces.dump"), busy.dump("forces.dump"), strict=True):
        np.testing.assert_allclose(other[:, 8:11], ran[:, 8:11], rtol=0, atol=1e-7)  # rounding grows along a trajectory
        wrapped += np.count_nonzero(other[:, 5:8] != ran[:, 5:8])
    assert wrapped > 0, "no atom crossed a face"
    assert rebuilds(quiet.text) == rebuilds(busy.text) == [1]
    np.testing.assert_allclose(thermo(busy.text)[0]["PotEng"], thermo(quiet.text)[0]["PotEng"], rtol=SAME_ENERGY_RTOL)


def test_changed_types_are_noticed_without_a_new_neighbour_list(box, demo):
    """`pre no` keeps LAMMPS's lists, so only the adapter can see that atoms changed; no fix, so none moves."""
    script = (
        start(demo)
        + "neigh_modify every 1000 delay 1000 check no\n\
run 1\nset atom 1*3 type 2\nset atom 4*6 type 1\nrun 1 pre no\nrun 0\n"
    )
    energies = [table["PotEng"][-1] for table in thermo(run_well(script, box).text)]
    assert abs(energies[1] - energies[0]) > 1e-3
    assert energies[1] == pytest.approx(energies[2], rel=SAME_ENERGY_RTOL)


def test_a_swap_of_the_tilted_cell_changes_nothing(tmp_path, demo):
    """At half a box length of tilt LAMMPS swaps the cell for an equal one; here in a list kept, and built anew."""
    write_data(tmp_path / "box.data", SYSTEMS["triclinic"](), ["H", "O"])
    shear = "fix all all nve\nfix shear all deform 1 xy vel 400 remap x flip yes\nrun 20\n"  # Å/ps
    kept, built = (run_well(start(demo, options=f"skin {skin}") + shear, tmp_path).text for skin in (3.0, 0.0))
    assert np.ptp(thermo(kept)[0]["Xy"]) > 5.0, "Å: the cell was swapped"
    assert rebuilds(kept)[0] < rebuilds(built)[0]
    np.testing.assert_allclose(thermo(kept)[0]["PotEng"], thermo(built)[0]["PotEng"], rtol=SAME_ENERGY_RTOL)


def rebuilds(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"Tessera: \d+ steps on \d+ rank\(s\), (\d+) rebuilds", text)]


def test_skin_and_rebuild_change_how_often_not_what(box, demo):
    cases = {"skin 0.0": 11, "skin 2.0": 1, "skin 2.0 rebuild 5": 3}
    energies = []
    for options, expected in cases.items():
        text = run_well(start(demo, options=options) + "fix all all nve\nrun 10\n", box).text
        assert rebuilds(text) == [expected], options
        energies.append(thermo(text)[0]["PotEng"])
    for other in energies[1:]:
        np.testing.assert_allclose(other, energies[0], rtol=SAME_ENERGY_RTOL)


def test_each_run_reports_its_own_steps(box, demo):
    script = start(demo, options="skin 2.0") + "fix all all nve\nrun 3\nrun 5\ninfo comm\nminimize 0 0 2 2\n"
    text = run_well(script, box).text
    evaluations = [int(n) for n in re.findall(r"Tessera: (\d+) steps on", text)]
    assert evaluations[:2] == [4, 6], "one evaluation sets a run up, then one a step"
    assert len(evaluations) == 3
    assert rebuilds(text)[:2] == [1, 0]
    assert "cutoffs 4.5, 6" in text
    assert "atom types 1=H, 2=O" in text
    assert text.count("Tessera 0.") == 1, "the model is described once"
    assert "Communication cutoff = 8\n" in text, "the largest cutoff and LAMMPS's own skin of 2 Å"
    for name in ("search", "model", "total"):
        assert re.search(rf"^Tessera: {name} ms a step( +\d+\.\d+){{3}}$", text, re.MULTILINE), name


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_parts_of_a_step_add_up_to_its_time(box, demo, ranks):
    """mace 801, deepmd 5595: slow, and nothing said where the time went."""
    text = run_well(start(demo) + "fix all all nve\nrun 5\n", box, ranks=ranks).text
    means = {
        name: float(mean) for name, mean in re.findall(r"^Tessera: (.*?) ms a step +\S+ +(\S+)", text, re.MULTILINE)
    }
    total = means.pop("total")
    assert {"reshard", "search", "exchange wait", "model", "other"} == set(means)
    assert sum(means.values()) == pytest.approx(total, rel=0.01)
    loop = 1e3 * float(re.search(r"Loop time of (\S+)", text)[1])
    assert total > 0.5 * loop / 6, "the step is what the run spends its time on"


def test_threads_are_those_of_the_keyword(box, demo):
    """Counted by the system: the shell's parent is lmp."""
    found = {}
    for threads in (1, 3):
        script = start(demo, options=f"threads {threads}") + 'run 0\nshell "grep Threads /proc/$PPID/status"\n'
        text = run_well(script, box).text
        found[threads] = (int(re.search(r"Threads:\s+(\d+)", text)[1]), thermo(text)[0]["PotEng"][0])
    assert found[3][0] >= found[1][0] + 2, "libtorch may keep helpers of its own"
    assert found[3][1] == pytest.approx(found[1][1], rel=SAME_ENERGY_RTOL)


def test_a_minimization_lowers_the_energy(box, demo):
    table = thermo(run_well(start(demo) + "minimize 0 0 5 20\n", box).text)[0]
    assert table["PotEng"][-1] < table["PotEng"][0] - 0.01


def test_a_restarted_run_continues_the_trajectory(box, demo):
    script = start(demo) + "fix all all nve\nrun 5\nwrite_restart five.restart\nrun 5\n"
    whole = thermo(run_well(script, box).text)[1]
    head, tail = start(demo).split("read_data box.data\n")
    tail = tail.replace("velocity", "#velocity")
    script = head + "read_restart five.restart\n" + tail + "fix all all nve\nrun 5\n"
    continued = thermo(run_well(script, box).text)[0]
    for name in ("PotEng", "KinEng"):
        np.testing.assert_allclose(continued[name], whole[name], rtol=SAME_ENERGY_RTOL)


def test_a_new_pair_style_line_replaces_the_options(box, demo):
    """LAMMPS keeps the style object, and so pair_coeff, when the same style is named again."""
    script = start(demo, options="skin 0.0") + "fix all all nve\nrun 5\npair_style tessera skin 2.0\nrun 5\n"
    assert rebuilds(run_well(script, box).text) == [6, 1]


def test_free_and_mixed_boundaries_run(tmp_path, demo):
    """The box of a free axis shrinks and grows with the atoms; energies are those of one fixed large box."""
    write_data(tmp_path / "box.data", SMALL, ["H", "O"])
    for boundary in ("s s s", "p p s", "p f m"):
        free = start(demo, modify=f"boundary {boundary}") + "fix all all nve\nrun 5\n"
        shrunk = thermo(run_well(free, tmp_path).text)[0]
        fixed = boundary.replace("s", "f").replace("m", "f")
        large = start(demo, modify=f"boundary {fixed}").replace("pair_style", change_free_axes(fixed) + "pair_style", 1)
        expected = thermo(run_well(large + "fix all all nve\nrun 5\n", tmp_path).text)[0]
        np.testing.assert_allclose(shrunk["PotEng"], expected["PotEng"], rtol=SAME_ENERGY_RTOL, err_msg=boundary)


def change_free_axes(boundary: str) -> str:
    axes = [axis for axis, kind in zip("xyz", boundary.split(), strict=True) if kind == "f"]
    return "change_box all " + " ".join(f"{axis} delta -30 30" for axis in axes) + "\n"
