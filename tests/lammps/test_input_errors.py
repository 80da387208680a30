# SPDX-License-Identifier: MIT
"""Bad input ends lmp with an exit code and a message that names expected, found and fix."""

import pytest
from lammps_program import run, run_well
from water_systems import water, write_data

HEAD = "units {units}\natom_style atomic\n{modify}\nread_data box.data\n"


@pytest.fixture
def box(tmp_path):
    write_data(tmp_path / "box.data", water((1, 1, 1), seed=1), ["H", "O"])
    return tmp_path


def fail(script: str, folder, *, units: str = "metal", modify: str = "", **options) -> str:
    """The text of a run that must end with an error."""
    finished = run(HEAD.format(units=units, modify=modify) + script, folder, **options)
    assert finished.code != 0, finished.text
    assert "ERROR" in finished.text, finished.text
    assert "Total wall time" not in finished.text
    return " ".join(finished.text.split())


@pytest.mark.parametrize("units", ["lj", "si", "electron"])
def test_other_units_are_refused_with_the_two_that_work(box, units):
    text = fail("pair_style tessera\n", box, units=units)
    assert f"expected units metal (eV, ps) or real (kcal/mol, fs), found units {units}" in text
    assert "put `units metal` or `units real`" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("cutoff 5", "multiplicity, threads; found 'cutoff'"),
        ("skin", "expected a value after keyword 'skin', found the end of the line"),
        ("skin -0.5", "expected skin >= 0 (Angstrom), found -0.5"),
        ("skin nan", "nan"),
        ("skin wide", "wide"),
        ("rebuild -1", "expected rebuild >= 0, found -1"),
        ("order random", "order: expected scattered or ascending, found 'random'"),
        ("multiplicity two", "two"),
        ("threads -2", "expected threads >= 0, found -2"),
        ("charge 0.5", "0.5"),
    ],
)
def test_a_wrong_keyword_or_value_is_named(box, arguments, message):
    assert message in fail(f"pair_style tessera {arguments}\n", box)


def test_a_run_without_pair_coeff_shows_the_line_that_is_missing(box):
    text = fail("pair_style tessera\nrun 0\n", box)
    assert "expected `pair_coeff * * model.pt2 <element of each atom type>` before the run, found no pair_coeff" in text


def test_pair_coeff_for_single_types_is_refused(box):
    assert "must start with * *" in fail("pair_style tessera\npair_coeff 1 1 model.pt2 H O\n", box)


def test_pair_coeff_without_a_model_is_refused(box):
    assert "expected a model file after `* *`" in fail("pair_style tessera\npair_coeff * *\n", box)


def test_a_missing_model_file_is_named(box):
    text = fail("pair_style tessera\npair_coeff * * nowhere.pt2 H O\n", box)
    assert "nowhere.pt2" in text
    assert "pair_style tessera:" in text


def test_a_file_that_is_no_artifact_is_refused(box):
    (box / "text.pt2").write_text("not a model\n" * 100)
    text = fail("pair_style tessera\npair_coeff * * text.pt2 H O\n", box)
    assert "text.pt2" in text
    assert "tessera-export" in text


def test_a_truncated_artifact_is_refused(box, demo):
    data = demo.read_bytes()
    (box / "half.pt2").write_bytes(data[: len(data) // 2])
    text = fail("pair_style tessera\npair_coeff * * half.pt2 H O\n", box)
    assert "half.pt2" in text
    assert "tessera-export" in text


@pytest.mark.parametrize("given", ["H", "H O H", ""])
def test_another_number_of_elements_than_types_is_refused(box, demo, given):
    text = fail(f"pair_style tessera\npair_coeff * * {demo} {given}\n", box)
    found = f"found {len(given.split())}"
    assert "expected one element or NULL for each of the 2 atom types" in text
    assert found in text
    assert "the model has H, " in text


def test_an_unknown_element_is_answered_with_the_elements_of_the_model(box, demo):
    text = fail(f"pair_style tessera\npair_coeff * * {demo} H Xx\n", box)
    assert "expected one of the model's elements (H, " in text
    assert "or NULL for atom type 2, found 'Xx'" in text


def test_a_wrong_case_is_answered_with_the_right_one(box, demo):
    text = fail(f"pair_style tessera\npair_coeff * * {demo} h O\n", box)
    assert "for atom type 1, found 'h'; did you mean 'H'?" in text


def test_atoms_without_ids_are_refused(box, demo):
    script = f"units metal\natom_style atomic\natom_modify id no\nregion all block 0 5 0 5 0 5\ncreate_box 2 all\n\
create_atoms 2 single 1 1 1\nmass * 1.0\npair_style tessera\npair_coeff * * {demo} H O\nrun 0\n"
    finished = run(script, box)
    assert finished.code != 0
    assert "expected atoms with ids, found none; remove `atom_modify id no`" in finished.text


def test_two_dimensions_are_refused(box, demo):
    script = f"units metal\ndimension 2\natom_style atomic\nregion all block 0 5 0 5 -0.5 0.5\ncreate_box 2 all\n\
create_atoms 2 single 1 1 0\nmass * 1.0\npair_style tessera\npair_coeff * * {demo} H O\nrun 0\n"
    finished = run(script, box)
    assert finished.code != 0
    assert "expected dimension 3, found 2" in finished.text


@pytest.mark.parametrize("keyword", ["charge 99", "charge -99", "multiplicity 99", "multiplicity -1"])
def test_a_charge_or_multiplicity_beyond_the_model_is_refused(box, demo, keyword):
    text = fail(f"pair_style tessera {keyword}\npair_coeff * * {demo} H O\nrun 0\n", box)
    assert f"expected {keyword.split()[0]} between" in text
    assert f"found {keyword.split()[1]}" in text


def test_coincident_atoms_end_the_run(box, demo):
    script = f"create_atoms 1 single 1.0 1.0 1.0\ncreate_atoms 1 single 1.0 1.0 1.0\n\
pair_style tessera\npair_coeff * * {demo} H O\nrun 0\n"
    text = fail(script, box)
    assert "ERROR on proc 0: pair_style tessera:" in text


RUN_0 = "pair_style tessera\npair_coeff * * {demo} {elements}\nrun 0\n"
MASS_WARNING = "masses contradict the elements of pair_coeff"


def test_a_mass_of_another_element_is_warned_of_once(box, demo):
    run_twice = HEAD.format(units="metal", modify="") + RUN_0.format(demo=demo, elements="O H") + "run 0\n"
    text = run_well(run_twice, box).text
    assert text.count(MASS_WARNING) == 1
    assert "type 1 is mapped to O (expected 15.999 u), but has mass 1.008 u" in text
    assert "type 2 is mapped to H (expected 1.008 u), but has mass 15.999 u" in text


def test_right_masses_raise_no_warning(box, demo):
    text = run_well(HEAD.format(units="metal", modify="") + RUN_0.format(demo=demo, elements="H O"), box).text
    assert MASS_WARNING not in text


def test_masses_of_single_atoms_are_checked_too(box, demo):
    heavy = "fix single all property/atom rmass\nset type 1 mass 1.008\nset type 2 mass 15.999\nset atom 1 mass 18.2\n"
    text = run_well(HEAD.format(units="metal", modify="") + heavy + RUN_0.format(demo=demo, elements="H O"), box).text
    assert text.count(MASS_WARNING) == 1
    assert "but has mass 18.2 u" in text
