# SPDX-License-Identifier: MIT
"""Linear maps with one weight a degree on a GPU, in Triton, with a choice of products."""

from typing import Any

import torch
from torch import Tensor

from tessera.kernels import triton_degree_linear as kernels


def degree_linear(features: Tensor, weight: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    """Apply one weight a degree and a bias on the scalar row (E2Former V2 specification, SO3Linear).

    The features are differentiable once; weight and bias are constants.

    Args:
        features: [N, R, inputs], R = (L+1)^2, float32.
        weight: [L+1, outputs, inputs], float32.
        bias: [outputs] or None.
        precision: "ieee" (FP32 products), "tf32", or "tf32x3" (three TF32 products; errors as of FP32).

    Returns:
        [N, R, outputs].

    Raises:
        ValueError: another precision, shape or type, or a weight that requires a gradient.
    """
    if precision not in kernels.PRECISIONS:
        raise ValueError(f"precision: expected one of {', '.join(kernels.PRECISIONS)}, found {precision!r}")
    if weight.dim() != 3 or weight.dtype != torch.float32:
        raise ValueError(
            f"weight: expected torch.float32 [L+1, outputs, inputs], found {weight.dtype} {list(weight.shape)}; "
            "take tessera.model.layers for other types"
        )
    rows, inputs = weight.shape[0] ** 2, weight.shape[2]
    if features.dtype != torch.float32 or features.dim() != 3 or tuple(features.shape[1:]) != (rows, inputs):
        raise ValueError(
            f"features: expected torch.float32 [any, {rows}, {inputs}], found {features.dtype} {list(features.shape)}"
        )
    if bias is not None and (bias.dtype != torch.float32 or tuple(bias.shape) != (weight.shape[1],)):
        raise ValueError(f"bias: expected torch.float32 [{weight.shape[1]}], found {bias.dtype} {list(bias.shape)}")
    if weight.requires_grad or (bias is not None and bias.requires_grad):
        raise ValueError("weight, bias: expected constants, found one that requires a gradient; detach it")
    return kernels.degree_linear(
        features.contiguous(), weight.contiguous(), None if bias is None else bias.contiguous(), precision
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    _, weight, _, ctx.precision = inputs
    ctx.save_for_backward(weight)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (weight,) = ctx.saved_tensors
    return kernels.degree_linear_backward(grad.contiguous(), weight, ctx.precision), None, None, None


kernels.degree_linear.register_autograd(_backward, setup_context=_save)
