# SPDX-License-Identifier: MIT
"""Water of any box size: density, whole molecules, no clash; ions that replace waters."""

import numpy as np
import pytest

from tessera.build.pairs import close_pairs
from tessera.build.solvate import FREE_OF_HYDROGEN, PER_MOLAR, WATERS_PER_A3, ion_counts, place_ions, remove_clashes
from tessera.build.system import PERIODIC
from tessera.build.water import fill_with_water, load_tile, thin_out, tile_density
from tessera.commands import CommandError

#: 1 water of the smallest box, a cube of 15 Å with 113: the number of molecules is whole.
DENSITY = 0.009
#: Å: the tile, flexible water at 300 K, has 0.86 to 1.08.
SHORTEST_OH, LONGEST_OH = 0.85, 1.10
#: Å: the tile's closest contact is 1.46; moving the centres together by 4 % at most leaves 1.35.
CLOSEST = 1.35
BOXES = {
    "cube": (20.0, 20.0, 20.0),
    "small": (15.0, 15.0, 15.0),
    "just below the tile": (24.0, 24.0, 24.0),
    "slab": (31.0, 27.5, 12.0),
    "one axis fits": (load_tile()[1], 30.0, load_tile()[1]),
}


def closest_of_two_waters(waters, edges):
    molecule = np.arange(waters.size // 3) // 3
    closest = np.inf
    for found in close_pairs(waters.reshape(-1, 3), np.diag(edges), PERIODIC, 2.0, once=True):
        foreign = molecule[found.i] != molecule[found.j]
        closest = min(closest, found.distance[foreign].min(initial=np.inf))
    return closest


@pytest.mark.parametrize("name", BOXES)
def test_a_box_has_the_density_of_the_tile_and_no_clash(name):
    edges = np.array(BOXES[name])
    waters = fill_with_water(edges)
    assert len(waters) == pytest.approx(tile_density() * edges.prod(), rel=DENSITY)
    lengths = np.linalg.norm(waters[:, 1:] - waters[:, :1], axis=2)
    assert SHORTEST_OH < lengths.min() < lengths.max() < LONGEST_OH
    assert closest_of_two_waters(waters, edges) > CLOSEST


def test_a_box_of_whole_tiles_is_the_tile_repeated():
    tile, edge = load_tile()
    waters = fill_with_water(np.array([2 * edge, edge, edge]))
    assert np.allclose(waters[: len(tile)], tile)
    assert np.allclose(waters[len(tile) :], tile + np.array([edge, 0, 0]))


def test_the_tile_is_liquid_water():
    tile, edge = load_tile()
    assert tile.shape == (512, 3, 3)
    assert tile_density() == pytest.approx(WATERS_PER_A3, rel=0.005)  # 0.997 g/cm3 at 298 K
    assert ((tile[:, 0] >= 0) & (tile[:, 0] < edge)).all()


def test_a_box_thinner_than_a_molecule_is_refused():
    with pytest.raises(CommandError, match=r"at least 6 Å, found 20.000 x 20.000 x 5.000"):
        fill_with_water(np.array([20.0, 20.0, 5.0]))


def test_too_many_waters_are_thinned_out_evenly():
    left = thin_out(np.arange(100.0).reshape(100, 1, 1) * np.ones((1, 3, 3)), 80)
    assert len(left) == 80
    gaps = np.diff(left[:, 0, 0])
    assert gaps.max() == 2  # never two neighbors in a row


def test_waters_that_clash_with_a_solute_go_whole():
    edges = np.full(3, 20.0)
    waters = fill_with_water(edges)
    solute = np.array([[0.1, 10.0, 10.0], [10.0, 10.0, 10.0]])  # one at a face, so that images matter
    heavy = np.array([True, False])
    left = remove_clashes(waters, solute, heavy, edges)
    vector = left.reshape(-1, 1, 3) - solute
    distance = np.linalg.norm(vector - edges * np.round(vector / edges), axis=2)
    oxygen = np.arange(len(distance)) % 3 == 0
    assert distance[oxygen, 0].min() >= 2.6
    assert distance[~oxygen, 0].min() >= 1.75
    assert distance[:, 1].min() >= 1.75
    assert 0 < len(waters) - len(left) < 10
    assert {tuple(row) for row in left.reshape(-1, 9)} <= {tuple(row) for row in waters.reshape(-1, 9)}


@pytest.mark.parametrize(("charge", "difference"), [(0, 0), (3, -3), (-2, 2)])
def test_ions_have_the_concentration_and_cancel_the_charge(charge, difference):
    cations, anions = ion_counts(10_000, 0.15, charge)
    pairs = 10_000 / WATERS_PER_A3 * 0.15 * PER_MOLAR
    assert min(cations, anions) == round(pairs) == 27
    assert cations - anions == difference


def test_ions_stand_apart_where_waters_were():
    edges = np.full(3, 25.0)
    waters = fill_with_water(edges)
    solute = np.random.default_rng(2).uniform(0, 25, (30, 3))
    random = np.random.default_rng(3)
    left, cations, anions = place_ions(waters, solute, edges, (5, 6), 4.5, random)
    assert (len(cations), len(anions), len(left)) == (5, 6, len(waters) - 11)
    ions = np.concatenate([cations, anions])
    assert {tuple(ion) for ion in ions} <= {tuple(water[0]) for water in waters}
    assert not {tuple(ion) for ion in ions} & {tuple(water[0]) for water in left}
    vector = ions[:, None] - np.concatenate([ions, solute])
    distance = np.linalg.norm(vector - edges * np.round(vector / edges), axis=2)
    np.fill_diagonal(distance, np.inf)
    assert distance.min() >= 4.5


def test_ions_take_the_places_freest_of_hydrogens_and_cations_the_freest_of_these():
    edges = np.full(3, 30.0)
    waters = fill_with_water(edges)
    _, cations, anions = place_ions(waters, np.empty((0, 3)), edges, (20, 20), 4.0, np.random.default_rng(3))

    def nearest(places):
        """Distance to hydrogens of other waters, up to 2.6 Å, which is free enough."""
        vector = waters[:, None, 1:] - places[:, None]
        distance = np.linalg.norm(vector - edges * np.round(vector / edges), axis=3)
        return np.where(distance < 1.2, np.inf, distance).min(axis=(0, 2)).clip(max=FREE_OF_HYDROGEN)

    usual = nearest(waters[:, 0]).mean()
    assert nearest(anions).mean() > usual + 0.2
    assert nearest(cations).min() >= nearest(anions).max()
    assert nearest(cations).mean() > nearest(anions).mean()


def test_too_many_ions_are_refused_with_advice():
    edges = np.full(3, 15.0)
    with pytest.raises(CommandError, match=r"places for 40 K\+ and 40 Cl- at least 6 Å .* found \d+; lower"):
        place_ions(fill_with_water(edges), np.empty((0, 3)), edges, (40, 40), 6.0, np.random.default_rng(1))


def test_a_negative_concentration_is_refused():
    with pytest.raises(CommandError, match="at least 0 mol/L, found -1"):
        ion_counts(100, -1.0, 0)
