# SPDX-License-Identifier: MIT
"""The message-passing operations in plain torch: values by hand, first and second derivatives by differences."""

import dataclasses

import pytest
import torch

from tessera.kernels import reference
from tessera.model import edge_list

RECEIVER = torch.tensor([0, 0, 0, 1, 1, 3])
SENDER = torch.tensor([1, 4, 5, 0, 2, 3])  # rows 4 and 5 are halo rows, copies of rows 2 and 0; row 2 receives nothing
ACTIVE = torch.tensor([True, True, False, True, True, False])


def edges():
    return edge_list(RECEIVER, SENDER, torch.zeros(6, 3, dtype=torch.float64), num_owned=4,
                     halo_element=torch.tensor([0, 0]), halo_rows=torch.tensor([2, 0]))  # fmt: skip


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


CALLS = {
    "segment_sum": (lambda v: reference.segment_sum(v, edges()), lambda: (random(6, 3),)),
    "segment_max": (lambda v: reference.segment_max(v, ACTIVE, edges()), lambda: (random(6, 3),)),
    "edge_dot": (lambda q, k: reference.edge_dot(q, k, edges()), lambda: (random(4, 2, 3), random(6, 2, 3, seed=1))),
    "weighted_sum": (
        lambda w, v: reference.weighted_sum(w, v, edges()),
        lambda: (random(6, 3, 2), random(6, 4, 4, seed=1)),
    ),
    "outer_sum": (lambda y, f: reference.outer_sum(y, f, edges()), lambda: (random(6, 9), random(6, 3, 2, seed=1))),
    "harmonic_dot": (
        lambda y, x: reference.harmonic_dot(y, x, edges()),
        lambda: (random(6, 4), random(4, 4, 2, seed=1)),
    ),
    "halo": (
        lambda x: reference.halo_wait(x, reference.halo_start(x, None, edges(), 0), None, edges(), 0),
        lambda: (random(4, 3),),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_first_derivatives_are_differences(name):
    function, inputs = CALLS[name]
    assert torch.autograd.gradcheck(function, inputs())


@pytest.mark.parametrize("name", CALLS)
def test_second_derivatives_are_differences(name):
    function, inputs = CALLS[name]
    # segment_sum, segment_max and halo are linear near a point without ties: their second derivative is zero. A square
    # on top makes the test see the chain through the first.
    assert torch.autograd.gradgradcheck(lambda *x: function(*x).square(), inputs())


def test_a_sum_counts_every_edge_of_its_receiver():
    values = torch.arange(6.0)[:, None]
    assert reference.segment_sum(values, edges())[:, 0].tolist() == [3.0, 7.0, 0.0, 5.0]


def test_a_maximum_ignores_inactive_edges_and_is_zero_where_none_is_active():
    values = torch.tensor([-3.0, -2.0, 9.0, -5.0, -6.0, 7.0])[:, None]
    assert reference.segment_max(values, ACTIVE, edges())[:, 0].tolist() == [-2.0, -5.0, 0.0, 0.0]


def test_tied_maxima_share_their_derivative_equally():
    values = torch.tensor([2.0, 2.0, 2.0, 1.0, 0.0, 4.0])[:, None].requires_grad_()
    reference.segment_max(values, ACTIVE, edges()).sum().backward()
    assert values.grad[:, 0].tolist() == [0.5, 0.5, 0.0, 1.0, 0.0, 0.0]


def test_channels_belong_to_heads_in_turn():
    weights = torch.zeros(6, 1, 2)
    weights[3, 0] = torch.tensor([10.0, 1.0])  # edge 3 is 1 <- 0
    values = torch.zeros(6, 1, 4)
    values[0, 0] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert reference.weighted_sum(weights, values, edges())[1, 0, 0].tolist() == [10.0, 2.0, 30.0, 4.0]


def test_outer_sum_and_harmonic_dot_are_transposes():
    y, f, x = random(6, 9), random(6, 3, 2, seed=1), random(4, 9, 2, seed=2)
    left = (reference.outer_sum(y, f, edges()) * x).sum()
    right = (reference.harmonic_dot(y, x, edges()) * f).sum()
    assert abs((left - right).item()) < 1e-12  # roundings of some hundred terms of order 1


def test_the_nearest_edges_are_active_near_and_as_many_as_asked():
    distance = torch.tensor([3.0, 1.0, 0.5, 2.0, 2.0, 1.0])
    marked = reference.nearest_edges(distance, ACTIVE, edges(), 1)
    assert marked.tolist() == [False, True, False, True, False, False]
    assert reference.nearest_edges(distance, ACTIVE, edges(), 5).tolist() == ACTIVE.tolist()


def test_halo_rows_copy_the_rows_that_they_name():
    payload = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    extended = reference.halo_wait(payload, reference.halo_start(payload, None, edges(), 0), None, edges(), 0)
    assert extended[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 2.0, 0.0]


def test_halo_rows_without_owners_are_refused():
    lost = dataclasses.replace(edges(), halo_rows=None)
    with pytest.raises(ValueError, match="expected halo_rows for 2 halo rows, found None"):
        reference.halo_wait(torch.zeros(4, 1), torch.zeros(2), None, lost, 0)
