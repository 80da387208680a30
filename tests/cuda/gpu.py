# SPDX-License-Identifier: MIT
"""What the tests of this folder need: a GPU, or a reason to skip, and lists moved to it."""

import dataclasses

import pytest
import torch
from torch import Tensor

from tessera import _C
from tessera.model import EdgeList

GPU = torch.device("cuda", 0)

needs_gpu = pytest.mark.skipif(
    not _C.HAS_CUDA or _C.num_gpus() == 0,
    reason="needs a build with -DTESSERA_CUDA=ON and a visible GPU (tests/cuda/run_all.sh)",
)


def to_gpu(value):
    """Move a tensor (a leaf stays a leaf) or all tensors of a list."""
    if isinstance(value, Tensor):
        return value.detach().to(GPU).requires_grad_(value.requires_grad)
    if isinstance(value, EdgeList):
        moved = {field.name: to_gpu(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return EdgeList(**moved)
    return value
