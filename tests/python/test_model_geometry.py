# SPDX-License-Identifier: MIT
"""Which edges a stage sees and how much they weigh, and attention weights by their formulas."""

import dataclasses

import numpy as np
import pytest
import torch

from tessera.kernels import reference
from tessera.model import Graph, Stage, build_graph, edge_list
from tessera.model.geometry import (
    EdgeGeometry,
    bell_envelope,
    bell_envelope_slope,
    envelope,
    envelope_slope,
    radial_basis,
)
from tessera.model.spline_table import SplineTable
from tessera.model.weights import AttentionWeights
from tessera.testing import random_model, small_config

ROUNDING = 1e-14  # float64, values of order 1
STAGE = Stage(cutoff=4.0, attention="zero-order", basis_cutoff=4.0)


def star(distances, elements=None):
    """One receiver, row 0, with a neighbor at each distance, and the elements H (0) and O (1)."""
    count = len(distances)
    vector = torch.tensor([[distance, 0.0, 0.0] for distance in distances], dtype=torch.float64)
    edges = edge_list(torch.zeros(count, dtype=torch.int64), torch.arange(1, count + 1), vector, num_owned=count + 1)
    element = torch.tensor([1, *(elements or [1] * count)])
    one = torch.ones(1, dtype=torch.int64)
    return Graph(one, element, torch.ones(count + 1, dtype=torch.float64), one, one, [edges])


def prepare(graph, stage):
    hydrogen = torch.tensor([True, False])
    return EdgeGeometry(graph, (4.0,), 2, 8, torch.float64, hydrogen, reference).prepare(stage)


def test_a_stage_sees_edges_from_its_minimum_to_its_cutoff():
    seen = prepare(star([0.0, 0.99e-4, 1.01e-4, 3.9, 4.0, 4.0000001]), STAGE)
    assert seen.active.tolist() == [False, False, True, True, True, False]
    assert (seen.envelope > 0).tolist() == [False, False, True, True, False, False]


def test_a_long_stage_drops_close_edges_and_hydrogen_senders():
    stage = dataclasses.replace(STAGE, minimum_distance=0.1, drops_hydrogen_senders=True)
    seen = prepare(star([0.09, 0.11, 1.0, 2.0], elements=[1, 1, 0, 1]), stage)
    assert seen.active.tolist() == [False, True, False, True]


def test_a_capped_stage_keeps_the_nearest_edges():
    seen = prepare(star([3.0, 1.0, 5.0, 2.0]), dataclasses.replace(STAGE, max_neighbors=2))
    assert seen.active.tolist() == [False, True, False, True]
    assert (seen.envelope > 0).tolist() == [False, True, False, True]


def test_stages_of_equal_description_share_their_edges():
    geometry = EdgeGeometry(star([1.0]), (4.0,), 2, 8, torch.float64, torch.tensor([True, False]), reference)
    first = geometry.prepare(STAGE)
    assert geometry.prepare(dataclasses.replace(STAGE, attention="so2-first-order")) is first
    assert geometry.prepare(dataclasses.replace(STAGE, bell_envelope=True)) is not first


def test_the_factored_envelope_is_the_published_polynomial():
    x = torch.linspace(0.0, 0.9999, 50, dtype=torch.float64)
    published = 1 - 21 * x**5 + 35 * x**6 - 15 * x**7
    torch.testing.assert_close(envelope(4.0 * x, 4.0), published, rtol=0, atol=1e-13)  # the polynomial itself cancels
    assert not envelope(torch.tensor([4.0, 7.0, 4e3]), 4.0).any()


