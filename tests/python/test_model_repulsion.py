# SPDX-License-Identifier: MIT
"""The repulsion of nuclei: its size, its ends, its forces, and that it is absent where nobody asked for it."""

import dataclasses

import numpy as np
import pytest
import torch

from tessera.kernels import reference
from tessera.model import ModelConfig, build_graph, energy_and_edge_gradients, forces_and_strain
from tessera.model.config import RepulsionRange
from tessera.model.repulsion import ScreenedRepulsion
from tessera.testing import Atoms, pad_graph, random_atoms, random_model, send_through_halo, small_config

REACH = RepulsionRange()
ELEMENTS = ("H", "O", "K", "Cl")
# Constants of the screening function have five digits; the reference below spells them out once more.
FORMULA = 1e-12
# Central differences of step 1e-5 Å of a potential whose third derivative is below 1e7 eV/Å³ at 0.3 Å: 2e-4 of forces
# that are above 1e2 eV/Å there, relative to the largest.
STEP, DIFFERENCE = 1e-5, 1e-6
# The C² switch starts as the third power of the way into it: 1e-3 of its width leave 1e-8 of some 100 eV.
SMOOTH = 1e-5
ROUNDING = 1e-10


def energies(first, second, distances):
    model = ScreenedRepulsion(ELEMENTS, REACH, 6.0)
    count = len(distances)
    places = [torch.full((count,), ELEMENTS.index(symbol)) for symbol in (first, second)]
    return model.pair_energy(torch.tensor(distances, dtype=torch.float64), *places).numpy()


def forces_of(model, atoms):
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell, atoms.pbc)
    energy, gradients = energy_and_edge_gradients(model, graph)
    return float(energy.sum()), forces_and_strain(graph, gradients)[0].numpy()


def with_and_without(reach=REACH, **changes):
    """Two models with equal weights, of which the second has the repulsion."""
    plain = small_config(**changes)
    return random_model(plain), random_model(dataclasses.replace(plain, repulsion=reach))


def test_two_oxygens_repel_as_the_universal_potential_says():
    distance = 0.4
    length = 0.4685 / (2 * 8**0.23)
    terms = ((0.18175, 3.1998), (0.50986, 0.94229), (0.28022, 0.4029), (0.02817, 0.20162))
    expected = 14.399645 * 64 / distance * sum(w * np.exp(-k * distance / length) for w, k in terms)
    assert energies("O", "O", [distance])[0] == pytest.approx(expected, rel=FORMULA)
    assert 300 < expected < 400  # eV: the published curve of O-O


@pytest.mark.parametrize(("first", "second", "radii"), [("O", "O", 1.32), ("O", "H", 0.97), ("K", "Cl", 3.05)])
def test_it_grows_all_the_way_in_and_ends_before_the_bond(first, second, radii):
    distances = np.linspace(0.3, REACH.outer * radii, 400)
    values = energies(first, second, distances)
    assert (np.diff(values) < 0).all()
    assert (energies(first, second, np.linspace(REACH.outer * radii, 6.0, 50)) == 0.0).all()
    assert (energies(first, second, [0.9 * radii, radii]) == 0.0).all()


@pytest.mark.parametrize("fraction", [REACH.inner, REACH.outer])
def test_value_slope_and_curvature_are_continuous_where_the_switch_begins_and_ends(fraction):
    model = ScreenedRepulsion(("O",), REACH, 6.0)
    place = torch.zeros(1, dtype=torch.int64)
    found = []
    for side in (-1e-6, 1e-6):
        distance = torch.tensor([fraction * 1.32 + side], dtype=torch.float64, requires_grad=True)
        value = model.pair_energy(distance, place, place)
        slope = torch.autograd.grad(value.sum(), distance, create_graph=True)[0]
        curvature = torch.autograd.grad(slope.sum(), distance)[0]
        found.append([float(one.detach()) for one in (value, slope, curvature)])
    (below, above), scale = np.array(found), np.abs(energies("O", "O", [REACH.inner * 1.32])[0]) * 1e3
    assert np.abs(below - above).max() < SMOOTH * scale


