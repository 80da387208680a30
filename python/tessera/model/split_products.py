# SPDX-License-Identifier: MIT
"""Products of float32 matrices on tensor cores with the error of float32: three products of halves (`--matmul tf32x3`).

Tensor cores multiply numbers of 11 significant bits, TF32 or float16, and sum in float32. Each factor is split into
such a number and a rest, x = high + low, and low * high + high * low + high * high is summed: what is left out, low *
low and the rounding of low, is 2^-22 of a product, as small as float32's own rounding of a long sum (Ootomo and Yokota,
Int. J. High Perform. Comput. Appl. 36, 475, 2022). The halves are float16, which goes twice as fast as TF32: a power of
two a row brings the row's largest number near 2^8, so that none overflows and what underflows is 2^-33 of the largest.
The three products are one, of three times as many columns, which cuBLAS sums small terms first.
"""

import importlib
import math
from types import ModuleType

import torch
from torch import Tensor, nn

from tessera.kernels import halves as plain_halves
from tessera.kernels.halves import halves, maps_of_pair


class SplitWeight(nn.Module):
    """Weights of maps by degree in halves: constants from which the maps and their gradients are made.

    Attributes:
        scales: what undoes the scale of each degree's weight.
    """

    def __init__(self, weight: Tensor) -> None:
        """Split [L+1, outputs, inputs].

        Raises:
            ValueError: another dtype than float32, or other extents.
        """
        super().__init__()
        if weight.dtype != torch.float32 or weight.dim() != 3:
            raise ValueError(
                f"weight: expected torch.float32 [L+1, outputs, inputs], found {weight.dtype} {list(weight.shape)}; "
                "leave out --matmul tf32x3"
            )
        degrees = [halves(by_degree, by_degree.abs().amax()) for by_degree in weight.detach()]
        self.scales = [float(scale) for _, _, scale in degrees]
        right, back = [], []
        for high, low, _ in degrees:
            right.append(torch.cat([high, low, high], dim=1))
            back.append(torch.cat([high.T, low.T, high.T], dim=1))
        self.register_buffer("right", torch.stack(right).half(), persistent=False)
        self.register_buffer("back", torch.stack(back).half(), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Map [N, R, inputs], float32, R = (L+1)^2, to [N, R, outputs]; differentiable once.

        Raises:
            ValueError: another dtype or other extents.
        """
        self._check(features)
        joined: Tensor = _SplitMaps.apply(features, self.right, self.back, self.scales)
        return joined

    def sum_of_products(self, features: Tensor, bias: Tensor) -> Tensor:
        """Multiply the two maps that the weight holds side by side, and sum each degree; differentiable once.

        Args:
            features: float32 [N, R, inputs].
            bias: a constant that the scalar row of the first map is given, [outputs / 2].

        Returns:
            [N, (L+1) outputs / 2].

        Raises:
            ValueError: features of another dtype or other extents.
        """
        self._check(features)
        sums: Tensor = _SumOfProducts.apply(features, bias, self.right, self.back, self.scales)
        return sums

    def _check(self, features: Tensor) -> None:
        degrees, inputs = self.right.shape[0], self.right.shape[2] // 3
        if features.dtype != torch.float32 or features.dim() != 3 or features.shape[1:] != (degrees**2, inputs):
            raise ValueError(
                f"features: expected torch.float32 [any, {degrees**2}, {inputs}], found {features.dtype} "
                f"{list(features.shape)}"
            )


def split_weight(weight: Tensor, *, is_split: bool) -> SplitWeight | None:
    """Return the weight [L+1, outputs, inputs] or [outputs, inputs] in halves, or None."""
    return SplitWeight(weight if weight.dim() == 3 else weight[None]) if is_split else None


class _SplitMaps(torch.autograd.Function):
    """The gradient of a map is a map with the transposed weight, made of halves likewise."""

    @staticmethod
    def forward(ctx, features: Tensor, right: Tensor, back: Tensor, scales: list[float]) -> Tensor:  # noqa: ANN001
        ctx.save_for_backward(back)
        ctx.scales = scales
        return _map(features, right, scales)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN001
        (back,) = ctx.saved_tensors
        return _map(grad, back, ctx.scales), None, None, None


class _SumOfProducts(torch.autograd.Function):
    """Keeps the products of halves as they are: the gradient's halves are made of them at once, in no array between."""

    @staticmethod
    def forward(ctx, features: Tensor, bias: Tensor, right: Tensor, back: Tensor, scales: list[float]) -> Tensor:  # noqa: ANN001
        kept, sums = [], []
        for degree, (scale, left, row_scale) in enumerate(zip(scales, *_split_rows(features), strict=True)):
            product = _multiply(left, right[degree])
            first, second = maps_of_pair(product, row_scale * scale, _of_scalars(bias, degree), 2 * degree + 1)
            sums.append((first * second).sum(1))
            kept += product, row_scale
        ctx.save_for_backward(bias, back, *kept)
        ctx.scales = scales
        return torch.cat(sums, dim=1)

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN001
        bias, back, *kept = ctx.saved_tensors
        maps, by_degree = [], grad.chunk(len(ctx.scales), dim=1)
        for degree, (scale, product, row_scale) in enumerate(zip(ctx.scales, kept[::2], kept[1::2], strict=True)):
            left, left_scale = _kernels(grad).split_pair_gradients(
                product, row_scale, _of_scalars(bias / scale, degree), by_degree[degree].contiguous(), degree
            )
            # One scale is that of the weight of the maps, which the gradients still have, one that of `back`.
            maps.append(_scaled(_multiply(left, back[degree]), left_scale * (scale * scale), degree))
        return torch.cat(maps, dim=1), None, None, None, None


def _of_scalars(bias: Tensor, degree: int) -> Tensor | None:
    return bias if degree == 0 else None


def _map(features: Tensor, right: Tensor, scales: list[float]) -> Tensor:
    """Map [N, R, inputs] to [N, R, outputs]."""
    maps = []
    for degree, (scale, left, row_scale) in enumerate(zip(scales, *_split_rows(features), strict=True)):
        maps.append(_scaled(_multiply(left, right[degree]), row_scale * scale, degree))
    return torch.cat(maps, dim=1)


def _split_rows(features: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Halves of the rows of each degree, and what undoes their scales."""
    num_atoms, rows, _ = features.shape
    halves, scales = _kernels(features).split_rows(features.contiguous())
    if rows == 1:
        return [halves], [scales]
    counts = [num_atoms * (2 * degree + 1) for degree in range(math.isqrt(rows))]
    return list(halves.split(counts)), list(scales.split(counts))


def _multiply(left: Tensor, right: Tensor) -> Tensor:
    """Multiply halves: float16 [rows, 3 inputs] and [outputs, 3 inputs] to float32 [rows, outputs]."""
    if left.is_cuda:
        return torch.mm(left, right.T, out_dtype=torch.float32)
    return torch.mm(left.float(), right.float().T)  # products of two halves are exact in float32


def _scaled(product: Tensor, scale: Tensor, degree: int) -> Tensor:
    """[N (2l+1), outputs] times [N (2l+1), 1], as [N, 2l+1, outputs]."""
    return (product * scale).view(-1, 2 * degree + 1, product.shape[1])


def _kernels(x: Tensor) -> ModuleType:
    """Triton is for GPUs alone, and this is the one door to its kernels for halves."""
    return importlib.import_module("tessera.kernels.triton_halves") if x.is_cuda else plain_halves
