# SPDX-License-Identifier: MIT
"""Solutes from files: PDB and mmCIF say the same, hydrogens give the charge, what is missing is named."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from tessera.build.read_pdb import read_molecule
from tessera.build.residues import RESIDUES, formal_charges, parse_formula
from tessera.commands import CommandError

EXAMPLES = Path(__file__).parents[2] / "examples"
TRPZIP, LYSOZYME, ALANINE = (
    EXAMPLES / "6-protein" / "trpzip2.pdb",
    EXAMPLES / "6-protein" / "lysozyme.pdb.gz",
    EXAMPLES / "7-capsid" / "alanine.pdb",
)
ATOMS = [line for line in TRPZIP.read_text().splitlines() if line.startswith("ATOM")]


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def without(*names, residue):
    """Lines of trpzip2 without some atoms of a residue."""
    return [line for line in ATOMS if not (line[12:16].strip() in names and int(line[22:26]) == residue)]


def to_mmcif(lines, operators=()):
    """The same atoms as mmCIF, as the Protein Data Bank writes them."""
    items = (
        "group_PDB id type_symbol label_atom_id label_alt_id label_comp_id label_asym_id label_seq_id Cartn_x Cartn_y "
    )
    items += "Cartn_z auth_seq_id auth_asym_id pdbx_PDB_ins_code pdbx_PDB_model_num"
    text = [
        "data_TEST",
        "_struct.title 'a # title with ''quotes'''",
        "_struct.text",
        ";loop_",
        "_atom_site.no",
        ";",
        "loop_",
    ]
    text += [f"_atom_site.{item}" for item in items.split()]
    for line in lines:
        name, symbol = line[12:16].strip(), line[76:78].strip()
        where = " ".join(line[30:54].split())
        text.append(
            f'ATOM {line[6:11].strip()} {symbol} "{name}" . {line[17:20]} A {line[22:26].strip()} {where} '
            f"{line[22:26].strip()} {line[21]} ? 1"
        )
    text.append("#")
    if operators:
        names = [f"matrix[{i}][{j}]" for i in (1, 2, 3) for j in (1, 2, 3)] + [f"vector[{i}]" for i in (1, 2, 3)]
        text += ["loop_", "_pdbx_struct_oper_list.id", *(f"_pdbx_struct_oper_list.{name}" for name in names)]
        for number, operator in enumerate(operators, 1):
            values = [*operator[:, :3].ravel(), *operator[:, 3]]
            text.append(" ".join([str(number), *(f"{value:.6f}" for value in values)]))
    return text


def test_the_charge_of_a_protein_follows_from_its_hydrogens():
    trpzip, lysozyme, alanine = (read_molecule(path) for path in (TRPZIP, LYSOZYME, ALANINE))
    charges = formal_charges(trpzip)  # NH3+, Glu-, Lys+, Lys+, COO-
    assert {trpzip.labels[k]: int(charges[k]) for k in charges.nonzero()[0]} == {
        "N of SER 1 of chain A": 1,
        "CD of GLU 5 of chain A": -1,
        "NZ of LYS 8 of chain A": 1,
        "NZ of LYS 12 of chain A": 1,
        "OXT of LYS 12 of chain A": -1,
    }
    names = lysozyme.residue_names
    ionised = sum(names.count(n) for n in ("LYS", "ARG")) - sum(names.count(n) for n in ("ASP", "GLU"))
    assert formal_charges(lysozyme).sum() == ionised == 8  # its one histidine is neutral, the ends cancel
    assert formal_charges(alanine).any() == False  # noqa: E712 (numpy)


def test_neutral_formulas_are_those_of_amino_acids_less_water():
    glycine, tryptophan = parse_formula(RESIDUES["GLY"].formula), parse_formula(RESIDUES["TRP"].formula)
    assert glycine == {"C": 2, "H": 3, "N": 1, "O": 1}
    assert tryptophan == {"C": 11, "H": 10, "N": 2, "O": 1}
    for name, residue in RESIDUES.items():
        electrons = parse_formula(residue.formula)
        odd = (
            electrons["H"] + electrons["N"]
        ) % 2  # an even number of electrons, a radical for the caps' one open bond
        assert odd == (name in {"ACE", "NME", "NH2"}), name


@pytest.mark.parametrize(
    ("names", "residue", "change"),
    [(["HZ3"], 8, -1), (["H3"], 1, -1)],
)
def test_a_proton_less_is_a_charge_less(tmp_path, names, residue, change):
    molecule = read_molecule(write(tmp_path / "a.pdb", without(*names, residue=residue)))
    assert formal_charges(molecule).sum() == 1 + change


@pytest.mark.parametrize(
    ("names", "residue", "message"),
    [
        (["HB2"], 3, None),
        (["HA"], 4, r"TRP 4 of chain A: expected 10 hydrogens, found 9\. Tessera does not add atoms\..*pdbfixer"),
        (["H1", "H2", "H3"], 1, r"SER 1 of chain A: expected 6 to 7 hydrogens as the first of its chain, found 4"),
        (["CB"], 9, r"TRP 9 of chain A: expected the heavy atoms C11 N2 O1, found C10 N2 O1"),
    ],
)
def test_missing_atoms_are_named_with_a_way_to_add_them(tmp_path, names, residue, message):
    lines = without(*names, residue=residue)
    molecule = read_molecule(write(tmp_path / "a.pdb", lines))
    if message is None:
        assert len(lines) == len(ATOMS)  # threonine has no HB2: the case that changes nothing
        assert formal_charges(molecule).sum() == 1
        return
    with pytest.raises(CommandError, match=message):
        formal_charges(molecule)


def test_a_gap_in_the_chain_is_noticed_at_the_residue_after_it(tmp_path):
    lines = [line for line in ATOMS if int(line[22:26]) != 6]
    with pytest.raises(
        CommandError, match="GLY 7 of chain A: expected 4 to 5 hydrogens as the first of its chain, found 3"
    ):
        formal_charges(read_molecule(write(tmp_path / "a.pdb", lines)))


def test_a_structure_without_hydrogens_is_refused(tmp_path):
    lines = [line for line in ATOMS if line[76:78].strip() != "H"]
    with pytest.raises(CommandError, match=r"SER 1 .* found 0\. Tessera does not add atoms"):
        formal_charges(read_molecule(write(tmp_path / "a.pdb", lines)))


def test_an_unknown_residue_asks_for_the_charge(tmp_path):
    lines = [line.replace("GLY A", "XYZ A") for line in ATOMS]
    with pytest.raises(CommandError, match=r"XYZ 7 of chain A: expected one of the 20 amino acids.*--charge"):
        formal_charges(read_molecule(write(tmp_path / "a.pdb", lines)))


def test_a_stated_charge_goes_to_the_unknown_residue_and_spares_no_check(tmp_path):
    lines = [line.replace("GLY A", "XYZ A") for line in ATOMS]
    molecule = read_molecule(write(tmp_path / "a.pdb", lines))
    charges = formal_charges(molecule, 2)
    assert charges.sum() == 2
    assert charges[molecule.residue_names.index("XYZ") == molecule.residues].tolist() == [1, 0, 0, 0, 0, 0, 0]
    with pytest.raises(CommandError, match=r"at most 127 e on other residues, found \+999 e"):
        formal_charges(molecule, 1000)
    bare = [line for line in lines if line[76:78].strip() != "H"]
    with pytest.raises(CommandError, match=r"SER 1 .* found 0"):
        formal_charges(read_molecule(write(tmp_path / "b.pdb", bare)), 2)


def cysteine(number, shift):
    """Serine 1 of trpzip2 turned into a first residue CYS: its OG is an SG without hydrogen."""
    lines = []
    for line in ATOMS:
        if int(line[22:26]) == 1 and line[12:16].strip() != "HG":
            x = float(line[30:38]) + shift
            name, element = (" SG ", " S") if line[12:16] == " OG " else (line[12:16], line[76:78])
            lines.append(f"{line[:12]}{name} CYS {'AB'[number]}{number + 1:4d}    {x:8.3f}{line[38:76]}{element}")
    return lines


@pytest.mark.parametrize(("distance", "charge"), [(2.05, 2), (9.0, 0)])
def test_sulfurs_that_are_bonded_are_neutral_and_thiolates_are_not(tmp_path, distance, charge):
    molecule = read_molecule(write(tmp_path / "a.pdb", cysteine(0, 0.0) + cysteine(1, distance)))
    assert formal_charges(molecule).sum() == charge  # two NH3+, and two S- unless they are a bridge


def test_ions_of_a_file_bring_their_charge(tmp_path):
    ion = "HETATM  999 CL    CL A  99      30.000  30.000  30.000  1.00  0.00          CL"
    molecule = read_molecule(write(tmp_path / "a.pdb", [*ATOMS, ion]))
    assert molecule.numbers[-1] == 17
    assert formal_charges(molecule)[-1] == -1


def test_mmcif_and_pdb_of_one_structure_are_the_same_molecule(tmp_path):
    operators = [np.eye(3, 4), np.array([[0.0, -1, 0, 5], [1, 0, 0, 6], [0, 0, 1, 7]])]
    from_cif = read_molecule(write(tmp_path / "a.cif", to_mmcif(ATOMS, operators)))
    from_pdb = read_molecule(TRPZIP)
    for name in ("atom_names", "residue_names", "residue_labels"):
        assert getattr(from_cif, name) == getattr(from_pdb, name)
    for name in ("numbers", "positions", "residues", "chains"):
        assert np.array_equal(getattr(from_cif, name), getattr(from_pdb, name))
    assert np.array_equal(from_cif.operators, operators)
    assert np.array_equal(from_pdb.operators, np.eye(3, 4)[None])


def test_operators_of_the_first_assembly_of_a_pdb_file_are_read(tmp_path):
    remark = ["REMARK 350 BIOMOLECULE: 1"]
    for number, rows in enumerate(("1 0 0 0|0 1 0 0|0 0 1 0", "0 -1 0 5.5|1 0 0 0|0 0 1 -2"), 1):
        for k, row in enumerate(rows.split("|"), 1):
            remark.append(f"REMARK 350   BIOMT{k} {number:3d}" + "".join(f"{float(v):11.6f}" for v in row.split()))
    second = ["REMARK 350 BIOMOLECULE: 2", "REMARK 350   BIOMT1   1  9.000000  0.000000  0.000000        0.00000"]
    molecule = read_molecule(write(tmp_path / "a.pdb", [*remark, *second, *ATOMS]))
    assert np.array_equal(molecule.operators[1], [[0, -1, 0, 5.5], [1, 0, 0, 0], [0, 0, 1, -2]])
    assert len(molecule.operators) == 2


def test_first_model_first_location_and_no_waters_are_read(tmp_path):
    other = [line[:16] + "B" + line[17:30] + "   9.000" + line[38:] for line in ATOMS[4:6]]
    first = [line[:16] + "A" + line[17:] for line in ATOMS[4:6]]
    water = ["HETATM  900  O   HOH A 501      40.000  40.000  40.000  1.00  0.00           O"] * 1
    lines = [
        "MODEL        1",
        *ATOMS[:4],
        *first,
        *other,
        *ATOMS[6:],
        *water,
        "ENDMDL",
        "MODEL        2",
        *ATOMS,
        "ENDMDL",
    ]
    molecule = read_molecule(write(tmp_path / "a.pdb", lines))
    assert np.array_equal(molecule.positions, read_molecule(TRPZIP).positions)
    assert molecule.num_waters == 1


def test_elements_come_from_names_where_the_column_is_empty(tmp_path):
    calcium = "HETATM  999 CA    CA A  99      30.000  30.000  30.000"
    molecule = read_molecule(write(tmp_path / "a.pdb", [*(line[:54] for line in ATOMS), calcium]))
    assert np.array_equal(molecule.numbers[:-1], read_molecule(TRPZIP).numbers)
    assert molecule.numbers[-1] == 20


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("a.xyz", ["1", "", "H 0 0 0"], r"expected a file named \*\.pdb"),
        ("a.pdb", ["HEADER"], "expected atoms of a solute, found none"),
        ("a.pdb", [ATOMS[0][:30] + "   x.000" + ATOMS[0][38:]], "line 1: expected a PDB record"),
        ("a.pdb", [ATOMS[0][:76] + "Qq"], "expected the element of atom N of SER 1"),
        ("a.cif", ["data_X", "_cell.length_a 1"], "expected the category _atom_site"),
        ("a.cif", ["nothing"], "expected the category _atom_site"),
    ],
)
def test_malformed_files_are_refused(tmp_path, name, lines, message):
    with pytest.raises(CommandError, match=message):
        read_molecule(write(tmp_path / name, lines))


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(CommandError, match=r"none\.pdb: no such file"):
        read_molecule(tmp_path / "none.pdb")
    (tmp_path / "a.pdb.gz").write_bytes(gzip.compress(TRPZIP.read_bytes())[:200])
    with pytest.raises(CommandError, match="not readable"):
        read_molecule(tmp_path / "a.pdb.gz")
