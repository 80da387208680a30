# SPDX-License-Identifier: MIT
"""Measure weak scaling over the GPUs of this machine: the paper-size model on water, one MPI rank a GPU.

    python tests/bench/gpu_ranks.py --results FOLDER [--commit NAME] [--atoms 10,25] [--model FILE] [--profile]

Writes FOLDER/gpu_ranks.md and, with --profile, FOLDER/overlap.png: what one GPU computes and exchanges in a step.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
import matplotlib.pyplot as plt
import torch
from gpu_step import STEP_LENGTH
from lammps_program import plugin, program
from paper_models import export

from many_ranks import WATER_216, water_216
from tessera import _C

STEPS = 20
#: Boxes of 216 waters by thousands of atoms a GPU and number of GPUs: the same count a GPU.
SHAPES = {
    "10": {1: (2, 2, 4), 2: (4, 2, 4), 4: (4, 4, 4)},
    "25": {1: (2, 4, 5), 2: (4, 4, 5), 4: (4, 8, 5)},
}
HEADER = """# Weak scaling of the paper-size model over GPUs ({gpu})

C = 256, 128 heads, zero-order, 3 x 5 Å + 1 x 8 Å, float32, {model}, random weights; water; one rank a GPU; NVE through
LAMMPS, 0.5 fs, mean of {steps} steps with rebuilds; commit {commit}; torch {torch}. Efficiency: step of one GPU over
step of K at the same atoms a GPU.

