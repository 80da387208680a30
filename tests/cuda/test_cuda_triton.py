# SPDX-License-Identifier: MIT
"""The fused Triton kernels on a GPU, against plain torch on the CPU in float64."""

import itertools

import pytest
import torch
from gpu import GPU, needs_gpu
from small_graph import small_list
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from triton_cases import (
    EDGE,
    TABLE,
    assert_equal,
    attention_inputs,
    attention_outcome,
    sum_inputs,
    sum_outcome,
    tied_inputs,
)

from tessera.kernels import halves as plain_halves
from tessera.kernels import reference
from tessera.model import edge_list, layers
from tessera.model.split_products import SplitWeight

pytest.importorskip("triton", reason="needs triton (pip install triton==3.6.0)")

from tessera.kernels import triton_attention_ops, triton_halves, triton_table_sum
from tessera.ops import triton_edges

pytestmark = needs_gpu

KINDS = (EDGE, TABLE)
DTYPES = (torch.float64, torch.float32)
#: Scalars and value planes a head, heads, moments: lanes idle; few heads; the paper's model with both messages.
SHAPES = [(2, 3, 6, 3), (3, 4, 8, 1), (8, 18, 128, 1), (8, 18, 128, 3)]
#: More edges a sum than the small list of the CPU: 12000 edges of 301 receivers.
LARGE_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-3}
is_smooth_or_not = pytest.mark.parametrize("is_smooth", [False, True], ids=["largest", "smooth"])


def message_cases():
    """All variants of the small shapes; of the paper's, which take Triton seconds each to compile, those that run."""
    for kind, shape, dtype, is_smooth in itertools.product(KINDS, SHAPES[:2], DTYPES, (False, True)):
        yield kind, shape, dtype, is_smooth
    for kind, shape, dtype in itertools.product(KINDS, SHAPES[2:], DTYPES):
        yield kind, shape, dtype, False
    yield TABLE, SHAPES[2], torch.float32, True


