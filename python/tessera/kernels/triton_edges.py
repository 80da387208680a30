# SPDX-License-Identifier: MIT
"""Device functions that the Triton kernels share: rows in planes, gates of an edge, walks over sorted edges.

A program serves a block of heads of several rows that lie side by side: vectors are [ROWS * BLOCK], a row's heads in
the lanes of a warp (rows of few heads share one). Heads never mix but in the sums that a kernel says it takes over
them, so a row's state lives in tuples of such vectors, one a plane, and stays in registers. What belongs to a row or an
edge is such a vector too: each lane holds its own copy. As [ROWS, 1] the compiler would lay its loads out over all
threads and pass each through shared memory, where the warps wait for each other. Blocks of heads are the second axis of
the grid, which changes slowest, so that all programs that run at a time read the same slice of every row.

Each row walks through its own edges in their own order, so results do not depend on which rows run together, bit for
bit. Rows that lie side by side on the curve have most of their neighbors in common, and in the same order: warps that
start together and take as long for a step meet the same rows at about the same time, and find them in the first cache.
A row whose edges are used up, or whose edge does not count, reads nothing and adds zeros. Places of edges are 32-bit
numbers, which keeps a quarter of the registers free (`tessera_export.largest_step` lets no list be longer).

Kernels load places themselves, not in a function: torch finds what a kernel writes by following addresses back to their
origin, stops at a load, and would take any array that a called function reads for written, and copy it.
"""

import triton
from triton import language as tl


