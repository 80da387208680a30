# SPDX-License-Identifier: MIT
"""The operators between edges and rows, against plain torch."""

import pytest
import torch
from small_graph import NUM_EDGES, NUM_HALO, NUM_OWNED, small_list, values

from tessera import ops
from tessera.kernels import reference

DTYPES = [torch.float64, torch.float32]
#: Sums of at most a few hundred terms of order one, in another order than the reference.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-4}
#: Heads and channels that fill no vector register, fill one exactly, and leave a remainder; 5 heads do not divide 12.
WIDTHS = [(1, 3), (8, 32), (5, 15), (128, 256)]


def number_of_rows(edges):
    return edges.num_owned, edges.num_owned + edges.num_halo, edges.receiver.shape[0]


def cases(edges, heads, channels, dtype):
    """Name, arguments before the list, arguments behind it."""
    owned, extended, count = number_of_rows(edges)
    active = edges.vector.norm(dim=1) < 1.9
    active[edges.receiver == 5] = False
    return {
        "segment_sum": ([values(count, heads, dtype=dtype)], []),
        "segment_max": ([values(count, heads, dtype=dtype), active], []),
        "edge_dot": ([values(owned, heads, 8, dtype=dtype), values(extended, heads, 8, dtype=dtype, seed=1)], []),
        "weighted_sum": (
            [values(count, 4, heads, dtype=dtype), values(extended, 9, channels, dtype=dtype, seed=1)],
            [],
        ),
        "outer_sum": ([values(count, 9, dtype=dtype), values(count, 3, channels, dtype=dtype, seed=1)], []),
        "harmonic_dot": ([values(count, 9, dtype=dtype), values(owned, 9, channels, dtype=dtype, seed=1)], []),
        **attention_cases(edges, heads, active, dtype),
        "table_sum": (
            [values(count, 9, dtype=dtype), *spline_place(count, (3, channels), dtype), values(count, dtype=dtype)],
            [],
        ),
        "nearest_edges": ([edges.vector.norm(dim=1).to(dtype), active], [2]),
    }


def attention_cases(edges, heads, active, dtype):
    owned, extended, count = number_of_rows(edges)
    query, payload = values(owned, 4, heads, dtype=dtype), values(extended, 4 + 6, heads, dtype=dtype, seed=1)
    gates = values(count, 2, heads, dtype=dtype, seed=2)
    place = spline_place(count, (2, heads), dtype)
    envelope = torch.where(active, uniform(count, dtype, seed=4), 0.0).detach().requires_grad_()
    found = {}
    slope = values(count, dtype=dtype, seed=7).detach()
    kinds = (("exact", 1, False), ("smooth", 1, True), ("first-order", 3, False), ("no factor", 0, False))
    for name, moments, is_smooth in kinds:
        rest = [values(count, moments, dtype=dtype, seed=3) if moments > 0 else None, active]
        found[f"edge_attention, {name}"] = ([query, payload, gates, envelope, *rest], [is_smooth])
        found[f"table_attention, {name}"] = ([query, payload, *place, envelope, slope, *rest], [is_smooth])
    return found


def spline_place(count, shape, dtype):
    """Coefficients, which get no gradient, first rows, and fractions of `count` edges."""
    rows = torch.randint(0, 15, (count,), generator=torch.Generator().manual_seed(9))
    return values(20, *shape, dtype=dtype, seed=5).detach(), rows, uniform(count, dtype, seed=6).requires_grad_()


def uniform(count, dtype, seed):
    return torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


NAMES = list(cases(small_list(), 8, 32, torch.float64))


