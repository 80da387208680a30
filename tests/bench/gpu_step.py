# SPDX-License-Identifier: MIT
"""Measure one step of a model of the paper's size on a GPU: water of several sizes, float32, random weights.

    python tests/bench/gpu_step.py --results FOLDER [--commit NAME] [--sizes 222,224,244] [--profile]

Writes FOLDER/gpu.md. Sizes are replications of the box of 216 waters; times are medians over steps, in ms.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from lammps_program import plugin, program

from many_ranks import WATER_216, water_216
from tessera import _C
from tessera.model import E2Former, ModelConfig, Stage
from tessera_export.pipeline import ExportOptions, export_model
from tessera_export.progress import Progress

STEPS = 7
SEED = 7
#: Å; a random step that moves atoms as 1 fs at 300 K does, so that lists are reused but edges change.
STEP_LENGTH = 0.01
HEADER = """# A step of the paper-size model on one {gpu}

C = 256, 128 heads, 256 basis functions, zero-order, 3 x 5 Å + 1 x 8 Å, random weights, float32; water; one rank; commit
{commit}; torch {torch}; medians of {steps} steps, ms. Step: Engine::compute. Model: of it, Artifact::run with
padding and indexing on the host. Compute: of it, the compiled code. Transfer: inputs up, results down. The pair
search, the active edges and the force assembly run on the host, on one thread. LAMMPS step: mean, rebuilds included.

| atoms | edges | matmul | step | model | compute | transfer | peak GiB | forces against FP32, eV/Å | LAMMPS step |
|---|---|---|---|---|---|---|---|---|---|
"""


def paper_model() -> E2Former:
    stages = [Stage(5.0, "zero-order", 5.0)] * 3 + [Stage(8.0, "zero-order", 8.0)]
    config = ModelConfig(lmax=2, channels=256, num_heads=128, head_scalars=8, num_basis=256, out_channels=256,
                         embedding_cutoff=5.0, stages=tuple(stages))  # fmt: skip
    torch.manual_seed(SEED)
    return E2Former(config, ("H", "O")).requires_grad_(requires_grad=False)


def export(folder: Path) -> Path:
    path = folder / "paper.pt2"
    start = time.perf_counter()
    export_model(paper_model(), path, ExportOptions("float32", "cuda"), Progress(is_quiet=True))
    print(f"exported in {time.perf_counter() - start:.0f} s", flush=True)
    return path


class Run:
    """Steps of one system with one engine."""

    def __init__(self, path: Path, shape: tuple[int, int, int]) -> None:
        self.atoms = water_216().repeat(shape)
        self.engine = _C.Engine(str(path), skin=1.0)
        self.elements = np.array([0 if z == 1 else 1 for z in self.atoms.numbers], dtype=np.int32)
        self.ids = np.arange(1, len(self.atoms) + 1)
        self.random = np.random.default_rng(SEED)

    def step(self) -> dict:
        moved = self.random.normal(0, STEP_LENGTH, self.atoms.positions.shape)
        self.atoms.positions += moved
        return self.evaluate()

    def evaluate(self) -> dict:
        return self.engine.compute(self.atoms.positions, self.elements, self.ids, self.atoms.cell.array.tolist(),
                                   [True] * 3, is_reordered=False, wants_atom_virial=False, charge=0,
                                   multiplicity=1)  # fmt: skip

    def measure(self) -> dict[str, float]:
        """Medians over STEPS, ms; edges; peak GiB of the device."""
        self.step()
        torch.cuda.reset_peak_memory_stats()
        names = ("total_seconds", "compute_seconds", "transfer_seconds", "model_seconds", "search_seconds")
        rows = []
        for _ in range(STEPS):
            before = self.engine.report()
            self.step()
            after = self.engine.report()
            rows.append([1e3 * (after[name] - before[name]) for name in names])
        medians = dict(zip(names, np.median(rows, axis=0), strict=True))
        return medians | {"edges": self.engine.report()["num_edges"], "peak": torch.cuda.max_memory_allocated() / 2**30}


def measure_matmul(run: Run, matmul: str) -> list[str]:
    """One row of the table; the artifact's products follow the process's setting."""
    torch.set_float32_matmul_precision({"FP32": "highest", "TF32": "high"}[matmul])
    found = run.measure()
    forces = run.evaluate()["forces"]
    torch.set_float32_matmul_precision("highest")
    exact = run.evaluate()["forces"]
    return [
        str(len(run.atoms)),
        str(found["edges"]),
        matmul,
        *(f"{found[name]:.1f}" for name in ("total_seconds", "model_seconds", "compute_seconds", "transfer_seconds")),
        f"{found['peak']:.1f}",
        f"{np.abs(forces - exact).max():.1e} of {np.abs(exact).max():.2g}",
    ]


def lammps_step(path: Path, shape: tuple[int, int, int], folder: Path) -> float:
    """Loop time of a step through LAMMPS, ms."""
    script = folder / "in.bench"
    script.write_text(
        f"units metal\natom_style atomic\nread_data {WATER_216}\nreplicate {' '.join(map(str, shape))}\n"
        f"pair_style tessera\npair_coeff * * {path} H O\nvelocity all create 300 1 loop geom\ntimestep 0.0005\n"
        f"fix 1 all nve\nthermo 100\nrun 2\nrun {STEPS}\n"
    )
    environment = {**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([program(), "-in", str(script), "-log", "none"], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=300)  # fmt: skip
    loops = re.findall(r"Loop time of (\S+)", done.stdout)
    if done.returncode != 0 or len(loops) != 2:
        print(done.stdout[-3000:], file=sys.stderr)
        return float("nan")
    return 1e3 * float(loops[1]) / STEPS


def profile(run: Run) -> str:
    """Table of the kernels that take the device's time in one step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        run.step()
    times: dict[str, list[float]] = {}
    for event in recorded.key_averages():
        times.setdefault(event.key[:110], []).append(event.self_device_time_total / 1e3)
    rows = sorted(((sum(values), key) for key, values in times.items()), reverse=True)
    total = sum(time for time, _ in rows)
    lines = [f"device time of one step, {len(run.atoms)} atoms: {total:.1f} ms"]
    return "\n".join(lines + [f"{time:9.2f} ms  {key}" for time, key in rows[:28]])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--sizes", default="222,224,244")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    lines = HEADER.format(
        gpu=torch.cuda.get_device_name(), commit=arguments.commit, torch=torch.__version__, steps=STEPS
    ).splitlines()
    tables = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = export(folder)
        sizes = arguments.sizes.split(",")
        for size in sizes:
            shape = tuple(int(digit) for digit in size)
            run = Run(path, shape)
            rows = [measure_matmul(run, matmul) for matmul in ("FP32", "TF32")]
            if arguments.profile and size == sizes[-1]:
                tables.append(profile(run))
            del run
            torch.cuda.empty_cache()  # LAMMPS is another process and needs the device's memory
            rows[0].append(f"{lammps_step(path, shape, folder):.1f}")
            rows[1].append("-")
            for row in rows:
                lines.append(f"| {' | '.join(row)} |")
                print(lines[-1], flush=True)
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "gpu.md").write_text("\n".join(lines) + "\n")
    print("\n".join([*tables, "", *lines]))


if __name__ == "__main__":
    main()
