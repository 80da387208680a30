# SPDX-License-Identifier: MIT
"""Exchanges between GPUs over NCCL: ranks are threads with a GPU each, against exchanges staged through the host."""

import pytest
import torch
from rank_threads import on_ranks, random_needs
from small_graph import values
from test_cuda_halo import capture, round_trip
from test_ops_device_halo import outcome_on_ranks
from test_ops_halo import CHANNELS, DTYPES

from tessera import _C

NUM_GPUS = _C.num_gpus() if _C.HAS_NCCL else 0

pytestmark = pytest.mark.skipif(
    NUM_GPUS < 2,
    reason="needs a build with -DTESSERA_CUDA=ON and NCCL, and two visible GPUs (tests/cuda/run_all.sh)",
)

NUM_OWNED = [37 + 8 * rank for rank in range(NUM_GPUS)]


def payloads(dtype, seed=0):
    return [
        values(count, CHANNELS, dtype=dtype, seed=seed + rank).detach().to(torch.device("cuda", rank))
        for rank, count in enumerate(NUM_OWNED)
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_and_gradients_are_those_of_the_staged_exchange_to_the_last_bit(dtype):
    needed, rows = random_needs(NUM_OWNED), payloads(dtype)
    staged, over_nccl = (outcome_on_ranks(needed, rows, link) for link in ("staged", "nccl"))
    for rank, (found, expected) in enumerate(zip(over_nccl, staged, strict=True)):
        owners = [rows[owner].cpu()[needed[rank][owner]] for owner in range(NUM_GPUS)]
        assert torch.equal(found[0], torch.cat(owners))
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def test_a_captured_exchange_follows_the_rows_that_it_is_replayed_with():
    needed = random_needs(NUM_OWNED)
    sets = _C.connect_virtual_ranks(needed, NUM_OWNED, "nccl")
    rows = payloads(torch.float64)

    def body(rank):
        torch.cuda.set_device(rank)
        plan = torch.tensor([sets[rank].handle])
        num_slots = len(sets[rank].slots(0)) + 32 * NUM_GPUS  # more than the head-room of a few rows a peer
        halo = torch.zeros(num_slots, dtype=torch.int64, device=rows[rank].device)
        graph, outputs = capture(plan, rows[rank], halo)
        differences = []
        for seed in range(3):
            rows[rank].copy_(payloads(torch.float64, 10 * seed)[rank])
            graph.replay()
            expected = round_trip(rows[rank], plan, halo)
            differences += [torch.equal(ours, theirs) for ours, theirs in zip(outputs, expected, strict=True)]
        torch.cuda.synchronize()
        return differences, outputs[1].abs().sum().item()

    for are_equal, size in on_ranks(NUM_GPUS, body):
        assert all(are_equal)
        assert size > 0
