# SPDX-License-Identifier: MIT
"""Formal charges of a solute, from the hydrogens that it has.

The rule: a residue's heavy atoms fix the formula of its neutral form, and its charge is the number of its hydrogens
minus those of the formula: lysine with NH3+ has one more (+1), aspartate one fewer (-1), histidine with both N-H one
more (+1). A first residue has one hydrogen more in its neutral form (NH2), and so has a last residue that ends with OXT
(COOH). Cysteine without hydrogen at the sulfur is a thiolate (-1), unless its sulfur is bonded to another (0).
"""

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from ase.data import atomic_numbers, chemical_symbols

from tessera.build.molecule import ION_CHARGES, Molecule
from tessera.build.pairs import PointGrid
from tessera.commands import CommandError


@dataclass(frozen=True)
class Residue:
    """A residue inside a chain: formula of the neutral form, charges it may have, the atom that carries the charge."""

    formula: str
    charges: tuple[int, ...] = (0,)
    site: str = "CA"


RESIDUES = {
    "GLY": Residue("C2H3NO"),
    "ALA": Residue("C3H5NO"),
    "SER": Residue("C3H5NO2"),
    "THR": Residue("C4H7NO2"),
    "CYS": Residue("C3H5NOS", (-1, 0), "SG"),
    "VAL": Residue("C5H9NO"),
    "LEU": Residue("C6H11NO"),
    "ILE": Residue("C6H11NO"),
    "MET": Residue("C5H9NOS"),
    "PRO": Residue("C5H7NO"),
    "PHE": Residue("C9H9NO"),
    "TYR": Residue("C9H9NO2", (-1, 0), "OH"),
    "TRP": Residue("C11H10N2O"),
    "ASP": Residue("C4H5NO3", (-1, 0), "CG"),
    "GLU": Residue("C5H7NO3", (-1, 0), "CD"),
    "ASN": Residue("C4H6N2O2"),
    "GLN": Residue("C5H8N2O2"),
    "LYS": Residue("C6H12N2O", (0, 1), "NZ"),
    "ARG": Residue("C6H12N4O", (0, 1), "CZ"),
    "HIS": Residue("C6H7N3O", (0, 1), "CE1"),
    "ACE": Residue("C2H3O"),
    "NME": Residue("CH4N"),
    "NH2": Residue("H2N"),
}
#: Other names of the same heavy atoms, as force fields write them.
ALIASES = {
    **dict.fromkeys(("HID", "HIE", "HIP", "HSD", "HSE", "HSP"), "HIS"),
    **dict.fromkeys(("CYX", "CYM", "CYS2"), "CYS"),
    "ASH": "ASP",
    "GLH": "GLU",
    "LYN": "LYS",
    "NMA": "NME",
    "NHE": "NH2",
    "ILEU": "ILE",
}
CAPS = frozenset({"ACE", "NME", "NH2"})
#: Å, longest peptide bond and sulfur-sulfur bond that count as bonds.
PEPTIDE_BOND, DISULFIDE_BOND = 1.7, 2.5
#: e, largest charge of one atom (int8).
MOST_CHARGE = 127
HOW_TO_ADD = (
    "Tessera does not add atoms. Add them with a tool such as PDBFixer (pdbfixer in.pdb --add-atoms=all --ph=7 "
    "--output=out.pdb), reduce (reduce -build in.pdb > out.pdb) or gemmi (gemmi h in.cif out.cif), and build from its "
    "output"
)


def formal_charges(molecule: Molecule, stated: int | None = None) -> np.ndarray:
    """Charge of each atom, [N], int8, e: that of a residue sits on one atom, those of the ends on N and OXT.

    Args:
        molecule: the solute.
        stated: total charge, e; needed where residues are unknown, of which the first gets what is left of it. Known
            residues are checked all the same.

    Raises:
        CommandError: hydrogens or heavy atoms are missing, a residue is unknown and no charge stated (the residue is
            named), or the stated charge is not that of known residues.
    """
    charges = np.zeros(len(molecule.numbers), np.int64)
    starts, bridged = chain_starts(molecule), disulfides(molecule)
    bounds = np.searchsorted(molecule.residues, np.arange(len(molecule.residue_names) + 1))
    unknown = []
    for index in range(len(molecule.residue_names)):
        rows = np.arange(bounds[index], bounds[index + 1])
        if not is_known(molecule, index, rows):
            unknown.append(index)
            continue
        for row, charge in residue_charges(molecule, index, rows, index in starts, index in bridged):
            charges[row] += charge
    if stated is None and unknown:
        raise CommandError(
            f"{molecule.residue_labels[unknown[0]]}: expected one of the 20 amino acids, a cap (ACE, NME, NH2) or an "
            "ion of one atom; state the solute's total charge with --charge to use other residues"
        )
    rest = 0 if stated is None else stated - int(charges.sum())
    if rest and not unknown:
        raise CommandError(f"--charge: expected {stated - rest:+d} e, which the hydrogens say, found {stated:+d} e")
    if abs(rest) > MOST_CHARGE:
        raise CommandError(f"--charge: expected at most {MOST_CHARGE} e on other residues, found {rest:+d} e")
    if rest:
        charges[bounds[unknown[0]]] = rest
    return charges.astype(np.int8)


