# SPDX-License-Identifier: MIT
"""`tessera info model.pt2`: the passport, readably."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tessera.commands import CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of `tessera info`."""
    parser.add_argument("artifact", type=Path, help="file that tessera-export wrote (.pt2)")
    parser.add_argument("--json", action="store_true", help="print the passport as it is stored")


def run(arguments: argparse.Namespace) -> int:
    """Print the passport; returns the exit code.

    Raises:
        CommandError: the file is missing, no artifact, or cannot run here; the text says why.
    """
    passport = read_passport(arguments.artifact)
    if arguments.json:
        text = json.dumps(passport, indent=2)
    else:
        text = "\n".join(f"{label:<22}{value}" for label, value in describe(arguments.artifact, passport))
    sys.stdout.write(text + "\n")
    return 0


def read_passport(path: Path) -> dict[str, Any]:
    """Read a passport with the reader of the engine, which also checks that the artifact can run here.

    Raises:
        CommandError: with the reader's text.
    """
    from tessera import _C  # noqa: PLC0415 (loads libtorch)

    try:
        return json.loads(_C.read_passport(str(path)).json)
    except RuntimeError as error:
        raise CommandError(str(error)) from error


def describe(path: Path, passport: dict[str, Any]) -> list[tuple[str, str]]:
    """Turn a passport into lines of (label, text)."""
    stages = [f"{stage['cutoff']:g} Å (list {stage['list']})" for stage in passport["stages"]]
    references = zip(passport["elements"], passport["reference_energies"], strict=True)
    uses_charge = "yes" if passport["uses_charge"] else "no"
    low, high = passport["charge_range"]
    low_spin, high_spin = passport["multiplicity_range"]
    return [
        ("file", f"{path} ({path.stat().st_size / 1e6:.1f} MB), format {passport['format']}"),
        ("elements", " ".join(passport["elements"])),
        ("cutoffs", ", ".join(f"{cutoff:g} Å" for cutoff in passport["cutoffs"])),
        ("stages", " -> ".join(stages)),
        ("receptive radius", f"{passport['receptive_radius']:g} Å"),
        ("exchanges per pass", str(passport["num_messages"])),
        ("layers, channels", f"{passport['num_layers']}, {passport['channels']}"),
        ("network numbers", f"{passport['dtype']}, matrix products {passport['matmul']}"),
        ("repulsion", describe_repulsion(passport["model_config"].get("repulsion"))),
        ("attention", f"{passport['kernels']} kernels"),
        ("edge networks", describe_tables(passport["tables"])),
        ("recomputed", ", ".join(passport["recompute"]) or "nothing"),
        ("memory", describe_memory(passport["memory"], passport["cutoffs"])),
        ("largest step", describe_largest_step(passport.get("largest_step"), passport["cutoffs"])),
        ("device", f"{passport['device']} ({passport['device_capability']})"),
        ("torch", passport["torch_version"]),
        ("charge", f"{low} to {high} e; used by the model: {uses_charge}"),
        ("multiplicity", f"{low_spin} to {high_spin}"),
        ("units", f"{passport['energy_unit']}, {passport['length_unit']}"),
        ("reference energies", ", ".join(f"{symbol} {energy:.6f}" for symbol, energy in references) + " eV"),
        ("weights", f"sha256 {passport['weights_sha256']}"),
        ("written by", f"tessera {passport['tessera_version']}"),
    ]


def describe_repulsion(found: dict[str, float] | None) -> str:
    """Say within which distances atoms are kept apart by a fixed potential."""
    if found is None:
        return "none"
    return f"screened nuclei, full below {found['inner']:g} and none beyond {found['outer']:g} sums of covalent radii"


def describe_tables(tables: dict[str, Any] | None) -> str:
    """Say how edge networks are evaluated."""
    if tables is None:
        return "exact"
    return (
        f"tables, {tables['intervals_per_width']} intervals in a width of the radial basis, forces within "
        f"{tables['force_error']:.1e} eV/Å"
    )


def describe_largest_step(largest: dict[str, Any] | None, cutoffs: list[float]) -> str:
    """Say how much a rank may have in one step; artifacts for a CPU, and older ones, have no bound."""
    if largest is None:
        return "any"
    terms = [f"{largest['rows'] - 1} atoms"]
    for cutoff, halo_rows, edges in zip(cutoffs, largest["halo_rows"], largest["edges"], strict=True):
        terms.append(f"{halo_rows} halo rows and {edges} edges of {cutoff:g} Å")
    return f"{', '.join(terms)} on a rank (tessera-export --largest-step)"


def describe_memory(memory: dict[str, Any], cutoffs: list[float]) -> str:
    """Spell out the peak of one run: bytes of each atom, halo row and edge, and whatever the system."""
    origin = "measured" if memory["measured"] else "counted"
    terms = [f"{memory['bytes_per_row'] / 1e3:.1f} kB an atom"]
    for cutoff, halo, edge in zip(cutoffs, memory["bytes_per_halo_row"], memory["bytes_per_edge"], strict=True):
        terms.append(f"{halo / 1e3:.1f} kB a halo row and {edge / 1e3:.1f} kB an edge of {cutoff:g} Å")
    return f"{', '.join(terms)}, {memory['bytes'] / 1e6:.1f} MB in any case ({origin})"
