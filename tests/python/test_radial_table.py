# SPDX-License-Identifier: MIT
"""Edge networks as splines of the distance: what they interpolate, how well, and for which models."""

import dataclasses

import numpy as np
import pytest
import torch

from tessera import ops
from tessera.kernels import reference
from tessera.kernels.reference import SPLINE_ROWS, spline
from tessera.model import build_graph, energy_and_edge_gradients, forces_and_strain
from tessera.model.geometry import EdgeGeometry
from tessera.model.radial_table import MARGIN, has_tables, interpolate, table_bytes, tabulate
from tessera.model.scores import run_network
from tessera.model.spline_table import SplineTable
from tessera.testing import random_atoms, random_model, small_config

ROUNDING = 1e-12  # float64 sums of a few terms of order one
INTERVALS = 25


def at(table, places):
    """Evaluate a table of one pair, [INTERVALS + 5, F], at `places` in intervals."""
    interval = places.detach().floor().clamp(0, INTERVALS - 1)
    return spline(table, interval.long(), places - interval)


def test_quintic_polynomials_are_reproduced_with_their_derivatives():
    nodes = torch.arange(-MARGIN, INTERVALS + MARGIN + 1, dtype=torch.float64) / INTERVALS
    values = torch.stack([nodes**power for power in range(6)], dim=1)
    table = interpolate(values[None])[0]
    places = torch.linspace(0, INTERVALS, 91, dtype=torch.float64, requires_grad=True)
    found = at(table, places)
    x = places.detach() / INTERVALS
    for power in range(6):
        np.testing.assert_allclose(found[:, power].detach(), x**power, atol=1e-9)  # an end's influence after MARGIN
        (slope,) = torch.autograd.grad(found[:, power].sum(), places, retain_graph=True)
        expected = power * x ** max(0, power - 1) / INTERVALS
        np.testing.assert_allclose(slope, expected, atol=1e-9)


def test_four_derivatives_are_continuous_from_interval_to_interval():
    table = torch.randn(INTERVALS + 5, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    sides = []
    for row, fraction in ((7, 1.0), (8, 0.0)):
        t = torch.tensor([fraction], dtype=torch.float64, requires_grad=True)
        value = spline(table, torch.tensor([row]), t).sum()
        derivatives = [value.item()]
        for _ in range(5):
            (value,) = torch.autograd.grad(value, t, create_graph=True)
            value = value.sum()
            derivatives.append(value.item())
        sides.append(derivatives)
    np.testing.assert_allclose(sides[0][:5], sides[1][:5], atol=ROUNDING * 100)
    assert abs(sides[0][5] - sides[1][5]) > 0.1, "a quintic spline's fifth derivative jumps"


def evaluate(model, kernels, atoms):
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell, atoms.pbc)
    energy, gradients = energy_and_edge_gradients(model, graph, kernels)
    return float(energy.sum()), forces_and_strain(graph, gradients)[0]


def prepared(model, stage, atoms):
    """The edges that `stage` sees."""
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell, atoms.pbc)
    config = model.config
    return EdgeGeometry(
        graph, config.cutoffs, config.lmax, config.num_basis, model.dtype, model.hydrogen, reference
    ).prepare(stage)


