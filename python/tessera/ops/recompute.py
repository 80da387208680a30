# SPDX-License-Identifier: MIT
"""The operator that keeps a recomputation in its place (:mod:`tessera.model.recompute`)."""

import torch
from torch import Tensor


def recompute_after(x: Tensor, gradient: Tensor) -> Tensor:
    """Copy `x` once `gradient` exists.

    To a compiler the copy is an unknown function of both, so nothing that is computed from it can be merged with what
    was computed from `x`, or moved to before the backward pass reaches `gradient`. It has no derivative.

    Args:
        x: any shape and dtype.
        gradient: any tensor on the same device; it is not read.

    Returns:
        A contiguous copy of `x`.
    """
    return torch.ops.tessera.recompute_after(x.contiguous(), gradient)


@torch.library.register_fake("tessera::recompute_after")
def _(x: Tensor, gradient: Tensor) -> Tensor:  # noqa: ARG001
    return x.new_empty(x.shape)
