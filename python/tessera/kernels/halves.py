# SPDX-License-Identifier: MIT
"""Numbers of float32 split into halves of 11 bits, in plain torch; see :mod:`tessera.model.split_products`."""

import math

import torch
from torch import Tensor

SCALE = 2.0**8
"""Where the largest number of a row is brought; sums of 2^9 columns stay far from float16's and float32's ends."""
SMALLEST = 2.0**-100
"""A row of smaller numbers counts as one whose largest is this: the inverse must be finite."""
DROPPED_BITS = 13
"""Of float32's 24 significant bits, 11 stay."""
EXPONENT = 0x7F800000


def split_rows(features: Tensor) -> tuple[Tensor, Tensor]:
    """Split the rows of features [N, R, inputs], R = (L+1)^2, degree by degree.

    Returns:
        float16 [N R, 3 inputs], [low | high | high], and float32 [N R, 1], what undoes a row's scale. The rows of
        degree l are N l^2 to N (l+1)^2, atom by atom: a matrix that a product takes as it is.
    """
    degrees = range(math.isqrt(features.shape[1]))
    by_degree = [features[:, degree**2 : (degree + 1) ** 2].flatten(0, 1) for degree in degrees]
    return _split(torch.cat(by_degree))


def _split(rows: Tensor) -> tuple[Tensor, Tensor]:
    high, low, scale = halves(rows, rows.abs().amax(dim=1, keepdim=True))
    return torch.cat([low, high, high], dim=1).half(), scale


def split_pair_gradients(
    product: Tensor, row_scale: Tensor, bias: Tensor | None, incoming: Tensor, degree: int
) -> tuple[Tensor, Tensor]:
    """Return the same of the gradients of two maps whose products are summed over the rows of a degree.

    The scale of the weight is left out, of the maps and so of the gradients: it is for the caller to undo.

    Args:
        product: both maps side by side, [N (2l+1), 2 hidden], before any scale.
        row_scale: what undoes the scales of rows, [N (2l+1), 1].
        bias: of the first map over what undoes the scale of the weight, [hidden], or None.
        incoming: gradient of the sums of this degree, [N, hidden].
        degree: l.

    Returns:
        Halves of [incoming * second | incoming * first] of each row, float16 [N (2l+1), 6 hidden], and float32
        [N (2l+1), 1], what undoes a row's scale.
    """
    first, second = maps_of_pair(product, row_scale, bias, count=2 * degree + 1)
    by_atom = incoming[:, None]
    return _split(torch.cat([by_atom * second, by_atom * first], dim=2).flatten(0, 1))


def maps_of_pair(product: Tensor, scale: Tensor, bias: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
    """Return two maps, [N, count, hidden] each, of their products [N count, 2 hidden] and scales [N count, 1]."""
    first, second = (product * scale).view(-1, count, product.shape[1]).chunk(2, dim=2)
    return first if bias is None else first + bias, second


def halves(x: Tensor, largest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Split scaled numbers: high of 11 bits, the rest, and what undoes the scale; all float32.

    Rounds by integers: compiled code keeps float16 in float32 registers, so that a cast there and back rounds nothing.
    """
    power = (largest.clamp_min(SMALLEST).view(torch.int32) & EXPONENT).view(torch.float32)
    scaled = x * (SCALE / power)
    high = ((scaled.view(torch.int32) + (1 << (DROPPED_BITS - 1))) & -(1 << DROPPED_BITS)).view(torch.float32)
    return high, scaled - high, power * (1.0 / SCALE)
