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
from typing import Any

import torch
from torch import Tensor, nn

from tessera.kernels.halves import halves, split_rows


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
        joined: Tensor = _SplitMaps.apply(features, self.right, self.back, self.scales, True)  # noqa: FBT003
        return joined

    def by_degree(self, features: Tensor) -> list[Tensor]:
        """Return the same degree by degree, L+1 times [N, 2l+1, outputs], without a copy that joins them."""
        self._check(features)
        return list(_SplitMaps.apply(features, self.right, self.back, self.scales, False))  # noqa: FBT003

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
    def forward(ctx, features: Tensor, right: Tensor, back: Tensor, scales: list[float], is_joined: bool) -> Any:  # noqa: ANN001
        ctx.save_for_backward(back)
        ctx.scales, ctx.is_joined = scales, is_joined
        maps = [_map(features, degree**2, 2 * degree + 1, right[degree], scale) for degree, scale in enumerate(scales)]
        return torch.cat(maps, dim=1) if is_joined else tuple(maps)

    @staticmethod
    def backward(ctx, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN001
        (back,) = ctx.saved_tensors
        maps = []
        for degree, scale in enumerate(ctx.scales):
            grad, first = (grads[0], degree**2) if ctx.is_joined else (grads[degree], 0)
            maps.append(_map(grad, first, 2 * degree + 1, back[degree], scale))
        return torch.cat(maps, dim=1), None, None, None, None


def _map(features: Tensor, first: int, count: int, right: Tensor, scale: float) -> Tensor:
    """Map rows first to first + count of [N, R, inputs]: [N, count, outputs]."""
    if features.is_cuda:
        # Triton is for GPUs alone, and this is the one door to its kernel for halves.
        kernels = importlib.import_module("tessera.kernels.triton_halves")
        left, row_scale = kernels.split_rows(features.contiguous(), first, count)
        product = torch.mm(left, right.T, out_dtype=torch.float32)
    else:  # products of two halves are exact in float32, which a CPU multiplies
        left, row_scale = split_rows(features, first, count)
        product = torch.mm(left.float(), right.float().T)
    return (product * (row_scale * scale)).view(-1, count, right.shape[0])
