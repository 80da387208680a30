# SPDX-License-Identifier: MIT
"""Frames, distributions, bonds and contacts: against known structures and brute force."""

from pathlib import Path

import ase.build
import ase.data
import ase.io
import numpy as np
import pytest

from tessera.analyze.bonds import Bonds
from tessera.analyze.distributions import Distribution, PairCounts, first_shell
from tessera.analyze.frames import Frame, read_frames
from tessera.build.water import fill_with_water, load_tile
from tessera.commands import CommandError

PERIODIC = (True, True, True)
#: Å, half a bin of 0.02 Å and the noise of the vertex.
POSITION = 0.02
#: Poisson noise of the ideal gas: bins beyond 2 Å hold more than 1,000 pairs, five standard deviations. (Potassium has
#: no bonds, which would be left out.)
IDEAL_GAS = 0.16
#: Dumps below keep 6 digits.
DUMP_DIGITS = 2e-6


def water_frame(edge=None):
    edge = edge or load_tile()[1]
    waters = fill_with_water(np.full(3, edge))
    return Frame(np.tile([8, 1, 1], len(waters)), waters.reshape(-1, 3), np.eye(3) * edge, PERIODIC)


def count(frames, reach=6.0, limits=None):
    bonds = Bonds(frames[0], limits or {})
    counts = PairCounts(frames[0], bonds, reach, 0.02)
    for frame in frames:
        bonds.follow(frame)
        counts.add(frame)
    return bonds, counts


