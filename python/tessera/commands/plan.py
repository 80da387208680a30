# SPDX-License-Identifier: MIT
"""`tessera plan`: what a structure would cost each of many ranks, without running it."""

import argparse
import dataclasses
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tessera.commands import CommandError
from tessera.commands.plan_load import ModelSize, RankPlan, plan_ranks
from tessera.commands.plan_structure import Structure, make_water, read_structure

DEFAULT_RANKS = "64,128,256,512"
DEFAULT_CUTOFFS = "5,8"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of `tessera plan`."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("structure", type=Path, nargs="?", help="LAMMPS data file (.data, .data.gz) or .extxyz")
    source.add_argument("--water", type=float, metavar="ATOMS", help="a periodic cube of water of about ATOMS atoms")
    parser.add_argument("--ranks", default=DEFAULT_RANKS, help=f"numbers of ranks (default {DEFAULT_RANKS})")
    parser.add_argument("--cutoffs", help=f"Å, one a list (default {DEFAULT_CUTOFFS}, or those of --model)")
    parser.add_argument("--curve", choices=("hilbert", "morton"), default="hilbert", help="order of the cut")
    parser.add_argument("--periodic", metavar="AXES", help="periodic axes, such as xy, or none (default: the file's)")
    parser.add_argument("--model", type=Path, help="artifact that gives cutoffs, layers and message sizes")
    parser.add_argument("--layers", help="attention layers at each cutoff (default 3,1 for two cutoffs)")
    parser.add_argument("--payload", type=int, help=f"floats of a row in a message (default {ModelSize.payload})")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of the pair count")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the table")


def run(arguments: argparse.Namespace) -> int:
    """Print the table; returns the exit code.

    Raises:
        CommandError: an argument or file is no good.
    """
    ranks = parse_numbers("--ranks", arguments.ranks, int)
    size, cutoffs = read_model(arguments)
    structure = make_water(arguments.water) if arguments.water is not None else read_structure(arguments.structure)
    if arguments.periodic is not None:
        structure = dataclasses.replace(structure, periodic=parse_axes(arguments.periodic))
    with tqdm(total=1.0, desc="pairs", bar_format="{desc}: {percentage:3.0f}% |{bar}| {elapsed}<{remaining}") as bar:
        plans = plan_ranks(
            structure,
            ranks,
            cutoffs,
            size,
            curve=arguments.curve,
            num_threads=arguments.threads,
            progress=lambda part: bar.update(part - bar.n),
        )
    sys.stdout.write("\n".join([*describe(structure, arguments.curve, size), "", *tables(plans)]) + "\n")
    if arguments.plot is not None:
        from tessera.commands.plan_plot import draw  # noqa: PLC0415 (matplotlib)

        draw(plans, arguments.plot)
        sys.stdout.write(f"\nplot: {arguments.plot}\n")
    return 0


def read_model(arguments: argparse.Namespace) -> tuple[ModelSize, list[float]]:
    """Sizes and cutoffs: from the artifact if there is one, else the defaults; options win over both."""
    size, cutoffs = ModelSize(), parse_numbers("--cutoffs", arguments.cutoffs or DEFAULT_CUTOFFS, float)
    if arguments.model is not None:
        from tessera.commands.info import read_passport  # noqa: PLC0415 (loads libtorch)

        passport = read_passport(arguments.model)
        size = ModelSize.from_passport(passport)
        if arguments.cutoffs is None:
            cutoffs = passport["cutoffs"]
        elif len(cutoffs) != len(passport["cutoffs"]):
            size = dataclasses.replace(size, layers=None)
    if arguments.layers is not None:
        size = dataclasses.replace(size, layers=tuple(parse_numbers("--layers", arguments.layers, int, lowest=0)))
    if arguments.payload is not None:
        if arguments.payload < 1:
            raise CommandError(f"--payload: expected at least 1 float, found {arguments.payload}")
        size = dataclasses.replace(size, payload=arguments.payload)
    return size, cutoffs


def parse_numbers(option: str, text: str, kind: type, lowest: float = 1e-9) -> list:
    """Read numbers separated by commas, each at least `lowest`."""
    try:
        numbers = [kind(word) for word in text.split(",")]
    except ValueError as error:
        raise CommandError(f"{option}: expected numbers separated by commas, found '{text}'") from error
    if not all(np.isfinite(number) and number >= lowest for number in numbers):
        raise CommandError(f"{option}: expected numbers {'of at least' if lowest == 0 else 'above'} 0, found '{text}'")
    return numbers


def parse_axes(text: str) -> tuple[bool, bool, bool]:
    """Read `xyz`, `xy`, ... or `none`."""
    if text != "none" and not (text and set(text) <= set("xyz")):
        raise CommandError(f"--periodic: expected some of the letters x, y and z, or none, found '{text}'")
    return ("x" in text, "y" in text, "z" in text)


def describe(structure: Structure, curve: str, size: ModelSize) -> Iterable[str]:
    """Say what was cut."""
    lengths = " x ".join(f"{np.linalg.norm(vector):.1f}" for vector in structure.cell)
    axes = "".join(axis for axis, flag in zip("xyz", structure.periodic, strict=True) if flag) or "no axis"
    yield f"{len(structure.positions)} atoms in {lengths} Å, periodic along {axes}; {curve} curve"
    yield f"a row of a message: {size.payload} floats of {size.float_bytes} bytes"


def tables(plans: Sequence[RankPlan]) -> Iterable[str]:
    """One table of ranks, then one a cutoff; `max/mean` over the ranks."""
    yield "ranks it talks to, itself included, at the largest cutoff (max/mean): true, and as each filter would ask"
    filters = list(plans[0].candidates)
    yield row("ranks", "atoms", "peers", *filters, "memory GiB")
    for plan in plans:
        yield row(
            str(plan.num_ranks),
            f"{plan.owned.min()}..{plan.owned.max()}",
            spread(plan.lists[-1].peers + 1, ".1f"),
            *(spread(plan.candidates[name], ".1f") for name in filters),
            spread(plan.memory_bytes / 2**30, ".2f"),
        )
    for k, first in enumerate(plans[0].lists):
        yield ""
        yield f"cutoff {first.cutoff:g} Å, {first.layers} layers (max/mean; local: part of the edges inside a rank)"
        yield row("ranks", "halo rows", "sent rows", "edges", "imbalance", "MB/layer", "local", "1-9rc/8L")
        for plan in plans:
            load = plan.lists[k]
            expected = load.expected_local_fraction
            yield row(
                str(plan.num_ranks),
                spread(load.halo_rows, ".0f"),
                spread(load.sent_rows, ".0f"),
                spread(load.edges, ".0f"),
                f"{imbalance(load.edges):.2%}",
                spread(load.message_bytes / 1e6, ".1f"),
                f"{load.local_fraction:.4f}",
                "-" if expected is None else f"{expected:.4f}",
            )


def row(first: str, *cells: str) -> str:
    """One line of a table."""
    return f"{first:>6}" + "".join(f"{cell:>20}" for cell in cells)


def spread(values: np.ndarray, mean_format: str) -> str:
    """`max/mean`."""
    largest = format(values.max(), mean_format if values.dtype.kind == "f" else "d")
    return f"{largest}/{format(values.mean(), mean_format)}"


def imbalance(values: np.ndarray) -> float:
    """How much the heaviest rank exceeds the mean, as a part of the mean."""
    mean = values.mean()
    return float(values.max() / mean - 1) if mean > 0 else 0.0