@pytest.mark.parametrize("attention", ["zero-order", "so2-first-order"])
def test_forces_approach_those_of_the_networks_with_the_fifth_power_at_least(attention):
    model, atoms = random_model(small_config(attention)), random_atoms(30)
    expected = evaluate(model, reference, atoms)[1]
    errors = [float((evaluate(tabulate(model, n), reference, atoms)[1] - expected).abs().max()) for n in (6, 12, 24)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[0] / errors[2] > 4.0**5
    assert errors[2] < 1e-5  # of 1.4 eV/Å


@pytest.mark.parametrize("attention", ["zero-order", "so2-first-order"])
def test_fused_kernels_evaluate_tables_as_plain_torch_does(attention):
    model, atoms = tabulate(random_model(small_config(attention)), 3), random_atoms(30)
    expected = evaluate(model, reference, atoms)
    model.set_fused(is_fused=True)
    energy, forces = evaluate(model, ops, atoms)
    assert energy == pytest.approx(expected[0], rel=1e-12)
    torch.testing.assert_close(forces, expected[1], rtol=0, atol=1e-11)


def test_every_pair_of_elements_has_its_own_functions_and_order_matters():
    model = random_model(small_config("zero-order"))
    tabled = tabulate(model, 16)
    gate, stage = tabled.blocks[0].attention.gate, model.blocks[0].stage
    table, count = gate.table, len(model.elements)
    atoms = random_atoms(30)
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell, atoms.pbc)
    config = model.config
    geometry = EdgeGeometry(
        graph, config.cutoffs, config.lmax, config.num_basis, model.dtype, model.hydrogen, reference
    )
    edges = geometry.prepare(stage)
    exact = run_network(model.blocks[0].attention.gate.network, edges, model.blocks[0].attention.tables)
    pairs = edges.receiver_element * count + edges.sender_element
    assert len(pairs.unique()) == count**2
    found = spline(table.coefficients, *edges.place(table)).flatten(1)
    torch.testing.assert_close(found[edges.active], exact[edges.active], rtol=0, atol=1e-5)
    turned = dataclasses.replace(edges, receiver_element=edges.sender_element, sender_element=edges.receiver_element)
    assert (spline(table.coefficients, *turned.place(table)).flatten(1) - found).abs().max() > 0.1


def test_the_cutoff_itself_and_padding_far_beyond_lie_in_the_table():
    model = tabulate(random_model(small_config("zero-order")), 2)
    table = model.blocks[0].attention.gate.table
    rows = table.coefficients.shape[0]
    assert rows == len(model.elements) ** 2 * table.rows_a_pair
    atoms = random_atoms(6)
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell, atoms.pbc)
    config = model.config
    geometry = EdgeGeometry(
        graph, config.cutoffs, config.lmax, config.num_basis, model.dtype, model.hydrogen, reference
    )
    edges = geometry.prepare(model.blocks[0].stage)
    count = edges.active.shape[0]
    distance = torch.linspace(0.5, table.cutoff, count, dtype=torch.float64)
    distance[0], distance[-1] = 0.0, 1e3 * table.cutoff
    active = torch.ones(count, dtype=torch.bool)
    active[0] = active[-1] = False
    last = torch.full_like(edges.receiver_element, len(model.elements) - 1)
    moved = dataclasses.replace(
        edges, exact_distance=distance, active=active, receiver_element=last, sender_element=last
    )
    row, fraction = moved.place(table)
    assert int(row.min()) >= 0
    assert int(row.max()) + SPLINE_ROWS <= rows
    assert float(fraction.min()) >= 0.0
    assert float(fraction.max()) <= 1.0
    assert float(fraction[-1]) == 0.0


def test_networks_that_see_more_than_the_distance_stay():
    model = tabulate(random_model(small_config("zero-order", score="QKdotS")), 2)
    assert model.embedding.has_table
    assert sum(isinstance(module, SplineTable) for module in model.modules()) == 1


def test_a_model_without_tables_has_none_and_gives_its_size_beforehand():
    model = random_model(small_config("zero-order"))
    assert not has_tables(model)
    tabled = tabulate(model, 4)
    assert has_tables(tabled)
    assert not has_tables(model), "the model itself is left alone"
    stored = sum(
        module.coefficients.numel() * module.coefficients.element_size()
        for module in tabled.modules()
        if isinstance(module, SplineTable)
    )
    assert table_bytes(model, 4) == pytest.approx(stored, rel=0.05)


def test_less_than_one_interval_is_refused():
    with pytest.raises(ValueError, match="at least 1 interval"):
        tabulate(random_model(small_config("zero-order")), 0)


def test_elements_are_selected_before_tables_are_made():
    with pytest.raises(ValueError, match="select elements before"):
        tabulate(random_model(small_config("zero-order")), 1).select_elements(["H"])