| atoms a GPU | GPUs | exchange | overlap | step ms | efficiency | halo atoms | MB sent a step | peak GiB |
|---|---|---|---|---|---|---|---|---|
"""


def describe(model: Path) -> str:
    """Kernels and products of an artifact in words."""
    passport = json.loads(_C.read_passport(str(model)).json)
    tables = " with tables" if passport["tables"] else ""
    return f"{passport['kernels']} kernels{tables}, products {passport['matmul']}"


def lammps(model: Path, shape: tuple, ranks: int, folder: Path, options: str) -> dict[str, float]:
    """Run and read the load report; nan where the run failed."""
    script = folder / "in.bench"
    script.write_text(
        f"units metal\natom_style atomic\nread_data {WATER_216}\nreplicate {' '.join(map(str, shape))}\n"
        f"pair_style tessera {options}\npair_coeff * * {model} H O\nvelocity all create 300 1 loop geom\n"
        f"timestep 0.0005\nfix 1 all nve\nthermo 100\nrun 3\nrun {STEPS}\n"
    )
    environment = {**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"}
    command = ["mpiexec", "-n", str(ranks), program(), "-in", str(script), "-log", "none"]
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, timeout=150)  # fmt: skip
        text = done.stdout
    except subprocess.TimeoutExpired as expired:
        text = (expired.stdout or b"").decode()
    rows = dict(re.findall(r"^Tessera: ([a-zA-Z ]+?) +[\d.]+ +[\d.]+ +([\d.]+)$", text, re.MULTILINE))
    loops = re.findall(r"Loop time of (\S+)", text)
    if len(loops) != 2:
        print(text[-3000:], file=sys.stderr, flush=True)
        return {}
    route = re.search(r"rows (travel|pass)", text)
    return {
        "step": 1e3 * float(loops[1]) / STEPS,
        "halo": float(rows["halo atoms"]),
        "bytes": float(rows["feature bytes a step"]),
        "peak": float(rows["peak MiB of the model"]) / 1024,
        "route": {"travel": "nccl", "pass": "staged"}[route[1]] if route else "-",
    }


def timeline(model: Path, overlap: bool) -> dict[str, list[tuple[float, float]]]:
    """Intervals (ms) of kernels on GPU 0 in the last of three steps on two GPUs, by "compute" and "exchange"."""
    frames = [water_216().repeat((4, 2, 4))]
    rng = np.random.default_rng(1)
    for _ in range(2):
        frames.append(frames[-1].copy())
        frames[-1].positions += rng.normal(0, STEP_LENGTH, frames[-1].positions.shape)
    count = len(frames[0])
    elements = np.array([0 if z == 1 else 1 for z in frames[0].numbers], dtype=np.int32)
    owners = rng.integers(0, 2, (1, count))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as recorded:
        _C.compute_on_virtual_ranks(
            str(model), 2, positions=np.array([f.positions for f in frames]),
            owners=np.broadcast_to(owners, (3, count)).astype(np.int32), elements=elements,
            cells=[f.cell.array.tolist() for f in frames], periodic=[True] * 3, overlap=overlap,
            graph="off")  # fmt: skip
    cuda = torch.autograd.DeviceType.CUDA
    kernels = [e for e in recorded.events() if e.device_type == cuda and e.device_index == 0]
    spans = {"compute": [], "exchange": []}
    for event in kernels:
        kind = "exchange" if "nccl" in event.name.lower() else "compute"
        spans[kind].append((event.time_range.start / 1e3, event.time_range.end / 1e3))
    for values in spans.values():
        values.sort()
    per_step = len(spans["exchange"]) // 3
    first = spans["exchange"][-per_step][0]
    return {kind: [(a - first, b - first) for a, b in values if a >= first] for kind, values in spans.items()}


def exposed(spans: dict) -> tuple[float, float]:
    """Milliseconds of exchange, and those of them in which nothing else runs."""
    total = sum(b - a for a, b in spans["exchange"])
    hidden = 0.0
    for a, b in spans["exchange"]:
        hidden += sum(max(0.0, min(b, d) - max(a, c)) for c, d in spans["compute"])
    return total, max(0.0, total - hidden)


def draw(by_overlap: dict, path: Path) -> None:
    """Two strips a case: compute above, exchange below."""
    figure, panels = plt.subplots(len(by_overlap), 1, figsize=(11, 2 * len(by_overlap)), sharex=True, squeeze=False)
    for panel, (name, spans) in zip(panels[:, 0], by_overlap.items(), strict=True):
        for row, (kind, color) in enumerate((("compute", "tab:blue"), ("exchange", "tab:red"))):
            panel.broken_barh([(a, b - a) for a, b in spans[kind]], (1 - row - 0.4, 0.8), color=color, linewidth=0)
        panel.set_yticks([1, 0], ["compute", "exchange"])
        panel.set_title(f"overlap {name}", loc="left", fontsize=9)
    panels[-1, 0].set_xlabel("ms since the exchange of positions (GPU 0 of 2, one step)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--atoms", default="10,25")
    parser.add_argument("--model", type=Path, help="an artifact of gpu_step.py --export; made if absent")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = options.model or export(folder, "tables-highest")
        lines = HEADER.format(gpu=torch.cuda.get_device_name(), commit=options.commit, torch=torch.__version__,
                              steps=STEPS, model=describe(model)).splitlines()  # fmt: skip
        for atoms in options.atoms.split(","):
            alone = None
            for ranks in (k for k in SHAPES[atoms] if k <= torch.cuda.device_count()):
                cases = [("auto", "yes")]
                if ranks > 1 and atoms == options.atoms.split(",")[0]:
                    cases += [("auto", "no"), ("staged", "yes")]
                for exchange, overlap in cases:
                    found = lammps(model, SHAPES[atoms][ranks], ranks, folder, f"exchange {exchange} overlap {overlap}")
                    if not found:
                        lines.append(f"| {atoms}k | {ranks} | {exchange} | {overlap} | failed |")
                        continue
                    alone = alone or found["step"]
                    count = 648 * np.prod(SHAPES[atoms][ranks]) // ranks
                    lines.append(f"| {count} | {ranks} | {found['route']} | {overlap} | {found['step']:.1f} | "
                                 f"{alone / found['step']:.3f} | {found['halo']:.0f} | {found['bytes'] / 1e6:.1f} | "
                                 f"{found['peak']:.1f} |")  # fmt: skip
                    print(lines[-1], flush=True)
        if options.profile and torch.cuda.device_count() > 1:
            spans = {name: timeline(model, name == "yes") for name in ("yes", "no")}
            draw(spans, options.results / "overlap.png")
            lines.append("")
            for overlap, found in spans.items():
                total, alone_ms = exposed(found)
                lines.append(f"Timeline of one step, 10368 atoms a GPU, overlap {overlap}: {total:.2f} ms of exchange "
                             f"on GPU 0, {alone_ms:.2f} ms of them with nothing else running.")  # fmt: skip
    (options.results / "gpu_ranks.md").write_text("\n".join(lines) + "\n")
    print("\n".join(["", *lines]))


if __name__ == "__main__":
    main()