@pytest.mark.parametrize(("kind", "shape", "dtype", "is_smooth"), list(message_cases()), ids=str)
def test_message_and_gradients_equal_the_reference(kind, shape, dtype, is_smooth):
    edges = small_list()
    inputs = attention_inputs(edges, kind, shape)
    expected = attention_outcome(reference, edges, kind, inputs, is_smooth)
    assert_equal(attention_outcome(triton_edges, edges, kind, inputs, is_smooth, dtype, GPU), expected, dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_large_list_gives_the_reference(kind, dtype):
    edges = small_list(301, 40, 12000)
    inputs = attention_inputs(edges, kind, SHAPES[2])
    expected = attention_outcome(reference, edges, kind, inputs, is_smooth=False)
    found = attention_outcome(triton_edges, edges, kind, inputs, is_smooth=False, dtype=dtype, device=GPU)
    for name, exact in expected.items():
        scale = exact.abs().max()
        torch.testing.assert_close(found[name].double() / scale, exact / scale, rtol=0, atol=LARGE_TOLERANCE[dtype])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moments", [1, 3])
def test_a_pass_repeats_bit_for_bit(kind, moments):
    edges = small_list(301, 40, 12000)
    inputs = attention_inputs(edges, kind, (8, 18, 128, moments))
    first, *others = (
        attention_outcome(triton_edges, edges, kind, inputs, is_smooth=False, dtype=torch.float32, device=GPU)
        for _ in range(3)
    )
    for name, value in first.items():
        assert all(torch.equal(value, other[name]) for other in others), name


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_run_together_give_the_bits_of_single_rows(kind, monkeypatch):
    edges = small_list(301, 40, 12000)
    inputs = attention_inputs(edges, kind, SHAPES[2])
    outcomes = []
    for warps in (1, 8):
        for kernel in ("FORWARD", "RECEIVERS", "SENDERS"):
            monkeypatch.setattr(triton_attention_ops, f"{kernel}_WARPS", warps)
        outcomes.append(
            attention_outcome(triton_edges, edges, kind, inputs, is_smooth=False, dtype=torch.float32, device=GPU)
        )
    for name, single in outcomes[0].items():
        assert all(torch.equal(single, other[name]) for other in outcomes[1:]), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_edges_that_tie_for_the_largest_score_share_its_gradient(kind, dtype):
    edges = small_list()
    inputs = tied_inputs(edges, kind, SHAPES[1])
    expected = attention_outcome(reference, edges, kind, inputs, is_smooth=False)
    found = attention_outcome(triton_edges, edges, kind, inputs, is_smooth=False, dtype=dtype, device=GPU)
    assert_equal(found, expected, dtype)


def test_the_largest_score_has_the_same_bits_in_all_kernels():
    """A row with one edge and S = 2 w: what its score gains through w it loses through the floor, which follows it.

    The gradients of queries vanish; a comparison that failed in one kernel would leave half of P, of order one.
    """
    num_rows = 4096
    rows = torch.arange(num_rows)
    edges = edge_list(rows, rows.flip(0), torch.zeros(num_rows, 3, dtype=torch.float64), num_rows)
    inputs = attention_inputs(edges, TABLE, SHAPES[1])
    inputs["envelope"] = torch.full_like(inputs["envelope"], 1e-3)
    expected = attention_outcome(reference, edges, TABLE, inputs, is_smooth=False)
    found = attention_outcome(triton_edges, edges, TABLE, inputs, is_smooth=False, dtype=torch.float32, device=GPU)
    for name in ("query", "payload"):
        torch.testing.assert_close(found[name].double(), expected[name], rtol=0, atol=1e-4)


@is_smooth_or_not
def test_inactive_edges_are_not_read_and_get_no_gradient(is_smooth):
    edges = small_list()
    inputs = attention_inputs(edges, EDGE, SHAPES[1])
    clean = attention_outcome(triton_edges, edges, EDGE, inputs, is_smooth, torch.float32, GPU)
    dead = ~inputs["active"]
    poisoned = {name: value.detach().clone() for name, value in inputs.items()}
    poisoned["gates"][dead] = torch.nan
    poisoned["factor"][dead] = torch.nan
    found = attention_outcome(triton_edges, edges, EDGE, poisoned, is_smooth, torch.float32, GPU)
    for name, value in clean.items():
        assert torch.equal(found[name], value), name
    for name in ("gates", "envelope", "factor"):
        assert found[name][dead].abs().max() == 0, name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("owned", "halo", "edges"), [(6, 3, 0), (6, 0, 9), (6, 0, 0)])
def test_lists_without_edges_or_halo_rows_are_accepted(kind, owned, halo, edges):
    graph = small_list(owned, halo, edges)
    inputs = attention_inputs(graph, kind, SHAPES[1])
    expected = attention_outcome(reference, graph, kind, inputs, is_smooth=False)
    found = attention_outcome(triton_edges, graph, kind, inputs, is_smooth=False, device=GPU)
    assert_equal(found, expected, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("degrees", "channels"), [(1, 4), (2, 3), (3, 256)])
def test_table_sums_and_gradients_equal_the_reference(degrees, channels, dtype):
    edges = small_list()
    inputs = sum_inputs(edges, degrees, channels)
    assert_equal(sum_outcome(triton_edges, edges, inputs, dtype, GPU), sum_outcome(reference, edges, inputs), dtype)


def test_a_table_sum_repeats_bit_for_bit_for_every_block(monkeypatch):
    edges = small_list(301, 40, 12000)
    inputs = sum_inputs(edges, 3, 256)
    for block in (32, 64, 128):
        monkeypatch.setattr(triton_table_sum, "LARGEST_BLOCK", block)
        first, *others = (sum_outcome(triton_edges, edges, inputs, torch.float32, GPU) for _ in range(3))
        for name, value in first.items():
            assert all(torch.equal(value, other[name]) for other in others), name


