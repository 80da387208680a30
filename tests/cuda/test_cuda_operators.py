# SPDX-License-Identifier: MIT
"""The operators on a GPU, against plain torch on the CPU in float64."""

import pytest
import torch
from gpu import GPU, needs_gpu, to_gpu
from small_graph import NUM_EDGES, NUM_HALO, NUM_OWNED, small_list, values
from test_ops_edges import NAMES as CPU_NAMES
from test_ops_edges import WIDTHS, cases

from tessera import _C, ops
from tessera.kernels import reference

pytest.importorskip("triton", reason="needs triton (pip install triton==3.6.0)")

from tessera.ops import gpu

pytestmark = needs_gpu

#: What a model on a GPU calls as it does on the CPU; the others have Triton kernels there (test_cuda_triton.py).
NAMES = [name for name in CPU_NAMES if getattr(gpu, name.split(",")[0]) is getattr(ops, name.split(",")[0])]

#: As on the CPU: sums of at most a few hundred terms of order one, in another order than the reference.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-4}


def outcome(kernels, name, edges, width, dtype, move=lambda value: value):
    """Result and gradients of a random linear function of it, on the CPU."""
    before, after = cases(edges, *width, dtype)[name]
    before = [move(tensor) for tensor in before]
    result = getattr(kernels, name)(*before, move(edges), *after)
    if not result.dtype.is_floating_point:
        return [result.cpu()]
    inputs = [tensor for tensor in before if tensor.requires_grad]
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    total = (result * weight.to(result)).sum()
    gradients = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    return [tensor.detach().cpu() for tensor in (result, *gradients)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("width", [*WIDTHS, (5, 12)], ids=str)
def test_an_operator_and_its_gradient_equal_the_reference(name, dtype, width):
    if name == "weighted_sum" and width == (5, 12):
        pytest.skip("the reference needs heads that divide the channels; the CPU operators are compared below")
    edges = small_list()
    found = outcome(ops, name, edges, width, dtype, to_gpu)
    expected = outcome(reference, name, edges, width, torch.float64)
    for ours, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, exact.to(ours.dtype), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [(5, 12), (128, 256)], ids=str)
def test_the_gpu_and_the_cpu_give_the_same_on_a_large_list(name, width):
    edges = small_list(301, 40, 12000)
    found = outcome(ops, name, edges, width, torch.float64, to_gpu)
    for ours, theirs in zip(found, outcome(ops, name, edges, width, torch.float64), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)  # up to 12000/301 terms a sum, and 2304 a dot


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("owned", "halo", "edges"), [(6, 3, 0), (6, 0, 9), (6, 0, 0)])
def test_lists_without_edges_or_halo_rows_are_accepted(name, owned, halo, edges):
    graph = small_list(owned, halo, edges)
    found = outcome(ops, name, graph, (8, 32), torch.float64, to_gpu)
    for ours, theirs in zip(found, outcome(reference, name, graph, (8, 32), torch.float64), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_repeats_bit_for_bit(name):
    edges = small_list(301, 40, 12000)
    first, *others = (outcome(ops, name, edges, (128, 256), torch.float32, to_gpu) for _ in range(3))
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_halo_rows_pass_through_the_host_and_their_gradients_go_home(dtype):
    edges = small_list()
    plan = _C.SelfExchange([edges.halo_rows.numpy()], edges.num_owned)
    handle, moved = torch.tensor([plan.handle]), to_gpu(edges)
    payload = to_gpu(values(NUM_OWNED, 6, dtype=dtype))
    extended = ops.halo_wait(payload, ops.halo_start(payload, handle, moved, 0), handle, moved, 0)
    assert extended.device == GPU
    assert torch.equal(extended[NUM_OWNED:], payload[moved.halo_rows])
    weight = values(NUM_OWNED + NUM_HALO, 6, dtype=dtype, seed=1).detach()
    (ours,) = torch.autograd.grad((extended * weight.to(GPU)).sum(), [payload])
    theirs = weight[:NUM_OWNED].index_add(0, edges.halo_rows, weight[NUM_OWNED:])
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-6, atol=1e-6)  # float32: three terms in another order


def test_the_ticket_of_another_payload_is_refused():
    edges = small_list()
    plan = _C.SelfExchange([edges.halo_rows.numpy()], edges.num_owned)
    handle, moved = torch.tensor([plan.handle]), to_gpu(edges)
    ticket = ops.halo_start(to_gpu(values(NUM_OWNED, 6)), handle, moved, 0)
    with pytest.raises(RuntimeError, match="ticket is for rows of 6 channels, the output has 7"):
        ops.halo_wait(to_gpu(values(NUM_OWNED, 7)), ticket, handle, moved, 0)


def test_an_argument_on_another_device_is_refused_by_name():
    edges = small_list()
    terms = to_gpu(values(NUM_EDGES, 4)).detach()
    with pytest.raises(RuntimeError, match=r"receiver must be a contiguous Long .* on cuda:0, found .* on cpu"):
        torch.ops.tessera.segment_sum(terms, edges.receiver, edges.receiver_range)
