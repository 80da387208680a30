# SPDX-License-Identifier: MIT
"""`tessera analyze`: tables, picture, numbers as JSON, comparison with another run and with experiment."""

import json
import sys

import ase
import ase.io
import numpy as np
import pytest

from tessera import cli
from tessera.build.water import fill_with_water
from tessera.commands import CommandError
from tessera.commands.analyze import parse_limit, parse_slice

LOG = """units metal
timestep 0.0005
   Step          Temp          TotEng
         0   300           -100.0
        10   310           -100.001
        20   290           -100.000
        30   300           -100.002
Loop time of 1.9 on 2 procs for 20 steps with 50 atoms
"""
PNG = b"\x89PNG"


@pytest.fixture
def water(tmp_path):
    """Two frames of water in a box of 24 Å, the second rattled."""
    atoms = ase.Atoms("OHH" * 461, fill_with_water(np.full(3, 24.0)).reshape(-1, 3), cell=[24.0] * 3, pbc=True)
    moved = atoms.copy()
    moved.rattle(0.02, seed=3)
    ase.io.write(tmp_path / "water.extxyz", [atoms, moved])
    return tmp_path / "water.extxyz"


def analyze(*arguments):
    return cli.main(["analyze", *map(str, arguments)])


def test_tables_picture_and_numbers_come_from_one_call(water, tmp_path, capsys):
    (tmp_path / "log").write_text(LOG)
    assert analyze(water, "--log", tmp_path / "log", "--plot", tmp_path / "a.png", "--json", tmp_path / "a.json") == 0
    printed = capsys.readouterr().out
    numbers = json.loads((tmp_path / "a.json").read_text())
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    assert numbers["frames"] == 2
    assert numbers["bonds"]["H-O"]["number"] == 922
    assert numbers["bonds"]["H-O"]["broken"] == 0
    assert numbers["peaks"]["O-O"]["position"] == pytest.approx(2.75, abs=0.1)  # classical water, 2.76; one moment
    assert numbers["temperature"]["mean"] == 300
    for name in ("O-O", "H-O", "H-H"):
        peak = numbers["peaks"][name]
        assert f"{name:<6} {peak['position']:>10.3f} {peak['height']:>8.2f}" in printed
    assert f"{numbers['drift']['slope']:+.2f} ± {numbers['drift']['error']:.2f} µeV/atom/ps" in printed
    assert "H-O         922" in printed


def test_pure_water_is_compared_with_diffraction_and_salt_water_is_not(water, tmp_path, capsys):
    assert analyze(water) == 0
    assert "Skinner et al., J. Chem. Phys. 138, 074506 (2013)" in capsys.readouterr().out
    salty = [frame + ase.Atoms("K", [[0.1, 0.1, 0.1]]) for frame in ase.io.read(water, ":")]
    ase.io.write(tmp_path / "salty.extxyz", salty)
    assert analyze(tmp_path / "salty.extxyz") == 0
    assert "Skinner" not in capsys.readouterr().out


def test_a_run_agrees_with_itself_and_not_with_a_shifted_reference(water, tmp_path, capsys):
    reference = tmp_path / "a.json"
    assert analyze(water, "--json", reference) == 0
    capsys.readouterr()
    assert analyze(water, "--reference", reference) == 0
    assert "O-O    position +0.000 Å, height +0.0%, coordination +0.00: within 0.05 Å and 5%" in capsys.readouterr().out
    numbers = json.loads(reference.read_text())
    numbers["peaks"]["O-O"]["position"] -= 0.06
    numbers["peaks"]["H-O"]["height"] /= 1.1
    reference.write_text(json.dumps(numbers))
    assert analyze(water, "--reference", reference) == 0
    printed = capsys.readouterr().out
    assert "O-O    position +0.060 Å, height +0.0%, coordination +0.00: NOT within" in printed
    assert "H-O    position +0.000 Å, height +10.0%, coordination +0.00: NOT within" in printed


def test_a_cluster_has_contacts_and_bonds_but_no_distribution(tmp_path, capsys):
    positions = [[0, 0, 0], [0.97, 0, 0], [-0.24, 0.94, 0], [2.9, 0, 0], [3.2, 0.92, 0], [3.2, -0.92, 0]]
    ase.io.write(tmp_path / "a.extxyz", ase.Atoms("OHHOHH", positions))
    assert analyze(tmp_path / "a.extxyz") == 0
    printed = capsys.readouterr().out
    assert "no distributions: the frames are not periodic" in printed
    assert "H-O 1.930" in printed
    assert "O-O 2.900" in printed
    assert "H-O           4" in printed
    assert "as near as bonded, below 1.15 sums of covalent radii: none" in printed


