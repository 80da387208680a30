# SPDX-License-Identifier: MIT
"""Fused sums of radial tables in Triton's interpreter, against plain torch in float64 (on a GPU: tests/cuda)."""

import os

import pytest
import torch
from small_graph import small_list
from triton_cases import assert_equal, sum_inputs, sum_outcome, tiny_list

from tessera.kernels import reference

pytest.importorskip("triton", reason="needs triton (pip install triton==3.6.0)")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("these kernels run compiled here: tests/cuda/test_cuda_triton.py", allow_module_level=True)

from tessera.kernels import triton_table_sum
from tessera.ops import triton_edges


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("degrees", "channels"), [(1, 4), (2, 3), (3, 2)])
def test_sums_and_gradients_equal_the_reference(degrees, channels, dtype, monkeypatch):
    monkeypatch.setattr(triton_table_sum, "LARGEST_BLOCK", 2)  # several blocks of channels, one not full
    edges = tiny_list()
    inputs = sum_inputs(edges, degrees, channels)
    assert_equal(sum_outcome(triton_edges, edges, inputs, dtype), sum_outcome(reference, edges, inputs), dtype)


def test_a_list_without_edges_gives_zeros():
    edges = small_list(6, 3, 0)
    sums = sum_outcome(triton_edges, edges, sum_inputs(edges, 2, 4))["sums"]
    assert sums.shape == (6, 4, 4)
    assert sums.abs().max() == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table": torch.zeros(20, 2, 4, dtype=torch.float16)}, "table: expected float32 or float64"),
        ({"harmonics": torch.zeros(18, 9, dtype=torch.float64)}, r"harmonics: expected torch.float64 \[any, 4\]"),
        ({"row": torch.zeros(18)}, "row: expected torch.int64"),
        ({"scale": torch.zeros(18)}, "scale: expected torch.float64"),
        ({"table": torch.zeros(20, 2, 4, dtype=torch.float64, requires_grad=True)}, "table: expected constants"),
    ],
)
def test_arrays_of_another_shape_or_type_are_refused(change, message):
    edges = tiny_list()
    with pytest.raises(ValueError, match=message):
        triton_edges.table_sum(*{**sum_inputs(edges, 2, 4), **change}.values(), edges)
