# SPDX-License-Identifier: MIT
"""Measure one step of a model of the paper's size on a GPU: water of several sizes, float32, random weights.

    python tests/bench/gpu_step.py --results FOLDER [--commit NAME] [--graph on,off] [--lammps] [--lists] [--profile]
        [--models "highest=222,224;tables-tf32=222;tf32:2=446"]

Writes FOLDER/gpu.md. Names of models: `paper_models.py`; TESSERA_PAPER names a folder of artifacts made before with
--export NAME. Sizes are replications of the box of 216 waters; times are medians over steps, in ms.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from lammps_program import plugin, program
from paper_models import export, find_or_export, parse_name

from many_ranks import WATER_216, water_216
from tessera import _C

STEPS = 7
SEED = 7
#: Å; a random step that moves atoms as 1 fs at 300 K does, so that lists are reused but edges change.
STEP_LENGTH = 0.01
HEADER = """# A step of the paper-size model on one {gpu}

C = 256, 128 heads, 256 basis functions, zero-order, 3 x 5 Å + 1 x 8 Å ("anchor": 4 x 5 Å), random weights, float32;
water; one rank; commit {commit}; torch {torch}; medians of {steps} steps, ms. Step: Engine::compute, of steps without a
rebuild. Model: the compiled artifact alone on the same inputs, kernel by kernel. Rebuild: what a rebuild adds. LAMMPS:
mean of a run, rebuilds included. Copies: largest difference between forces (eV/Å) on the same atom in the copies of the
box of 216 waters, before anything moves; it shows whether indices hold at this size.

| atoms | edges | artifact | graph | step | model | step/model | rebuild | of it | LAMMPS | of model | GiB | copies |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""


class Run:
    """Steps of one system with one engine."""

    def __init__(self, path: Path, shape: tuple[int, int, int], graph: str, rebuild: int = 0) -> None:
        self.atoms = water_216().repeat(shape)
        self.engine = _C.Engine(str(path), skin=1.0, graph=graph, rebuild=rebuild)
        self.elements = np.array([0 if z == 1 else 1 for z in self.atoms.numbers], dtype=np.int32)
        self.ids = np.arange(1, len(self.atoms) + 1)
        self.random = np.random.default_rng(SEED)

    def step(self) -> dict:
        self.atoms.positions += self.random.normal(0, STEP_LENGTH, self.atoms.positions.shape)
        return self.evaluate()

    def evaluate(self) -> dict:
        return self.engine.compute(self.atoms.positions, self.elements, self.ids, self.atoms.cell.array.tolist(),
                                   [True] * 3, is_reordered=False, wants_atom_virial=False, charge=0,
                                   multiplicity=1)  # fmt: skip

    def rebuild(self) -> float:
        """Seconds that a rebuild takes: a jump of all atoms by more than the skin."""
        before = self.engine.report()
        self.atoms.positions += 1.0
        self.evaluate()
        after = self.engine.report()
        assert after["rebuilds"] == before["rebuilds"] + 1
        return after["search_seconds"] - before["search_seconds"]

    def steps(self, count: int) -> list[float]:
        """Seconds of `count` steps without a rebuild, after one that is not counted."""
        self.step()
        seconds = []
        for _ in range(count):
            before = self.engine.report()
            self.step()
            after = self.engine.report()
            assert after["rebuilds"] == before["rebuilds"]
            seconds.append(after["total_seconds"] - before["total_seconds"])
        return seconds

    def copies_apart(self) -> float:
        """Largest difference between forces on the same atom in the copies of the box, eV/Å; before any step."""
        forces = self.evaluate()["forces"].reshape(-1, len(water_216()), 3)
        return float(abs(forces - forces[0]).max())

    def measure(self) -> dict[str, float]:
        """Medians over STEPS, ms; edges; peak GiB of the device; eV/Å between copies."""
        copies = self.copies_apart()
        steps = self.steps(STEPS)
        report = self.engine.report()
        return {
            "copies": copies,
            "step": 1e3 * np.median(steps),
            "rebuild": 1e3 * np.median([self.rebuild() for _ in range(3)]),
            "model": 1e3 * self.engine.time_model(STEPS),  # last: it gives up the graph
            "edges": report["num_edges"],
            "peak": report["peak_bytes"] / 2**30,
            "captures": report["captures"],
        }


def rebuilding(path: Path, shape: tuple) -> str:
    """Mean step with a rebuild at every step and at every tenth, side by side."""
    runs = {every: Run(path, shape, "on", rebuild=every) for every in (1, 10)}
    means: dict[int, list[float]] = {1: [], 10: []}
    for run in runs.values():
        run.step()
    for _ in range(3):
        for every, run in runs.items():
            before = run.engine.report()["total_seconds"]
            for _ in range(10):
                run.step()
            means[every].append(100 * (run.engine.report()["total_seconds"] - before))
    one, ten = (np.median(means[every]) for every in (1, 10))
    return (f"Lists kept: {len(runs[1].atoms)} atoms, mean step with a rebuild each step {one:.1f} ms, each tenth step "
            f"{ten:.1f} ms, ratio {one / ten:.3f}.")  # fmt: skip