@pytest.mark.parametrize(
    ("function", "slope", "extents"),
    [(envelope, envelope_slope, (4.0,)), (bell_envelope, bell_envelope_slope, (0.1, 3.9))],
    ids=["published", "bell"],
)
def test_the_slope_of_an_envelope_is_its_derivative(function, slope, extents):
    distance = torch.linspace(0.01, 4.5, 90, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(function(distance, *extents).sum(), distance)
    assert expected.abs().max() > 0.4
    torch.testing.assert_close(slope(distance.detach(), *extents), expected, rtol=0, atol=1e-13)


def test_inactive_edges_have_no_slope_and_others_that_of_an_interval():
    table = SplineTable(torch.zeros(1, 2, 1), 4.0, 20)
    found = prepare(star([1.0, 3.0, 4.5]), STAGE).envelope_slope(table)
    expected = envelope_slope(torch.tensor([1.0, 3.0], dtype=torch.float64), 4.0) * 0.2
    torch.testing.assert_close(found, torch.cat([expected, torch.zeros(1)]).to(found), rtol=1e-12, atol=0)


def test_the_bell_envelope_is_one_in_the_middle_and_zero_outside():
    distance = torch.tensor([0.0, 0.1, 1.05, 2.0, 3.9, 5.0], dtype=torch.float64)
    # t = -1 at 0.1 Å, 0 at 2 Å, 1 at 3.9 Å; at 1.05 Å t = -1/2 and (1 - 1/4)^2 = 9/16.
    expected = torch.tensor([0.0, 0.0, 0.5625, 1.0, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(bell_envelope(distance, 0.1, 3.9), expected, rtol=0, atol=ROUNDING)
    stage = dataclasses.replace(STAGE, minimum_distance=0.1, bell_envelope=True)
    found = prepare(star([1.0]), stage).envelope
    torch.testing.assert_close(found, bell_envelope(torch.tensor([1.0], dtype=torch.float64), 0.1, 4.0))


def test_gaussians_stand_on_their_grid_with_twice_its_spacing():
    basis = radial_basis(torch.tensor([2.0], dtype=torch.float64), 4.0, 5)  # centres 0, 1, 2, 3, 4, width 2
    expected = torch.exp(-(torch.tensor([[2.0, 1.0, 0.0, 1.0, 2.0]], dtype=torch.float64) ** 2) / 8)
    torch.testing.assert_close(basis, expected, rtol=0, atol=ROUNDING)


def test_coincident_atoms_do_not_see_each_other():
    model = random_model(small_config("so2-first-order"))
    together = build_graph(model, [8, 6], np.zeros((2, 3)))
    assert len(together.lists[0].receiver) == 2
    apart = build_graph(model, [8, 6], np.array([[0.0, 0.0, 0.0], [50.0, 0.0, 0.0]]))
    torch.testing.assert_close(model(together), model(apart), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("softmax", ["exact", "smooth"])
@pytest.mark.parametrize("offset", [0.0, 300.0, -300.0], ids=["near zero", "high", "low"])
def test_softmax_weights_follow_their_formula_however_large_the_scores(softmax, offset):
    seen = prepare(star([1.0, 2.0, 3.0, 5.0]), STAGE)
    score = torch.tensor([[0.3], [-1.2], [0.9], [40.0]], dtype=torch.float64) + offset
    gate = torch.tensor([[1.0], [-2.0], [0.5], [3.0]], dtype=torch.float64)
    weight, normalizer = AttentionWeights(small_config(softmax=softmax))(score, gate, seen, reference)
    alpha = (weight / normalizer[0])[:, 0]
    # With everything multiplied by e^-A, where A = 0.9 + offset is the largest active score.
    exponential = torch.exp(score[:3, 0] - (0.9 + offset)) * envelope(torch.tensor([1.0, 2.0, 3.0]).double(), 4.0)
    floor = 1e-3 if softmax == "exact" else 1e-3 * float(np.exp(-(0.9 + offset)))
    expected = exponential * gate[:3, 0] / (exponential.sum() + floor)
    torch.testing.assert_close(alpha[:3], expected, rtol=1e-12, atol=ROUNDING)
    assert alpha[3] == 0


@pytest.mark.parametrize(
    ("normalizer", "squash"), [("softplus", torch.nn.functional.softplus), ("sigmoid", torch.sigmoid)]
)
def test_weights_without_a_normalizer_follow_their_formula(normalizer, squash):
    seen = prepare(star([1.0, 2.0, 5.0]), STAGE)
    score = torch.tensor([[0.3], [-1.2], [4.0]], dtype=torch.float64)
    gate = torch.tensor([[1.0], [-2.0], [3.0]], dtype=torch.float64)
    weight, divisor = AttentionWeights(small_config(normalizer=normalizer))(score, gate, seen, reference)
    assert divisor is None
    torch.testing.assert_close(weight, squash(score) * gate * seen.envelope[:, None], rtol=0, atol=ROUNDING)
    assert weight[2] == 0
