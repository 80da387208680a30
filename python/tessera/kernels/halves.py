# SPDX-License-Identifier: MIT
"""Numbers of float32 split into halves of 11 bits, in plain torch; see :mod:`tessera.model.split_products`."""

import torch
from torch import Tensor

SCALE = 2.0**8
"""Where the largest number of a row is brought; sums of 2^9 columns stay far from float16's and float32's ends."""
SMALLEST = 2.0**-100
"""A row of smaller numbers counts as one whose largest is this: the inverse must be finite."""
DROPPED_BITS = 13
"""Of float32's 24 significant bits, 11 stay."""
EXPONENT = 0x7F800000


def split_rows(features: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Return float16 [N count, 3 inputs], [low | high | high], and float32 [N count, 1], what undoes a row's scale."""
    rows = features[:, first : first + count].reshape(-1, features.shape[2])
    high, low, scale = halves(rows, rows.abs().amax(dim=1, keepdim=True))
    return torch.cat([low, high, high], dim=1).half(), scale


def halves(x: Tensor, largest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split scaled numbers: high of 11 bits, the rest, and what undoes the scale; all float32.

    Rounds by integers: compiled code keeps float16 in float32 registers, so that a cast there and back rounds nothing.
    """
    power = (largest.clamp_min(SMALLEST).view(torch.int32) & EXPONENT).view(torch.float32)
    scaled = x * (SCALE / power)
    high = ((scaled.view(torch.int32) + (1 << (DROPPED_BITS - 1))) & -(1 << DROPPED_BITS)).view(torch.float32)
    return high, scaled - high, power * (1.0 / SCALE)
