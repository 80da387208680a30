# SPDX-License-Identifier: MIT
"""Real MPI ranks through LAMMPS give what one rank gives; a rank that fails ends the run."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from lammps_program import plugin, program, run, run_well

from many_ranks import SYSTEMS

#: Sums in another order, in float64.
ENERGY_RTOL = 1e-10
FORCE_ATOL = 1e-9  # eV/Å
PRESSURE_RTOL = 1e-7  # LAMMPS prints what it sums over ranks; near cancellation of kinetic part and virial
SECONDS_TO_END = 10

TYPES = ["H", "C", "O"]
START = """units metal
atom_style atomic
boundary {boundary}
atom_modify map yes
read_data box.data
pair_style tessera {options}
pair_coeff * * {model} H C O
velocity all create 300.0 8123 loop geom
timestep {timestep}
thermo_style custom step temp pe etotal press pxx pxy
thermo_modify format float %.15g
"""
FORCES = "dump all all custom 1 forces.dump id type x y z ix iy iz fx fy fz vx vy vz\n\
dump_modify all sort id format float %.17g\n"


@pytest.fixture(scope="session")
def first_order(artifact):
    return artifact("first", "float64")


def write_box(folder: Path, atoms: Atoms) -> None:
    cell = atoms.cell.array
    lines = ["hard system", "", f"{len(atoms)} atoms", "3 atom types", ""]
    lines += [f"0.0 {cell[k, k]!r} {axis}lo {axis}hi".replace("np.float64(", "").replace(")", "")
              for k, axis in enumerate("xyz")]  # fmt: skip
    if np.count_nonzero(cell - np.diag(np.diag(cell))):
        lines.append(f"{float(cell[1, 0])} {float(cell[2, 0])} {float(cell[2, 1])} xy xz yz")
    lines += ["", "Masses", "", "1 1.008", "2 12.011", "3 15.999", "", "Atoms # atomic", ""]
    for k, (symbol, position) in enumerate(zip(atoms.symbols, atoms.positions, strict=True), 1):
        lines.append(f"{k} {TYPES.index(symbol) + 1} " + " ".join(repr(float(x)) for x in position))
    (folder / "box.data").write_text("\n".join(lines) + "\n")


def script(model: Path, atoms: Atoms, *, options: str = "", timestep: float = 0.00025) -> str:
    boundary = " ".join("p" if periodic else "f" for periodic in atoms.pbc)
    return START.format(boundary=boundary, options=options, model=model, timestep=timestep)


def system(name: str) -> Atoms:
    atoms = SYSTEMS[name]()
    if not atoms.pbc.all():  # LAMMPS keeps atoms of a fixed boundary inside the box
        low, high = atoms.positions.min(0), atoms.positions.max(0)
        cell = atoms.cell.array.copy()
        for axis in np.flatnonzero(~atoms.pbc):
            cell[axis, axis] = high[axis] - low[axis] + 4.0
            atoms.positions[:, axis] += 2.0 - low[axis]
        atoms.set_cell(cell)
    return atoms


def results(text: str, dump: str) -> tuple[np.ndarray, np.ndarray]:
    """Thermo rows [step, temp, pe, etotal, press, pxx, pxy] and forces by frame and id."""
    tables = re.findall(r"^ *Step .*?\n(.*?)^Loop time", text, re.MULTILINE | re.DOTALL)
    rows = [[float(w) for w in line.split()] for block in tables
            for line in block.splitlines() if re.match(r"\s*\d", line)]  # fmt: skip
    frames = [np.loadtxt(frame.splitlines()[9:], ndmin=2) for frame in dump.split("ITEM: TIMESTEP")[1:]
              for frame in ["ITEM: TIMESTEP" + frame]]  # fmt: skip
    return np.array(rows), np.array([frame[:, 8:11] for frame in frames])


@cache
def one_rank(model: Path, name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    atoms = system(name)
    write_box(folder, atoms)
    done = run_well(script(model, atoms) + FORCES + "run 0\n", folder)
    return results(done.text, done.dumps["forces.dump"])


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "5 atoms"])
def test_real_ranks_give_what_one_rank_gives(first_order, tmp_path, tmp_path_factory, name, num_ranks):
    atoms = system(name)
    write_box(tmp_path, atoms)
    expected, expected_forces = one_rank(first_order, name, tmp_path_factory.mktemp("one"))
    done = run_well(script(first_order, atoms) + FORCES + "run 0\n", tmp_path, ranks=num_ranks)
    found, forces = results(done.text, done.dumps["forces.dump"])
    np.testing.assert_allclose(found[:, 2], expected[:, 2], rtol=ENERGY_RTOL)
    np.testing.assert_allclose(forces, expected_forces, atol=FORCE_ATOL, rtol=0)
    np.testing.assert_allclose(found[:, 4:], expected[:, 4:], rtol=PRESSURE_RTOL, atol=1e-4)
    print(f"\n{name:30} K={num_ranks} max|dF| {abs(forces - expected_forces).max():.1e} eV/Å")  # noqa: T201


def test_more_ranks_than_atoms_run(first_order, tmp_path):
    """5 atoms on 8 ranks: ranks without atoms take part in every exchange."""
    atoms = system("5 atoms")
    write_box(tmp_path, atoms)
    expected = results(*text_and_dump(run_well(script(first_order, atoms) + FORCES + "run 3\n", tmp_path)))
    found = results(*text_and_dump(run_well(script(first_order, atoms) + FORCES + "run 3\n", tmp_path, ranks=8)))
    np.testing.assert_allclose(found[0][:, 2], expected[0][:, 2], rtol=ENERGY_RTOL)
    np.testing.assert_allclose(found[1], expected[1], atol=FORCE_ATOL, rtol=0)


def text_and_dump(done) -> tuple[str, str]:
    return done.text, done.dumps["forces.dump"]


@pytest.mark.parametrize(
    "options",
    ["recut 4 skin 0.4", "curve morton peers key-range", "balance edges peers rank-box rebuild 3",
     "overlap no peers all-gather",
     "peers spatial-bin skin 0.0"],
)  # fmt: skip
def test_dynamics_on_two_ranks_follow_one_rank(first_order, tmp_path, options):
    """Rebuilds, re-cuts and migration between LAMMPS's bricks leave the trajectory alone."""
    atoms = system("W216")
    write_box(tmp_path, atoms)
    tail = "neigh_modify every 1 delay 0 check no\nfix all all nve\nthermo 10\n" + FORCES + "run 10\n"
    expected = results(*text_and_dump(run_well(script(first_order, atoms) + tail, tmp_path)))
    done = run_well(script(first_order, atoms, options=options) + tail, tmp_path, ranks=2)
    found = results(*text_and_dump(done))
    np.testing.assert_allclose(found[0][:, 3], expected[0][:, 3], rtol=1e-9)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-7, rtol=0)


