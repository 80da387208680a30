# SPDX-License-Identifier: MIT
"""`tessera plan`: counts against brute force, files it reads, numbers it prints, input it refuses."""

import gzip
import json

import ase
import ase.io
import numpy as np
import pytest
from tiny_artifact import PASSPORT

from tessera import cli
from tessera.commands import CommandError, plan
from tessera.commands.plan_load import EDGE_BYTES, NODE_ROWS, ModelSize, plan_ranks
from tessera.commands.plan_structure import Structure, make_water, read_structure

CUTOFFS = (3.1, 5.3)
RANKS = (1, 5, 16)
#: A file keeps 8 digits of a coordinate.
FILE_DIGITS = 1e-7


@pytest.fixture(scope="module")
def water() -> Structure:
    return make_water(1000)


@pytest.fixture(scope="module")
def plans(water):
    return plan_ranks(water, RANKS, CUTOFFS, ModelSize())


def pair_distances(structure):
    """[N, N] to the nearest image; the box is more than two cutoffs wide."""
    lengths = np.diag(structure.cell)
    difference = structure.positions[:, None] - structure.positions[None]
    difference -= lengths * np.round(difference / lengths)
    distances = np.sqrt((difference**2).sum(-1))
    np.fill_diagonal(distances, np.inf)
    return distances


def test_every_rank_owns_an_equal_share(plans, water):
    for load in plans:
        assert load.owned.sum() == len(water.positions)
        assert load.owned.max() - load.owned.min() <= 1


def test_edges_and_local_edges_of_one_rank_are_all_pairs(plans, water):
    distances = pair_distances(water)
    for cutoff, load in zip(CUTOFFS, plans[0].lists, strict=True):
        assert load.edges.tolist() == [int((distances <= cutoff).sum())]
        assert load.local_fraction == 1.0
        assert load.halo_rows.sum() == load.peers.sum() == 0


def test_all_ranks_together_have_the_edges_of_one(plans):
    for load in plans[1:]:
        for one, many in zip(plans[0].lists, load.lists, strict=True):
            assert many.edges.sum() == one.edges.sum()
            assert many.halo_rows.sum() == many.sent_rows.sum() > 0
            assert 0 < many.local_fraction < 1


