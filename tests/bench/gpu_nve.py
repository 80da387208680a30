# SPDX-License-Identifier: MIT
"""A GPU against the CPU over 2,000 steps at constant energy: 64 waters, the demo model, through LAMMPS.

    python tests/bench/gpu_nve.py --results FOLDER [--commit NAME] [--steps 2000]

Exports the demo model for both (float64 and float32 network, plain and fused kernels; `tests/cuda/run_all.sh` makes
these beforehand), starts all runs from one state, side by side, and writes FOLDER/gpu_nve.md: drifts, how far the
trajectories are apart, rebuilds and recorded graphs. Times are not comparable: runs share the GPU.
"""

import argparse
import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from ase.io import read
from lammps_program import plugin, program
from nve_drift import read_energy, write_box
from ranks_nve import PREPARE, RUN

from exported import Request, export

HEADER = """# 2,000 steps at constant energy on {gpu} and on the CPU

64 waters at 300 K, demo model, 0.5 fs, through LAMMPS, float64 edge vectors; all from one start; commit {commit}; torch
{torch}. Plain and fused: kernels; tables: of edge networks. Apart: largest difference of a coordinate from the CPU's
float64 run.

| run | T / K | drift / µeV/atom/ps | apart at 100 steps / Å | rebuilds | graphs recorded |
|---|---|---|---|---|---|
"""
ELEMENTS = ("H", "O")


@dataclass(frozen=True)
class Case:
    """One run: network dtype, device, kernels, ranks and options of the pair style."""

    title: str
    dtype: str
    device: str
    kernels: str
    ranks: int = 1
    style: str = ""

    @property
    def request(self) -> Request:
        return Request("demo", self.dtype, ELEMENTS, self.device, kernels=self.kernels)


#: The first is what all others are compared with; the second prepares the start.
CASES = [
    Case("CPU float64, 8 ranks", "float64", "cpu", "fused", 8),
    Case("GPU float64, plain", "float64", "cuda", "plain"),
    Case("GPU float32, plain", "float32", "cuda", "plain"),
    Case("GPU float64, fused, 2 ranks", "float64", "cuda", "fused", 2, "skin 0.5 recut 20"),
    Case("GPU float64, fused, no graph", "float64", "cuda", "fused", 1, "graph off"),
    Case("GPU float32, fused, tables", "float32", "cuda", "fused"),
]
SECONDS_TO_END = 200
#: Steps over which trajectories are compared.
FIRST = 100


def run(folder: Path, script: str, ranks: int) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "in.lmp").write_text(script)
    environment = {**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"}
    command = [shutil.which("mpiexec"), "-n", str(ranks), program(), "-in", "in.lmp"]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, timeout=SECONDS_TO_END)  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(done.stdout[-2000:])
    return done.stdout


def artifact(request: Request) -> Path | None:
    """Find or make an artifact; None, and a line that says why, where the export fails."""
    try:
        return export(request)
    except Exception as error:  # noqa: BLE001 (whatever it is, the other runs go on)
        print(f"export of {request} failed: {error}", flush=True)
        return None


def measure(root: Path, case: Case, model: Path | None, steps: int) -> tuple[str, Path]:
    """Run one case in a folder of its own; what it printed, and the folder."""
    if model is None:
        raise RuntimeError("its export failed")
    folder = root / case.title
    folder.mkdir()
    shutil.copy(root / "start.data", folder)
    script = RUN.format(model=model, options=case.style, ranks=case.ranks, rest=steps - FIRST)
    return run(folder, script, case.ranks), folder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    models = {request: artifact(request) for request in dict.fromkeys(case.request for case in CASES)}
    lines = HEADER.format(gpu=torch.cuda.get_device_name(), commit=options.commit, torch=torch.__version__).splitlines()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_box(root / "box.data")
        run(root, PREPARE.format(model=models[CASES[1].request]), 1)
        with ThreadPoolExecutor(len(CASES)) as pool:
            futures = [pool.submit(measure, root, case, models[case.request], options.steps) for case in CASES]
        expected = None
        for case, future in zip(CASES, futures, strict=True):
            try:
                text, folder = future.result()
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                lines.append(f"| {case.title} | failed: {str(error)[-300:]} |")
                print(lines[-1], flush=True)
                continue
            last = read(folder / f"first.{case.ranks}.dump", index=-1, format="lammps-dump-text").positions
            expected = last if case is CASES[0] else expected
            apart = "" if expected is None else f"{abs(last - expected).max():.1e}"
            time, energy, temperature = read_energy(folder / f"log.{case.ranks}")
            rebuilds = sum(int(n) for n in re.findall(r"(\d+) rebuilds", text))
            graphs = len(re.findall(r"recorded as a graph", text))
            lines.append(f"| {case.title} | {temperature.mean():.1f} | {np.polyfit(time, energy, 1)[0]:+.4f} | "
                         f"{apart} | {rebuilds} | {graphs} |")  # fmt: skip
            print(lines[-1], flush=True)
    (options.results / "gpu_nve.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
