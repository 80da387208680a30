# SPDX-License-Identifier: MIT
"""Shells with icosahedral symmetry, and the overlaps that every builder refuses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tessera.build.overlaps import closest_contact
from tessera.build.read_pdb import read_molecule
from tessera.build.recipes import Salt, build_capsid, build_protein, build_solution
from tessera.build.shell import HYDROGEN_GAP, RADIUS_STEP, icosahedral_rotations, make_shell, principal_axes
from tessera.build.system import Kind
from tessera.commands import CommandError

EXAMPLES = Path(__file__).parents[2] / "examples"
ALANINE = EXAMPLES / "7-capsid" / "alanine.pdb"
TRPZIP = EXAMPLES / "6-protein" / "trpzip2.pdb"
SALT = Salt(0.15, 4.0)
GAP = 3.2
#: Products of rotations in float64.
ROUNDING = 1e-9


@pytest.fixture(scope="module")
def alanine():
    return read_molecule(ALANINE)


@pytest.fixture(scope="module")
def shells(alanine):
    heavy = alanine.numbers > 1
    return {n: make_shell(alanine.positions, heavy, n, GAP, np.random.default_rng(5)) for n in (60, 180)}


@pytest.fixture(scope="module")
def capsid(alanine):
    return build_capsid(alanine, None, 60, GAP, 3.0, SALT, edge=None, atoms=None, seed=2)[0]


def foreign_distances(shell, heavy):
    """Closest heavy pair and closest pair with a hydrogen, of two different copies."""
    copies, num, _ = shell.positions.shape
    flat = shell.positions.reshape(-1, 3)
    distance = np.linalg.norm(flat[:num, None] - flat[None, num:], axis=2)
    both = heavy[:, None] & np.tile(heavy, copies - 1)[None]
    return distance[both].min(), distance[~both].min()


def test_the_rotations_form_the_icosahedral_group():
    group = icosahedral_rotations()
    assert group.shape == (60, 3, 3)
    assert np.array_equal(group[0], np.eye(3))
    assert np.allclose(np.einsum("gab,gcb->gac", group, group), np.eye(3), atol=ROUNDING)
    assert np.allclose(np.linalg.det(group), 1, atol=ROUNDING)
    products = np.einsum("gab,hbc->ghac", group, group).reshape(-1, 1, 9)
    assert (np.abs(products - group.reshape(1, 60, 9)).max(axis=2) < ROUNDING).sum(axis=1).tolist() == [1] * 3600
    # Turns about 2-, 3- and 5-fold axes: traces of 15, 20 and 24 elements.
    traces = np.round(np.trace(group, axis1=1, axis2=2), 6)
    assert [int((traces == value).sum()) for value in (3.0, -1.0, 0.0)] == [1, 15, 20]


@pytest.mark.parametrize("copies", [60, 180])
def test_copies_of_a_shell_map_onto_each_other(shells, copies):
    positions = shells[copies].positions
    assert positions.shape == (copies, 22, 3)
    for rotation in icosahedral_rotations()[[7, 31]]:
        for copy in positions[:3]:
            turned = copy @ rotation.T
            assert np.abs(positions - turned).max(axis=(1, 2)).min() < ROUNDING


@pytest.mark.parametrize("copies", [60, 180])
def test_every_copy_is_the_subunit_and_no_mirror_image(shells, alanine, copies):
    inside = np.linalg.norm(alanine.positions[:, None] - alanine.positions[None], axis=2)
    handed = np.linalg.det(alanine.positions[[8, 10, 14]] - alanine.positions[6])  # CA, CB, C around N
    for copy in shells[copies].positions:
        assert np.allclose(np.linalg.norm(copy[:, None] - copy[None], axis=2), inside, atol=1e-9)
        assert np.linalg.det(copy[[8, 10, 14]] - copy[6]) == pytest.approx(handed)


def test_copies_keep_their_distance_and_the_shell_is_tight(shells, alanine):
    heavy = alanine.numbers > 1
    shell = shells[60]
    heavies, hydrogens = foreign_distances(shell, heavy)
    assert heavies >= GAP
    assert hydrogens >= HYDROGEN_GAP
    # A smaller radius does not fit: the copies move inwards along their directions.
    centres = shell.positions.mean(axis=1, keepdims=True)
    directions = centres / np.linalg.norm(centres, axis=2, keepdims=True)
    tighter = replace(shell, positions=shell.positions - 2 * RADIUS_STEP * directions)
    heavies, hydrogens = foreign_distances(tighter, heavy)
    assert heavies < GAP or hydrogens < HYDROGEN_GAP


def test_principal_axes_turn_and_never_mirror():
    points = np.random.default_rng(1).normal(size=(50, 3)) * [1, 5, 3]
    points -= points.mean(axis=0)
    turned = principal_axes(points)
    extent = turned.std(axis=0)
    assert extent[0] > extent[1] > extent[2]
    rotation = np.linalg.lstsq(points, turned, rcond=None)[0]
    assert np.linalg.det(rotation) == pytest.approx(1)


@pytest.mark.parametrize("copies", [0, 59, 90])
def test_a_shell_has_a_multiple_of_sixty_copies(alanine, copies):
    with pytest.raises(CommandError, match=f"multiple of 60 .* found {copies}"):
        make_shell(alanine.positions, alanine.numbers > 1, copies, GAP, np.random.default_rng(1))


def test_a_capsid_has_water_inside_and_outside_and_ions_apart_from_it(capsid):
    solute, water, ion = (capsid.positions[capsid.kinds == kind] - capsid.edges / 2 for kind in Kind)
    inner, outer = np.linalg.norm(solute, axis=1).min(), np.linalg.norm(solute, axis=1).max()
    radii = np.linalg.norm(water, axis=1)
    assert (radii < inner - 2).sum() > 300
    assert (radii > outer + 2).sum() > 300
    assert closest_contact(capsid).distance > 1.3  # liquid water has 1.4: nothing sits on the solute
    assert capsid.mass_density == pytest.approx(0.95, abs=0.06)  # about water; a layer around each solute is free of it
    difference = ion[:, None] - solute
    difference -= capsid.edges * np.round(difference / capsid.edges)
    assert np.linalg.norm(difference, axis=2).min() >= SALT.distance
    assert capsid.charges.sum(dtype=int) == 0
    assert len(np.unique(capsid.molecules)) == capsid.molecules.max() == 60 + len(water) // 3 + len(ion)


def test_operators_of_the_file_place_the_copies(alanine):
    operators = np.array([np.eye(3, 4), np.column_stack([np.diag([-1.0, -1, 1]), [0, 0, 9]])])
    molecule = replace(alanine, operators=operators)
    system, _ = build_capsid(molecule, None, None, GAP, 5.0, SALT, edge=None, atoms=None, seed=1)
    first, second = system.positions[:44].reshape(2, 22, 3)
    moved = np.array([0, 0, 9]) + alanine.positions * [-1, -1, 1] - alanine.positions
    assert np.allclose(second - first, moved)


def test_an_assembly_without_operators_is_refused(alanine):
    with pytest.raises(CommandError, match=r"operators of an assembly in the file .* found none; use --copies"):
        build_capsid(alanine, None, None, GAP, 5.0, SALT, edge=None, atoms=None, seed=1)


def test_a_box_smaller_than_the_solute_is_refused():
    molecule = read_molecule(TRPZIP)
    with pytest.raises(CommandError, match=r"expected more than the solute's extent, .* found 10\.000"):
        build_protein(molecule, None, 8.0, SALT, cube=False, edge=np.full(3, 10.0), seed=1)


def test_overlapping_molecules_are_refused_and_both_atoms_named(alanine):
    operators = np.array([np.eye(3, 4), np.column_stack([np.eye(3), [0, 0, 0.7]])])
    molecule = replace(alanine, operators=operators)
    system, _ = build_capsid(molecule, None, None, GAP, 5.0, SALT, edge=None, atoms=None, seed=1)
    # The closest pair is not the displaced atom itself: it is found by brute force here.
    first, second = system.positions[:22], system.positions[22:44]
    distance = np.linalg.norm(first[:, None] - second[None], axis=2)
    i, j = np.unravel_index(distance.argmin(), distance.shape)
    message = (
        rf"{distance.min():.3f} Å apart: atom {i + 1}, {molecule.labels[i]} of copy 1, and atom {j + 23}, .* of copy 2"
    )
    with pytest.raises(CommandError, match=message):
        closest_contact(system)


def test_doubled_atoms_inside_a_molecule_are_refused():
    system = build_solution(np.full(3, 15.0), Salt(0.0, 4.0), 1)
    positions = system.positions.copy()
    positions[4] = positions[3] + [0, 0, 0.3]  # a hydrogen on its own oxygen, across no face
    with pytest.raises(
        CommandError, match=r"0\.300 Å apart: atom 4, O of water molecule 2, and atom 5, H of water molecule 2"
    ):
        closest_contact(replace(system, positions=positions))


def test_the_closest_contact_of_two_molecules_is_found_through_the_faces():
    system = build_solution(np.full(3, 15.0), Salt(0.0, 4.0), 1)
    contact = closest_contact(system)
    vector = system.positions[:, None] - system.positions
    distance = np.linalg.norm(vector - system.edges * np.round(vector / system.edges), axis=2)
    distance[system.molecules[:, None] == system.molecules] = np.inf
    assert contact.distance == pytest.approx(distance.min())
    assert distance[contact.first, contact.second] == pytest.approx(distance.min())
