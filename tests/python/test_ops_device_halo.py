# SPDX-License-Identifier: MIT
"""Exchanges that stay on the device, here the CPU: what a GPU runs, against exchanges staged through the host."""

import pytest
import torch
from rank_threads import on_ranks, random_needs
from small_graph import NUM_HALO, NUM_OWNED, small_list, values
from test_ops_halo import CHANNELS, DTYPES, exchange

from tessera import _C, ops

HOST = -1


def self_exchange(edges, **options):
    return _C.SelfExchange([edges.halo_rows.numpy()], edges.num_owned, **options)


def forward_and_reverse(plan, payload, edges, places, num_slots):
    """Halo rows in the order of the plan, and the gradient of a random linear function of them; on payload's device."""
    edges.halo_element = torch.zeros(num_slots, dtype=torch.int64, device=payload.device)
    payload = payload.detach().requires_grad_()
    extended = exchange(ops, payload, plan.handle, edges)
    halo = extended[payload.shape[0] :]
    weight = values(len(places), payload.shape[1], dtype=payload.dtype, seed=1).detach().to(payload.device)
    (grad,) = torch.autograd.grad((halo[places] * weight).sum(), [payload])
    assert torch.equal(extended[: payload.shape[0]], payload)
    rest = torch.ones(num_slots, dtype=torch.bool)
    rest[places] = False
    assert torch.count_nonzero(halo[rest]) == 0
    return halo[places].detach().cpu(), grad.cpu()


def outcome_on_ranks(needed, payloads, link):
    """forward_and_reverse() on a rank a payload."""
    num_owned = [len(payload) for payload in payloads]
    sets = _C.connect_virtual_ranks(needed, num_owned, link)

    def body(rank):
        places = torch.from_numpy(sets[rank].slots(0))
        num_slots = len(places) + 32 * len(sets)  # more than the head-room of a few rows a peer
        return forward_and_reverse(sets[rank], payloads[rank], small_list(num_owned[rank]), places, num_slots)

    return on_ranks(len(sets), body)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("headroom", [False, True])
def test_rows_and_gradients_are_those_of_the_staged_exchange_to_the_last_bit(dtype, headroom):
    edges, payload = small_list(), values(NUM_OWNED, CHANNELS, dtype=dtype)
    staged, direct = self_exchange(edges), self_exchange(edges, device=HOST, headroom=headroom)
    places = torch.from_numpy(direct.slots(0))
    num_slots = NUM_HALO + (16 if headroom else 0)  # none of the counts reaches ten
    expected = forward_and_reverse(staged, payload, edges, torch.arange(NUM_HALO), num_slots)
    found = forward_and_reverse(direct, payload, edges, places, num_slots)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
    assert torch.equal(found[0], payload[edges.halo_rows])
    assert direct.messages(0) == 2  # one forward, one reverse


def test_arrays_without_room_for_the_slots_are_refused():
    edges = small_list()
    plan = self_exchange(edges, device=HOST, headroom=True)
    with pytest.raises(RuntimeError, match=r"halo_start: the plan of list 0 .* 13 owned and 21 halo rows"):
        exchange(ops, values(NUM_OWNED, CHANNELS), plan.handle, edges)


def test_each_list_has_its_own_exchange_on_the_device():
    edges = small_list()
    plan = _C.SelfExchange([[], edges.halo_rows.numpy()], NUM_OWNED, device=HOST)
    payload = values(NUM_OWNED, CHANNELS)
    assert torch.equal(exchange(ops, payload, plan.handle, edges, 1)[NUM_OWNED:], payload[edges.halo_rows])
    assert torch.count_nonzero(exchange(ops, payload, plan.handle, edges, 0)[NUM_OWNED:]) == 0
    with pytest.raises(RuntimeError, match=r"has 2 lists, the model asked for list 2"):
        exchange(ops, payload, plan.handle, edges, 2)


def test_a_device_that_does_not_exist_is_refused():
    if _C.HAS_CUDA:
        pytest.skip("needs a build without CUDA")
    with pytest.raises(_C.TesseraError, match="build with CUDA"):
        self_exchange(small_list(), device=0)


@pytest.mark.parametrize("num_owned", [[9], [9, 12], [7, 2, 15]], ids=str)
def test_ranks_get_each_others_rows_and_send_the_gradients_home(num_owned):
    needed = random_needs(num_owned)
    payloads = [values(count, CHANNELS, seed=rank) for rank, count in enumerate(num_owned)]
    direct, staged = (outcome_on_ranks(needed, payloads, link) for link in ("host", "staged"))
    for rank, (found, expected) in enumerate(zip(direct, staged, strict=True)):
        owners = [payloads[owner][rows] for owner, rows in enumerate(needed[rank])]
        assert torch.equal(found[0], torch.cat(owners))
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
        assert torch.count_nonzero(found[1]) > 0


def test_a_link_of_another_name_and_ranks_that_do_not_match_are_refused():
    needed, num_owned = random_needs([4, 4]), [4, 4]
    with pytest.raises(_C.TesseraError, match="expected the link 'host' or 'nccl', found 'smoke'"):
        _C.connect_virtual_ranks(needed, num_owned, "smoke")
    with pytest.raises(ValueError, match=r"needed\[reader\]\[owner\]"):
        _C.connect_virtual_ranks(needed, [4], "host")
