# SPDX-License-Identifier: MIT
"""Count the bytes that the fused attention kernels read and write, by program, on lists of water in curve order.

    python tests/bench/kernel_traffic.py [--repeat 2,2,2] [--cutoffs 5,8]
    python tests/bench/kernel_traffic.py --pace         how soon the rows of a program meet each other's neighbors

Paper's model (H = 128, D = 8, V = 18, A = 1), float32, gates from tables. A tile: the rows of
a program. Rows: each row that a tile reads counts once, as if the first cache kept it for all that read it at about the
same time; for tile 1, once an edge. Steps: rows that tiles read, over edges.
"""

import argparse

import numpy as np
from water_list import scattered, water_list

HEADS, SCALARS, PLANES, MOMENTS, BLOCK = 128, 8, 18, 1, 32
ROW = 4 * HEADS
"""Bytes of one plane of one row."""
TILES = (1, 4, 8, 16)
WINDOWS = (2, 4, 8, 16)
"""Steps for which the first cache keeps a row: 200 KiB hold what 16 warps read in about 4."""


def steps(near: np.ndarray, far: np.ndarray, tile: int) -> int:
    """Count the steps of all tiles: each reads one far row, which serves one edge of each of the tile's rows.

    Where rows of a tile have several edges with a far row (images), the largest such number counts.
    """
    pairs, counts = np.unique(near * (far.max() + 1) + far, return_counts=True)
    rows, ends = pairs // (far.max() + 1), pairs % (far.max() + 1)
    keys = (rows // tile) * (far.max() + 1) + ends
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    return int(np.maximum.reduceat(counts[order], starts).sum())


def count(kernel: str, num_rows: int, num_edges: int, num_steps: int) -> tuple[float, float, float]:
    """Return gigabytes of rows read edge by edge, of table rows, and of all that is moved once."""
    blocks = HEADS // BLOCK
    table = 12 * ROW * num_edges
    scalars = num_edges * blocks * (8 + 1 + 8 + 3 * 4)  # sender, active, row, fraction, envelope, factor
    if kernel == "forward":
        read = num_steps * (SCALARS + PLANES) * ROW
        once = num_rows * (SCALARS + MOMENTS * PLANES + 3) * ROW
    elif kernel == "backward receivers":
        read = num_steps * (SCALARS + PLANES) * ROW
        once = num_rows * (2 * SCALARS + 2 * MOMENTS * PLANES + 4) * ROW + num_edges * blocks * 4 * (2 + MOMENTS)
    else:
        read = num_steps * (SCALARS + MOMENTS * PLANES + 4) * ROW
        once = num_rows * 2 * (SCALARS + PLANES) * ROW + num_edges * blocks * 8
    return read / 1e9, table / 1e9, (once + scalars) / 1e9


def met_again(near: np.ndarray, far: np.ndarray, tile: int, window: int) -> float:
    """Say which part of the far rows a row of the tile has read in the last `window` steps, all going at one pace."""
    first = np.searchsorted(near, near)
    step = np.arange(len(near)) - first
    order = np.lexsort((step, far, near // tile))
    is_same = (np.diff(near[order] // tile) == 0) & (np.diff(far[order]) == 0)
    return float((is_same & (np.diff(step[order]) <= window)).sum() / len(near))


def print_pace(repeat: tuple[int, int, int], cutoffs: list[float]) -> None:
    """Compare the orders in which neighbors can stand."""
    print("| cutoff | order | rows | " + " | ".join(f"within {window}" for window in WINDOWS) + " | ever |")
    print("|---|---|---|" + "---|" * (len(WINDOWS) + 1))
    for cutoff in cutoffs:
        ascending, _ = water_list(repeat, cutoff)
        for order, edges in (("ascending", ascending), ("scattered", scattered(ascending))):
            near, far = edges.receiver.numpy(), edges.sender.numpy()
            for tile in TILES[1:]:
                shares = [met_again(near, far, tile, window) for window in (*WINDOWS, len(near))]
                text = " | ".join(f"{share:.2f}" for share in shares)
                print(f"| {cutoff:g} | {order} | {tile} | {text} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", default="2,2,2")
    parser.add_argument("--cutoffs", default="5,8")
    parser.add_argument("--pace", action="store_true")
    options = parser.parse_args()
    repeat = tuple(int(number) for number in options.repeat.split(","))
    if options.pace:
        print_pace(repeat, [float(number) for number in options.cutoffs.split(",")])
        return
    print("| atoms | cutoff | order | edges | kernel | tile | steps/edges | rows GB | tables GB | once GB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for cutoff in (float(number) for number in options.cutoffs.split(",")):
        for order in ("curve", "file"):
            edges, _ = water_list(repeat, cutoff, is_sorted=order == "curve")
            receiver, sender, num_rows = edges.receiver.numpy(), edges.sender.numpy(), edges.num_owned
            ends = {"forward": (receiver, sender), "backward receivers": (receiver, sender),
                    "backward senders": (sender, receiver)}  # fmt: skip
            for kernel, (near, far) in ends.items():
                for tile in TILES:
                    num_steps = steps(near, far, tile)
                    read, table, once = count(kernel, num_rows, len(near), num_steps)
                    cells = (num_rows, f"{cutoff:g}", order, len(near), kernel, tile, f"{num_steps / len(near):.3f}",
                             f"{read:.2f}", f"{table:.2f}", f"{once:.2f}")  # fmt: skip
                    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
