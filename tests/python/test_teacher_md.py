# SPDX-License-Identifier: MIT
"""A run of the demo model's teacher ends where a chloride has reacted: what follows is no salt water."""

import sys

import numpy as np
import pytest
from ase import Atoms

from oracle_data import ROOT

sys.path.insert(0, str(ROOT / "tests" / "bench"))

from teacher_md import refuse_bonded_chloride

BOX = Atoms("ClOHKCl", [[0.2, 0, 0], [3.3, 0, 0], [2.3, 0, 0], [0, 2.9, 0], [5, 5, 5]], cell=[10.0] * 3, pbc=True)


def test_ions_may_touch_hydrogen_and_potassium():
    refuse_bonded_chloride([BOX, BOX], np.stack([BOX.positions, BOX.positions + 40.0]), 1.0)


@pytest.mark.parametrize(("atom", "name"), [(1, "O"), (3, "K"), (4, "Cl")])
def test_a_bond_is_named_through_the_faces_of_the_box_too(atom, name):
    bonded = BOX.positions.copy()
    bonded[atom] = BOX.positions[0] + [-2.1, 20.0, 0.0]
    words = rf"found chloride 1 2\.10 Å from atom {atom + 1}, {name}, of replica 2 after 1\.05 ps"
    with pytest.raises(SystemExit, match=words):
        refuse_bonded_chloride([BOX, BOX], np.stack([BOX.positions, bonded]), 1.05)
