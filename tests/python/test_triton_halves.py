# SPDX-License-Identifier: MIT
"""Rows in halves by the Triton kernel, in the interpreter, and by plain PyTorch: the same bits."""

import os

import pytest
import torch

from tessera.kernels.halves import split_rows

pytest.importorskip("triton", reason="needs triton (pip install triton==3.6.0)")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("this kernel runs compiled here: tests/cuda/test_cuda_triton.py", allow_module_level=True)

from tessera.kernels import triton_halves


@pytest.mark.parametrize(("first", "count", "rows"), [(0, 1, 1), (1, 3, 4), (4, 5, 9), (0, 3, 3)])
@pytest.mark.parametrize("inputs", [5, 32, 1100])
def test_halves_and_scales_have_the_bits_of_plain_torch(first, count, rows, inputs, monkeypatch):
    monkeypatch.setattr(triton_halves, "NUMBERS", 4 * 2048)  # several rows a program, the last program not full
    features = torch.randn(7, rows, inputs, generator=torch.Generator().manual_seed(1))
    features *= 10.0 ** torch.linspace(-30, 30, 7)[:, None, None]
    features[2] = 0.0
    expected = split_rows(features, first, count)
    for found, plain in zip(triton_halves.split_rows(features, first, count), expected, strict=True):
        assert found.dtype == plain.dtype
        assert torch.equal(found, plain)


def test_a_row_with_what_is_no_number_becomes_none():
    features = torch.tensor([[[1.0, float("nan")]], [[float("inf"), 1.0]], [[1.0, 2.0]]])
    halves, _ = triton_halves.split_rows(features, 0, 1)
    assert halves[:2, :2].isnan().any(dim=1).all()
    assert halves[2].isfinite().all()
