# SPDX-License-Identifier: MIT
"""`tessera build`: water, aqueous KCl, a protein in water, a capsid, as files for LAMMPS and ASE."""

import argparse
import logging
import sys
from pathlib import Path

import numpy as np

from tessera.build.overlaps import closest_contact
from tessera.build.read_pdb import read_molecule
from tessera.build.recipes import Salt, box_edges, build_capsid, build_protein, build_solution
from tessera.build.report import describe
from tessera.build.system import System, with_types
from tessera.build.write import STYLES, write, writer_of
from tessera.commands import CommandError

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of `tessera build`."""
    kinds = parser.add_subparsers(dest="system", required=True, metavar="system")
    water = kinds.add_parser("water", help="a box of water")
    add_box(water, required=True)
    kcl = kinds.add_parser("kcl", help="a box of aqueous KCl")
    add_box(kcl, required=True)
    add_salt(kcl, 1.0)
    protein = kinds.add_parser("protein", help="a protein with hydrogens in water, neutralised")
    add_solute(protein)
    protein.add_argument("--edge", type=lengths, metavar="Å", help="box edge, one or three numbers, instead of --pad")
    protein.add_argument("--pad", type=float, default=8.0, help="Å of water on each side (default 8)")
    protein.add_argument("--box", choices=("cube", "fitted"), default="cube", help="fitted: edges follow the protein")
    add_salt(protein, 0.15)
    capsid = kinds.add_parser("capsid", help="copies of a protein on a shell, water inside and outside")
    add_solute(capsid)
    symmetry = capsid.add_mutually_exclusive_group()
    symmetry.add_argument(
        "--copies", type=int, default=60, help="a multiple of 60, on an icosahedral shell (default 60)"
    )
    symmetry.add_argument("--assembly", action="store_true", help="use the operators in the file instead (BIOMT)")
    capsid.add_argument("--gap", type=float, default=3.2, help="Å between heavy atoms of two copies (default 3.2)")
    capsid.add_argument("--pad", type=float, default=5.0, help="Å of water outside the shell (default 5)")
    add_box(capsid, required=False)
    add_salt(capsid, 0.15)
    for kind in (water, kcl, protein, capsid):
        kind.add_argument(
            "-o", "--output", type=Path, action="append", required=True, help=".data or .extxyz, repeatable"
        )
        kind.add_argument("--style", choices=STYLES, default="atomic", help="atom_style of .data (default atomic)")
        kind.add_argument("--types", help="elements of the atom types, such as H,C,N,O,S,Cl,K (default: those present)")
        kind.add_argument("--seed", type=int, default=1, help="the same seed gives the same file (default 1)")


def add_box(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Size of the box."""
    size = parser.add_mutually_exclusive_group(required=required)
    size.add_argument("--edge", type=lengths, metavar="Å", help="one number, or three separated by commas")
    size.add_argument("--atoms", type=float, metavar="COUNT", help="about so many atoms")


def add_salt(parser: argparse.ArgumentParser, molar: float) -> None:
    """Ions."""
    parser.add_argument("--molar", type=float, default=molar, help=f"mol KCl per litre of water (default {molar:g})")
    parser.add_argument("--ion-distance", type=float, default=4.0, help="Å between ions, and to the solute (default 4)")


def add_solute(parser: argparse.ArgumentParser) -> None:
    """Where the protein is from."""
    parser.add_argument("structure", type=Path, help="PDB or mmCIF with all hydrogens (.pdb, .cif, .gz of them)")
    parser.add_argument(
        "--charge", type=int, help="total charge, e, where residues are not amino acids (of these: from hydrogens)"
    )


def lengths(text: str) -> list[float]:
    """Read numbers separated by commas."""
    return [float(word) for word in text.split(",")]


def run(arguments: argparse.Namespace) -> int:
    """Build, check, write, report; returns the exit code.

    Raises:
        CommandError: an argument or file is no good, or atoms overlap.
    """
    for path in arguments.output:
        writer_of(path, arguments.style)  # a name that cannot be written is refused before the work
    if arguments.seed < 0:
        raise CommandError(f"--seed: expected a number of at least 0, found {arguments.seed}")
    system, notes = make(arguments)
    if arguments.types is not None:
        system = with_types(system, arguments.types.split(","))
    contact = closest_contact(system)
    title = f"tessera build {arguments.system}, seed {arguments.seed}: {len(system.numbers)} atoms"
    for path in arguments.output:
        write(system, title, path, arguments.style)
    report = [*notes, *describe(system, contact, np.random.default_rng(arguments.seed))]
    report += [f"wrote          {path}" for path in arguments.output]
    sys.stdout.write("\n".join(report) + "\n")
    return 0


def make(arguments: argparse.Namespace) -> tuple[System, list[str]]:
    """Build the system that was asked for, with lines about it."""
    edge = box_edges(arguments.edge, None) if arguments.edge is not None else None
    if arguments.system == "water":
        return build_solution(box_edges(arguments.edge, arguments.atoms), Salt(0.0, 4.0), arguments.seed), []
    if not arguments.ion_distance > 0:
        raise CommandError(f"--ion-distance: expected a length above 0 Å, found {arguments.ion_distance:g}")
    salt = Salt(arguments.molar, arguments.ion_distance)
    if arguments.system == "kcl":
        return build_solution(box_edges(arguments.edge, arguments.atoms), salt, arguments.seed), []
    if not arguments.pad >= 0:
        raise CommandError(f"--pad: expected at least 0 Å, found {arguments.pad:g}")
    molecule = read_molecule(arguments.structure)
    notes = [
        f"solute         {len(molecule.numbers)} atoms, {len(molecule.residue_names)} residues of {arguments.structure}"
    ]
    if molecule.num_waters:
        notes.append(f"left out       {molecule.num_waters} waters of the file; the box has its own")
    if arguments.system == "protein":
        cube = arguments.box == "cube"
        return build_protein(
            molecule, arguments.charge, arguments.pad, salt, cube=cube, edge=edge, seed=arguments.seed
        ), notes
    if not arguments.gap > 0:
        raise CommandError(f"--gap: expected a length above 0 Å, found {arguments.gap:g}")
    copies = None if arguments.assembly else arguments.copies
    system, note = build_capsid(
        molecule, arguments.charge, copies, arguments.gap, arguments.pad, salt,
        edge=edge, atoms=arguments.atoms, seed=arguments.seed,
    )  # fmt: skip
    return system, [*notes, note]
