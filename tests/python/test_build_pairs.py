# SPDX-License-Identifier: MIT
"""Cell lists of the builder: the same pairs as brute force over images."""

import itertools

import numpy as np
import pytest

from tessera.build.pairs import PointGrid, close_pairs

CUTOFF = 3.3
#: Two ways to sum three products in float64.
ROUNDING = 1e-9
TILTED = np.array([[5.0, 0, 0], [2, 6, 0], [-1, 3, 7]])
ALL, NONE = (True, True, True), (False, False, False)
SYSTEMS = {
    "cell narrower than two cutoffs": (np.diag([5.0, 7, 9]), ALL, 60),
    "tilted cell": (TILTED, ALL, 60),
    "one open axis": (TILTED, (True, False, True), 60),
    "cluster": (np.diag([4.0] * 3), NONE, 80),
    "many bins": (np.diag([20.0, 25, 30]), ALL, 400),
    "one atom and its images": (np.diag([3.0] * 3), ALL, 1),
}


def make_points(cell, count):
    return np.random.default_rng(7).uniform(-1.0, 1.7, (count, 3)) @ cell


def brute_force(points, cell, periodic):
    """{(i, j): sorted distances} over images."""
    fractions = points @ np.linalg.inv(cell)
    wrapped = np.where(periodic, fractions - np.floor(fractions), fractions) @ cell
    found = {}
    for shift in itertools.product(*[range(-3, 4) if flag else range(1) for flag in periodic]):
        distances = np.linalg.norm(wrapped[None] + np.array(shift) @ cell - wrapped[:, None], axis=2)
        for i, j in zip(*np.nonzero(distances <= CUTOFF), strict=True):
            if i != j or shift != (0, 0, 0):
                found.setdefault((int(i), int(j)), []).append(distances[i, j])
    return {key: sorted(value) for key, value in found.items()}


def collect(chunks):
    found = {}
    for chunk in chunks:
        for i, j, distance in zip(chunk.i.tolist(), chunk.j.tolist(), chunk.distance, strict=True):
            found.setdefault((i, j), []).append(distance)
    return {key: sorted(value) for key, value in found.items()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for key, distances in expected.items():
        assert found[key] == pytest.approx(distances, abs=ROUNDING), key


@pytest.mark.parametrize("name", SYSTEMS)
def test_all_pairs_are_those_of_brute_force(name):
    cell, periodic, count = SYSTEMS[name]
    points = make_points(cell, count)
    expected = brute_force(points, cell, periodic)
    assert expected
    assert_same(collect(close_pairs(points, cell, periodic, CUTOFF)), expected)


@pytest.mark.parametrize("name", SYSTEMS)
def test_each_pair_once_is_half_of_them_without_own_images(name):
    cell, periodic, count = SYSTEMS[name]
    points = make_points(cell, count)
    expected = {key: value for key, value in brute_force(points, cell, periodic).items() if key[0] < key[1]}
    assert_same(collect(close_pairs(points, cell, periodic, CUTOFF, once=True)), expected)


def test_the_shift_leads_from_the_wrapped_point_to_the_image():
    cell, periodic, count = SYSTEMS["tilted cell"]
    points = make_points(cell, count)
    wrapped = (points @ np.linalg.inv(cell) % 1.0) @ cell
    for once in (False, True):
        for chunk in close_pairs(points, cell, periodic, CUTOFF, once=once):
            vector = wrapped[chunk.j] + chunk.shift @ cell - wrapped[chunk.i]
            assert np.linalg.norm(vector, axis=1) == pytest.approx(chunk.distance, abs=ROUNDING)


def test_chunks_together_hold_every_pair(monkeypatch):
    cell, periodic, count = SYSTEMS["many bins"]
    points = make_points(cell, count)
    whole = collect(close_pairs(points, cell, periodic, CUTOFF, once=True))
    monkeypatch.setattr("tessera.build.pairs.CHUNK", 7)
    assert_same(collect(close_pairs(points, cell, periodic, CUTOFF, once=True)), whole)


def test_points_outside_an_open_grid_find_those_near_its_rim():
    grid = PointGrid(np.zeros((1, 3)), np.eye(3), NONE, CUTOFF)
    found = collect(grid.pairs(np.array([[CUTOFF - 0.1, 0, 0], [0, -CUTOFF - 0.1, 0], [1e9, 0, 0]])))
    assert_same(found, {(0, 0): [CUTOFF - 0.1]})


@pytest.mark.parametrize(
    ("points", "cell", "cutoff", "message"),
    [
        (np.zeros((1, 3)), np.eye(3), 0.0, "cutoff above 0"),
        (np.zeros((1, 3)), np.diag([1.0, 1, 0]), 1.0, "volume"),
        (np.full((1, 3), np.nan), np.eye(3), 1.0, "finite"),
    ],
)
def test_impossible_input_is_refused(points, cell, cutoff, message):
    with pytest.raises(ValueError, match=message):
        PointGrid(points, cell, ALL, cutoff)