def outcome(kernels, name, edges, width, dtype):
    """Result and gradients of a random linear function of it."""
    before, after = cases(edges, *width, dtype)[name]
    result = getattr(kernels, name.split(",")[0])(*before, edges, *after)
    if not result.dtype.is_floating_point:
        return [result]
    inputs = [tensor for tensor in before if tensor is not None and tensor.requires_grad]
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)
    return [result, *torch.autograd.grad((result * weight).sum(), inputs, allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", WIDTHS, ids=str)
def test_an_operator_and_its_gradient_equal_the_reference(name, dtype, width):
    edges = small_list()
    found = outcome(ops, name, edges, width, dtype)
    expected = outcome(reference, name, edges, width, dtype)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("owned", "halo", "edges"), [(6, 3, 0), (6, 0, 9), (6, 0, 0)])
def test_an_operator_accepts_lists_without_edges_or_halo_rows(name, owned, halo, edges):
    graph = small_list(owned, halo, edges)
    found = outcome(ops, name, graph, (8, 32), torch.float64)
    expected = outcome(reference, name, graph, (8, 32), torch.float64)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_repeats_bit_for_bit_on_any_number_of_threads(name):
    edges = small_list(301, 40, 6000)  # enough work to be shared out
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            results.append(outcome(ops, name, edges, (16, 32), torch.float32))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_edges_that_tie_for_the_maximum_share_the_gradient_equally():
    edges = small_list()
    tied = torch.zeros(NUM_EDGES, 1, dtype=torch.float64, requires_grad=True)
    active = torch.ones(NUM_EDGES, dtype=torch.bool)
    (grad,) = torch.autograd.grad(ops.segment_max(tied, active, edges).sum(), [tied])
    first, last = edges.receiver_range[:, 0], edges.receiver_range[:, 1]
    assert torch.allclose(grad[:, 0], 1.0 / (last - first)[edges.receiver].double())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_edges_that_tie_for_the_largest_score_share_its_derivative(dtype):
    edges = small_list(7, 0, 50)
    active = torch.ones(50, dtype=torch.bool)
    before, after = attention_cases(edges, 16, active, dtype)["edge_attention, exact"]
    query, payload, gates, *rest = before
    query = torch.full_like(query, 0.5).requires_grad_()
    payload = payload.detach().clone()
    payload[:, :4] = 1.0  # equal scores at all edges of a receiver
    payload.requires_grad_()
    gates = torch.full_like(gates, 0.75).requires_grad_()
    inputs = [query, payload, gates]
    results = []
    for kernels in (ops, reference):
        message = kernels.edge_attention(*inputs, *rest, edges, *after)
        weight = torch.arange(message.numel(), dtype=dtype).sin().view_as(message)
        results.append(torch.autograd.grad((message * weight).sum(), inputs))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_a_receiver_without_active_edges_has_maximum_zero_and_no_gradient():
    edges = small_list()
    below = values(NUM_EDGES, 2).detach().sub(100).requires_grad_()
    maximum = ops.segment_max(below, torch.zeros(NUM_EDGES, dtype=torch.bool), edges)
    (grad,) = torch.autograd.grad(maximum.sum(), [below])
    assert torch.count_nonzero(maximum) == 0
    assert torch.count_nonzero(grad) == 0


def test_of_equally_distant_edges_the_first_ones_are_nearest():
    edges = small_list()
    kept = ops.nearest_edges(torch.ones(NUM_EDGES), torch.ones(NUM_EDGES, dtype=torch.bool), edges, 2)
    place = torch.arange(NUM_EDGES) - edges.receiver_range[edges.receiver, 0]
    assert torch.equal(kept, place < 2)


@pytest.mark.parametrize("shape", [(), (3,), (3, 2, 2)])
def test_sums_keep_the_trailing_extents(shape):
    edges = small_list()
    terms = values(NUM_EDGES, *shape)
    assert ops.segment_sum(terms, edges).shape == (NUM_OWNED, *shape)
    torch.testing.assert_close(ops.segment_sum(terms, edges), reference.segment_sum(terms, edges))


def test_a_gradient_that_is_not_contiguous_is_accepted():
    edges = small_list()
    query, key = values(NUM_OWNED, 4, 8), values(NUM_OWNED + NUM_HALO, 4, 8)
    weight = values(4, NUM_EDGES).detach()
    by_ops = torch.autograd.grad(ops.edge_dot(query, key, edges), [query, key], weight.T)
    by_reference = torch.autograd.grad(reference.edge_dot(query, key, edges), [query, key], weight.T)
    for ours, theirs in zip(by_ops, by_reference, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a: [a[0].long(), *a[1:]], "edge_dot: query must be float32 or float64"),
        (lambda a: [a[0].float(), *a[1:]], "edge_dot: key must be a contiguous Float"),
        (lambda a: [a[0], a[1][:, :3], *a[2:]], r"edge_dot: key must be a contiguous Double \[any, 4, 8\]"),
        (lambda a: [a[0], a[1].transpose(1, 2).contiguous().transpose(1, 2), *a[2:]], "found .*, not contiguous"),
        (lambda a: [*a[:3], a[3].int(), *a[4:]], "edge_dot: sender must be a contiguous Long"),
        (lambda a: [*a[:4], a[4][:-1], *a[5:]], r"edge_dot: receiver_range must be a contiguous Long \[13, 2\]"),
        (lambda a: [*a[:6], a[6][:-1]], r"edge_dot: sender_range must be a contiguous Long \[18, 2\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(change, text):
    edges = small_list()
    arguments = [
        values(NUM_OWNED, 4, 8).detach(),
        values(NUM_OWNED + NUM_HALO, 4, 8).detach(),
        edges.receiver,
        edges.sender,
        edges.receiver_range,
        edges.sender_order,
        edges.sender_range,
    ]
    torch.ops.tessera.edge_dot(*arguments)
    with pytest.raises(RuntimeError, match=text):
        torch.ops.tessera.edge_dot(*change(arguments))


def test_a_count_of_nearest_edges_below_one_is_refused():
    with pytest.raises(RuntimeError, match="count must be at least 1, found 0"):
        ops.nearest_edges(torch.ones(NUM_EDGES), torch.ones(NUM_EDGES, dtype=torch.bool), small_list(), 0)


def test_harmonics_that_are_no_whole_degrees_are_refused():
    edges = small_list()
    with pytest.raises(RuntimeError, match=r"harmonics must have \(lmax \+ 1\)\^2 rows, found 8"):
        torch.ops.tessera.outer_sum(
            torch.ones(NUM_EDGES, 8), torch.ones(NUM_EDGES, 3, 4), edges.receiver, edges.receiver_range
        )


@pytest.mark.parametrize("name", [name for name in NAMES if name != "nearest_edges" and "no factor" not in name])
def test_the_declared_shapes_and_derivatives_hold_for_torch(name):
    """torch's own checker: schema, fake outputs, autograd registration, tracing with symbolic extents."""
    edges = small_list()
    before, after = cases(edges, 4, 12, torch.float64)[name]
    if name.startswith("table_attention"):
        del before[6]  # the slope is for other kernels
    index = {
        "segment_sum": (edges.receiver, edges.receiver_range),
        "segment_max": (edges.receiver_range,),
        "outer_sum": (edges.receiver, edges.receiver_range),
        "harmonic_dot": (edges.receiver, edges.receiver_range),
        "table_sum": (edges.receiver_range,),
    }.get(name, (edges.receiver, edges.sender, edges.receiver_range, edges.sender_order, edges.sender_range))
    torch.library.opcheck(getattr(torch.ops.tessera, name.split(",")[0]).default, (*before, *index, *after))
