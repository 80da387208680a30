# SPDX-License-Identifier: MIT
"""The numpy neighbor search against ASE's, which was written by others."""

import itertools

import numpy as np
import pytest
from ase import Atoms
from ase.neighborlist import primitive_neighbor_list

from tessera.search.brute_force import neighbor_list

LENGTH = 1e-10  # Å, roundings of coordinates up to 1e3 Å
CELLS = {
    "cube": 6.0 * np.eye(3),
    "tilted": np.array([[6.0, 0.0, 0.0], [2.5, 5.0, 0.0], [-2.0, 1.5, 5.5]]),
    "flat": np.array([[7.0, 0.0, 0.0], [6.0, 2.0, 0.0], [1.0, 1.0, 9.0]]),
    "smaller than the cutoff": np.diag([2.1, 3.0, 2.6]),
}


def as_set(receiver, sender, shift):
    return {tuple(map(int, edge)) for edge in np.column_stack([receiver, sender, shift])}


@pytest.mark.parametrize("pbc", list(itertools.product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("name", CELLS)
def test_all_edges_of_any_cell_and_periodicity_are_found_once(name, pbc):
    cell = CELLS[name]
    positions = np.random.default_rng(8).uniform(-1.5, 2.5, (7, 3)) @ cell
    cutoff = 4.0
    found = neighbor_list(positions, cell, pbc, cutoff)
    atoms = Atoms(numbers=np.ones(7), positions=positions, cell=cell, pbc=pbc)
    i, j, shift = primitive_neighbor_list("ijS", atoms.pbc, atoms.cell.array, positions, cutoff, self_interaction=False)
    # ASE gives D = r_j - r_i + S.cell, here v = r_i - r_j - shift.cell.
    assert as_set(found.receiver, found.sender, found.shift) == as_set(i, j, shift)
    assert len(found.receiver) == len(i)
    expected = positions[found.receiver] - positions[found.sender] - found.shift @ cell
    np.testing.assert_allclose(found.vector, expected, atol=LENGTH)


def test_edges_are_sorted_by_receiver_sender_and_shift():
    cell = CELLS["smaller than the cutoff"]
    found = neighbor_list(np.random.default_rng(9).uniform(0, 1, (5, 3)) @ cell, cell, (True,) * 3, 4.0)
    rows = np.column_stack([found.receiver, found.sender, found.shift]).tolist()
    assert rows == sorted(rows)
    assert len(rows) > 100


def test_an_atom_is_no_neighbor_of_itself_but_of_its_images():
    found = neighbor_list(np.zeros((1, 3)), 3.0 * np.eye(3), (True, False, False), 3.0)
    assert found.shift.tolist() == [[-1, 0, 0], [1, 0, 0]]
    assert found.vector.tolist() == [[3.0, 0.0, 0.0], [-3.0, 0.0, 0.0]]


def test_the_cutoff_itself_is_inside():
    positions = np.array([[0.0, 0.0, 0.0], [4.0, 0.0, 0.0]])
    assert len(neighbor_list(positions, None, (False,) * 3, 4.0).receiver) == 2
    assert len(neighbor_list(positions, None, (False,) * 3, 3.999).receiver) == 0


def test_coincident_atoms_are_neighbors_at_distance_zero():
    found = neighbor_list(np.zeros((2, 3)), None, (False,) * 3, 1.0)
    assert found.receiver.tolist() == [0, 1]
    assert not found.vector.any()


def test_open_axes_need_no_lattice_vector():
    positions = np.array([[0.5, 0.0, 0.0], [2.5, 0.0, 50.0]])
    cell = np.array([[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    assert len(neighbor_list(positions, cell, (True, True, False), 3.0).receiver) == 8


@pytest.mark.parametrize("cell", [None, np.zeros((3, 3)), np.ones((3, 3))], ids=["none", "zero", "dependent"])
def test_a_periodic_axis_without_its_own_vector_is_refused(cell):
    with pytest.raises(ValueError, match="independent lattice vectors for the periodic axes"):
        neighbor_list(np.zeros((1, 3)), cell, (True, True, False), 3.0)


def test_positions_that_are_not_numbers_are_refused():
    with pytest.raises(ValueError, match="expected finite positions"):
        neighbor_list(np.array([[np.nan, 0.0, 0.0]]), None, (False,) * 3, 3.0)