def test_the_load_report_stands_in_the_log(first_order, tmp_path):
    atoms = system("W216")
    write_box(tmp_path, atoms)
    text = run_well(script(first_order, atoms) + "fix all all nve\nrun 2\n", tmp_path, ranks=2).text
    assert "Tessera: 3 steps on 2 rank(s)" in text
    assert re.search(r"^Tessera: of each rank +min +avg +max$", text, re.MULTILINE)
    assert re.search(r"^Tessera: owned atoms +324 +324 +324$", text, re.MULTILINE)
    assert re.search(r"^Tessera: feature messages a step +4 +4 +4$", text, re.MULTILINE), "2 stages, forward and back"
    table = [line for line in text.splitlines() if line.startswith("Tessera: ")][-14:]
    assert len({len(line) for line in table}) == 1, "the columns are aligned"


@pytest.mark.parametrize(
    ("name", "value"), [("curve", "peano"), ("balance", "mass"), ("peers", "all"), ("overlap", "maybe")]
)
def test_a_wrong_choice_is_refused_with_the_choices(first_order, tmp_path, name, value):
    atoms = system("5 atoms")
    write_box(tmp_path, atoms)
    done = run(script(first_order, atoms, options=f"{name} {value}") + "run 0\n", tmp_path, ranks=2)
    assert done.code != 0
    assert re.search(rf"{name}.*expected .*found '{value}'", done.text, re.DOTALL)


def test_partitions_use_their_own_world(first_order, tmp_path):
    """-partition 2x2: two replicas on two ranks each match single runs."""
    atoms = system("droplet in a large box")
    write_box(tmp_path, atoms)
    (tmp_path / "in.two").write_text(script(first_order, atoms) + "run 0\n")
    single = results(run_well(script(first_order, atoms) + "run 0\n", tmp_path).text, "")[0]
    mpiexec = Path(program()).with_name("mpiexec")
    subprocess.run(
        [mpiexec, "-n", "4", program(), "-partition", "2x2", "-in", "in.two", "-log", "log.two", "-screen", "none"],
        cwd=tmp_path, check=True, timeout=120,
        env={**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    for replica in (0, 1):
        rows = results((tmp_path / f"log.two.{replica}").read_text(), "")[0]
        np.testing.assert_allclose(rows[:, 2], single[:, 2], rtol=ENERGY_RTOL)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_rank_ends_the_run_within_ten_seconds(first_order, tmp_path, how):
    atoms = system("W216")
    write_box(tmp_path, atoms)
    (tmp_path / "in.test").write_text(script(first_order, atoms) + "fix all all nve\nthermo 1\nrun 100000\n")
    mpiexec = Path(program()).with_name("mpiexec")
    process = subprocess.Popen(
        [mpiexec, "-n", "3", program(), "-in", "in.test", "-log", "log.run"], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        log = tmp_path / "log.run"
        while not (log.exists() and re.search(r"^ +3 ", log.read_text(), re.MULTILINE)):
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < deadline, "the run has not reached step 3"
            time.sleep(0.2)
        found = subprocess.run(["pgrep", "-f", "lammps/lmp -in in.test"], capture_output=True, text=True, check=True)
        victims = [int(pid) for pid in found.stdout.split() if Path(f"/proc/{pid}/cwd").readlink() == tmp_path]
        os.kill(victims[-1], how)
        begin = time.monotonic()
        process.wait(timeout=SECONDS_TO_END)
        assert time.monotonic() - begin < SECONDS_TO_END
        assert process.returncode != 0
    finally:
        process.kill()
        sys.stdout.write(process.stdout.read()[-500:])


def test_an_exception_on_one_rank_ends_all_of_them(first_order, tmp_path):
    """Coincident atoms are seen by the rank that owns them; the others wait in an exchange."""
    atoms = system("W216")
    atoms.positions[100] = atoms.positions[3]
    write_box(tmp_path, atoms)
    begin = time.monotonic()
    done = run(script(first_order, atoms) + "run 0\n", tmp_path, ranks=3)
    assert done.code != 0
    assert "remove overlapping atoms" in done.text
    assert time.monotonic() - begin < 60