def is_known(molecule: Molecule, index: int, rows: np.ndarray) -> bool:
    """Whether a residue is in the table, or an ion of one atom."""
    name = molecule.residue_names[index]
    return ALIASES.get(name, name) in RESIDUES or (len(rows) == 1 and name.strip("+-") in ION_CHARGES)


def residue_charges(
    molecule: Molecule, index: int, rows: np.ndarray, starts_chain: bool, bridged: bool
) -> list[tuple[int, int]]:
    """Rows of one residue that carry a charge, with it."""
    label, name = molecule.residue_labels[index], molecule.residue_names[index]
    names = {molecule.atom_names[row]: int(row) for row in rows}
    symbols = Counter(chemical_symbols[number] for number in molecule.numbers[rows])
    if len(rows) == 1 and name.strip("+-") in ION_CHARGES:
        return [(int(rows[0]), ION_CHARGES[name.strip("+-")])]
    name = ALIASES.get(name, name)
    residue = RESIDUES[name]
    neutral = parse_formula(residue.formula)
    ends_chain = "OXT" in names and name not in CAPS
    first = starts_chain and name not in CAPS
    neutral += Counter({"O": ends_chain, "H": ends_chain + first - bridged})
    check_heavy_atoms(label, symbols, neutral)
    excess = symbols["H"] - neutral["H"]
    return distribute(
        label, residue, excess, names, first=first, last=ends_chain, bridged=bridged, hydrogens=symbols["H"]
    )


def distribute(
    label: str,
    residue: Residue,
    excess: int,
    names: dict[str, int],
    *,
    first: bool,
    last: bool,
    bridged: bool,
    hydrogens: int,
) -> list[tuple[int, int]]:
    """Divide the surplus of hydrogens over side chain and ends: the charged forms of neutral pH first."""
    sides = (0,) if bridged else residue.charges
    forms = [(side, n, c) for side in sides for n in ((1, 0) if first else (0,)) for c in ((-1, 0) if last else (0,))]
    fitting = [form for form in forms if sum(form) == excess]
    if not fitting:
        low, high = min(map(sum, forms)), max(map(sum, forms))
        expected = (
            f"{hydrogens - excess + low} to {hydrogens - excess + high}" if low < high else hydrogens - excess + low
        )
        ends = " as the first of its chain" if first else " as the last of its chain" if last else ""
        raise CommandError(f"{label}: expected {expected} hydrogens{ends}, found {hydrogens}. {HOW_TO_ADD}")
    # Ends are charged at neutral pH; what is left says the form of the side chain.
    side, n, c = max(fitting, key=lambda form: (form[1] - form[2], -abs(form[0])))
    sites = ((residue.site, side), ("N", n), ("OXT", c))
    return [(names[site], charge) for site, charge in sites if charge]


def check_heavy_atoms(label: str, found: Counter, neutral: Counter) -> None:
    """Refuse a residue with missing or additional heavy atoms."""
    elements = sorted((set(found) | set(neutral)) - {"H"})
    if any(found[symbol] != neutral[symbol] for symbol in elements):
        expected, present = (" ".join(f"{s}{counts[s]}" for s in elements) for counts in (neutral, found))
        raise CommandError(f"{label}: expected the heavy atoms {expected}, found {present}. {HOW_TO_ADD}")


def parse_formula(text: str) -> Counter:
    """`C2H3NO` as numbers by element."""
    return Counter({symbol: int(count or 1) for symbol, count in re.findall(r"([A-Z][a-z]?)(\d*)", text)})


def chain_starts(molecule: Molecule) -> set[int]:
    """Residues whose N is bonded to no other residue's C: the first of a chain, or the first after a gap."""
    names = np.array(molecule.atom_names)
    nitrogens, carbons = np.flatnonzero(names == "N"), np.flatnonzero(names == "C")
    if len(nitrogens) == 0 or len(carbons) == 0:
        return {int(molecule.residues[row]) for row in nitrogens}
    pairs = contacts(molecule.positions[nitrogens], molecule.positions[carbons], PEPTIDE_BOND)
    bonded = {int(molecule.residues[nitrogens[i]]) for i, _ in pairs}  # N and C of one residue are 2.4 Å apart
    return {int(molecule.residues[row]) for row in nitrogens} - bonded


def disulfides(molecule: Molecule) -> set[int]:
    """Residues whose sulfur is bonded to that of another residue."""
    sulfurs = np.flatnonzero(molecule.numbers == atomic_numbers["S"])
    pairs = contacts(molecule.positions[sulfurs], molecule.positions[sulfurs], DISULFIDE_BOND) if len(sulfurs) else []
    return {int(molecule.residues[sulfurs[i]]) for i, j in pairs if i != j}


def contacts(points: np.ndarray, others: np.ndarray, cutoff: float) -> list[tuple[int, int]]:
    """Pairs within a cutoff, without a box."""
    found = PointGrid(others, np.eye(3), (False, False, False), cutoff).pairs(points)
    return [pair for chunk in found for pair in zip(chunk.i.tolist(), chunk.j.tolist(), strict=True)]
