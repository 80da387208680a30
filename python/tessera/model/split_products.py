# SPDX-License-Identifier: MIT
"""Products of float32 matrices on tensor cores with the error of float32: three products of halves (`--matmul tf32x3`).

Tensor cores multiply numbers of 11 significant bits, TF32 or float16, and sum in float32. Each factor is split into
such a number and a rest, x = high + low, and low * high + high * low + high * high is summed: what is left out, low *
low and the rounding of low, is 2^-22 of a product, as small as float32's own rounding of a long sum (Ootomo and Yokota,
Int. J. High Perform. Comput. Appl. 36, 475, 2022). The halves are float16, which goes twice as fast as TF32: a power of
two a row brings the row's largest number near 2^8, so that none overflows and what underflows is 2^-33 of the largest.
The three products are one, of three times as many columns, which cuBLAS sums small terms first.
"""

import torch
from torch import Tensor

SCALE = 2.0**8
"""Where the largest number of a row is brought; sums of 2^9 columns stay far from float16's and float32's ends."""
SMALLEST = 2.0**-100
"""A row of smaller numbers counts as one whose largest is this: the inverse must be finite."""
DROPPED_BITS = 13
"""Of float32's 24 significant bits, 11 stay."""
EXPONENT = 0x7F800000


def split_linear(features: Tensor, weight: Tensor) -> Tensor:
    """Return `features @ weight.T`; differentiable once by the features.

    Args:
        features: float32 [..., inputs].
        weight: float32 [outputs, inputs], a constant.

    Returns:
        float32 [..., outputs].

    Raises:
        ValueError: another dtype, other extents, or a weight that requires a gradient.
    """
    for name, values in (("features", features), ("weight", weight)):
        if values.dtype != torch.float32:
            raise ValueError(f"{name}: expected torch.float32, found {values.dtype}; leave out --matmul tf32x3")
    if weight.dim() != 2 or features.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"weight: expected [outputs, {features.shape[-1]}] for features {list(features.shape)}, "
            f"found {list(weight.shape)}"
        )
    if weight.requires_grad:
        raise ValueError("weight: expected a constant, found one that requires a gradient; detach it")
    flat: Tensor = _SplitLinear.apply(features.reshape(-1, weight.shape[1]), weight)
    return flat.view(*features.shape[:-1], weight.shape[0])


class _SplitLinear(torch.autograd.Function):
    """The gradient of a product is a product with the same weight, made of halves likewise."""

    @staticmethod
    def forward(ctx, features: Tensor, weight: Tensor) -> Tensor:  # noqa: ANN001
        ctx.save_for_backward(weight)
        return _product(features, weight)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN001
        (weight,) = ctx.saved_tensors
        return _product(grad, weight.T), None


def _product(features: Tensor, weight: Tensor) -> Tensor:
    """[rows, inputs], [outputs, inputs] -> [rows, outputs]."""
    high, low, scale = _halves(features, features.abs().amax(dim=1, keepdim=True))
    weight_high, weight_low, weight_scale = _halves(weight, weight.abs().amax())
    left = torch.cat([low, high, high], dim=1).half()
    right = torch.cat([weight_high, weight_low, weight_high], dim=1).half()
    return _sum_in_float32(left, right) * (scale * weight_scale)


def _sum_in_float32(left: Tensor, right: Tensor) -> Tensor:
    """Multiply float16 by the transpose of float16; products of two are exact in float32, which a CPU multiplies."""
    if left.is_cuda:
        return torch.mm(left, right.T, out_dtype=torch.float32)
    return torch.mm(left.float(), right.float().T)


def _halves(x: Tensor, largest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split scaled numbers: high of 11 bits, the rest, and what undoes the scale; all float32.

    Rounds by integers: compiled code keeps float16 in float32 registers, so that a cast there and back rounds nothing.
    """
    power = (largest.clamp_min(SMALLEST).view(torch.int32) & EXPONENT).view(torch.float32)
    scaled = x * (SCALE / power)
    high = ((scaled.view(torch.int32) + (1 << (DROPPED_BITS - 1))) & -(1 << DROPPED_BITS)).view(torch.float32)
    return high, scaled - high, power * (1.0 / SCALE)
