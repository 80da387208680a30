# SPDX-License-Identifier: MIT
"""`tessera analyze`: distributions, bonds and contacts of a trajectory, temperature and drift of a log."""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from ase.data import chemical_symbols
from tqdm import tqdm

from tessera.analyze.bonds import FORMED, Bonds
from tessera.analyze.distributions import LEAST_PAIRS, Distribution, PairCounts, Peak, first_shell
from tessera.analyze.frames import Frame, read_frames
from tessera.analyze.names import parse_pair
from tessera.analyze.summary import (
    EXPERIMENT,
    Summary,
    compare_with_experiment,
    compare_with_reference,
    read_peaks,
    write_summary,
)
from tessera.analyze.thermo import LEAST_ROWS, UNITS, Drift, Run, fit_drift, read_runs
from tessera.commands import CommandError

#: Pairs whose distributions are shown unless --pairs says otherwise, as far as their elements are present.
DEFAULT_PAIRS = "O-O,H-O,H-H,K-O,Cl-O,Cl-K"
DEFAULT_REACH = 8.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of `tessera analyze`."""
    parser.add_argument("trajectory", type=Path, nargs="?", help="LAMMPS dump (custom text), .xyz or .extxyz")
    parser.add_argument("--log", type=Path, help="log of LAMMPS: temperature and drift")
    parser.add_argument("--run", type=int, default=-1, help="which run of the log, from 0 or from the end (default -1)")
    parser.add_argument("--units", choices=tuple(UNITS), help="of the log, where it does not say")
    parser.add_argument("--timestep", type=float, metavar="FS", help="of the log, where it does not say")
    parser.add_argument("--elements", help="elements of types 1, 2, ... as in pair_coeff, such as H,O")
    parser.add_argument("--frames", default="0:", metavar="START:STOP:STEP", help="frames to read (default all)")
    parser.add_argument("--pairs", default=DEFAULT_PAIRS, help=f"distributions to show (default {DEFAULT_PAIRS})")
    parser.add_argument("--reach", type=float, help="Å of the distributions (default 8, at most half the box)")
    parser.add_argument("--bin", type=float, default=0.02, help="Å of a bin (default 0.02)")
    parser.add_argument("--bond-limit", action="append", default=[], metavar="A-B=Å", help="a longer bond is broken")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw distributions, energy and temperature")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers, as a --reference for other runs")
    parser.add_argument("--reference", type=Path, metavar="FILE", help="compare with a file that --json wrote")


def run(arguments: argparse.Namespace) -> int:
    """Print tables; returns the exit code.

    Raises:
        CommandError: an argument or file is no good.
    """
    if arguments.trajectory is None and arguments.log is None:
        raise CommandError("expected a trajectory, or --log FILE, or both")
    if arguments.reference is not None and arguments.trajectory is None:
        raise CommandError("--reference: expected a trajectory to compare with it")
    reference = read_peaks(arguments.reference) if arguments.reference is not None else None
    summary, lines, distributions = Summary(), [], []
    thermo_run, drift, experiment = None, None, []
    if arguments.trajectory is not None:
        distributions, trajectory_lines, elements = analyze_trajectory(arguments, summary)
        lines += trajectory_lines
        if reference is not None:
            lines += ["", f"against {arguments.reference}", *compare_with_reference(summary.peaks, reference)]
        experiment = compare_with_experiment(summary.peaks, elements)
        if experiment:
            lines += ["", "against experiment", *experiment]
    if arguments.log is not None:
        thermo_run, drift, log_lines = analyze_log(arguments, summary)
        lines += ["", *log_lines] if lines else log_lines
    if arguments.plot is not None:
        draw = load_plots()
        measured = EXPERIMENT if experiment else {}
        draw(arguments.plot, distributions, summary.peaks, measured, thermo_run, drift)
        lines += ["", f"plot: {arguments.plot}"]
    if arguments.json is not None:
        write_summary(summary, arguments.json)
        lines += [f"numbers: {arguments.json}"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def load_plots() -> Callable[..., None]:
    """Import the pictures, which need matplotlib, only when one is asked for."""
    try:
        from tessera.analyze.plots import draw  # noqa: PLC0415
    except ImportError as error:
        raise CommandError(
            f"--plot: expected matplotlib, found none that loads ({error}); pip install matplotlib"
        ) from error
    return draw


def analyze_trajectory(
    arguments: argparse.Namespace, summary: Summary
) -> tuple[list[Distribution], list[str], set[str]]:
    """Go through the frames once; fills the summary and returns what is drawn and printed, and the elements."""
    names = list(dict.fromkeys(parse_pair(text) for text in arguments.pairs.split(",")))
    limits = dict(parse_limit(text) for text in arguments.bond_limit)
    elements = arguments.elements.split(",") if arguments.elements else None
    bonds = counts = None
    reach = 0.0
    frame: Frame
    frames = read_frames(arguments.trajectory, elements, parse_slice(arguments.frames))
    for frame in tqdm(frames, desc="frames", leave=False, disable=None):
        if bonds is None:
            reach = choose_reach(arguments.reach, arguments.bin, frame)
            bonds = Bonds(frame, limits)
            counts = PairCounts(frame, bonds, reach, arguments.bin)
        bonds.follow(frame)
        counts.add(frame)
        summary.frames += 1
    summary.closest = counts.closest()
    summary.bonds = bond_table(bonds)
    formed = bonds.formed_names()
    summary.formed = {name: {"number": len(found), "closest": min(found)} for name, found in formed.items()}
    lines = [f"{summary.frames} frames of {len(frame.numbers)} atoms", ""]
    distributions = []
    if all(frame.periodic):
        distributions = [one for name in names if (one := counts.distribution(name)) is not None]
        summary.peaks = find_peaks(distributions, counts)
        lines += list(describe_distributions(distributions, summary.peaks, reach))
    else:
        lines.append("no distributions: the frames are not periodic along all axes, so there is no density")
    lines += ["", *describe_bonds(summary.bonds), "", *describe_contacts(summary)]
    return distributions, lines, {chemical_symbols[number] for number in frame.numbers}


def choose_reach(asked: float | None, bin_width: float, frame: Frame) -> float:
    """Å up to which pairs are counted.

    Raises:
        CommandError: more than half the box, or a bin that does not fit.
    """
    widths = 1 / np.linalg.norm(np.linalg.inv(frame.cell), axis=0)
    half = float(widths[np.array(frame.periodic)].min()) / 2 if any(frame.periodic) else np.inf
    reach = min(DEFAULT_REACH, half) if asked is None else asked
    if not 0 < reach <= half:
        raise CommandError(f"--reach: expected above 0 and at most half the box, {half:.3f} Å, found {reach:g}")
    if not 0 < bin_width <= reach / 10:
        raise CommandError(f"--bin: expected above 0 and at most a tenth of {reach:g} Å, found {bin_width:g}")
    return np.floor(reach / bin_width + 1e-9) * bin_width


def find_peaks(distributions: list[Distribution], counts: PairCounts) -> dict[str, Peak]:
    """First shells that are more than noise."""
    found = ((one.name, first_shell(one)) for one in distributions)
    return {
        name: peak for name, peak in found if peak is not None and counts.pairs_seen(name, peak.minimum) >= LEAST_PAIRS
    }


def bond_table(bonds: Bonds) -> dict[str, dict[str, float]]:
    """By pair: number, longest and limit (Å), broken."""
    table = {}
    for name in sorted(set(bonds.names.tolist())):
        rows = bonds.names == name
        table[name] = {
            "number": int(rows.sum()),
            "longest": float(bonds.longest[rows].max()),
            "limit": float(bonds.limits[rows].min()),
            "broken": int(bonds.broken[rows].sum()),
        }
    return table


def describe_distributions(distributions: list[Distribution], peaks: dict[str, Peak], reach: float) -> Iterator[str]:
    """Table of first shells."""
    yield f"first shells (pairs with one or two bonds between them left out, up to {reach:.2f} Å)"
    yield f"{'pair':<6} {'maximum Å':>10} {'height':>8} {'minimum Å':>10}  atoms within the minimum"
    for one in distributions:
        peak = peaks.get(one.name)
        if peak is None:
            yield f"{one.name:<6} no maximum above 1 with a minimum in range, or fewer than {LEAST_PAIRS} pairs in it"
            continue
        first, second = one.name.split("-")
        around = f"{peak.around_first:.2f} {second} around {first}"
        if first != second:
            around += f", {peak.around_second:.2f} {first} around {second}"
        yield f"{one.name:<6} {peak.position:>10.3f} {peak.height:>8.2f} {peak.minimum:>10.2f}  {around}"


def describe_bonds(table: dict[str, dict[str, float]]) -> Iterator[str]:
    """Table of bonds."""
    if not table:
        yield "no covalent bonds in the first frame"
        return
    yield "bonds of the first frame"
    yield f"{'pair':<6} {'number':>8} {'longest Å':>10} {'limit Å':>8} {'broken':>7}"
    for name, row in table.items():
        yield f"{name:<6} {row['number']:>8} {row['longest']:>10.3f} {row['limit']:>8.2f} {row['broken']:>7}"


def describe_contacts(summary: Summary) -> Iterator[str]:
    """Closest pairs, nearest first, and those that are as near as bonded ones."""
    yield "closest pairs without one or two bonds between them, Å"
    ordered = sorted(summary.closest.items(), key=lambda item: item[1])
    for start in range(0, len(ordered), 7):
        yield "  ".join(f"{name} {distance:.3f}" for name, distance in ordered[start : start + 7])
    found = (f"{row['number']} {name} ({row['closest']:.3f} Å)" for name, row in summary.formed.items())
    yield f"as near as bonded, below {FORMED:g} sums of covalent radii: {', '.join(found) or 'none'}"


def analyze_log(arguments: argparse.Namespace, summary: Summary) -> tuple[Run, Drift | None, list[str]]:
    """Temperature and drift of one run of a log."""
    if arguments.timestep is not None and not arguments.timestep > 0:
        raise CommandError(f"--timestep: expected above 0 fs, found {arguments.timestep:g}")
    runs = read_runs(arguments.log, arguments.units, arguments.timestep)
    if not -len(runs) <= arguments.run < len(runs):
        raise CommandError(f"--run: expected {-len(runs)} to {len(runs) - 1}, found {arguments.run}")
    chosen = runs[arguments.run]
    number = arguments.run % len(runs)
    lines = [f"run {number} of {len(runs)} in {arguments.log}: {chosen.num_atoms} atoms, {chosen.time[-1]:.4g} ps"]
    if "Temp" in chosen.columns:
        temperature = chosen.columns["Temp"]
        summary.temperature = {"mean": float(temperature.mean()), "std": float(temperature.std())}
        lines.append(f"temperature   {temperature.mean():.1f} K, standard deviation {temperature.std():.1f} K")
    if len(chosen.time) < LEAST_ROWS:
        return (
            chosen,
            None,
            [*lines, f"total energy  no drift: {len(chosen.time)} rows, at least {LEAST_ROWS} are needed"],
        )
    drift = fit_drift(chosen.time, chosen.energy_per_atom())
    summary.drift = {
        "slope": drift.slope,
        "error": drift.error,
        "scatter": drift.scatter,
        "time": float(chosen.time[-1]),
    }
    unclear = "" if abs(drift.slope) > 2 * drift.error else "; not to be told from 0"
    lines.append(
        f"total energy  {drift.slope:+.2f} ± {drift.error:.2f} µeV/atom/ps, scatter {drift.scatter:.2f} µeV/atom"
        f"{unclear} (a drift only where no thermostat acts)"
    )
    return chosen, drift, lines


def parse_slice(text: str) -> slice:
    """Read START:STOP:STEP, none negative."""
    try:
        numbers = [int(word) if word else None for word in text.split(":")]
    except ValueError as error:
        raise CommandError(f"--frames: expected START:STOP or START:STOP:STEP, found '{text}'") from error
    if len(numbers) not in (2, 3) or any(number is not None and number < 0 for number in numbers) or numbers[2:] == [0]:
        raise CommandError(f"--frames: expected START:STOP or START:STOP:STEP without negative numbers, found '{text}'")
    return slice(*numbers)


def parse_limit(text: str) -> tuple[str, float]:
    """Read `O-H=1.25`."""
    name, _, value = text.partition("=")
    try:
        limit = float(value)
    except ValueError as error:
        raise CommandError(f"--bond-limit: expected A-B=LENGTH such as O-H=1.25, found '{text}'") from error
    if not (np.isfinite(limit) and limit > 0):
        raise CommandError(f"--bond-limit: expected a length above 0 Å, found '{text}'")
    return parse_pair(name), limit
