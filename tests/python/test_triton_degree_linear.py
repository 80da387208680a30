# SPDX-License-Identifier: MIT
"""Linear maps by degree in Triton's interpreter, against the model's own in float64 (on a GPU: tests/cuda).

The interpreter multiplies in FP32 whatever a product is asked for; the kernel rounds factors to TF32 itself, so that
its errors show here as they do on tensor cores, but for the order of sums.
"""

import os

import pytest
import torch

from tessera.model import layers

pytest.importorskip("triton", reason="needs triton (pip install triton==3.6.0)")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("these kernels run compiled here: tests/cuda/test_cuda_triton.py", allow_module_level=True)

from tessera.kernels import triton_degree_linear
from tessera.ops import triton_linear

#: Atoms, degrees, inputs, outputs: blocks that are full and not.
SHAPES = [(9, 3, 48, 40), (70, 2, 32, 130), (2, 1, 5, 3)]
#: float32 sums of some tens of products of order one.
TOLERANCE = 2e-6


def inputs_of(shape, seed=0):
    num_rows, degrees, inputs, outputs = shape
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(num_rows, degrees**2, inputs, generator=generator)
    weight = torch.randn(degrees, outputs, inputs, generator=generator) / inputs**0.5
    return features, weight, torch.randn(outputs, generator=generator)


def exact(features, weight, bias):
    degree = [l for l in range(weight.shape[0]) for _ in range(2 * l + 1)]
    bias = None if bias is None else bias.double()
    return layers.degree_linear(features.double(), weight.double()[degree], bias)


def relative_error(found, expected):
    return ((found.double() - expected).square().mean() / expected.square().mean()).sqrt().item()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
def test_values_and_gradients_are_those_of_the_model(shape, with_bias):
    features, weight, bias = inputs_of(shape)
    bias = bias if with_bias else None
    ours, theirs = features.clone().requires_grad_(), features.double().requires_grad_()
    found, expected = triton_linear.degree_linear(ours, weight, bias, "ieee"), exact(theirs, weight, bias)
    incoming = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=TOLERANCE * 5)
    (by_ours,) = torch.autograd.grad((found * incoming).sum(), ours)
    (by_theirs,) = torch.autograd.grad((expected * incoming.double()).sum(), theirs)
    torch.testing.assert_close(by_ours.double(), by_theirs, rtol=0, atol=TOLERANCE * 10)


def test_three_products_of_tf32_err_like_fp32_and_one_product_does_not():
    features, weight, bias = inputs_of((40, 3, 256, 64))
    expected = exact(features, weight, bias)
    error = {
        precision: relative_error(triton_linear.degree_linear(features, weight, bias, precision), expected)
        for precision in triton_degree_linear.PRECISIONS
    }
    plain = relative_error(exact_in_float32(features, weight, bias), expected)
    assert error["tf32x3"] <= 3 * plain  # the claim of --matmul tf32x3
    assert error["tf32"] >= 300 * plain  # the rounding shows: 2^-11 against 2^-24


def exact_in_float32(features, weight, bias):
    degree = [l for l in range(weight.shape[0]) for _ in range(2 * l + 1)]
    return layers.degree_linear(features, weight[degree], bias)


def test_rounding_keeps_eleven_bits_and_the_rest_is_exact():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(2))
    high = triton_degree_linear._rounded(x)
    assert (high.view(torch.int32) & 0x1FFF).abs().max() == 0
    assert ((high - x).abs() <= x.abs() * 2.0**-11).all()
    assert torch.equal(high.double() + (x - high).double(), x.double())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"precision": "tf16"}, "precision: expected one of ieee, tf32, tf32x3, found 'tf16'"),
        ({"features": torch.zeros(9, 9, 47)}, r"features: expected torch.float32 \[any, 9, 48\]"),
        ({"features": torch.zeros(9, 9, 48, dtype=torch.float64)}, "features: expected torch.float32"),
        ({"weight": torch.zeros(3, 40, 48, dtype=torch.float64)}, "weight: expected torch.float32"),
        ({"weight": torch.zeros(3, 40, 48, requires_grad=True)}, "weight, bias: expected constants"),
        ({"bias": torch.zeros(41)}, r"bias: expected torch.float32 \[40\]"),
    ],
)
def test_arguments_of_another_kind_are_refused(change, message):
    features, weight, bias = inputs_of(SHAPES[0])
    arguments = {"features": features, "weight": weight, "bias": bias, "precision": "ieee", **change}
    with pytest.raises(ValueError, match=message):
        triton_linear.degree_linear(**arguments)
