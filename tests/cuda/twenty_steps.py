# SPDX-License-Identifier: MIT
"""Twenty steps with rebuilds on a GPU, directly and as a replayed graph, for compute-sanitizer.

    compute-sanitizer --tool memcheck python tests/cuda/twenty_steps.py MODEL.pt2

Prints a hash of all forces: equal in every way of running.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np

from many_ranks import run_ranks, water_216

STEPS = 20


def main() -> None:
    frames = [water_216()]
    rng = np.random.default_rng(4)
    for _ in range(STEPS - 1):
        frames.append(frames[-1].copy())
        frames[-1].positions += rng.normal(0, 0.03, frames[-1].positions.shape)
    for graph in ("off", "on"):
        found = run_ranks(Path(sys.argv[1]), 1, frames, rebuild=5, graph=graph)
        digest = hashlib.sha256(np.ascontiguousarray(found.forces).tobytes()).hexdigest()
        print(f"graph {graph}: {found.reports[0]['rebuilds']} rebuilds, forces {digest[:16]}")  # noqa: T201


if __name__ == "__main__":
    main()
