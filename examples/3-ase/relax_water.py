# SPDX-License-Identifier: MIT
"""Relax a water dimer, then compare its forces with differences of the energy.

python relax_water.py model.pt2
"""

from __future__ import annotations

import sys

import numpy as np
from ase import Atoms
from ase.build import molecule
from ase.optimize import BFGS

from tessera import TesseraCalculator


def main() -> None:
    """Run the lesson."""
    dimer: Atoms = molecule("H2O")
    other = molecule("H2O")
    other.rotate(90, "x")
    other.translate([0.0, 0.0, -2.9])
    dimer += other
    dimer.calc = TesseraCalculator(sys.argv[1])
    apart = molecule("H2O")
    apart.calc = TesseraCalculator(sys.argv[1])

    BFGS(dimer, logfile=None).run(fmax=0.01, steps=200)
    BFGS(apart, logfile=None).run(fmax=0.01, steps=200)
    binding = dimer.get_potential_energy() - 2 * apart.get_potential_energy()
    print(f"energy of the dimer  {dimer.get_potential_energy():.6f} eV")
    print(f"binding energy       {1000 * binding:.1f} meV")
    print(f"O-O distance         {dimer.get_distance(0, 3):.3f} Å")

    dimer.positions[0, 2] += 0.05  # Å; off the minimum, where no force is zero
    step = 5e-3  # Å; the bundled artifact computes its network in float32, so a smaller step drowns in rounding
    force = dimer.get_forces()[0, 2]
    energies = []
    for sign in (1, -1):
        moved = dimer.copy()
        moved.calc = dimer.calc
        moved.positions[0, 2] += sign * step
        energies.append(moved.get_potential_energy())
    difference = -(energies[0] - energies[1]) / (2 * step)
    print(f"force on atom 0, z   {force:+.4f} eV/Å, by differences {difference:+.4f} eV/Å")
    if not np.isclose(force, difference, atol=2e-3):
        sys.exit("the force is not the gradient of the energy")


if __name__ == "__main__":
    main()