@triton.jit
def own_lanes(num_rows, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Return of each lane its row, the last one at most, its head, and whether that row exists: [ROWS * BLOCK]."""
    lane = tl.arange(0, ROWS * BLOCK)
    row = tl.program_id(0).to(tl.int64) * ROWS + lane // BLOCK
    return tl.minimum(row, num_rows - 1), tl.program_id(1) * BLOCK + lane % BLOCK, row < num_rows


@triton.jit
def load_planes(
    pointer, row, lane, FIRST: tl.constexpr, COUNT: tl.constexpr, PLANES: tl.constexpr, HEADS: tl.constexpr,
    BLOCK: tl.constexpr, is_read=None,
):  # fmt: skip
    """Read planes FIRST to FIRST + COUNT of rows of [*, PLANES, HEADS], a tuple; 0 beyond HEADS and where not read."""
    start = pointer + row * (PLANES * HEADS)
    planes = ()
    for plane in tl.static_range(COUNT):
        place = start + (FIRST + plane) * HEADS + lane
        if is_read is None and HEADS % BLOCK == 0:
            planes = planes + (tl.load(place),)
        elif is_read is None:
            planes = planes + (tl.load(place, mask=lane < HEADS, other=0.0),)
        elif HEADS % BLOCK == 0:
            planes = planes + (tl.load(place, mask=is_read, other=0.0),)
        else:
            planes = planes + (tl.load(place, mask=is_read & (lane < HEADS), other=0.0),)
    return planes


@triton.jit
def store_planes(
    pointer, row, lane, planes, FIRST: tl.constexpr, COUNT: tl.constexpr, PLANES: tl.constexpr, HEADS: tl.constexpr,
    BLOCK: tl.constexpr, is_written=None,
):  # fmt: skip
    """Write a tuple of planes to rows of [*, PLANES, HEADS], from plane FIRST on."""
    start = pointer + row * (PLANES * HEADS)
    for plane in tl.static_range(COUNT):
        place = start + (FIRST + plane) * HEADS + lane
        if is_written is None and HEADS % BLOCK == 0:
            tl.store(place, planes[plane])
        elif is_written is None:
            tl.store(place, planes[plane], mask=lane < HEADS)
        elif HEADS % BLOCK == 0:
            tl.store(place, planes[plane], mask=is_written)
        else:
            tl.store(place, planes[plane], mask=is_written & (lane < HEADS))


@triton.jit
def zero_planes(COUNT: tl.constexpr, BLOCK: tl.constexpr, DTYPE: tl.constexpr):
    """Return a tuple of COUNT vectors of zeros, [BLOCK]."""
    planes = ()
    for _ in tl.static_range(COUNT):
        planes = planes + (tl.zeros([BLOCK], DTYPE),)
    return planes


@triton.jit
def dot_planes(first, second, COUNT: tl.constexpr):
    """Sum first * second over planes, lane by lane.

    The products are fused by hand in a fixed order: all kernels must find the same bits, because a score is compared
    with the largest score.
    """
    total = first[0] * second[0]
    for plane in tl.static_range(1, COUNT):
        total = tl.fma(first[plane], second[plane], total)
    return total


@triton.jit
def add_planes(sums, factor, planes, COUNT: tl.constexpr):
    """Return sums + factor * planes."""
    result = ()
    for plane in tl.static_range(COUNT):
        result = result + (tl.fma(factor, planes[plane], sums[plane]),)
    return result


@triton.jit
def spline_weights(t):
    """Evaluate 120 times the six quintic B-splines at `t` (0 to 1) of their interval, six scalars.

    As `reference.spline_weights`; fused by hand, see `dot_planes`.
    """
    s = 1.0 - t
    tt = t * t
    ss = s * s
    return (
        ss * ss * s,
        tl.fma(tl.fma(tl.fma(tl.fma(tl.fma(t, 5.0, -20.0), t, 20.0), t, 20.0), t, -50.0), t, 26.0),
        tl.fma(tl.fma(tl.fma(t, -10.0, 30.0), tt, -60.0), tt, 66.0),
        tl.fma(tl.fma(tl.fma(s, -10.0, 30.0), ss, -60.0), ss, 66.0),
        tl.fma(tl.fma(tl.fma(tl.fma(tl.fma(s, 5.0, -20.0), s, 20.0), s, 20.0), s, -50.0), s, 26.0),
        tt * tt * t,
    )


@triton.jit
def spline_slopes(t):
    """Evaluate 120 times the derivatives of the six quintic B-splines by `t`, six scalars."""
    s = 1.0 - t
    tt = t * t
    ss = s * s
    return (
        ss * ss * -5.0,
        tl.fma(tl.fma(tl.fma(tl.fma(t, 25.0, -80.0), t, 60.0), t, 40.0), t, -50.0),
        t * tl.fma(tl.fma(t, -50.0, 120.0), tt, -120.0),
        s * tl.fma(tl.fma(s, 50.0, -120.0), ss, 120.0),
        tl.fma(tl.fma(tl.fma(tl.fma(s, -25.0, 80.0), s, -60.0), s, -40.0), s, 50.0),
        tt * tt * 5.0,
    )


@triton.jit
def weigh_rows(weights, rows, PLANE: tl.constexpr):
    """Sum one plane of six rows of two planes with their weights."""
    total = weights[0] * rows[PLANE]
    for place in tl.static_range(1, 6):
        total = tl.fma(weights[place], rows[2 * place + PLANE], total)
    return total


@triton.jit
def edge_gates(gates, row, numbers, counts, lane, HAS_TABLE: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr):
    """Return score gate and output gate of edges: read from [E, 2, H] or a spline; 0 where they do not count.

    A spline sums six consecutive rows of a table [T, 2, H] with the weights among `numbers` (`triton_records`) and,
    where these hold the weights of its derivative, too, returns the derivatives of both gates. Six rows of two planes
    are twelve consecutive planes.
    """
    if HAS_TABLE:
        rows = load_planes(gates, row, lane, 0, 12, 2, HEADS, BLOCK, counts)
        found = (weigh_rows(numbers[2:8], rows, 0), weigh_rows(numbers[2:8], rows, 1))
        if len(numbers) > 8:
            found = found + (weigh_rows(numbers[8:14], rows, 0), weigh_rows(numbers[8:14], rows, 1))
        return found
    else:
        return load_planes(gates, row, lane, 0, 2, 2, HEADS, BLOCK, counts)


@triton.jit
def place_of_factors(edge, MOMENTS: tl.constexpr):
    """Return where an edge's factors begin in [E, A], of which there may be more than 32 bits count."""
    if MOMENTS == 1:
        return edge
    else:
        return edge.to(tl.int64) * MOMENTS
