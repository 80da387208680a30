# SPDX-License-Identifier: MIT
"""Data-parallel ranks: started by torchrun, joined by one sum of all gradients after the whole backward pass."""

import os
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from tessera.train.errors import TrainError


class Ranks:
    """The processes of one run; one process without torchrun.

    Attributes:
        rank, count: this process and their number.
    """

    def __init__(self, device: str) -> None:
        self.rank, self.count = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        self._device = device
        self._joins = self.count > 1 and not dist.is_initialized()
        if device == "cuda":
            if not torch.cuda.is_available():
                raise TrainError("device: expected a GPU that torch sees for 'cuda', found none; set device: cpu")
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        if self._joins:
            dist.init_process_group("nccl" if device == "cuda" else "gloo")

    def close(self) -> None:
        """Leave the group that this object joined."""
        if self._joins:
            dist.destroy_process_group()

    def share(self, batch: Sequence[int]) -> Sequence[int]:
        """Return this rank's frames of a batch; the last ranks may get none."""
        return batch[self.rank :: self.count]

    def agree(self, value: float) -> float:
        """Return rank 0's value on every rank, such as the time on its clock."""
        if self.count == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self._device)
        dist.broadcast(shared, 0)
        return float(shared)

    def add_up(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Sum tensors over all ranks, in one message a dtype; every rank calls this with the same shapes."""
        if self.count == 1:
            return list(tensors)
        results = list(tensors)
        for dtype in sorted({tensor.dtype for tensor in tensors}, key=str):
            places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
            message = torch.cat([tensors[place].reshape(-1) for place in places])
            dist.all_reduce(message)
            parts = message.split([tensors[place].numel() for place in places])
            for place, part in zip(places, parts, strict=True):
                results[place] = part.view_as(tensors[place])
        return results
