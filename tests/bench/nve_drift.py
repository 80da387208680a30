# SPDX-License-Identifier: MIT
"""Drift of the conserved energy: 64 waters, constant energy, through LAMMPS.

    python tests/bench/nve_drift.py model.pt2 --folder run --ranks 2 --picoseconds 2

Waters of the 216 box are packed into a cube of 12.43 Å, relaxed, held at 300 K for 1 ps, then run freely at 0.5 fs.
Prints the slope of the total energy, its error from blocks, and draws nve_drift.png.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from ase.io import read

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
EDGE = 12.43  # Å: 64 molecules at 0.0333 / Å³
MOLECULES = 64

SCRIPT = """units metal
atom_style atomic
read_data box.data
pair_style tessera {options}
pair_coeff * * {model} H O
timestep 0.0005
thermo 10
thermo_style custom step temp pe etotal press
thermo_modify format float %.12g
min_style fire
minimize 0.0 0.05 200 400
velocity all create 300.0 4711 mom yes rot yes dist gaussian
fix warm all langevin 300.0 300.0 0.05 1234
fix move all nve
run {warm}
unfix warm
log log.nve
run {steps}
"""


def write_box(path: Path) -> None:
    """Choose the 64 molecules that fit a cube of 12.43 Å best and write them as a data file."""
    water = read(
        ROOT / "examples" / "2-water" / "water216.data", format="lammps-data", units="metal", atom_style="atomic"
    )
    positions, types = water.positions, water.arrays["type"]
    length = water.cell[0, 0]
    oxygen = np.flatnonzero(types == 2)
    grid = np.stack(np.meshgrid(*[(np.arange(4) + 0.5) * EDGE / 4] * 3, indexing="ij"), -1).reshape(-1, 3)
    lines = []
    for k, place in enumerate(grid):
        first = oxygen[k]
        molecule = positions[first : first + 3] - positions[first]
        molecule -= length * np.round(molecule / length)
        for kind, position in zip(types[first : first + 3], place + molecule, strict=True):
            lines.append(f"{len(lines) + 1} {kind} " + " ".join(f"{x:.8f}" for x in position % EDGE))
    head = f"64 waters\n\n{len(lines)} atoms\n2 atom types\n\n" + "".join(f"0.0 {EDGE} {a}lo {a}hi\n" for a in "xyz")
    path.write_text(head + "\nMasses\n\n1 1.008\n2 15.999\n\nAtoms # atomic\n\n" + "\n".join(lines) + "\n")


def read_energy(log: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time (ps), total energy (µeV/atom, from the first), temperature (K)."""
    rows = []
    for line in log.read_text().splitlines():
        words = line.split()
        if len(words) == 5 and words[0].isdigit():
            rows.append([float(word) for word in words])
    table = np.array(rows)
    time = (table[:, 0] - table[0, 0]) * 0.0005
    return time, (table[:, 3] - table[0, 3]) / (3 * MOLECULES) * 1e6, table[:, 1]


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("nve_drift"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--picoseconds", type=float, default=2.0)
    parser.add_argument("--warm-picoseconds", type=float, default=1.0)
    parser.add_argument("--options", default="", help="keywords of the pair style")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_box(arguments.folder / "box.data")
    script = SCRIPT.format(
        model=arguments.model.resolve(),
        options=arguments.options,
        warm=round(arguments.warm_picoseconds / 0.0005),
        steps=round(arguments.picoseconds / 0.0005),
    )
    (arguments.folder / "in.nve").write_text(script)
    bin_folder = Path(sys.executable).parent
    command = [bin_folder / "mpiexec", "-n", str(arguments.ranks), bin_folder / "lmp", "-in", "in.nve"]
    subprocess.run(command, cwd=arguments.folder, check=True)

    time, energy, temperature = read_energy(arguments.folder / "log.nve")
    slope, offset = np.polyfit(time, energy, 1)
    blocks = [np.polyfit(t, e, 1)[0] for t, e in zip(np.array_split(time, 4), np.array_split(energy, 4), strict=True)]
    print(f"mean temperature {temperature.mean():.1f} K, scatter {np.std(energy - slope * time - offset):.2f} µeV/atom")
    print(f"drift {slope:+.2f} µeV/atom/ps over {time[-1]:.2f} ps (quarters: {', '.join(f'{b:+.1f}' for b in blocks)})")
    figure, axis = plt.subplots(figsize=(6, 3.5))
    axis.plot(time, energy, linewidth=0.7)
    axis.plot(time, slope * time + offset, "--", label=f"{slope:+.2f} µeV/atom/ps")
    axis.set(xlabel="time (ps)", ylabel="total energy (µeV/atom)", title="64 waters, NVE at 0.5 fs")
    axis.legend()
    figure.tight_layout()
    figure.savefig(arguments.folder / "nve_drift.png", dpi=150)


if __name__ == "__main__":
    main()
