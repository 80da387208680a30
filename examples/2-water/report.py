# SPDX-License-Identifier: MIT
"""Report of in.water: speed, energy drift, and the oxygen-oxygen distribution as a plot.

python report.py output            reads log.nve and water.dump, writes report.png
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
from ase.io import read

mpl.use("Agg")
import matplotlib.pyplot as plt


def read_thermo(log: Path) -> dict[str, np.ndarray]:
    """Columns of the last thermo table of a LAMMPS log."""
    lines = log.read_text().splitlines()
    first = max(k for k, line in enumerate(lines) if line.split()[:1] == ["Step"])
    names = lines[first].split()
    rows = []
    for line in lines[first + 1 :]:
        if line.startswith("Loop time"):
            break
        try:
            rows.append([float(word) for word in line.split()])
        except ValueError:
            continue  # a line of the pair style or a warning between two rows
    return dict(zip(names, np.array(rows).T, strict=True))


def nanoseconds_per_day(log: Path) -> float:
    """LAMMPS's own figure for the last run."""
    return float(re.findall(r"Performance: ([0-9.eE+-]+) ns/day", log.read_text())[-1])


def radial_distribution(dump: Path, oxygen_type: int, bin_width: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """g(r) of oxygen up to half the box, averaged over the frames of a dump; r in Å."""
    frames = read(dump, index=":", format="lammps-dump-text")
    edges = np.arange(0, frames[0].cell.lengths().min() / 2, bin_width)
    counts = np.zeros(len(edges) - 1)
    for frame in frames:
        oxygen = frame[frame.numbers == oxygen_type]
        lengths = oxygen.cell.lengths()
        vectors = oxygen.positions[:, None] - oxygen.positions[None]
        vectors -= lengths * np.round(vectors / lengths)
        distances = np.linalg.norm(vectors, axis=2)[np.triu_indices(len(oxygen), 1)]
        counts += np.histogram(distances, edges)[0]
    shells = 4 / 3 * np.pi * np.diff(edges**3)
    pairs = len(oxygen) * (len(oxygen) - 1) / 2
    return (edges[1:] + edges[:-1]) / 2, counts * frames[0].cell.volume / (shells * pairs * len(frames))


def main() -> None:
    """Print the report and draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--timestep", type=float, default=0.5, help="fs")
    parser.add_argument("--atoms", type=int, default=648)
    arguments = parser.parse_args()
    folder = arguments.output

    thermo = read_thermo(folder / "log.nve")
    time = (thermo["Step"] - thermo["Step"][0]) * arguments.timestep / 1000  # ps
    energy = (thermo["TotEng"] - thermo["TotEng"][0]) / arguments.atoms * 1e6  # µeV/atom
    drift, offset = np.polyfit(time, energy, 1)
    uncertainty = 2 * np.std(energy - drift * time - offset) / time[-1]  # what the scatter alone can tilt
    radii, density = radial_distribution(folder / "water.dump", oxygen_type=2)
    peak = density.argmax()

    print(f"speed                {nanoseconds_per_day(folder / 'log.nve'):.3f} ns/day")
    print(f"mean temperature     {thermo['Temp'].mean():.1f} K")
    print(f"energy drift (NVE)   {drift:+.0f} ± {uncertainty:.0f} µeV/atom/ps over {time[-1]:.2f} ps"
          + (", too short to tell it from 0" if abs(drift) < 2 * uncertainty else ""))  # fmt: skip
    print(f"O-O first peak       {density[peak]:.2f} at {radii[peak]:.2f} Å")

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5))
    left.plot(time, energy, label="total energy")
    left.plot(time, drift * time + offset, "--", label=f"{drift:+.0f} ± {uncertainty:.0f} µeV/atom/ps")
    left.set(xlabel="time (ps)", ylabel="energy (µeV/atom)", title="NVE")
    left.legend()
    right.plot(radii, density)
    right.axhline(1, color="grey", linewidth=0.5)
    right.set(xlabel="r (Å)", ylabel="g(r)", title="O-O distribution")
    figure.tight_layout()
    figure.savefig(folder / "report.png", dpi=150)
    print(f"plot                 {folder / 'report.png'}")


if __name__ == "__main__":
    main()
