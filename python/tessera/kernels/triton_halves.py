# SPDX-License-Identifier: MIT
"""Rows split into halves for products on tensor cores; see :mod:`tessera.model.split_products`."""

import torch
import triton
from torch import Tensor
from torch.library import triton_op, wrap_triton
from triton import language as tl

from tessera.kernels.halves import SCALE, SMALLEST

NUMBERS = 4096
"""That a program of four warps holds: 32 a thread."""
WARPS = 4


@triton.jit
def split_rows_kernel(
    features, halves, scales, num_rows,
    LARGEST: tl.constexpr, LEAST: tl.constexpr, FIRST: tl.constexpr, COUNT: tl.constexpr, ROWS: tl.constexpr,
    INPUTS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write [low | high | high] of rows FIRST to FIRST + COUNT of each atom, and what undoes their scale.

    Bit by bit as :func:`tessera.kernels.halves.split_rows`; the masks are those of its EXPONENT and DROPPED_BITS.
    One program serves TILE rows; WIDTH is the power of two that holds a row. The largest number of a row is brought to
    LARGEST; a row of smaller numbers than LEAST counts as one of such.
    """
    place = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE).to(tl.int64)
    is_row = place < num_rows
    column = tl.arange(0, WIDTH)
    is_number = is_row[:, None] & (column < INPUTS)[None, :]
    at = place // COUNT * ROWS + FIRST + place % COUNT
    x = tl.load(features + at[:, None] * INPUTS + column[None, :], mask=is_number, other=0.0)
    # A row with a number that is none has a largest of infinity, which makes all of it no numbers.
    size = tl.where(tl.abs(x) >= 0.0, tl.abs(x), float("inf"))
    largest = tl.maximum(tl.max(size, axis=1), LEAST)
    power = (largest.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    inverse = LARGEST / power
    scaled = x * inverse[:, None]
    high = ((scaled.to(tl.int32, bitcast=True) + 0x1000) & ~0x1FFF).to(tl.float32, bitcast=True)
    start = halves + place[:, None] * (3 * INPUTS) + column[None, :]
    tl.store(start, (scaled - high).to(tl.float16), mask=is_number)
    tl.store(start + INPUTS, high.to(tl.float16), mask=is_number)
    tl.store(start + 2 * INPUTS, high.to(tl.float16), mask=is_number)
    tl.store(scales + place, power * (1.0 / LARGEST), mask=is_row)


def width_of(inputs: int) -> int:
    """Return the power of two that holds a row."""
    return 1 << (inputs - 1).bit_length()


def tile_of(width: int) -> int:
    """Return how many rows of this width a program serves."""
    return max(1, NUMBERS // width)


@triton_op("tessera_triton::split_rows", mutates_args={})
def split_rows(features: Tensor, first: int, count: int) -> tuple[Tensor, Tensor]:
    """Return float16 [N count, 3 inputs] and float32 [N count, 1] of rows first to first + count of [N, R, inputs]."""
    num_atoms, rows, inputs = features.shape
    num_rows = num_atoms * count
    halves = features.new_empty((num_rows, 3 * inputs), dtype=torch.float16)
    scales = features.new_empty((num_rows, 1))
    width = width_of(inputs)
    tile = tile_of(width)
    wrap_triton(split_rows_kernel)[((num_rows + tile - 1) // tile,)](
        features, halves, scales, num_rows,
        LARGEST=SCALE, LEAST=SMALLEST, FIRST=first, COUNT=count, ROWS=rows, INPUTS=inputs, WIDTH=width,
        TILE=tile, num_warps=WARPS,
    )  # fmt: skip
    return halves, scales
