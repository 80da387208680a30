# SPDX-License-Identifier: MIT
"""Commands that want forces of pairs, or parameters to change: one line that says so, before any number is printed."""

import re

import numpy as np
import pytest
from lammps_program import run, run_well
from water_systems import SMALL, write_data

START = """units metal
atom_style atomic
atom_modify map yes
read_data box.data
{pair}
group hydrogen type 1
group oxygen type 2
{commands}
thermo_style custom step pe {column}
run 0
print "after the run"
"""
TESSERA = "pair_style tessera\npair_coeff * * {model} H O"
OVERLAY = """pair_style hybrid/overlay tessera lj/cut 4.0
pair_coeff * * tessera {model} H O
pair_coeff * * lj/cut 0.01 2.0"""
LENNARD_JONES = "pair_style lj/cut 4.0\npair_coeff * * 0.01 2.0"
GROUPS = "compute 1 hydrogen group/group oxygen"
TALLY = "compute 1 hydrogen {style} hydrogen"
SAME_RTOL = 1e-12  # the same sum of Lennard-Jones


@pytest.fixture
def box(tmp_path):
    write_data(tmp_path / "box.data", SMALL, ["H", "O"])
    return tmp_path


@pytest.fixture
def first(artifact):
    return artifact("first", "float64")


def refusal(folder, model, commands: str, *, column: str = "", pair: str = TESSERA, ranks: int = 1) -> str:
    """The line that ends the run; it stands before the first step."""
    script = START.format(pair=pair.format(model=model), commands=commands, column=column)
    done = run(script, folder, ranks=ranks)
    assert done.code != 0, done.text
    assert "after the run" not in done.text
    unknown = re.search(r"ERROR: Unrecognized (compute|fix) style '(\S+)'", done.text)
    if unknown:
        pytest.skip(f"this LAMMPS was built without {unknown[1]} {unknown[2]}")
    assert not re.search(r"^ +0 +-?\d", done.text, re.MULTILINE), "refused before the first row of thermo"
    lines = [line for line in done.text.splitlines() if line.startswith("ERROR")]
    assert len(lines) == 1, done.text[-2000:]
    return lines[0]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_force_between_two_groups_is_refused(box, first, ranks):
    """compute group/group adds up Pair::single, a pair at a time."""
    line = refusal(box, first, GROUPS, column="c_1", ranks=ranks)
    assert "Pair style does not support compute group/group" in line


def test_the_force_between_two_groups_is_refused_in_a_hybrid(box, first):
    assert "does not support single" in refusal(box, first, GROUPS, column="c_1", pair=OVERLAY)


OF_PAIRS = {
    "compute pair/local": ("compute 1 all pair/local eng\ncompute 2 all reduce sum c_1 inputs local", "c_2"),
    "compute stress/mop": ("compute 1 all stress/mop x center total", "c_1[1]"),
    "compute stress/mop/profile": ("compute 1 all stress/mop/profile x lower 1.0 total", "c_1[1][1]"),
    "compute stress/cartesian": ("compute 1 all stress/cartesian x 1.0 NULL 0", "c_1[1][1]"),
    "compute stress/spherical": ("compute 1 all stress/spherical 3 3 3 1.0 3.0", "c_1[1][1]"),
    "compute born/matrix": ("compute 1 all born/matrix", "c_1[1]"),
    "pair_write": ("pair_write 1 1 10 r 1.0 3.0 table.txt X", ""),
}


@pytest.mark.parametrize("name", OF_PAIRS)
def test_what_adds_up_pairs_of_atoms_is_refused_by_name(box, first, name):
    commands, column = OF_PAIRS[name]
    assert f"not support {name}" in refusal(box, first, commands, column=column)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("style", ["force/tally", "pe/tally", "stress/tally", "heat/flux/tally"])
def test_a_tally_is_refused_where_it_would_be_zero(box, first, style, ranks):
    """LAMMPS warns of an incompatible pair style, and prints zeros."""
    line = refusal(box, first, TALLY.format(style=style), column="c_1[1]" if "heat" in style else "c_1", ranks=ranks)
    assert f"pair_style tessera: expected no compute of style */tally, found {style}" in line


def test_a_hybrid_tallies_its_other_part_where_the_model_is_left_out(box, first):
    show = '\nrun 0\nprint "tally: $(c_1:%.17g)"'
    commands = TALLY.format(style="pe/tally") + "\nthermo_style custom step pe c_1" + show
    line = refusal(box, first, commands, column="c_1", pair=OVERLAY)
    assert "`pair_modify pair tessera compute/tally no`" in line
    left_out = OVERLAY + "\npair_modify pair tessera compute/tally no"
    found = [
        run_well(START.format(pair=pair.format(model=first), commands=commands, column="c_1"), box).values("tally")
        for pair in (left_out, LENNARD_JONES)
    ]
    assert abs(found[1].item()) > 1e-6, "eV"
    np.testing.assert_allclose(found[0], found[1], rtol=SAME_RTOL)


CHANGED_PARAMETERS = {
    "fix adapt": "variable x equal 1.0\nfix 1 all adapt 1 pair tessera skin * * v_x",
    "fix adapt of a value": "variable x equal 1.0\nfix 1 all adapt 1 pair tessera energy * * v_x",
    "compute fep": "variable x equal 1.0\ncompute 1 all fep 300 pair tessera skin * * v_x",
}


@pytest.mark.parametrize("name", CHANGED_PARAMETERS)
def test_parameters_that_a_model_lacks_cannot_be_changed(box, first, name):
    line = refusal(box, first, CHANGED_PARAMETERS[name])
    assert "pair style" in line.lower()
    assert "not support" in line
