# SPDX-License-Identifier: MIT
"""A GPU against the CPU over 2,000 steps at constant energy: 64 waters, the demo model, through LAMMPS.

    python tests/bench/gpu_nve.py --results FOLDER [--commit NAME] [--steps 2000]

Exports the demo model for both (float64 and float32 network), starts all runs from one state, and writes
FOLDER/gpu_nve.md: drifts, how far the trajectories are apart, rebuilds and recorded graphs.
"""

import argparse
import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from ase.io import read
from exported import Request, export
from lammps_program import plugin, program
from nve_drift import read_energy, write_box
from ranks_nve import PREPARE, RUN

HEADER = """# 2,000 steps at constant energy on {gpu} and on the CPU

64 waters at 300 K, demo model, 0.5 fs, through LAMMPS, float64 edge vectors; all from one start; commit {commit}; torch
{torch}. Apart: largest difference of a coordinate from the CPU's float64 run.

| run | T / K | drift / µeV/atom/ps | apart at 100 steps / Å | rebuilds | graphs recorded |
|---|---|---|---|---|---|
"""
#: Name, dtype, device, ranks, options of the pair style.
CASES = [
    ("CPU float64, 4 ranks", "float64", "cpu", 4, ""),
    ("GPU float64", "float64", "cuda", 1, ""),
    ("GPU float64, no graph", "float64", "cuda", 1, "graph off"),
    ("GPU float64, 2 ranks", "float64", "cuda", 2, "skin 0.5 recut 20"),
    ("GPU float32", "float32", "cuda", 1, ""),
]


def run(folder: Path, script: str, ranks: int) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "in.lmp").write_text(script)
    environment = {**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"}
    command = [shutil.which("mpiexec"), "-n", str(ranks), program(), "-in", "in.lmp"]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, timeout=280)  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(done.stdout[-2000:])
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    kinds = sorted({case[1:3] for case in CASES})
    models = {kind: export(Request("demo", kind[0], (), kind[1])) for kind in kinds}
    lines = HEADER.format(gpu=torch.cuda.get_device_name(), commit=options.commit, torch=torch.__version__).splitlines()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_box(root / "box.data")
        run(root, PREPARE.format(model=models["float64", "cpu"]), 4)

        def case(index: int) -> tuple[str, Path]:
            _, dtype, device, ranks, style = CASES[index]
            folder = root / f"case{index}"
            folder.mkdir()
            shutil.copy(root / "start.data", folder)
            script = RUN.format(model=models[dtype, device], options=style, ranks=ranks, rest=options.steps - 100)
            return run(folder, script, ranks), folder

        with ThreadPoolExecutor() as cpu, ThreadPoolExecutor(max_workers=1) as gpu:  # a GPU is no faster shared
            pools = {"cpu": cpu, "cuda": gpu}
            futures = [pools[CASES[index][2]].submit(case, index) for index in range(len(CASES))]
        expected = None
        for (title, _, _, ranks, _), future in zip(CASES, futures, strict=True):
            try:
                text, folder = future.result()
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                lines.append(f"| {title} | failed: {str(error)[-300:]} |")
                continue
            last = read(folder / f"first.{ranks}.dump", index=-1, format="lammps-dump-text").positions
            expected = last if expected is None else expected
            time, energy, temperature = read_energy(folder / f"log.{ranks}")
            rebuilds = sum(int(n) for n in re.findall(r"(\d+) rebuilds", text))
            graphs = len(re.findall(r"recorded as a graph", text))
            lines.append(f"| {title} | {temperature.mean():.1f} | {np.polyfit(time, energy, 1)[0]:+.4f} | "
                         f"{abs(last - expected).max():.1e} | {rebuilds} | {graphs} |")  # fmt: skip
    (options.results / "gpu_nve.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
