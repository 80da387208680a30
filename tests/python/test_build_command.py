# SPDX-License-Identifier: MIT
"""`tessera build`: files that LAMMPS and ASE read, the report, the same file from the same seed, input it refuses."""

import re
from pathlib import Path

import ase.io
import numpy as np
import pytest

from tessera import cli
from tessera.build.system import assemble
from tessera.build.write import write
from tessera.commands.plan_structure import read_structure

EXAMPLES = Path(__file__).parents[2] / "examples"
TRPZIP = str(EXAMPLES / "6-protein" / "trpzip2.pdb")
ALANINE = str(EXAMPLES / "7-capsid" / "alanine.pdb")
#: Files keep 5 digits of a coordinate and 6 of an edge.
FILE_DIGITS = 1.1e-5
RECIPES = {
    "water": ["water", "--edge", "15,16,17"],
    "kcl": ["kcl", "--atoms", "1000", "--molar", "2"],
    "protein": ["protein", TRPZIP, "--box", "fitted", "--pad", "4"],
    "capsid": ["capsid", ALANINE, "--pad", "2", "--molar", "0.3"],
}


def build(folder, recipe, *arguments, name="a.data"):
    path = folder / name
    assert cli.main(["build", *recipe, *arguments, "-o", str(path)]) == 0
    return path


def read_atoms(path):
    """Rows of the section Atoms, as words."""
    lines = path.read_text().splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith("Atoms"))
    return [line.split() for line in lines[start + 2 :]]


@pytest.mark.parametrize("name", RECIPES)
def test_every_system_is_written_alike_for_lammps_and_ase(tmp_path, capsys, name):
    data = build(tmp_path, RECIPES[name], "-o", str(tmp_path / "a.extxyz"))
    report = capsys.readouterr().out
    structure = read_structure(data)
    atoms = ase.io.read(tmp_path / "a.extxyz")
    assert len(atoms) == len(structure.positions) == int(re.search(r"\natoms +(\d+)", report)[1])
    assert structure.positions == pytest.approx(atoms.positions, abs=FILE_DIGITS)
    assert structure.cell == pytest.approx(atoms.cell.array, abs=FILE_DIGITS)
    assert (structure.positions >= 0).all()
    assert (structure.positions < np.diag(structure.cell)).all()
    elements = re.search(r"pair_coeff \* \* model\.pt2 (.+)", report)[1].split()
    types = [int(row[1]) for row in read_atoms(data)]
    assert [elements[number - 1] for number in types] == atoms.get_chemical_symbols()
    assert atoms.arrays["formal_charge"].sum() == 0


@pytest.mark.parametrize("name", RECIPES)
def test_the_same_seed_gives_the_same_file(tmp_path, name):
    first = build(tmp_path, RECIPES[name], name="a.data")
    second = build(tmp_path, RECIPES[name], name="b.data")
    assert first.read_bytes() == second.read_bytes()
    other = build(tmp_path, RECIPES[name], "--seed", "2", name="c.data")
    has_random_parts = name != "water"
    assert (first.read_text().splitlines()[2:] != other.read_text().splitlines()[2:]) == has_random_parts


def test_an_atom_that_rounds_to_the_upper_face_is_written_at_the_lower_one(tmp_path):
    edges = np.array([15.0, 16.0, 17.1234564])
    waters = np.array([[edges - 1e-6, [-1e-7, 1.0, 1.0], [1.0, 16.0, 1.0]]])
    system = assemble(edges, None, waters, {})
    for name in ("a.data", "a.extxyz"):
        write(system, "faces", tmp_path / name, "atomic")
        structure = read_structure(tmp_path / name)
        assert structure.positions.tolist() == [[0, 0, 0], [0, 1, 1], [1, 0, 1]]


def test_packed_files_repeat_too(tmp_path):
    first = build(tmp_path, RECIPES["kcl"], name="a.data.gz")
    second = build(tmp_path, RECIPES["kcl"], name="b.data.gz")
    assert first.read_bytes() == second.read_bytes()
    plain = build(tmp_path, RECIPES["kcl"], name="c.data")
    assert np.array_equal(read_structure(first).positions, read_structure(plain).positions)


def test_full_style_has_molecules_and_charges(tmp_path):
    atomic = read_atoms(build(tmp_path, RECIPES["kcl"], name="a.data"))
    full = read_atoms(build(tmp_path, RECIPES["kcl"], "--style", "full", name="b.data"))
    assert [[row[0], *row[2:3], *row[4:]] for row in full] == atomic
    charges = np.array([int(row[3]) for row in full])
    assert charges.sum() == 0
    assert set(charges.tolist()) == {-1, 0, 1}
    molecules = np.array([int(row[1]) for row in full])
    sizes = np.bincount(molecules)[1:]
    assert sorted(set(sizes.tolist())) == [1, 3]
    assert (sizes == 1).sum() == np.abs(charges).sum()


