# SPDX-License-Identifier: MIT
"""Halo exchanges as operators: one rank that sends its own rows to itself, against plain torch."""

import pytest
import torch
from small_graph import NUM_HALO, NUM_OWNED, small_list, values

from tessera import _C, ops
from tessera.kernels import reference

CHANNELS = 6
DTYPES = [torch.float64, torch.float32]


def exchange(kernels, payload, handle, edges, list_index=0):
    plan = torch.tensor([handle])
    return kernels.halo_wait(payload, kernels.halo_start(payload, plan, edges, list_index), plan, edges, list_index)


def self_exchange(edges):
    return _C.SelfExchange([edges.halo_rows.numpy()], edges.num_owned)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_halo_rows_are_copies_of_their_owners(dtype):
    edges = small_list()
    payload = torch.arange(NUM_OWNED, dtype=dtype)[:, None].expand(-1, CHANNELS)  # rows carry their owner's number
    plan = self_exchange(edges)
    extended = exchange(ops, payload, plan.handle, edges)
    assert torch.equal(extended[:NUM_OWNED], payload)
    assert torch.equal(extended[NUM_OWNED:, 0], edges.halo_rows.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gradient_of_an_exchange_is_the_reverse_exchange(dtype):
    edges = small_list()
    plan = self_exchange(edges)
    payload = values(NUM_OWNED, CHANNELS, dtype=dtype)
    weight = values(NUM_OWNED + NUM_HALO, CHANNELS, dtype=dtype, seed=1).detach()
    (ours,) = torch.autograd.grad((exchange(ops, payload, plan.handle, edges) * weight).sum(), [payload])
    (theirs,) = torch.autograd.grad((exchange(reference, payload, 0, edges) * weight).sum(), [payload])
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)  # float32: three terms in another order


def test_forward_then_reverse_of_ones_counts_the_copies():
    edges = small_list()
    plan = self_exchange(edges)
    payload = torch.ones(NUM_OWNED, 1, dtype=torch.float64, requires_grad=True)
    (copies,) = torch.autograd.grad(exchange(ops, payload, plan.handle, edges).sum(), [payload])
    assert torch.equal(copies[:, 0], 1.0 + torch.bincount(edges.halo_rows, minlength=NUM_OWNED))
    assert plan.messages(0) == 2  # one forward, one reverse


def test_padding_rows_of_owned_and_halo_stay_zero():
    edges = small_list()
    plan = self_exchange(edges)
    edges.halo_element = torch.zeros(NUM_HALO + 2, dtype=torch.int64)
    payload = torch.cat([values(NUM_OWNED, CHANNELS).detach(), torch.zeros(3, CHANNELS, dtype=torch.float64)])
    payload.requires_grad_()
    extended = exchange(ops, payload, plan.handle, edges)
    assert extended.shape == (NUM_OWNED + 3 + NUM_HALO + 2, CHANNELS)
    assert torch.equal(extended[NUM_OWNED + 3 : NUM_OWNED + 3 + NUM_HALO], payload[edges.halo_rows])
    assert torch.count_nonzero(extended[-2:]) == 0
    (grad,) = torch.autograd.grad(extended.square().sum(), [payload])
    assert torch.count_nonzero(grad[NUM_OWNED:]) == 0


def test_without_a_plan_all_halo_rows_are_zero_and_send_nothing_home():
    edges = small_list()
    payload = values(NUM_OWNED, CHANNELS)
    extended = exchange(ops, payload, 0, edges)
    (grad,) = torch.autograd.grad(extended.sum(), [payload])
    assert torch.equal(extended[:NUM_OWNED], payload)
    assert torch.count_nonzero(extended[NUM_OWNED:]) == 0
    assert torch.equal(grad, torch.ones_like(grad))


def test_a_list_without_halo_rows_exchanges_nothing():
    edges = small_list(num_halo=0)
    plan = _C.SelfExchange([[]], NUM_OWNED)
    payload = values(NUM_OWNED, CHANNELS)
    assert torch.equal(exchange(ops, payload, plan.handle, edges), payload)
    assert plan.messages(0) == 0


def test_each_list_has_its_own_exchange():
    edges = small_list()
    plan = _C.SelfExchange([[], edges.halo_rows.numpy()], NUM_OWNED)
    payload = values(NUM_OWNED, CHANNELS)
    assert torch.equal(exchange(ops, payload, plan.handle, edges, 1)[NUM_OWNED:], payload[edges.halo_rows])
    assert torch.count_nonzero(exchange(ops, payload, plan.handle, edges, 0)[NUM_OWNED:]) == 0
    with pytest.raises(RuntimeError, match=r"has 2 lists, the model asked for list 2"):
        exchange(ops, payload, plan.handle, edges, 2)


def test_a_plan_that_has_gone_is_refused():
    edges = small_list()
    handle = self_exchange(edges).handle
    with pytest.raises(RuntimeError, match=f"no living exchange set has handle {handle}"):
        exchange(ops, values(NUM_OWNED, CHANNELS), handle, edges)


def test_a_handle_is_never_used_twice():
    edges = small_list()
    assert self_exchange(edges).handle < self_exchange(edges).handle


def test_arrays_smaller_than_the_plan_are_refused():
    edges = small_list()
    plan = self_exchange(edges)
    with pytest.raises(RuntimeError, match=r"halo_start: the plan of list 0 .* 13 owned and 5 halo rows"):
        exchange(ops, values(NUM_OWNED - 1, CHANNELS), plan.handle, edges)


def test_the_ticket_of_another_payload_is_refused():
    edges = small_list()
    handle = torch.tensor([self_exchange(edges).handle]) * 0
    ticket = ops.halo_start(values(NUM_OWNED, CHANNELS), handle, edges, 0)
    with pytest.raises(RuntimeError, match="ticket is for rows of 6 channels, the output has 7"):
        ops.halo_wait(values(NUM_OWNED, CHANNELS + 1), ticket, handle, edges, 0)


def test_a_plan_may_copy_owned_rows_only():
    with pytest.raises(RuntimeError, match=str(NUM_OWNED)):
        _C.SelfExchange([[NUM_OWNED]], NUM_OWNED)


@pytest.mark.parametrize("name", ["halo_start", "halo_wait"])
def test_the_declared_shapes_and_derivatives_hold_for_torch(name):
    """torch's checker invents gradients, which a ticket's may not be: differentiation is tested above."""
    edges = small_list()
    payload, plan = values(NUM_OWNED, CHANNELS), torch.tensor([0])
    ticket = [] if name == "halo_start" else [ops.halo_start(payload, plan, edges, 0).detach()]
    torch.library.opcheck(
        getattr(torch.ops.tessera, name).default,
        (payload, *ticket, plan, edges.halo_element, 0),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )
