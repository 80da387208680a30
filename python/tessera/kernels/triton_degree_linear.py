# SPDX-License-Identifier: MIT
"""Linear maps with one weight a degree, without moving rows, and products of TF32 whose error is that of FP32.

The rows of a degree l are (2l+1) consecutive ones of each atom's R = (L+1)^2; a program takes a block of them, wherever
they stand, times a block of outputs. Tensor cores multiply numbers of 11 significant bits (TF32). `tf32x3` splits each
factor into such a number and a rest, x = high + low, and sums high * low + low * high + high * high in FP32: what is
left out, low * low and the rounding of low, is 2^-22 of a product, as small as FP32's own rounding of a long sum.
"""

import torch
import triton
from torch import Tensor
from torch.library import triton_op, wrap_triton
from triton import language as tl

PRECISIONS = ("ieee", "tf32", "tf32x3")
"""FP32 products; TF32 products; three TF32 products."""
BLOCK_ROWS, BLOCK_OUTPUTS, BLOCK_INPUTS, WARPS, STAGES = 64, 128, 32, 4, 3
"""Of a program: 64 sums a thread, two programs a multiprocessor by registers and by shared memory."""
SMALLEST_BLOCK = 16
"""What the product of two blocks takes in each direction."""


@triton.jit
def degree_linear_kernel(
    features, weight, bias, outputs, num_rows,
    DEGREES: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, HAS_BIAS: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Write [N, R, outputs]; one program serves ROWS rows of one degree and COLUMNS outputs.

    `weight` is [1 or 2, L+1, outputs, inputs]: high parts and, for tf32x3, low parts. Sums run over inputs in blocks of
    DEPTH; no atomics, results repeat bit for bit.
    """
    column_blocks: tl.constexpr = (OUTPUTS + COLUMNS - 1) // COLUMNS
    degree, place = degree_of_block(tl.program_id(0) // column_blocks, num_rows, DEGREES, ROWS)
    orders = 2 * degree + 1
    rows = place * ROWS + tl.arange(0, ROWS).to(tl.int64)
    is_row = rows < num_rows * orders
    at = (rows // orders) * (DEGREES * DEGREES) + degree * degree + rows % orders
    columns = tl.program_id(0) % column_blocks * COLUMNS + tl.arange(0, COLUMNS)
    depth = tl.arange(0, DEPTH)
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for first in tl.range(0, INPUTS, DEPTH):
        inner = first + depth
        x = tl.load(features + at[:, None] * INPUTS + inner[None, :], is_row[:, None] & (inner < INPUTS)[None, :], 0.0)
        start = weight + degree * (OUTPUTS * INPUTS)
        fits = (columns < OUTPUTS)[None, :] & (inner < INPUTS)[:, None]
        w = tl.load(start + columns[None, :] * INPUTS + inner[:, None], fits, 0.0)
        if PRECISION == "ieee":
            total = tl.dot(x, w, total, input_precision="ieee")
        else:
            high = round_to_tf32(x)
            if PRECISION == "tf32x3":
                rest = start + DEGREES * (OUTPUTS * INPUTS)
                w_low = tl.load(rest + columns[None, :] * INPUTS + inner[:, None], fits, 0.0)
                total = tl.dot(round_to_tf32(x - high), w, total, input_precision="tf32")
                total = tl.dot(high, w_low, total, input_precision="tf32")
            total = tl.dot(high, w, total, input_precision="tf32")
    if HAS_BIAS:
        added = tl.load(bias + columns, columns < OUTPUTS, 0.0)
        total += tl.where(degree == 0, added, 0.0)[None, :]
    tl.store(outputs + at[:, None] * OUTPUTS + columns[None, :], total, is_row[:, None] & (columns < OUTPUTS)[None, :])


@triton.jit
def degree_of_block(block, num_rows, DEGREES: tl.constexpr, ROWS: tl.constexpr):
    """Return the degree of a block, and its place among the blocks of that degree."""
    degree = 0
    place = block.to(tl.int64)
    for l in tl.static_range(DEGREES - 1):
        num_blocks = (num_rows * (2 * l + 1) + ROWS - 1) // ROWS
        is_beyond = (degree == l) & (place >= num_blocks)
        place = tl.where(is_beyond, place - num_blocks, place)
        degree = tl.where(is_beyond, l + 1, degree)
    return degree, place


@triton.jit
def round_to_tf32(x):
    """Round float32 to 11 significant bits, half away from zero."""
    bits = (x.to(tl.int32, bitcast=True) + 0x1000) & ~0x1FFF
    return bits.to(tl.float32, bitcast=True)


def split_weight(weight: Tensor, precision: str) -> Tensor:
    """Return what the kernel multiplies with: [1, ...], or high and low parts, [2, ...]."""
    if precision == "ieee":
        return weight[None]
    high = _rounded(weight)
    return high[None] if precision == "tf32" else torch.stack([high, _rounded(weight - high)])


def _rounded(x: Tensor) -> Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def _launch(features: Tensor, weight: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    num_rows, (degrees, outputs, inputs) = features.shape[0], weight.shape
    rows = BLOCK_ROWS
    columns = min(BLOCK_OUTPUTS, max(SMALLEST_BLOCK, 1 << (outputs - 1).bit_length()))
    result = features.new_empty((num_rows, degrees * degrees, outputs))
    blocks = sum((num_rows * (2 * degree + 1) + rows - 1) // rows for degree in range(degrees))
    parts = split_weight(weight, precision)
    # One axis, blocks of outputs fastest: their programs read the same features; other axes end at 65535.
    wrap_triton(degree_linear_kernel)[(blocks * ((outputs + columns - 1) // columns),)](
        features, parts, parts if bias is None else bias, result, num_rows,
        DEGREES=degrees, INPUTS=inputs, OUTPUTS=outputs, HAS_BIAS=bias is not None, PRECISION=precision, ROWS=rows,
        COLUMNS=columns, DEPTH=BLOCK_INPUTS, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return result


@triton_op("tessera_triton::degree_linear", mutates_args={})
def degree_linear(features: Tensor, weight: Tensor, bias: Tensor | None, precision: str) -> Tensor:
    """Return [N, R, outputs] from [N, R, inputs], weight [L+1, outputs, inputs] and a bias [outputs] on row 0."""
    return _launch(features, weight, bias, precision)


@triton_op("tessera_triton::degree_linear_backward", mutates_args={})
def degree_linear_backward(grad: Tensor, weight: Tensor, precision: str) -> Tensor:
    """Return the gradient of the features: the same map with each degree's weight transposed."""
    return _launch(grad, weight.transpose(1, 2).contiguous(), None, precision)