def captures(path: Path, steps: int = 2000) -> str:
    """Graphs recorded while atoms walk and lists are rebuilt."""
    log: list[str] = []
    run = Run(path, (1, 1, 1), "on", rebuild=10)
    run.engine = _C.Engine(str(path), skin=1.0, graph="on", rebuild=10, log=log)
    start = time.perf_counter()
    for _ in range(steps):
        run.step()
    report = run.engine.report()
    seconds = time.perf_counter() - start
    return (f"Captures: {len(run.atoms)} atoms that walk {STEP_LENGTH} Å a step, {steps} steps, {report['rebuilds']} "
            f"rebuilds: {report['captures']} graphs recorded ({'; '.join(log[1:])}), {report['repeated_steps']} steps "
            f"repeated, {1e3 * seconds / steps:.1f} ms a step.")  # fmt: skip


def lammps_step(path: Path, shape: tuple[int, int, int], folder: Path, graph: str) -> float:
    """Loop time of a step through LAMMPS, ms."""
    script = folder / "in.bench"
    script.write_text(
        f"units metal\natom_style atomic\nread_data {WATER_216}\nreplicate {' '.join(map(str, shape))}\n"
        f"pair_style tessera graph {graph}\npair_coeff * * {path} H O\nvelocity all create 300 1 loop geom\n"
        f"timestep 0.0005\nfix 1 all nve\nthermo 100\nrun 2\nrun {3 * STEPS}\n"
    )
    environment = {**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([program(), "-in", str(script), "-log", "none"], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=300)  # fmt: skip
    loops = re.findall(r"Loop time of (\S+)", done.stdout)
    if done.returncode != 0 or len(loops) != 2:
        print(done.stdout[-3000:], file=sys.stderr)
        return float("nan")
    return 1e3 * float(loops[1]) / (3 * STEPS)


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


def measure_row(path: Path, matmul: str, graph: str, shape: tuple, folder: Path, options: argparse.Namespace) -> str:
    """One row of the table."""
    try:
        run = Run(path, shape, graph)
        found = run.measure()
    except RuntimeError as error:
        torch.cuda.empty_cache()
        return f"| {648 * np.prod(shape)} | | {matmul} | {graph} | {str(error)[:400]} |"
    if options.profile and graph == "off":
        print(profile(run), flush=True)
    count = len(run.atoms)
    del run
    torch.cuda.empty_cache()  # LAMMPS is another process and needs the device's memory
    lammps = lammps_step(path, shape, folder, graph) if options.lammps and graph == "on" else float("nan")
    cells = [count, found["edges"], matmul, graph, f"{found['step']:.1f}", f"{found['model']:.1f}",
             f"{found['step'] / found['model']:.3f}", f"{found['rebuild']:.1f}",
             f"{100 * found['rebuild'] / found['step']:.1f} %", f"{lammps:.1f}", f"{lammps / found['model']:.3f}",
             f"{found['peak']:.1f}", f"{found['copies']:.1e}"]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--models", default="highest=222,224,244;tf32=222,224,244;tf32:2=446,666")
    parser.add_argument("--graph", default="on,off")
    parser.add_argument("--lammps", action="store_true")
    parser.add_argument("--lists", action="store_true", help="also: lists kept or rebuilt, captures over 2,000 steps")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--export", help="only export this model into FOLDER")
    options = parser.parse_args()
    if options.export:
        export(options.results, options.export)
        return
    cases = [case.split("=") for case in options.models.split(";")]
    if any(len(case) != 2 for case in cases):
        parser.error(f'--models: expected NAME=SIZE,SIZE;NAME=SIZE..., found "{options.models}"')
    options.results.mkdir(parents=True, exist_ok=True)
    lines = HEADER.format(
        gpu=torch.cuda.get_device_name(), commit=options.commit, torch=torch.__version__, steps=STEPS
    ).splitlines()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model, _ in cases:
            parse_name(model)
        with ThreadPoolExecutor() as pool:
            made = [pool.submit(find_or_export, folder, model) for model, _ in cases]
        for (model, sizes), future in zip(cases, made, strict=True):
            if future.exception():
                lines.append(f"| | | {model} | | {future.exception()} |")
                print(lines[-1], flush=True)
                continue
            path = future.result()
            for size in sizes.split(","):
                for graph in options.graph.split(","):
                    shape = tuple(int(digit) for digit in size)
                    lines.append(measure_row(path, model, graph, shape, folder, options))
                    print(lines[-1], flush=True)
        if options.lists:
            lines += ["", rebuilding(made[0].result(), (2, 2, 4)), "", captures(made[0].result())]
    (options.results / "gpu.md").write_text("\n".join(lines) + "\n")
    print("\n".join(["", *lines]))


if __name__ == "__main__":
    main()
