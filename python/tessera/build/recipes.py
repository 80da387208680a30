# SPDX-License-Identifier: MIT
"""The four systems that `tessera build` makes."""

from dataclasses import dataclass

import numpy as np

from tessera.build.molecule import Molecule
from tessera.build.residues import formal_charges
from tessera.build.shell import make_shell, principal_axes
from tessera.build.solvate import CHLORIDE, POTASSIUM, ion_counts, place_ions, remove_clashes
from tessera.build.system import Kind, System, assemble
from tessera.build.water import fill_with_water, format_edges, tile_density
from tessera.commands import CommandError

#: Atoms of water per Å^3 in the tile: a number of atoms gives a box edge.
ATOMS_PER_A3 = 3 * tile_density()


@dataclass(frozen=True)
class Salt:
    """Concentration, mol per litre of water, and the least distance of an ion to another or to the solute, Å."""

    molar: float
    distance: float


def box_edges(edge: list[float] | None, atoms: float | None) -> np.ndarray:
    """Edges [3], Å, from one or three numbers, or from a number of atoms at the density of water.

    Raises:
        CommandError: neither or malformed.
    """
    if edge is not None:
        if len(edge) not in (1, 3) or not all(np.isfinite(value) and value > 0 for value in edge):
            raise CommandError(f"--edge: expected one or three lengths above 0 Å, found {edge}")
        return np.array(edge * 3 if len(edge) == 1 else edge, float)
    if atoms is None or not (np.isfinite(atoms) and atoms >= 3):
        raise CommandError(f"expected --edge LENGTH[,LENGTH,LENGTH] or --atoms COUNT of at least 3, found {atoms}")
    return np.full(3, (atoms / ATOMS_PER_A3) ** (1 / 3))


def build_solution(edges: np.ndarray, salt: Salt, seed: int) -> System:
    """Water, with K+ and Cl- if the concentration is above 0."""
    random = np.random.default_rng(seed)
    return add_solvent(None, edges, salt, 0, random)


def build_protein(
    molecule: Molecule, charge: int | None, pad: float, salt: Salt, *, cube: bool, edge: np.ndarray | None, seed: int
) -> System:
    """One solute in water and ions; its long axis along x.

    Args:
        molecule: the solute.
        charge: its total charge, e, for residues outside the table; none: all of it follows from the hydrogens.
        pad: Å of water between the solute and the box, on each side.
        salt: on top of the ions that neutralise.
        cube: equal edges, so that the solute may turn; else the box follows its extent.
        edge: [3], Å, instead of `pad`.
        seed: of the ions' places.
    """
    random = np.random.default_rng(seed)
    positions = principal_axes(molecule.positions - molecule.positions.mean(axis=0))
    extent = np.ptp(positions, axis=0)
    edges = extent + 2 * pad if edge is None else edge
    edges = np.full(3, edges.max()) if cube and edge is None else edges
    if (edges <= extent).any():
        raise CommandError(
            f"box: expected more than the solute's extent, {format_edges(extent)}, found {format_edges(edges)}"
        )
    placed = positions - (positions.min(axis=0) + positions.max(axis=0)) / 2 + edges / 2
    solute = as_solute(molecule, placed[None], edges, charge)
    return add_solvent(solute, edges, salt, int(solute.charges.sum(dtype=int)), random)


def build_capsid(
    molecule: Molecule,
    charge: int | None,
    copies: int | None,
    gap: float,
    pad: float,
    salt: Salt,
    *,
    edge: np.ndarray | None,
    atoms: float | None,
    seed: int,
) -> tuple[System, str]:
    """Place copies on a shell, water inside and outside.

    Args:
        molecule: one subunit (an asymmetric unit, if `copies` is none).
        charge: of one subunit, e, for residues outside the table; none: it follows from the hydrogens.
        copies: a multiple of 60, placed on an icosahedral shell; none: the operators of the file.
        gap: Å between heavy atoms of two copies on the shell.
        pad: Å of water outside the shell, on each side.
        salt: on top of the ions that neutralise.
        edge: [3], Å, instead of `pad`.
        atoms: number of atoms to come near to, where the shell and `pad` leave room.
        seed: of the shell and of the ions' places.

    Returns:
        The system and a line about the shell.
    """
    random = np.random.default_rng(seed)
    if copies is None:
        if len(molecule.operators) < 2:
            raise CommandError(
                "--assembly: expected the operators of an assembly in the file (PDB: REMARK 350 BIOMT, mmCIF: "
                "_pdbx_struct_oper_list), found none; use --copies for an icosahedral shell"
            )
        rotations, moves = molecule.operators[:, :, :3], molecule.operators[:, :, 3]
        shell = np.einsum("kab,nb->kna", rotations, molecule.positions) + moves[:, None]
        shell -= shell.mean(axis=(0, 1))
    else:
        shell = make_shell(molecule.positions, molecule.numbers > 1, copies, gap, random).positions
    radii = np.linalg.norm(shell, axis=2)
    extent = np.full(3, 2 * np.abs(shell).max())
    edges = extent + 2 * pad if edge is None else edge
    if atoms is not None:
        edges = np.maximum(edges, box_edges(None, atoms))
    if (edges <= extent).any():
        raise CommandError(
            f"box: expected more than the shell's extent, {format_edges(extent)}, found {format_edges(edges)}"
        )
    solute = as_solute(molecule, shell + edges / 2, edges, charge)
    system = add_solvent(solute, edges, salt, int(solute.charges.sum(dtype=int)), random)
    return system, f"shell          {len(shell)} copies, atoms {radii.min():.1f} to {radii.max():.1f} Å from the centre"


def as_solute(molecule: Molecule, positions: np.ndarray, edges: np.ndarray, charge: int | None) -> System:
    """Make the solute of a system from copies of a molecule at positions [copies, N, 3], Å."""
    copies = len(positions)
    charges = formal_charges(molecule, charge)
    chains = molecule.chains + 1
    molecules = (np.arange(copies)[:, None] * chains.max() + chains).ravel()
    return System(
        np.tile(molecule.numbers, copies),
        positions.reshape(-1, 3),
        edges,
        molecules.astype(np.int32),
        np.full(copies * len(molecule.numbers), Kind.SOLUTE, np.uint8),
        np.tile(charges, copies),
        molecule.labels,
    )


def add_solvent(
    solute: System | None, edges: np.ndarray, salt: Salt, charge: int, random: np.random.Generator
) -> System:
    """Fill what the solute leaves free with water; ions replace waters."""
    waters = fill_with_water(edges)
    positions = np.empty((0, 3)) if solute is None else solute.positions
    if solute is not None:
        waters = remove_clashes(waters, positions, solute.numbers > 1, edges)
    counts = ion_counts(len(waters), salt.molar, charge)
    waters, cations, anions = place_ions(waters, positions, edges, counts, salt.distance, random)
    return assemble(edges, solute, waters, {CHLORIDE: (-1, anions), POTASSIUM: (1, cations)})
