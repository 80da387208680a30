# SPDX-License-Identifier: MIT
"""Section through the middle of a structure that `tessera build` wrote as extended XYZ.

python section.py output/capsid.extxyz            draws output/capsid.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from ase.io import read

mpl.use("Agg")
import matplotlib.pyplot as plt

#: Å, thickness of the section.
THICKNESS = 6.0
WATER_ATOMS = 3


def main() -> None:
    """Draw water, molecules of the shell, and ions in three colours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("structure", type=Path)
    path = parser.parse_args().structure
    atoms = read(path)
    sizes = np.bincount(atoms.arrays["molecule"])[atoms.arrays["molecule"]]
    middle = np.abs(atoms.positions[:, 2] - atoms.cell[2, 2] / 2) < THICKNESS / 2
    figure, axes = plt.subplots(figsize=(5, 5))
    for label, kind, color, area in (
        ("water", sizes == WATER_ATOMS, "lightskyblue", 3),
        ("shell", sizes > WATER_ATOMS, "firebrick", 10),
        ("ions", sizes == 1, "black", 25),
    ):
        x, y, _ = atoms.positions[kind & middle].T
        axes.scatter(x, y, s=area, c=color, label=label, linewidths=0)
    axes.set(xlabel="x (Å)", ylabel="y (Å)", title=f"{THICKNESS:g} Å through the middle", aspect="equal")
    axes.legend(loc="upper right")
    figure.tight_layout()
    figure.savefig(path.with_suffix(".png"), dpi=100)
    print(f"plot: {path.with_suffix('.png')}")


if __name__ == "__main__":
    main()