def joined_maps(halves, weight, bias, x):
    """Both maps side by side, with the bias on the first one: in halves, or in the precision of x without them."""
    both = functional.pad(bias, (0, weight.shape[1] - bias.shape[0])).to(x)
    by_row = weight.to(x)[[0, 1, 1, 1, 2, 2, 2, 2, 2]]
    return layers.degree_linear(x, by_row, both) if halves is None else halves(x) + layers.scalar_row(both, 9)


def sums_of_products(halves, weight, bias, x):
    """Sums over the rows of a degree of the products of two maps."""
    if halves is not None:
        return halves.sum_of_products(x, bias.to(x))
    first, second = joined_maps(None, weight, bias, x).chunk(2, dim=2)
    return layers.sum_by_degree(first * second, 2).flatten(1)


@pytest.mark.parametrize("mapped", [joined_maps, sums_of_products])
@pytest.mark.parametrize(("num_rows", "inputs", "outputs"), [(301, 256, 1024), (70, 48, 130), (2, 5, 6)])
def test_linear_maps_in_halves_err_as_float32_does(num_rows, inputs, outputs, mapped):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(num_rows, 9, inputs, generator=generator)
    weight = torch.randn(3, outputs, inputs, generator=generator) / inputs**0.5
    bias = torch.randn(outputs // 2, generator=generator)
    incoming = torch.randn(num_rows, 9 * outputs, generator=generator)
    on_gpu = SplitWeight(weight.to(GPU))

    def outcome(x, halves):
        """Result and gradient of a random linear function of it."""
        leaf = x.detach().requires_grad_()
        found = mapped(halves, weight, bias, leaf)
        (gradient,) = torch.autograd.grad((found.flatten(1) * incoming[:, : found[0].numel()].to(x)).sum(), leaf)
        return found.detach(), gradient

    exact = outcome(features.double(), None)
    features = features.to(GPU)
    plain = outcome(features, None)
    found = outcome(features, on_gpu)
    recorded = make_fx(lambda x: outcome(x, on_gpu))(features)  # as the exporter records a step
    compiled = torch._inductor.compile(recorded, [features])(features)
    for ours, theirs, expected in zip((*found, *compiled), (*plain, *plain), (*exact, *exact), strict=True):
        ours_error, plain_error = ((other.double().cpu() - expected).square().mean().sqrt() for other in (ours, theirs))
        assert ours_error <= 3 * plain_error + 1e-8


@pytest.mark.parametrize(("degree", "has_bias"), [(0, True), (0, False), (1, False), (2, False)])
@pytest.mark.parametrize("hidden", [512, 33])
def test_gradients_of_pairs_in_halves_equal_plain_torch(degree, has_bias, hidden):
    generator = torch.Generator().manual_seed(1)
    num_rows = 301 * (2 * degree + 1)
    product = torch.randn(num_rows, 2 * hidden, generator=generator)
    row_scale = 2.0 ** torch.randint(-20, 20, (num_rows, 1), generator=generator)
    incoming = torch.randn(301, hidden, generator=generator)
    bias = torch.randn(hidden, generator=generator) if has_bias else None
    expected = plain_halves.split_pair_gradients(product, row_scale, bias, incoming, degree)
    on_gpu = [None if x is None else x.to(GPU) for x in (product, row_scale, bias, incoming)]
    found = triton_halves.split_pair_gradients(*on_gpu, degree)
    if bias is None:
        assert all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(found, expected, strict=True))
        return
    # The bias is added without rounding the scaled product first.
    ours, theirs = (whole(halves.cpu(), scales.cpu()) for halves, scales in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2.0**-20 * float(theirs.abs().max()))


def whole(halves, scales):
    """Undo the split: low + high of rows, times their scales."""
    low, high, again = halves.float().chunk(3, dim=1)
    assert torch.equal(high, again)
    return (low + high) * scales
