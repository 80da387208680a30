# SPDX-License-Identifier: MIT
"""What a rebuild costs against a step, and what travels: 216 waters on 1 and 2 ranks, all variants side by side.

    python tests/bench/ranks.py model.pt2 --steps 10 --repeats 5

Runs LAMMPS with `rebuild 1` (a new list each step) and `rebuild 0` (when the skin asks for it), `overlap yes` and `no`,
in turns, and prints medians of the load report as a Markdown table. One thread a rank.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
WATER = ROOT / "examples" / "2-water" / "water216.data"

SCRIPT = """units metal
atom_style atomic
read_data {data}
pair_style tessera {options}
pair_coeff * * {model} H O
timestep 0.0005
velocity all create 300.0 4928459 mom yes rot yes dist gaussian
fix all all nve
run 1
run {steps}
"""
VARIANTS = [
    (ranks, f"rebuild {rebuild} overlap {overlap}")
    for ranks, rebuild, overlap in itertools.product((1, 2), (0, 1), ("yes", "no"))
]


def run_lammps(model: Path, ranks: int, options: str, steps: int) -> str:
    """Log of one run; the last load report is that of `steps` steps."""
    with tempfile.TemporaryDirectory() as folder:
        script = SCRIPT.format(data=WATER, options=options, model=model, steps=steps)
        (Path(folder) / "in.ranks").write_text(script)
        programs = Path(sys.executable).parent
        done = subprocess.run(
            [programs / "mpiexec", "-n", str(ranks), programs / "lmp", "-in", "in.ranks", "-log", "none"],
            cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"{options} on {ranks} ranks failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def read_load(log: str) -> dict[str, float]:
    """Means over the ranks of the last load report; also `steps` and `rebuilds`."""
    report = log[log.rindex(" rank(s), ") :]
    lines = re.findall(r"^Tessera: ([a-z ]+?) +[\d.]+ +([\d.]+) +[\d.]+$", report, re.MULTILINE)
    load = {name: float(mean) for name, mean in lines}
    load["rebuilds"] = int(re.match(r" rank\(s\), (\d+) rebuilds", report)[1])
    load["steps"] = int(re.findall(r"Tessera: (\d+) steps on", log)[-1])
    return load


def table(loads: dict[tuple[int, str], list[dict[str, float]]]) -> list[str]:
    """One row a variant."""
    names = ("ranks", "options", "rebuild / step", "wait / step", "step ms", "rebuild ms", "rebuilds a step",
             "feature messages a step", "feature kB a step", "position messages a step")  # fmt: skip
    rows = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for (ranks, options), runs in loads.items():
        middle = {name: median(run[name] for run in runs) for name in runs[0]}
        rebuild = median(run["search ms a step"] * run["steps"] / max(1, run["rebuilds"]) for run in runs)
        step = median(run["total ms a step"] - run["search ms a step"] for run in runs)
        has_rebuilds = middle["rebuilds"] > 0
        cells = (
            str(ranks),
            f"`{options}`",
            f"{rebuild / step:.2%}" if has_rebuilds else "-",
            f"{middle['exchange wait ms a step'] / step:.2%}",
            f"{step:.1f}",
            f"{rebuild:.2f}" if has_rebuilds else "-",
            f"{middle['rebuilds'] / middle['steps']:.2f}",
            f"{middle['feature messages a step']:g}",
            f"{middle['feature bytes a step'] / 1e3:.0f}",
            f"{middle['position messages a step']:g}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def main() -> None:
    """Run all variants in turns, then print the table."""
    parser = argparse.ArgumentParser(description="cost of rebuilds and exchanges, through LAMMPS")
    parser.add_argument("model", type=Path, help="artifact that knows H and O")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    loads: dict[tuple[int, str], list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for _ in range(arguments.repeats):
        for ranks, options in VARIANTS:
            log = run_lammps(arguments.model.resolve(), ranks, options, arguments.steps)
            loads[ranks, options].append(read_load(log))
    sys.stdout.write("\n".join(table(loads)) + "\n")


if __name__ == "__main__":
    main()
