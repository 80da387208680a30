# SPDX-License-Identifier: MIT
"""Rows split into halves for products on tensor cores; see :mod:`tessera.model.split_products`."""

import math

import torch
import triton
from torch import Tensor
from torch.library import triton_op, wrap_triton
from triton import language as tl

from tessera.kernels.halves import SCALE, SMALLEST

NUMBERS = 4096
"""That a program of four warps holds: 32 a thread."""
PAIR_NUMBERS = 1024
"""Of gradients of pairs: 32 registers a thread, so that a GPU runs as many as it can, and loads of 16 bytes a lane."""
WARPS = 4


@triton.jit
def size_of(x):
    """Numbers without their signs; infinity, which makes all of a row no numbers, for what is none."""
    return tl.where(tl.abs(x) >= 0.0, tl.abs(x), float("inf"))


@triton.jit
def power_of(largest, LEAST: tl.constexpr):
    """Power of two of the largest number of each row; a row of smaller numbers than LEAST counts as one of such."""
    return (tl.maximum(largest, LEAST).to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)


@triton.jit
def high_half(scaled):
    """Numbers rounded to 11 bits."""
    return ((scaled.to(tl.int32, bitcast=True) + 0x1000) & ~0x1FFF).to(tl.float32, bitcast=True)


@triton.jit
def split_rows_kernel(
    features, halves, scales, num_atoms,
    LARGEST: tl.constexpr, LEAST: tl.constexpr, DEGREES: tl.constexpr, INPUTS: tl.constexpr, WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """Write [low | high | high] of all rows, degree by degree, and what undoes their scales.

    Bit by bit as :func:`tessera.kernels.halves.split_rows`; the masks are those of its EXPONENT and DROPPED_BITS.
    One program serves TILE rows; WIDTH is the power of two that holds a row. The largest number of a row is brought to
    LARGEST; a row of smaller numbers than LEAST counts as one of such.
    """
    place = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    is_row = place < num_atoms * (DEGREES * DEGREES)
    at = place * (DEGREES * DEGREES)  # of degree 0; the rows of degree l begin at num_atoms * l^2
    for degree in tl.static_range(1, DEGREES):
        inner = place - num_atoms * (degree * degree)
        atom = inner // (2 * degree + 1)
        row = atom * (DEGREES * DEGREES) + degree * degree + (inner - atom * (2 * degree + 1))
        at = tl.where(inner >= 0, row, at)
    column = tl.arange(0, WIDTH)
    is_number = is_row[:, None] & (column < INPUTS)[None, :]
    x = tl.load(features + at[:, None] * INPUTS + column[None, :], mask=is_number, other=0.0)
    power = power_of(tl.max(size_of(x), axis=1), LEAST)
    scaled = x * (LARGEST / power)[:, None]
    high = high_half(scaled)
    start = halves + place[:, None] * (3 * INPUTS) + column[None, :]
    tl.store(start, (scaled - high).to(tl.float16), mask=is_number)
    tl.store(start + INPUTS, high.to(tl.float16), mask=is_number)
    tl.store(start + 2 * INPUTS, high.to(tl.float16), mask=is_number)
    tl.store(scales + place, power * (1.0 / LARGEST), mask=is_row)


@triton.jit
def split_pair_gradients_kernel(
    products, row_scales, bias, incoming, halves, scales, num_rows,
    LARGEST: tl.constexpr, LEAST: tl.constexpr, HAS_BIAS: tl.constexpr, COUNT: tl.constexpr, HIDDEN: tl.constexpr,
    WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write [low | high | high] of [incoming * second | incoming * first] of each row, and what undoes their scale.

    As :func:`tessera.kernels.halves.split_pair_gradients`, bit by bit but for a bias that is added in one step with the
    scale. `products` [num_rows, 2 HIDDEN] are the maps before `row_scales` [num_rows]; an atom has COUNT rows, and its
    gradient is a row of `incoming` [N, HIDDEN]; without HAS_BIAS `bias` [HIDDEN] is not read.
    One program serves TILE rows; WIDTH is the power of two that holds half of one. Each number is written once: results
    repeat bit by bit.
    """
    place = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE).to(tl.int64)
    is_row = place < num_rows
    column = tl.arange(0, WIDTH)
    is_number = is_row[:, None] & (column < HIDDEN)[None, :]
    scale = tl.load(row_scales + place, mask=is_row, other=0.0)
    source = products + place[:, None] * (2 * HIDDEN) + column[None, :]
    first = tl.load(source, mask=is_number, other=0.0) * scale[:, None]
    second = tl.load(source + HIDDEN, mask=is_number, other=0.0) * scale[:, None]
    if HAS_BIAS:
        first += tl.load(bias + column, mask=column < HIDDEN, other=0.0)[None, :]
    at = place // COUNT * HIDDEN
    by_atom = tl.load(incoming + at[:, None] + column[None, :], mask=is_number, other=0.0)
    of_first = by_atom * second
    of_second = by_atom * first
    power = power_of(tl.max(tl.maximum(size_of(of_first), size_of(of_second)), axis=1), LEAST)
    inverse = (LARGEST / power)[:, None]
    start = halves + place[:, None] * (6 * HIDDEN) + column[None, :]
    scaled = of_first * inverse
    high = high_half(scaled)
    tl.store(start, (scaled - high).to(tl.float16), mask=is_number)
    tl.store(start + 2 * HIDDEN, high.to(tl.float16), mask=is_number)
    tl.store(start + 4 * HIDDEN, high.to(tl.float16), mask=is_number)
    scaled = of_second * inverse
    high = high_half(scaled)
    tl.store(start + HIDDEN, (scaled - high).to(tl.float16), mask=is_number)
    tl.store(start + 3 * HIDDEN, high.to(tl.float16), mask=is_number)
    tl.store(start + 5 * HIDDEN, high.to(tl.float16), mask=is_number)
    tl.store(scales + place, power * (1.0 / LARGEST), mask=is_row)


def width_of(inputs: int) -> int:
    """Return the power of two that holds a row."""
    return 1 << (inputs - 1).bit_length()


def tile_of(width: int) -> int:
    """Return how many rows of this width a program serves."""
    return max(1, NUMBERS // width)


def pair_tile_of(width: int) -> int:
    """Return how many rows of two such halves a program serves."""
    return max(1, PAIR_NUMBERS // (2 * width))


@triton_op("tessera_triton::split_rows", mutates_args={})
def split_rows(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return float16 [N R, 3 inputs] and float32 [N R, 1] of [N, R, inputs]; see :mod:`tessera.kernels.halves`."""
    num_atoms, rows, inputs = features.shape
    degrees = math.isqrt(rows)
    halves = features.new_empty((num_atoms * rows, 3 * inputs), dtype=torch.float16)
    scales = features.new_empty((num_atoms * rows, 1))
    width = width_of(inputs)
    tile = tile_of(width)
    wrap_triton(split_rows_kernel)[((num_atoms * rows + tile - 1) // tile,)](
        features, halves, scales, num_atoms,
        LARGEST=SCALE, LEAST=SMALLEST, DEGREES=degrees, INPUTS=inputs, WIDTH=width, TILE=tile, num_warps=WARPS,
    )  # fmt: skip
    return halves, scales


@triton_op("tessera_triton::split_pair_gradients", mutates_args={})
def split_pair_gradients(
    product: Tensor, row_scale: Tensor, bias: Tensor | None, incoming: Tensor, degree: int
) -> tuple[Tensor, Tensor]:
    """Return float16 [N (2l+1), 6 hidden] and float32 [N (2l+1), 1]; see :mod:`tessera.kernels.halves`."""
    num_rows, hidden = product.shape[0], product.shape[1] // 2
    halves = product.new_empty((num_rows, 6 * hidden), dtype=torch.float16)
    scales = product.new_empty((num_rows, 1))
    width = width_of(hidden)
    tile = pair_tile_of(width)
    wrap_triton(split_pair_gradients_kernel)[((num_rows + tile - 1) // tile,)](
        # Without a bias the kernel reads none; any tensor of its type will do.
        product, row_scale, row_scale if bias is None else bias, incoming, halves, scales, num_rows,
        LARGEST=SCALE, LEAST=SMALLEST, HAS_BIAS=bias is not None, COUNT=2 * degree + 1, HIDDEN=hidden, WIDTH=width,
        TILE=tile, num_warps=WARPS,
    )  # fmt: skip
    return halves, scales
