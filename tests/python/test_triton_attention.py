# SPDX-License-Identifier: MIT
"""Fused edge attention in Triton's interpreter, against plain torch in float64 (on a GPU: tests/cuda)."""

import os

import pytest
import torch
from small_graph import small_list
from triton_cases import (
    EDGE,
    TABLE,
    assert_equal,
    attention_inputs,
    attention_outcome,
    tied_inputs,
    tiny_list,
)

from tessera.kernels import reference

pytest.importorskip("triton", reason="needs triton (pip install triton==3.6.0)")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("these kernels run compiled here: tests/cuda/test_cuda_triton.py", allow_module_level=True)

from tessera.kernels import triton_attention_ops
from tessera.ops import triton_edges

KINDS = (EDGE, TABLE)
#: Scalars and value planes a head, heads, moments; 3 heads leave a lane idle; 0: one moment, no factor.
#: The tests split heads over blocks of 2.
SHAPES = [(2, 3, 4, 1), (2, 2, 3, 3), (2, 3, 4, 0)]


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    monkeypatch.setattr(triton_attention_ops, "LARGEST_BLOCK", 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("is_smooth", [False, True], ids=["largest", "smooth"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_message_and_gradients_equal_the_reference(kind, shape, is_smooth, dtype):
    edges = tiny_list()
    inputs = attention_inputs(edges, kind, shape)
    expected = attention_outcome(reference, edges, kind, inputs, is_smooth)
    assert_equal(attention_outcome(triton_edges, edges, kind, inputs, is_smooth, dtype), expected, dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_smooth", [False, True], ids=["largest", "smooth"])
def test_rows_that_run_together_give_the_bits_of_single_rows(kind, is_smooth, monkeypatch):
    edges = tiny_list()
    inputs = attention_inputs(edges, kind, SHAPES[0])
    outcomes = []
    for lanes, warps in ((2, 1), (2, 4), (8, 4)):  # programs of 1, 4 and 16 rows; 6 rows leave some without any
        monkeypatch.setattr(triton_attention_ops, "LANES", lanes)
        for kernel in ("FORWARD", "RECEIVERS", "SENDERS"):
            monkeypatch.setattr(triton_attention_ops, f"{kernel}_WARPS", warps)
        outcomes.append(attention_outcome(triton_edges, edges, kind, inputs, is_smooth, torch.float32))
    for name, single in outcomes[0].items():
        assert all(torch.equal(single, other[name]) for other in outcomes[1:]), name


def test_a_list_that_is_not_sorted_by_sender_is_served_in_its_own_order():
    edges = tiny_list()
    first, last = edges.receiver_range[4].tolist()
    assert edges.sender[first:last].diff().min() < 0, "the list must be out of order for this test to mean anything"
    inputs = attention_inputs(edges, EDGE, SHAPES[0])
    expected = attention_outcome(reference, edges, EDGE, inputs, is_smooth=False)
    assert_equal(attention_outcome(triton_edges, edges, EDGE, inputs, is_smooth=False), expected, torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_edges_that_tie_for_the_largest_score_share_its_gradient(kind):
    edges = tiny_list()
    inputs = tied_inputs(edges, kind, SHAPES[0])
    expected = attention_outcome(reference, edges, kind, inputs, is_smooth=False)
    assert_equal(attention_outcome(triton_edges, edges, kind, inputs, is_smooth=False), expected, torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_smooth", [False, True], ids=["largest", "smooth"])
def test_inactive_edges_are_not_read_and_get_no_gradient(kind, is_smooth):
    edges = tiny_list()
    inputs = attention_inputs(edges, kind, SHAPES[0])
    clean = attention_outcome(triton_edges, edges, kind, inputs, is_smooth)
    dead = ~inputs["active"]
    poisoned = {name: value.detach().clone() for name, value in inputs.items()}
    for name in ("gates", "fraction", "slope", "factor"):
        if name in poisoned:
            poisoned[name][dead] = torch.nan
    found = attention_outcome(triton_edges, edges, kind, poisoned, is_smooth)
    for name, value in clean.items():
        assert torch.equal(found[name], value), name
    for name in ("gates", "fraction", "envelope", "factor"):
        if name in found:
            assert found[name][dead].abs().max() == 0, name
            assert found[name][~dead].abs().max() > 0, name


@pytest.mark.parametrize("is_smooth", [False, True], ids=["largest", "smooth"])
def test_a_row_without_active_edges_gets_and_gives_nothing(is_smooth):
    edges = tiny_list()
    inputs = attention_inputs(edges, EDGE, SHAPES[0])
    inputs["active"] = inputs["active"] & (edges.receiver != 5)
    found = attention_outcome(triton_edges, edges, EDGE, inputs, is_smooth)
    for row in (3, 5):  # without edges, without active ones
        assert found["message"][row].abs().max() == 0
        assert found["query"][row].abs().max() == 0
    assert found["message"][4].abs().min() > 0


@pytest.mark.parametrize("is_smooth", [False, True], ids=["largest", "smooth"])
def test_statistics_hold_the_largest_score_the_normalizer_and_how_many_edges_attain_it(is_smooth):
    edges = tiny_list()
    inputs = tied_inputs(edges, EDGE, SHAPES[0])
    active, scores = inputs["active"], inputs["gates"][:, 0] * SHAPES[0][0]  # queries and keys are 1
    index = (edges.receiver, edges.sender, edges.receiver_range, edges.sender_order, edges.sender_range)
    detached = [value.detach() for value in inputs.values()]
    _, statistics = triton_attention_ops.edge_attention(*detached, *index, is_smooth)
    for row in range(edges.num_owned):
        mine = (edges.receiver == row) & active
        largest = scores[mine].max(0).values if mine.any() else torch.zeros_like(scores[0])
        shift = largest.clamp(min=0.0) if is_smooth else largest
        weights = torch.exp(scores[mine] - shift) * inputs["envelope"][mine, None]
        floor = torch.exp(-shift) if is_smooth else torch.ones_like(shift)
        expected = [largest, weights.sum(0) + reference.NORMALIZER_FLOOR * floor]
        if not is_smooth:
            expected.append((scores[mine] == largest).sum(0).to(largest))
        torch.testing.assert_close(statistics[row], torch.stack(expected).detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("is_smooth", [False, True], ids=["largest", "smooth"])
def test_large_scores_do_not_overflow(is_smooth):
    edges = tiny_list()
    inputs = attention_inputs(edges, EDGE, SHAPES[0], scale=300.0)  # scores beyond the 88 at which float32 overflows
    found = attention_outcome(triton_edges, edges, EDGE, inputs, is_smooth, torch.float32)
    expected = attention_outcome(reference, edges, EDGE, inputs, is_smooth)
    # A score of some hundreds has an error of 1e-5 in float32, and so has its exponential.
    torch.testing.assert_close(found["message"].double(), expected["message"], rtol=1e-2, atol=1e-3)


def test_a_list_without_edges_gives_zeros():
    edges = small_list(6, 3, 0)
    inputs = attention_inputs(edges, EDGE, SHAPES[0])
    found = attention_outcome(triton_edges, edges, EDGE, inputs, is_smooth=False)
    assert all(value.abs().sum() == 0 for value in found.values())
    assert found["payload"].shape[0] == 9


def test_what_only_edges_hold_is_all_that_the_backward_pass_keeps():
    edges = tiny_list()
    inputs = attention_inputs(edges, TABLE, SHAPES[0])
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        leaves = [value.detach().requires_grad_(value.is_floating_point() and name != "table")
                  for name, value in inputs.items()]  # fmt: skip
        triton_edges.table_attention(*leaves, edges, is_smooth=False)
    of_edges = [tensor for tensor in kept if tensor.dim() > 1 and tensor.shape[0] == edges.receiver.shape[0]]
    assert kept
    assert all(tensor.shape[1] == SHAPES[0][3] for tensor in of_edges)  # the factors, [E, A]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(6, 2, 4, dtype=torch.float16)}, "query: expected float32 or float64"),
        ({"payload": torch.zeros(8, 5, 9, dtype=torch.float64)}, r"payload: expected torch.float64 \[any, any, 4\]"),
        ({"payload": torch.zeros(8, 2, 4, dtype=torch.float64)}, "payload: expected 2 planes of keys and at least one"),
        ({"gates": torch.zeros(18, 3, 4, dtype=torch.float64)}, r"gates: expected torch.float64 \[any, 2, 4\]"),
        ({"envelope": torch.zeros(18)}, "envelope: expected torch.float64"),
        ({"factor": torch.zeros(18, 2, dtype=torch.float64)}, "factor: expected 1 or 3 moments, found 2"),
        ({"active": torch.zeros(18)}, "active: expected torch.bool"),
    ],
)
def test_arrays_of_another_shape_or_type_are_refused(change, message):
    edges = tiny_list()
    inputs = {**attention_inputs(edges, EDGE, SHAPES[0]), **change}
    with pytest.raises(ValueError, match=message):
        triton_edges.edge_attention(*inputs.values(), edges, is_smooth=False)


def test_a_table_that_requires_a_gradient_is_refused():
    edges = tiny_list()
    inputs = attention_inputs(edges, TABLE, SHAPES[0])
    inputs["table"].requires_grad_()
    with pytest.raises(ValueError, match="table: expected constants"):
        triton_edges.table_attention(*inputs.values(), edges, is_smooth=False)
