# SPDX-License-Identifier: MIT
"""FAISS finds the pairs that brute force finds, and a search that drops some is refused."""

import itertools

import numpy as np
import pytest

from tessera import _C
from tessera.search.brute_force import neighbor_list
from tessera.search.faiss_search import KNN_LIMIT, faiss_neighbor_list

pytest.importorskip("faiss", reason="faiss-cpu is not installed (pip install faiss-cpu)")

LENGTH = 1e-12  # Å: the same subtraction of the same numbers, but for the order of adding a lattice vector
CELLS = {
    "cube": 6.0 * np.eye(3),
    "tilted": np.array([[6.0, 0.0, 0.0], [2.5, 5.0, 0.0], [-2.0, 1.5, 5.5]]),
    "smaller than the cutoff": np.diag([2.1, 3.0, 2.6]),
}


@pytest.mark.parametrize("nearest", [None, KNN_LIMIT])
@pytest.mark.parametrize("pbc", list(itertools.product([False, True], repeat=3)), ids=str)
@pytest.mark.parametrize("name", CELLS)
def test_faiss_finds_the_pairs_of_brute_force(name, pbc, nearest):
    cell = CELLS[name]
    positions = np.random.default_rng(12).uniform(-1.5, 2.5, (40, 3)) @ cell
    expected = neighbor_list(positions, cell, pbc, 4.0)
    found = faiss_neighbor_list(positions, cell, pbc, 4.0, nearest=nearest)
    assert len(found.receiver) == len(expected.receiver) > 0
    for part in ("receiver", "sender", "shift"):
        np.testing.assert_array_equal(getattr(found, part), getattr(expected, part))
    np.testing.assert_allclose(found.vector, expected.vector, atol=LENGTH, rtol=0)


def test_faiss_and_the_cell_search_in_cpp_agree():
    cell = 12.0 * np.eye(3)
    positions = np.random.default_rng(3).uniform(0, 12, (170, 3))
    found = faiss_neighbor_list(positions, cell, (True,) * 3, 5.0)
    receiver, sender, shift = _C.cell_search(positions, cell.tolist(), [True] * 3, 5.0)
    np.testing.assert_array_equal(found.receiver, receiver)
    np.testing.assert_array_equal(found.sender, sender)
    np.testing.assert_array_equal(found.shift, shift)


def test_a_nearest_search_that_drops_pairs_is_refused():
    positions = np.random.default_rng(5).uniform(0, 3, (60, 3))
    with pytest.raises(ValueError, match=r"has at least 16 neighbors within 4\.001 Å.*use the range search"):
        faiss_neighbor_list(positions, None, (False,) * 3, 4.0, nearest=16)


def test_dense_matter_beyond_the_limit_of_faiss_is_refused_and_found_by_range():
    """2,100 atoms within the cutoff of each other: more than the 2048 that FAISS returns."""
    positions = np.random.default_rng(6).uniform(0, 2, (2100, 3))
    with pytest.raises(ValueError, match=r"at least 2048 neighbors"):
        faiss_neighbor_list(positions, None, (False,) * 3, 4.0, nearest=KNN_LIMIT)
    found = faiss_neighbor_list(positions, None, (False,) * 3, 4.0)
    assert len(found.receiver) == 2100 * 2099


def test_more_than_the_limit_cannot_be_asked_for():
    with pytest.raises(ValueError, match="at most 2048 nearest neighbors"):
        faiss_neighbor_list(np.zeros((1, 3)), None, (False,) * 3, 1.0, nearest=KNN_LIMIT + 1)