def test_a_bond_that_forms_is_told(tmp_path, capsys):
    positions = np.array([[0, 0, 0], [0.97, 0, 0], [-0.24, 0.94, 0], [2.9, 0, 0], [3.2, 0.92, 0], [3.2, -0.92, 0]])
    near = positions.copy()
    near[3:, 0] -= 0.88
    ase.io.write(tmp_path / "a.extxyz", [ase.Atoms("OHHOHH", positions), ase.Atoms("OHHOHH", near)])
    assert analyze(tmp_path / "a.extxyz", "--json", tmp_path / "a.json") == 0
    assert "as near as bonded, below 1.15 sums of covalent radii: 1 H-O (1.050 Å)" in capsys.readouterr().out
    assert json.loads((tmp_path / "a.json").read_text())["formed"]["H-O"] == {
        "number": 1,
        "closest": pytest.approx(1.05),
    }


def test_a_short_log_gives_the_temperature_and_says_why_no_drift(tmp_path, capsys):
    (tmp_path / "log").write_text("\n".join(LOG.splitlines()[:5]) + "\n" + LOG.splitlines()[-1])
    assert analyze("--log", tmp_path / "log") == 0
    printed = capsys.readouterr().out
    assert "temperature   305.0 K" in printed
    assert "no drift: 2 rows, at least 4 are needed" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a trajectory, or --log FILE"),
        (["--log", "none"], "no such file"),
        (["WATER", "--pairs", "O-Q"], "a pair of elements such as K-O, found 'O-Q'"),
        (["WATER", "--reach", "13"], "at most half the box, 12.000 Å, found 13"),
        (["WATER", "--bin", "2"], "--bin: expected"),
        (["WATER", "--frames", "5"], "--frames: expected START:STOP"),
        (["WATER", "--frames", "7:"], "at least one frame"),
        (["WATER", "--bond-limit", "O-H"], "--bond-limit: expected A-B=LENGTH"),
        (["WATER", "--reference", "none.json"], "cannot be read"),
        (["WATER", "--reference", "LOG"], "expected a file of tessera analyze --json"),
        (["--log", "LOG", "--reference", "none.json"], "expected a trajectory to compare"),
        (["--log", "LOG", "--run", "3"], "--run: expected -1 to 0, found 3"),
        (["--log", "LOG", "--timestep", "-1"], "--timestep: expected above 0 fs"),
        (["WATER", "--json", "none/a.json"], "cannot be written"),
        (["WATER", "--plot", "none/a.png"], "cannot be written"),
    ],
)
def test_bad_input_is_refused(water, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").write_text(LOG)
    names = {"WATER": str(water), "LOG": "log"}
    assert analyze(*(names.get(word, word) for word in arguments)) == cli.BAD_INPUT
    assert message in capsys.readouterr().err


def test_a_reference_of_another_format_or_other_pairs_is_refused(water, tmp_path, capsys):
    (tmp_path / "a.json").write_text('{"format": 99, "peaks": {}}')
    assert analyze(water, "--reference", tmp_path / "a.json") == cli.BAD_INPUT
    assert "expected format 1, found 99" in capsys.readouterr().err
    (tmp_path / "a.json").write_text('{"format": 1, "peaks": {}}')
    assert analyze(water, "--reference", tmp_path / "a.json") == cli.BAD_INPUT
    assert "expected some of the pairs O-O, H-O, H-H, found none" in capsys.readouterr().err


def test_a_picture_without_matplotlib_says_what_to_install(water, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tessera.analyze.plots", None)
    assert analyze(water, "--plot", tmp_path / "a.png") == cli.BAD_INPUT
    assert "expected matplotlib" in capsys.readouterr().err


def test_options_are_parsed_strictly():
    assert parse_slice("2:10:3") == slice(2, 10, 3)
    assert parse_slice("0:") == slice(0, None)
    assert parse_limit("O-H=1.2") == ("H-O", 1.2)
    for text in ("-1:", "1:2:0", "a:b", "1:2:3:4"):
        with pytest.raises(CommandError):
            parse_slice(text)
    for text in ("O-H=x", "O=1", "O-H=-1", "O-H=nan"):
        with pytest.raises(CommandError):
            parse_limit(text)
