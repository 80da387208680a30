# SPDX-License-Identifier: MIT
"""Halo rows that stay on the GPU: one rank that sends its own rows to itself, against exchanges through the host."""

import pytest
import torch
from gpu import GPU, needs_gpu, to_gpu
from small_graph import NUM_HALO, NUM_OWNED, small_list, values
from test_ops_device_halo import forward_and_reverse, self_exchange
from test_ops_halo import CHANNELS, DTYPES, exchange

from tessera import ops

pytestmark = needs_gpu

NUM_SLOTS = NUM_HALO + 16  # head-room of a count below ten


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("headroom", [False, True])
def test_rows_and_gradients_are_those_of_the_staged_exchange_to_the_last_bit(dtype, headroom):
    edges, payload = small_list(), values(NUM_OWNED, CHANNELS, dtype=dtype)
    staged, direct = self_exchange(edges), self_exchange(edges, device=0, headroom=headroom)
    expected = forward_and_reverse(staged, payload, edges, torch.arange(NUM_HALO), NUM_SLOTS)
    places = torch.from_numpy(direct.slots(0))
    found = forward_and_reverse(direct, to_gpu(payload), to_gpu(edges), places, NUM_SLOTS)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def round_trip(payload, plan, halo):
    """Forward, then reverse of what came."""
    kernels = torch.ops.tessera
    extended = kernels.halo_wait(payload, kernels.halo_start(payload, plan, halo, 0), plan, halo, 0)
    ticket = kernels.halo_reverse_start(extended, plan, halo, 0)
    return extended, kernels.halo_reverse_wait(ticket, plan, payload, CHANNELS, 0)


def capture(plan, payload, halo):
    """A graph of round_trip(), and its outputs; once without capture before, which sizes the buffers."""
    round_trip(payload, plan, halo)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # a stream of this rank's device: the default one is shared by all threads of the process
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
        outputs = round_trip(payload, plan, halo)
    return graph, outputs


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_captured_exchange_follows_the_rows_that_it_is_replayed_with(dtype):
    edges = small_list()
    exchanges = self_exchange(edges, device=0, headroom=True)
    plan, halo = torch.tensor([exchanges.handle]), torch.zeros(NUM_SLOTS, dtype=torch.int64, device=GPU)
    payload = to_gpu(values(NUM_OWNED, CHANNELS, dtype=dtype).detach())
    graph, (extended, share) = capture(plan, payload, halo)
    for seed in range(3):
        payload.copy_(values(NUM_OWNED, CHANNELS, dtype=dtype, seed=seed))
        graph.replay()
        expected_extended, expected_share = round_trip(payload, plan, halo)
        assert torch.equal(extended, expected_extended)
        assert torch.equal(share, expected_share)
        assert torch.equal(extended[NUM_OWNED + torch.from_numpy(exchanges.slots(0))], payload[edges.halo_rows])


def test_rows_that_are_staged_through_the_host_cannot_be_captured():
    edges = small_list()
    exchanges = self_exchange(edges)
    plan, halo = torch.tensor([exchanges.handle]), torch.zeros(NUM_SLOTS, dtype=torch.int64, device=GPU)
    payload = to_gpu(values(NUM_OWNED, CHANNELS).detach())
    with pytest.raises(RuntimeError, match="staged through the host, which cannot be replayed"):
        capture(plan, payload, halo)


def test_rows_on_another_device_than_the_exchange_are_refused():
    edges = small_list()
    plan = self_exchange(edges, device=0)
    with pytest.raises(RuntimeError, match=r"moves rows of device 0 .* found rows on cpu"):
        exchange(ops, values(NUM_OWNED, CHANNELS), plan.handle, edges)
