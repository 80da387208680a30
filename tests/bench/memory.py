# SPDX-License-Identifier: MIT
"""Compare the memory that the exporter counts with what a run takes on the CPU.

    python tests/bench/memory.py [--recompute BUDGET] [--rows 300,600] [--channels 256]

Prints MiB that the run of an artifact of the paper-size model (float32, random weights) adds to the resident set, in a
process of its own, beside the counted ones.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from paper_models import paper_model
from resident import reset_peak, resident

from tessera import _C
from tessera_export.compiled import CompiledModel
from tessera_export.measure import extents_of, random_graph
from tessera_export.memory import MEBIBYTE
from tessera_export.pipeline import ExportOptions, export_model
from tessera_export.progress import Progress


def run(path: Path, rows: int) -> None:
    """In a process of its own: load, run once, print the growth of the resident set, MiB."""
    compiled, passport = CompiledModel(path), _C.read_passport(str(path))
    cutoffs, count = passport.cutoffs, len(passport.elements)
    compiled.run(random_graph(cutoffs, count, 4))
    graph = random_graph(cutoffs, count, rows)
    reset_peak()
    before = resident("VmRSS")
    compiled.run(graph)
    extents = extents_of(graph)
    counted = passport.memory.predict(extents.rows, extents.halo_rows, extents.edges) - passport.memory.bytes
    print(json.dumps({"rows": rows, "counted": counted / MEBIBYTE, "found": resident("VmHWM") - before}))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recompute", type=float)
    parser.add_argument("--rows", default="300,600")
    parser.add_argument("--run", type=Path, help="(internal) run this artifact")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.rows.split(",")]
    if arguments.run:
        run(arguments.run, sizes[0])
        return
    # Freed blocks go back to the system at once, so that the resident set is what is alive.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "paper.pt2"
        export_model(paper_model(), path, ExportOptions(recompute=arguments.recompute), Progress(is_quiet=True))
        print("recomputed:", ", ".join(_C.read_passport(str(path)).recompute) or "nothing")
        for size in sizes:
            command = [sys.executable, __file__, "--run", str(path), "--rows", str(size)]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            row = json.loads(done.stdout.splitlines()[-1])
            print(f"{size:6d} rows: counted {row['counted']:9.1f} MiB, found {row['found']:9.1f}, "
                  f"ratio {row['found'] / row['counted']:.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
