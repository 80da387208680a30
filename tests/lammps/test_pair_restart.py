# SPDX-License-Identifier: MIT
"""Restart files keep the pair style, its options and its model; data files leave them to the script."""

import re
import shutil

import numpy as np
import pytest
from lammps_program import run, run_well
from water_systems import SMALL, write_data

CONTINUED_RTOL = 1e-9  # rounding of other row orders, grown over a few steps
DATA_RTOL = 1e-6  # a data file holds positions in limited digits
PAIR = "pair_style tessera {options}\npair_coeff * * model.pt2 H O\n"
START = "units metal\natom_style atomic\nread_data box.data\n" + PAIR
RUN = """timestep 0.00025
thermo_style custom step pe ke press
thermo 1
thermo_modify format float %.17g
fix all all nve
run 4
"""
OPTIONS = "skin 0.7 rebuild 3 charge 1"


@pytest.fixture
def box(tmp_path, demo):
    write_data(tmp_path / "box.data", SMALL, ["H", "O"])
    shutil.copy(demo, tmp_path / "model.pt2")
    return tmp_path


def write_restart(folder, *, ranks=1, pair=PAIR):
    script = START.replace(PAIR, pair).format(options=OPTIONS) + "velocity all create 300.0 7 loop geom\n"
    return run_well(script + RUN + "write_restart four.restart\n" + RUN.replace("fix", "#fix"), folder, ranks=ranks)


def tables(text: str) -> list[np.ndarray]:
    """One a run: rows [step, pe, ke, press]."""
    blocks = re.findall(r"^ *Step .*?\n(.*?)^Loop time", text, re.MULTILINE | re.DOTALL)
    return [np.array([[float(word) for word in line.split()] for line in block.splitlines()]) for block in blocks]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_goes_on_without_pair_commands(box, ranks):
    whole = write_restart(box, ranks=ranks)
    done = run_well("read_restart four.restart\n" + RUN, box, ranks=ranks)
    np.testing.assert_allclose(tables(done.text)[0], tables(whole.text)[1], rtol=CONTINUED_RTOL)
    assert "restoring pair style tessera from restart" in done.text
    assert "model model.pt2 (float64, cpu), atom types 1=H, 2=O" in done.text
    assert "skin 0.7 A, rebuild at least every 3 steps" in done.text


def test_a_second_restart_file_written_before_any_run_is_complete(box):
    whole = write_restart(box)
    run_well("read_restart four.restart\nwrite_restart again.restart\n", box)
    done = run_well("read_restart again.restart\n" + RUN, box)
    np.testing.assert_allclose(tables(done.text)[0], tables(whole.text)[1], rtol=CONTINUED_RTOL)


def hashes(text: str) -> set[str]:
    return set(re.findall(r"\b[0-9a-f]{64}\b", text))


def test_another_model_under_the_same_name_is_refused_with_both_hashes(box, artifact):
    write_restart(box)
    shutil.copy(artifact("first", "float64"), box / "model.pt2")
    done = run("read_restart four.restart\n" + RUN, box)
    assert done.code != 0
    text = " ".join(done.text.split())
    assert "model.pt2: expected the model that the restart file was written with" in text
    assert "put the former back, or name the model with pair_coeff after read_restart" in text
    assert len(hashes(text)) == 2
    done = run_well("read_restart four.restart\npair_coeff * * model.pt2 H O\n" + RUN, box)
    assert len(tables(done.text)[0]) == 5, "naming it is consent"


def test_a_missing_model_is_named_and_can_be_given_again(box):
    whole = write_restart(box)
    (box / "model.pt2").rename(box / "moved.pt2")
    done = run("read_restart four.restart\n" + RUN, box)
    assert done.code != 0
    assert "model.pt2: expected an artifact, found no such file" in " ".join(done.text.split())
    for repeated in ("", f"pair_style tessera {OPTIONS}\n"):
        script = "read_restart four.restart\n" + repeated + "pair_coeff * * moved.pt2 H O\n" + RUN
        np.testing.assert_allclose(tables(run_well(script, box).text)[0], tables(whole.text)[1], rtol=CONTINUED_RTOL)


def test_a_hybrid_keeps_options_and_asks_for_pair_coeff(box):
    coefficients = "pair_coeff * * lj/cut 0.001 1.0\npair_coeff * * tessera model.pt2 H O\n"
    whole = write_restart(box, pair="pair_style hybrid/overlay tessera {options} lj/cut 4.0\n" + coefficients)
    done = run_well("read_restart four.restart\n" + coefficients + RUN, box)
    np.testing.assert_allclose(tables(done.text)[0], tables(whole.text)[1], rtol=CONTINUED_RTOL)
    assert "skin 0.7 A, rebuild at least every 3 steps" in done.text


def test_a_data_file_continues_with_pair_commands(box):
    script = START.format(options=OPTIONS) + "velocity all create 300.0 7 loop geom\n" + RUN
    whole = run_well(script + "write_data four.data\n" + "run 0\n", box)
    again = START.replace("box.data", "four.data").format(options=OPTIONS) + RUN.replace("run 4", "run 0")
    done = run_well(again, box)
    np.testing.assert_allclose(tables(done.text)[0][0, 1:3], tables(whole.text)[1][0, 1:3], rtol=DATA_RTOL)