def test_a_pair_scan_down_to_a_third_of_an_angstrom_repels_with_the_gradient_of_its_energy():
    plain, model = with_and_without(softmax="smooth")
    for distance in (0.3, 0.4, 0.5, 0.6, 0.7):
        pair = Atoms(np.array([8, 8]), np.array([[0.0, 0, 0], [0, 0, distance]]))
        energy, forces = forces_of(model, pair)
        force = forces[1, 2]
        assert force > 0
        assert energy - forces_of(plain, pair)[0] == pytest.approx(energies("O", "O", [distance])[0], rel=ROUNDING)
        assert force > forces_of(plain, pair)[1][1, 2]
        shifted = [
            forces_of(model, dataclasses.replace(pair, positions=pair.positions + np.diag([0, step])[:, [0, 0, 1]]))[0]
            for step in (-STEP, STEP)
        ]
        assert abs(force + (shifted[1] - shifted[0]) / (2 * STEP)) < DIFFERENCE * abs(force)


def test_halo_rows_and_padding_change_no_number():
    _, model = with_and_without()
    atoms = random_atoms(12, density=0.2)  # crowded: some pairs are within its range
    atoms = dataclasses.replace(atoms, positions=atoms.positions * 0.8, cell=atoms.cell * 0.8)
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell, atoms.pbc)
    assert float(model.repulsion(graph, reference).sum()) > 1.0
    whole, gradients = energy_and_edge_gradients(model, graph)
    split = pad_graph(send_through_halo(graph), model.cutoffs, 3, 4, 2)
    found, split_gradients = energy_and_edge_gradients(model, split)
    assert float((found[:12] - whole).abs().max()) < ROUNDING * float(whole.abs().max())
    assert float(found[12:].abs().max()) == 0.0
    expected = forces_and_strain(graph, gradients)[0]
    assert float((forces_and_strain(split, split_gradients)[0][:12] - expected).abs().max()) < ROUNDING * float(
        expected.abs().max()
    )


def test_ordinary_distances_are_untouched_to_the_bit():
    plain, model = with_and_without()
    atoms = random_atoms(20, elements=("H", "C", "O"))
    spread = dataclasses.replace(atoms, positions=atoms.positions * 1.4, cell=atoms.cell * 1.4)  # from 1.26 Å
    for found, expected in zip(forces_of(model, spread), forces_of(plain, spread), strict=True):
        assert np.array_equal(found, expected)


def test_a_float32_network_keeps_it_in_float64_and_with_its_elements():
    _, model = with_and_without()
    single = model.to(torch.float32).select_elements(("O", "H"))
    assert single.repulsion.radius.dtype == torch.float64
    assert single.repulsion.nuclear_charge.tolist() == [8.0, 1.0]
    assert single.repulsion.radius.tolist() == [0.66, 0.31]


def test_a_config_without_the_key_has_none_and_stores_none():
    plain, model = with_and_without()
    assert plain.repulsion is None
    assert not [name for name in plain.state_dict() if "repulsion" in name]
    assert "repulsion" not in plain.config.to_dict()
    assert model.config.to_dict()["repulsion"] == {"inner": REACH.inner, "outer": REACH.outer}
    assert set(dict(model.named_parameters())) == set(dict(plain.named_parameters()))


BACKBONE = {
    "num_layers": 1, "irreps_node_embedding": "8x0e+8x1e", "irreps_head": "2x0e+2x1e", "attn_scalar_head": 2,
    "num_attn_heads": 4, "number_of_basis": 8, "max_radius": 4.0, "tp_type": "QK", "attn_type": "zero-order",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"repulsion": "lj"}, "repulsion: expected zbl or nothing, found 'lj'"),
        ({"repulsion_outer": 0.7}, "expected repulsion: zbl beside repulsion_outer, found None"),
        ({"repulsion": "zbl", "repulsion_inner": 0.9}, "expected 0 <= repulsion_inner < repulsion_outer <= 1"),
        ({"repulsion": "zbl", "repulsion_outer": 1.2}, "found 0.5 and 1.2"),
    ],
)
def test_a_range_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        ModelConfig.from_yaml({"backbone_config": BACKBONE, **changes})


def test_the_config_sets_the_range():
    assert ModelConfig.from_yaml({"backbone_config": BACKBONE}).repulsion is None
    found = ModelConfig.from_yaml({"backbone_config": BACKBONE, "repulsion": "zbl", "repulsion_outer": 0.7}).repulsion
    assert found == RepulsionRange(0.5, 0.7)


def test_pairs_beyond_the_shortest_cutoff_and_elements_without_a_radius_are_refused():
    with pytest.raises(ValueError, match=r"expected a shortest cutoff of at least 3.25 Å.* found 3 Å"):
        ScreenedRepulsion(("K",), REACH, 3.0)
    with pytest.raises(ValueError, match="expected elements with a known covalent radius, found Fm"):
        ScreenedRepulsion(("H", "Fm"), REACH, 6.0)
