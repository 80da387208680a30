# SPDX-License-Identifier: MIT
"""Rows in halves by the Triton kernel, in the interpreter, and by plain PyTorch: the same bits."""

import os

import pytest
import torch

from tessera.kernels.halves import split_pair_gradients, split_rows

pytest.importorskip("triton", reason="needs triton (pip install triton==3.6.0)")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("this kernel runs compiled here: tests/cuda/test_cuda_triton.py", allow_module_level=True)

from tessera.kernels import triton_halves


@pytest.mark.parametrize("rows", [1, 4, 9])
@pytest.mark.parametrize("inputs", [5, 32, 1100])
def test_halves_and_scales_have_the_bits_of_plain_torch(rows, inputs, monkeypatch):
    monkeypatch.setattr(triton_halves, "NUMBERS", 4 * 2048)  # several rows a program, the last program not full
    features = torch.randn(7, rows, inputs, generator=torch.Generator().manual_seed(1))
    features *= 10.0 ** torch.linspace(-30, 30, 7)[:, None, None]
    features[2] = 0.0
    expected = split_rows(features)
    for found, plain in zip(triton_halves.split_rows(features), expected, strict=True):
        assert found.dtype == plain.dtype
        assert torch.equal(found, plain)


def test_rows_stand_degree_by_degree():
    features = torch.arange(2.0 * 9).view(2, 9, 1)
    halves, scales = split_rows(features)
    rows = (halves[:, :2].float().sum(1, keepdim=True) * scales).flatten()
    assert rows.tolist() == [0, 9, 1, 2, 3, 10, 11, 12, 4, 5, 6, 7, 8, 13, 14, 15, 16, 17]


@pytest.mark.parametrize("degree", [0, 1, 2])
@pytest.mark.parametrize("hidden", [5, 32, 600])
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
def test_gradients_of_pairs_have_the_bits_of_plain_torch(degree, hidden, has_bias, monkeypatch):
    monkeypatch.setattr(triton_halves, "PAIR_NUMBERS", 4 * 2048)  # several rows a program, the last program not full
    inputs = pair(degree, hidden, has_bias=has_bias)
    for found, plain in zip(triton_halves.split_pair_gradients(*inputs), split_pair_gradients(*inputs), strict=True):
        assert found.dtype == plain.dtype
        assert torch.equal(found, plain)


def pair(degree, hidden, *, has_bias):
    """What the gradient of a pair of maps of seven atoms is made of: as split_pair_gradients takes it."""
    generator = torch.Generator().manual_seed(2)
    count = 2 * degree + 1
    product = torch.randn(7 * count, 2 * hidden, generator=generator)
    row_scale = 2.0 ** (torch.arange(7.0 * count)[:, None] % 61 - 30)
    bias = torch.randn(hidden, generator=generator) if has_bias else None
    incoming = torch.randn(7, hidden, generator=generator) * 10.0 ** torch.linspace(-20, 20, 7)[:, None]
    incoming[2] = 0.0
    return product, row_scale, bias, incoming, degree


@pytest.mark.parametrize("what", [float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("source", ["first", "second", "row scale", "incoming"])
def test_a_row_whose_gradient_is_no_number_is_that_of_plain_torch(source, what):
    product, row_scale, bias, incoming, degree = pair(1, 5, has_bias=False)
    place = {"first": (product, (4, 1)), "second": (product, (4, 8)), "row scale": (row_scale, (4, 0)),
             "incoming": (incoming, (1, 2))}  # fmt: skip
    values, at = place[source]
    values[at] = what
    inputs = product, row_scale, bias, incoming, degree
    found, plain = triton_halves.split_pair_gradients(*inputs), split_pair_gradients(*inputs)
    for ours, theirs in zip(found, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    assert found[1][4] == float("inf")  # so that every product with the row is none
    assert found[0][4].isnan().any()
    assert found[0][6:].isfinite().all()  # other atoms


def test_a_row_with_what_is_no_number_becomes_none():
    features = torch.tensor([[[1.0, float("nan")]], [[float("inf"), 1.0]], [[1.0, 2.0]]])
    halves, _ = triton_halves.split_rows(features)
    assert halves[:2, :2].isnan().any(dim=1).all()
    assert halves[2].isfinite().all()
