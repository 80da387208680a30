# SPDX-License-Identifier: MIT
"""Many short scripts in one start of lmp, separated by `clear`: starting ranks costs more than the steps do."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase import Atoms
from lammps_program import Finished, run_well
from water_systems import MASSES, atom_ids, water, write_data

#: 27 waters: on 4 ranks each brick holds a few atoms, and the model's receptive radius spans the box.
WATERS = water((3, 3, 3), seed=1)

CASE = """clear
print "case: {name}"
units {units}
atom_style {style}
{before}
read_data {data}
pair_style tessera {options}
{coeff}
{after}
velocity all create 300.0 8123 loop all
timestep {timestep}
fix all all nve
thermo 1
thermo_style custom step pe etotal pxx pyy pzz pxy pxz pyz
thermo_modify format float %.17g
{run}
write_dump all custom {name}.dump id type proc x y z fx fy fz modify sort id format float %.17g
"""


@dataclass(frozen=True)
class Case:
    """A script that differs from the plain one by some commands; `coeff` may name {model}."""

    before: str = ""  # before read_data
    after: str = "neigh_modify every 1 delay 0 check no"  # after pair_coeff; LAMMPS migrates atoms in every step
    run: str = "run 4"
    style: str = "atomic"
    data: str = "box.data"
    options: str = ""
    coeff: str = "pair_coeff * * {model} H O"
    units: str = "metal"

    def script(self, name: str, model: Path) -> str:
        timestep = 0.0005 if self.units == "metal" else 0.5
        return CASE.format(
            name=name, units=self.units, style=self.style, before=self.before, data=self.data, options=self.options,
            coeff=self.coeff.format(model=model), after=self.after, timestep=timestep, run=self.run,
        )  # fmt: skip


@dataclass
class Outcome:
    """What a case printed: rows by step [pe, etotal, pxx, pyy, pzz, pxy, pxz, pyz], and forces by id, [atoms, 3]."""

    text: str
    rows: dict[int, np.ndarray]
    forces: np.ndarray
    ranks: np.ndarray  # of each atom


def thermo_rows(text: str) -> dict[int, np.ndarray]:
    """Rows of the thermo tables that CASE asks for, by step; a step that is printed twice must say the same."""
    rows: dict[int, np.ndarray] = {}
    for block in re.findall(r"^ *Step +PotEng +TotEng +Pxx.*?\n(.*?)^Loop time", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if re.match(r"\s*\d+\s", line):
                step, *values = (float(word) for word in line.split())
                if int(step) in rows:
                    np.testing.assert_allclose(values, rows[int(step)], rtol=1e-6, atol=1e-3)
                rows[int(step)] = np.array(values)
    return rows


def run_cases(cases: dict[str, Case], folder: Path, model: Path, *, ranks: int) -> dict[str, Outcome]:
    """Run all cases in one program."""
    script = "".join(case.script(name, model) for name, case in cases.items())
    done = run_well(script, folder, ranks=ranks)
    parts = re.split(r"^case: (\S+)$", done.text, flags=re.MULTILINE)[1:]
    assert parts[::2] == list(cases)
    outcomes = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        frame = Finished(0, text, done.dumps).dump(f"{name}.dump")[0]
        outcomes[name] = Outcome(text, thermo_rows(text), frame[:, 6:9], frame[:, 2].astype(int))
    return outcomes


def write_molecules(path: Path, atoms: Atoms, style: str) -> Path:
    """Write waters as molecules with bonds and angles; ids are those of write_data().

    Args:
        style: "full", "molecular" or "charge" (which has no bonds).
    """
    columns = {"full": "{molecule} {kind} {charge}", "molecular": "{molecule} {kind}", "charge": "{kind} {charge}"}[
        style
    ]
    ids, num_molecules, has_bonds = atom_ids(atoms), len(atoms) // 3, style != "charge"
    lines = ["water", "", f"{len(atoms)} atoms", "2 atom types"]
    if has_bonds:
        lines += [f"{2 * num_molecules} bonds", "1 bond types", f"{num_molecules} angles", "1 angle types"]
    lines += ["", *(f"0.0 {atoms.cell.array[k, k].item()!r} {axis}lo {axis}hi" for k, axis in enumerate("xyz"))]
    lines += ["", "Masses", "", f"1 {MASSES['H']}", f"2 {MASSES['O']}", "", f"Atoms # {style}", ""]
    for k, (symbol, position) in enumerate(zip(atoms.symbols, atoms.positions, strict=True)):
        kind, charge = (1, 0.41) if symbol == "H" else (2, -0.82)
        words = columns.format(molecule=k // 3 + 1, kind=kind, charge=charge)
        lines.append(f"{ids[k]} {words} " + " ".join(map(repr, position.tolist())))
    if has_bonds:
        pairs = [(ids[3 * m], ids[3 * m + h]) for m in range(num_molecules) for h in (1, 2)]
        lines += ["", "Bonds", "", *(f"{n} 1 {i} {j}" for n, (i, j) in enumerate(pairs, 1))]
        triples = [(ids[3 * m + 1], ids[3 * m], ids[3 * m + 2]) for m in range(num_molecules)]
        lines += ["", "Angles", "", *(f"{n} 1 {i} {j} {k}" for n, (i, j, k) in enumerate(triples, 1))]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_inputs(folder: Path) -> None:
    """Write the data files that cases name."""
    write_data(folder / "box.data", WATERS, ["H", "O"])
    write_data(folder / "three.data", WATERS, ["H", "C", "O"], masses={**MASSES, "C": 12.011})
    for style in ("full", "molecular", "charge"):
        write_molecules(folder / f"{style}.data", WATERS, style)