def test_halo_rows_are_the_foreign_neighbors_of_each_rank():
    # Two slabs by construction: atoms of a grid, half of them with x below the middle.
    points = np.stack(np.meshgrid(*[np.arange(8)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    structure = Structure(points * 2.0 + 1.0, np.eye(3) * 16.0, np.zeros(3), (False, False, False))
    (load,) = plan_ranks(structure, [8], [2.1], ModelSize())  # octants of 4 x 4 x 4 atoms, nearest neighbors only
    assert load.owned.tolist() == [64] * 8
    assert load.lists[0].halo_rows.tolist() == [3 * 16] * 8
    assert load.lists[0].peers.tolist() == [3] * 8
    assert load.lists[0].edges.tolist() == [3 * 2 * 3 * 16 + 3 * 16] * 8  # 3 axes: inner pairs both ways, outer once
    assert load.lists[0].local_fraction == pytest.approx(288 / 336)


def test_messages_and_memory_follow_from_the_counts(water):
    size = ModelSize(payload=10, channels=4, edge_floats=7, float_bytes=8, layers=(2,))
    (load,) = plan_ranks(water, [4], [4.0], size)
    counts = load.lists[0]
    np.testing.assert_array_equal(counts.message_bytes, counts.halo_rows * 80)
    expected = (
        counts.edges * (EDGE_BYTES + 2 * 7 * 8)
        + 2 * (load.owned + counts.halo_rows) * 80
        + 2 * load.owned * NODE_ROWS * 4 * 8
    )
    np.testing.assert_array_equal(load.memory_bytes, expected)


def test_the_local_fraction_of_cubes_is_near_its_estimate():
    structure = make_water(17496)  # 3 tiles an axis: 8 cubes of 28 Å
    (load,) = plan_ranks(structure, [8], [3.5], ModelSize())
    assert load.lists[0].expected_local_fraction == pytest.approx(1 - 9 * 3.5 / (8 * 27.96), abs=1e-3)
    # Second order in rc / L is left out of the estimate: 3 (3 rc / 8 L)^2 = 0.007.
    assert load.lists[0].local_fraction == pytest.approx(load.lists[0].expected_local_fraction, abs=0.01)


def test_water_has_its_density_and_repeats_nowhere():
    structure = make_water(5000)
    assert len(structure.positions) == 8 * 648
    assert len(structure.positions) / np.linalg.det(structure.cell) == pytest.approx(0.1)
    first, second = structure.positions[:648], structure.positions[648:1296]
    assert (second - first).std(axis=0).min() > 1.0  # displacements alone: 0.42 Å
    np.testing.assert_array_equal(structure.positions, make_water(5000).positions)


def test_a_curve_of_another_kind_gives_other_shards_of_the_same_pairs(water, plans):
    morton = plan_ranks(water, RANKS, CUTOFFS, ModelSize(), curve="morton")
    assert morton[1].lists[1].edges.sum() == plans[1].lists[1].edges.sum()
    assert morton[1].lists[1].halo_rows.tolist() != plans[1].lists[1].halo_rows.tolist()


def write_data(path, structure, *, style, tilt=(0.0, 0.0, 0.0)):
    """Write a LAMMPS data file in one of four styles."""
    middle = {"atomic": "1", "charge": "1 -0.8", "full": "7 1 -0.8", "atomic with images": "1"}[style]
    end = " 0 -1 2" if style == "atomic with images" else ""
    low, high = structure.origin, structure.origin + np.diag(structure.cell)
    lines = ["a comment line", "", f"{len(structure.positions)} atoms", "1 atom types", ""]
    lines += [f"{low[k]} {high[k]} {axis}lo {axis}hi" for k, axis in enumerate("xyz")]
    lines += [f"{tilt[0]} {tilt[1]} {tilt[2]} xy xz yz", "", "Masses", "", "1 15.999  # O", "", "Atoms  # hint", ""]
    for n, (x, y, z) in enumerate(structure.positions):
        lines.append(f"{n + 1} {middle} {x:.8f} {y:.8f} {z:.8f}{end}")
    lines += ["", "Velocities", "", *(f"{n + 1} 0 0 0" for n in range(len(structure.positions)))]
    text = "\n".join(lines) + "\n"
    if path.suffix == ".gz":
        with gzip.open(path, "wt") as file:
            file.write(text)
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("style", ["atomic", "charge", "full", "atomic with images"])
@pytest.mark.parametrize("name", ["water.data", "water.data.gz"])
def test_a_data_file_gives_its_atoms_and_box(tmp_path, water, style, name):
    shifted = Structure(water.positions - 5.0, water.cell, np.full(3, -5.0), water.periodic)
    found = read_structure(write_data(tmp_path / name, shifted, style=style, tilt=(1.0, -2.0, 3.0)))
    np.testing.assert_allclose(found.positions, shifted.positions, atol=FILE_DIGITS)
    np.testing.assert_allclose(found.cell, water.cell + np.array([[0, 0, 0], [1, 0, 0], [-2, 3, 0]]), atol=FILE_DIGITS)
    np.testing.assert_array_equal(found.origin, [-5.0] * 3)
    assert found.periodic == (True, True, True)


def test_an_extxyz_file_gives_its_atoms_box_and_periodic_axes(tmp_path, water):
    path = tmp_path / "slab.extxyz"
    atoms = ase.Atoms("O" * len(water.positions), water.positions, cell=water.cell, pbc=(True, True, False))
    ase.io.write(path, atoms)
    found = read_structure(path)
    np.testing.assert_allclose(found.positions, water.positions, atol=FILE_DIGITS)
    assert found.periodic == (True, True, False)
    ase.io.write(path, ase.Atoms("OH", [[0, 0, 0], [0, 0, 1.0]]))
    assert read_structure(path).periodic == (False, False, False)


def output_of(capsys, *words):
    assert cli.main(["plan", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_the_command_prints_one_line_a_rank_count_in_each_table(tmp_path, water, plans, capsys):
    path = write_data(tmp_path / "water.data", water, style="full")
    cutoffs = ",".join(map(str, CUTOFFS))
    text = output_of(capsys, path, "--ranks", "1,5,16", "--cutoffs", cutoffs, "--plot", tmp_path / "plan.png")
    table = [line.split() for line in text.splitlines()]
    lines = [line for line in table if line[:1] == ["16"]]
    assert len(lines) == 3
    counts = plans[2].lists
    peers = plans[2].lists[-1].peers + 1
    assert lines[0][1:3] == ["40..41", f"{peers.max()}/{peers.mean():.1f}"]
    for line, load in zip(lines[1:], counts, strict=True):
        assert line[1] == f"{load.halo_rows.max()}/{load.halo_rows.mean():.0f}"
        assert line[3] == f"{load.edges.max()}/{load.edges.mean():.0f}"
        assert line[4] == f"{load.edges.max() / load.edges.mean() - 1:.2%}"
    assert "3 layers" in text
    assert (tmp_path / "plan.png").read_bytes()[:4] == b"\x89PNG"


def test_periodic_axes_can_be_overruled(tmp_path, water, capsys):
    path = write_data(tmp_path / "water.data", water, style="atomic")
    closed = output_of(capsys, path, "--ranks", "2", "--cutoffs", "5")
    opened = output_of(capsys, path, "--ranks", "2", "--cutoffs", "5", "--periodic", "none")
    assert "periodic along xyz" in closed
    assert "periodic along no axis" in opened
    edges = [int(text.splitlines()[-1].split()[3].split("/")[0]) for text in (closed, opened)]
    assert edges[1] < edges[0]


def test_sizes_of_a_model_come_from_its_passport(monkeypatch, capsys):
    passport = json.loads(json.dumps(PASSPORT))
    passport["cutoffs"], passport["dtype"] = [3.0, 4.0], "float64"
    passport["stages"] = [{"cutoff": 3.0, "list": 0}, {"cutoff": 4.0, "list": 1}, {"cutoff": 4.0, "list": 1}]
    passport["model_config"] = {"num_heads": 4, "head_scalars": 8, "num_basis": 20, "lmax": 2, "channels": 16}
    monkeypatch.setattr("tessera.commands.info.read_passport", lambda _: passport)
    size = ModelSize.from_passport(passport)
    assert size == ModelSize(4 * 8 + 9 * 16, 16, 20 + 256 + 6 * 10 + 6 * 4, 8, (1, 2))
    text = output_of(capsys, "--water", 648, "--ranks", "2", "--model", "model.pt2")
    assert "176 floats of 8 bytes" in text
    assert "cutoff 4 Å, 2 layers" in text
    text = output_of(capsys, "--water", 648, "--ranks", 2, "--model", "model.pt2", "--payload", 5, "--layers", "4,0")
    assert "5 floats of 8 bytes" in text
    assert "cutoff 3 Å, 4 layers" in text


def error_of(capsys, *words):
    assert cli.main(["plan", *map(str, words)]) == cli.BAD_INPUT
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["missing.data"], "missing.data: no such file; expected a structure"),
        (["--water", "12"], "expected at least 648 atoms"),
        (["--water", "nan"], "expected at least 648 atoms"),
        (["--water", "648", "--ranks", "four"], "--ranks: expected numbers separated by commas, found 'four'"),
        (["--water", "648", "--ranks", "4,0"], "--ranks: expected numbers above 0, found '4,0'"),
        (["--water", "648", "--ranks", "70000"], "expected 1 to 65535 ranks, found 70000"),
        (["--water", "648", "--cutoffs", "5,4"], "expected ascending lengths above 0 Å, found [5.0, 4.0]"),
        (["--water", "648", "--layers", "3"], "expected layers for 2 cutoffs, found 1"),
        (["--water", "648", "--payload", "0"], "--payload: expected at least 1 float, found 0"),
        (["--water", "648", "--periodic", "abc"], "expected some of the letters x, y and z, or none, found 'abc'"),
        (["--water", "648", "--ranks", "2", "--plot", "no/such/folder/a.png"], "cannot be written"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected(words, part, capsys):
    assert part in error_of(capsys, *words)


def test_bad_files_are_refused_with_their_name(tmp_path):
    def refusal(name, text):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(CommandError) as caught:
            read_structure(path)
        assert str(path) in str(caught.value)
        return str(caught.value)

    assert "expected a file named" in refusal("water.pdb", "")
    assert "not readable as extended XYZ" in refusal("water.extxyz", "2\nno atoms\n")
    assert "no line for atoms, x, y, z" in refusal("empty.data", "")
    header = "comment\n2 atoms\n0 1 xlo xhi\n0 1 ylo yhi\n0 1 zlo zhi\nAtoms\n\n"
    assert "expected 2 lines of 5 to 10 columns" in refusal("short.data", header + "1 1 0 0 0\n")
    assert "expected 2 lines of 5 to 10 columns" in refusal("narrow.data", header + "1 0 0 0\n2 0 0 0\n")
    assert "malformed" in refusal("words.data", header + "1 1 0 0 zero\n2 1 0 0 0\n")
    assert "not a LAMMPS data file" in refusal("count.data", "comment\nmany atoms\n")


def test_numbers_are_read_as_they_are_written():
    assert plan.parse_numbers("--ranks", "64,128", int) == [64, 128]
    assert plan.parse_numbers("--layers", "3,0", int, lowest=0) == [3, 0]
    assert plan.parse_axes("xz") == (True, False, True)
    assert plan.parse_axes("none") == (False, False, False)