def write_dump(path, frames, columns="id element x y z", scaled=False, tilt=False, types=None, shuffle=0):
    """A dump as LAMMPS writes it; the box starts at (1, 2, 3)."""
    lines, origin = [], np.array([1.0, 2, 3])
    random = np.random.default_rng(1)
    for step, frame in enumerate(frames):
        low, high = origin.copy(), origin + np.diag(frame.cell)
        xy, xz, yz = frame.cell[1, 0], frame.cell[2, 0], frame.cell[2, 1]
        low[0], high[0] = low[0] + min(0, xy, xz, xy + xz), high[0] + max(0, xy, xz, xy + xz)
        low[1], high[1] = low[1] + min(0, yz), high[1] + max(0, yz)
        flags = " ".join("pp" if flag else "ff" for flag in frame.periodic)
        lines += ["ITEM: TIMESTEP", str(step * 10), "ITEM: NUMBER OF ATOMS", str(len(frame.numbers))]
        lines.append("ITEM: BOX BOUNDS " + ("xy xz yz " if tilt else "") + flags)
        for axis, factor in enumerate((xy, xz, yz)):
            lines.append(f"{low[axis]:.10f} {high[axis]:.10f}" + (f" {factor:.10f}" if tilt else ""))
        lines.append(f"ITEM: ATOMS {columns}")
        where = frame.positions @ np.linalg.inv(frame.cell) if scaled else frame.positions + origin
        rows = np.arange(len(frame.numbers))
        for row in random.permutation(rows) if shuffle else rows:
            number = frame.numbers[row]
            kind = types[int(number)] if types else ase.data.chemical_symbols[number]
            lines.append(f"{row + 1} {kind} " + " ".join(f"{value:.8f}" for value in where[row]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_an_ideal_gas_has_no_structure():
    random = np.random.default_rng(3)
    frames = [Frame(np.full(1500, 19), random.uniform(0, 20, (1500, 3)), np.eye(3) * 20, PERIODIC) for _ in range(8)]
    _, counts = count(frames, reach=8.0)
    gas = counts.distribution("K-K")
    far = gas.radii > 2
    assert np.abs(gas.density[far] - 1).max() < IDEAL_GAS
    assert gas.density[far].mean() == pytest.approx(1, abs=0.005)
    assert gas.around_first[-1] == pytest.approx(1499 / 8000 * 4 / 3 * np.pi * 8**3, rel=0.01)


def test_rock_salt_has_six_neighbors_of_the_other_kind_then_twelve_of_its_own():
    salt = ase.build.bulk("NaCl", "rocksalt", a=5.64, cubic=True) * (3, 3, 3)
    random = np.random.default_rng(4)
    frames = [
        Frame(salt.numbers, salt.positions + random.normal(0, 0.08, (216, 3)), salt.cell.array, PERIODIC)
        for _ in range(10)
    ]
    _, counts = count(frames, reach=8.0)
    unlike, like = (first_shell(counts.distribution(name)) for name in ("Cl-Na", "Na-Na"))
    assert unlike.position == pytest.approx(2.82, abs=POSITION)
    assert (round(unlike.around_first, 2), round(unlike.around_second, 2)) == (6, 6)
    assert like.position == pytest.approx(5.64 / 2**0.5, abs=POSITION)
    assert round(like.around_first, 2) == 12
    nearest = np.inf
    for frame in frames:
        vector = frame.positions[frame.numbers == 11][:, None] - frame.positions[frame.numbers == 17]
        nearest = min(nearest, np.linalg.norm(vector - 16.92 * np.round(vector / 16.92), axis=2).min())
    assert counts.closest()["Cl-Na"] == pytest.approx(nearest)


def test_unequal_numbers_give_each_element_its_own_coordination():
    frame = water_frame()
    _, counts = count([frame])
    pair = counts.distribution("H-O")
    assert pair.around_second == pytest.approx(2 * pair.around_first)  # twice as many H as O
    assert counts.distribution("K-O") is None


def test_the_first_shell_of_a_synthetic_distribution_is_where_it_was_put():
    radii = np.arange(0.01, 8, 0.02)
    step = 1 / (1 + np.exp(-(radii - 2.6) / 0.05))
    density = step * (1 + 1.7 * np.exp(-(((radii - 2.8) / 0.15) ** 2)) - 0.3 * np.exp(-(((radii - 3.45) / 0.2) ** 2)))
    around = np.linspace(0, 1, len(radii))
    peak = first_shell(Distribution("O-O", radii, density, around, 2 * around))
    assert peak.position == pytest.approx(radii[density.argmax()], abs=POSITION)
    assert peak.height == pytest.approx(density.max(), rel=0.02)
    assert peak.minimum == pytest.approx(3.45, abs=0.06)
    assert peak.around_first == pytest.approx(np.interp(peak.minimum, radii, around))
    flat = np.minimum(step, 0.99)
    assert first_shell(Distribution("O-O", radii, flat, around, around)) is None


def test_bonds_and_angles_stay_out_of_the_distributions():
    frame = water_frame()
    bonds, counts = count([frame])
    num = len(frame.numbers) // 3
    assert len(bonds.first) == 2 * num  # O-H
    assert len(bonds.excluded) == 3 * num  # and H-H of the same molecule
    vector = frame.positions[:, None] - frame.positions
    distance = np.linalg.norm(vector - frame.cell[0, 0] * np.round(vector / frame.cell[0, 0]), axis=2)
    molecule = np.arange(3 * num) // 3
    distance[molecule[:, None] == molecule] = np.inf
    hydrogen, oxygen = frame.numbers == 1, frame.numbers == 8
    closest = counts.closest()
    assert closest["H-O"] == pytest.approx(distance[hydrogen][:, oxygen].min())  # not the covalent 0.97
    assert closest["H-H"] == pytest.approx(distance[hydrogen][:, hydrogen].min())
    pair = counts.distribution("H-O")
    assert not pair.around_first[pair.radii < 1.3].any()


def test_a_bond_that_was_ever_too_long_is_broken():
    frame = water_frame()
    far = frame.positions.copy()
    direction = (far[1] - far[0]) / np.linalg.norm(far[1] - far[0])
    far[1] = far[0] + 1.4 * direction + np.diag(frame.cell)  # wrapped elsewhere: the nearest image counts
    stretched = Frame(frame.numbers, far, frame.cell, PERIODIC)
    bonds, _ = count([frame, stretched, frame])
    assert bonds.broken.tolist().count(True) == 1
    assert bonds.longest.max() == pytest.approx(1.4)
    loose, _ = count([frame, stretched], limits={"H-O": 1.5})
    assert not loose.broken.any()
    strict, _ = count([frame], limits={"H-O": 0.5})
    assert strict.broken.all()


def test_a_water_that_falls_onto_another_is_as_near_as_bonded():
    frame = water_frame()
    outward = (frame.positions[1] - frame.positions[0]) / np.linalg.norm(frame.positions[1] - frame.positions[0])
    fallen = {}
    for length in (1.05, 1.08, 1.2):  # the limit is 1.15 * (0.66 + 0.31) = 1.1155
        positions = frame.positions.copy()
        place = positions[1] + length * outward + np.diag(frame.cell)  # wrapped elsewhere: the nearest image counts
        positions[6:9] += place - positions[6]
        fallen[length] = Frame(frame.numbers, positions, frame.cell, PERIODIC)
    met = 1 * len(frame.numbers) + 6
    bonds, counts = count([frame, fallen[1.08], fallen[1.05], fallen[1.08]])
    assert bonds.formed[met] == pytest.approx(1.05)
    assert min(bonds.formed_names()["H-O"]) == counts.closest()["H-O"]
    assert not count([frame])[0].formed
    assert met not in count([frame, fallen[1.2]])[0].formed
    assert met not in count([fallen[1.05]])[0].formed  # a bond of the first frame


def test_ions_have_no_bonds():
    positions = np.array([[0, 0, 0], [2.4, 0, 0], [2.4, 0.97, 0], [7, 7, 7], [8.3, 7, 7]])
    frame = Frame(np.array([19, 8, 1, 17, 1]), positions, np.eye(3) * 12, PERIODIC)
    bonds, _ = count([frame], reach=5.0)
    assert list(zip(bonds.first, bonds.second, strict=True)) == [(1, 2)]  # O-H; no K-O, and Cl...H is no bond


@pytest.mark.parametrize(
    ("columns", "scaled"),
    [
        ("id element x y z", False),
        ("id element xu yu zu", False),
        ("id element xs ys zs", True),
        ("id element xsu ysu zsu", True),
    ],
)
@pytest.mark.parametrize("tilt", [False, True])
def test_every_way_to_dump_coordinates_is_read(tmp_path, columns, scaled, tilt):
    frame = water_frame()
    cell = frame.cell.copy()
    if tilt:
        cell[1, 0], cell[2, 0], cell[2, 1] = 3.0, -2.0, 1.5
    frame = Frame(frame.numbers, frame.positions, cell, (True, False, True))
    path = write_dump(tmp_path / "a.dump", [frame, frame], columns, scaled=scaled, tilt=tilt, shuffle=1)
    frames = list(read_frames(path, None))
    assert [read.step for read in frames] == [0, 10]
    for read in frames:
        assert np.array_equal(read.numbers, frame.numbers)
        assert read.positions == pytest.approx(frame.positions, abs=DUMP_DIGITS)
        assert read.cell == pytest.approx(cell, abs=DUMP_DIGITS)
        assert read.periodic == frame.periodic


def test_types_become_elements_as_in_pair_coeff(tmp_path):
    frame = water_frame()
    path = write_dump(tmp_path / "a.dump", [frame], "id type x y z", types={1: 2, 8: 1})
    (read,) = read_frames(path, ["O", "H"])
    assert np.array_equal(read.numbers, frame.numbers)


def test_xyz_and_dump_of_one_trajectory_agree(tmp_path):
    frame = water_frame()
    atoms = ase.Atoms(frame.numbers, frame.positions, cell=frame.cell, pbc=True)
    ase.io.write(tmp_path / "a.extxyz", [atoms, atoms])
    first, second = read_frames(tmp_path / "a.extxyz", None)
    (dumped,) = read_frames(write_dump(tmp_path / "a.dump", [frame]), None)
    assert first.positions == pytest.approx(dumped.positions, abs=DUMP_DIGITS)
    assert np.array_equal(second.numbers, dumped.numbers)


def test_frames_are_read_one_at_a_time_and_only_those_selected(tmp_path):
    frame = water_frame()
    path = write_dump(tmp_path / "a.dump", [frame] * 5)
    assert [read.step for read in read_frames(path, None, slice(1, 5, 2))] == [10, 30]
    path.write_text("\n".join(path.read_text().splitlines()[:-100]) + "\n")  # the last frame is cut short
    assert [read.step for read in read_frames(path, None, slice(0, 4))] == [0, 10, 20, 30]
    lazily = read_frames(path, None)
    assert next(lazily).step == 0
    with pytest.raises(CommandError, match=r"step 40: expected 1536 atoms, found 1436: .* --frames START:STOP"):
        list(lazily)


@pytest.mark.parametrize(
    ("change", "elements", "message"),
    [
        (lambda text: text.replace("element", "type"), None, "expected the column element, or type with --elements"),
        (
            lambda text: text.replace("element", "type").replace(" O ", " 3 ").replace(" H ", " 1 "),
            ["H", "O"],
            "types 1 to 2",
        ),
        (lambda text: text.replace(" O ", " Qq "), None, "an element's symbol, found 'Qq'"),
        (lambda text: text.replace("x y z", "vx vy vz"), None, "expected columns x y z"),
        (lambda text: text.replace("TIMESTEP", "STEP"), None, "expected 'ITEM: TIMESTEP', found 'ITEM: STEP'"),
        (lambda text: text.replace("pp pp pp", "abc origin"), None, "abc origin"),
        (lambda text: text.replace("ITEM: BOX BOUNDS pp pp pp", "ITEM: CELL"), None, "expected a header of a dump"),
        (lambda text: text.replace("pp pp pp", "pp pp"), None, "three boundary flags"),
        (lambda _: "", None, "at least one frame"),
        (lambda text: text[: text.index("ITEM: ATOMS")], None, "expected a header of a dump, found ''"),
        (lambda text: text + text.replace(" O ", " H ", 1), None, "with the same elements"),
    ],
)
def test_malformed_dumps_are_refused(tmp_path, change, elements, message):
    path = write_dump(tmp_path / "a.dump", [water_frame(12.0)])
    path.write_text(change(path.read_text()))
    with pytest.raises(CommandError, match=message):
        list(read_frames(path, elements))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(CommandError, match="no such file"):
        list(read_frames(tmp_path / "none.dump", None))
    (tmp_path / "a.xyz").write_text("three\n\nH 0 0\n")
    with pytest.raises(CommandError, match="not readable as xyz"):
        list(read_frames(Path(tmp_path / "a.xyz"), None))