def test_masses_and_types_follow_the_order_that_is_asked_for(tmp_path, capsys):
    path = build(tmp_path, RECIPES["kcl"], "--types", "O,H,K,S,Cl")
    assert "pair_coeff * * model.pt2 O H K S Cl" in capsys.readouterr().out
    text = path.read_text()
    assert "5 atom types" in text
    assert [line.split() for line in re.search(r"Masses\n\n((?:.+\n)+)", text)[1].splitlines()] == [
        ["1", "15.9990", "#", "O"],
        ["2", "1.0080", "#", "H"],
        ["3", "39.0983", "#", "K"],
        ["4", "32.0600", "#", "S"],
        ["5", "35.4500", "#", "Cl"],
    ]
    types = [row[1] for row in read_atoms(path)]
    assert types[:3] == ["1", "2", "2"]
    assert set(types) == {"1", "2", "3", "5"}


def test_the_report_counts_edges_and_density_as_brute_force_does(tmp_path, capsys):
    build(tmp_path, RECIPES["protein"], "-o", str(tmp_path / "a.extxyz"))
    report = capsys.readouterr().out
    atoms = ase.io.read(tmp_path / "a.extxyz")
    volume = atoms.get_volume()
    mass, number = re.search(r"density +(\S+) g/cm3, (\S+) atoms", report).groups()
    assert float(number) == pytest.approx(len(atoms) / volume, abs=1e-5)
    assert float(mass) == pytest.approx(atoms.get_masses().sum() / volume / 0.602214, abs=1e-4)
    images = np.stack(np.meshgrid(*[[-1, 0, 1]] * 3, indexing="ij"), -1).reshape(-1, 3) @ atoms.cell.array
    rows = {"solute": slice(0, 218), "water": slice(218, 218 + 3 * int(re.search(r"(\d+) waters", report)[1]))}
    for kind, of_kind in rows.items():
        counts = {5.0: 0, 8.0: 0}
        for image in images:
            square = ((atoms.positions[of_kind, None] - atoms.positions - image) ** 2).sum(axis=2)
            for cutoff in counts:
                counts[cutoff] += int((square <= cutoff**2).sum())
        near, far = re.search(rf"{kind} +(\S+) at 5 Å, (\S+) at 8 Å", report).groups()
        num = len(atoms.positions[of_kind])
        assert float(near) == pytest.approx(counts[5.0] / num - 1, abs=0.051)
        assert float(far) == pytest.approx(counts[8.0] / num - 1, abs=0.051)


def test_the_charge_of_other_residues_is_stated(tmp_path, capsys):
    ligand = tmp_path / "ligand.pdb"
    ligand.write_text(Path(TRPZIP).read_text().replace("GLY A", "XYZ A"))
    recipe = ["protein", str(ligand), *RECIPES["protein"][2:]]
    build(tmp_path, recipe, "--charge", "-3", "--molar", "0")
    report = capsys.readouterr().out
    assert "3 K" in report
    assert "Cl" not in report
    assert "+0 e in total, solute -3 e" in report


def test_a_capsid_grows_to_the_atoms_that_are_asked_for(tmp_path, capsys):
    build(tmp_path, [*RECIPES["capsid"], "--atoms", "15000"])
    count = int(re.search(r"\natoms +(\d+)", capsys.readouterr().out)[1])
    assert count == pytest.approx(15000, rel=0.07)  # a layer around each solute atom is free of water


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["water", "--edge", "15", "-o", "a.pdb"], "expected a name *.data"),
        (["water", "--edge", "15", "-o", "a.data", "-o", "a.pdb"], "expected a name *.data"),
        (["water", "--edge", "15", "-o", "none/a.data"], "expected an existing folder"),
        (["water", "--edge", "15,16", "-o", "a.data"], "expected one or three lengths above 0"),
        (["water", "--edge", "-15", "-o", "a.data"], "expected one or three lengths above 0"),
        (["water", "--edge", "4", "-o", "a.data"], "expected edges of at least 6 Å"),
        (["water", "--atoms", "1", "-o", "a.data"], "of at least 3, found 1"),
        (["water", "--edge", "15", "--seed", "-1", "-o", "a.data"], "--seed: expected"),
        (["kcl", "--edge", "15", "--molar", "-1", "-o", "a.data"], "at least 0 mol/L"),
        (["kcl", "--edge", "15", "--molar", "1e3", "-o", "a.data"], "lower the concentration"),
        (["kcl", "--edge", "15", "--ion-distance", "0", "-o", "a.data"], "--ion-distance: expected"),
        (
            ["kcl", "--edge", "15", "--types", "H,O", "-o", "a.data"],
            "expected all elements of the system, found no Cl, K",
        ),
        (["kcl", "--edge", "15", "--types", "H,O,Q", "-o", "a.data"], "different symbols of elements"),
        (["protein", "none.pdb", "-o", "a.data"], "no such file"),
        (["protein", TRPZIP, "--pad", "-1", "-o", "a.data"], "--pad: expected at least 0"),
        (["protein", TRPZIP, "--charge", "-3", "-o", "a.data"], "expected +1 e, which the hydrogens say, found -3 e"),
        (["capsid", ALANINE, "--copies", "61", "-o", "a.data"], "multiple of 60"),
        (["capsid", ALANINE, "--gap", "0", "-o", "a.data"], "--gap: expected"),
        (["capsid", ALANINE, "--assembly", "-o", "a.data"], "expected the operators of an assembly"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["build", *arguments]) == cli.BAD_INPUT
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
