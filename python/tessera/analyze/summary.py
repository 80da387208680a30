# SPDX-License-Identifier: MIT
"""Numbers of an analysis as JSON, and their comparison with those of another run and with experiment."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tessera.analyze.distributions import Peak
from tessera.commands import CommandError

#: Number of the JSON layout.
FORMAT = 1
#: A peak agrees within this many Å and this part of the height.
POSITION_TOLERANCE, HEIGHT_TOLERANCE = 0.05, 0.05


@dataclass(frozen=True)
class Measured:
    """A published first maximum of g(r): position, Å, and height, with their errors, and where it is from."""

    position: float
    position_error: float
    height: float
    height_error: float
    source: str


#: Of pure water, so compared only where all atoms are hydrogen and oxygen.
EXPERIMENT = {
    "O-O": Measured(
        2.80, 0.01, 2.57, 0.05, "water, ambient, x-ray diffraction: Skinner et al., J. Chem. Phys. 138, 074506 (2013)"
    )
}


@dataclass
class Summary:
    """What `--json` writes.

    Attributes:
        frames: frames analysed.
        peaks: first shells by pair.
        bonds: by pair: number, longest (Å), limit (Å), broken.
        closest: shortest distance by pair, Å, pairs with one or two bonds between them left out.
        formed: of these, by pair: number of pairs that were as near as bonded ones, and the shortest distance (Å).
        temperature: mean and standard deviation, K.
        drift: slope, error (µeV/atom/ps), scatter (µeV/atom), time (ps).
    """

    frames: int = 0
    peaks: dict[str, Peak] = field(default_factory=dict)
    bonds: dict[str, dict[str, float]] = field(default_factory=dict)
    closest: dict[str, float] = field(default_factory=dict)
    formed: dict[str, dict[str, float]] = field(default_factory=dict)
    temperature: dict[str, float] = field(default_factory=dict)
    drift: dict[str, float] = field(default_factory=dict)


def write_summary(summary: Summary, path: Path) -> None:
    """Write JSON.

    Raises:
        CommandError: the file cannot be written.
    """
    try:
        path.write_text(json.dumps({"format": FORMAT, **asdict(summary)}, indent=1) + "\n")
    except OSError as error:
        raise CommandError(f"{path}: cannot be written ({error})") from error


def read_peaks(path: Path) -> dict[str, Peak]:
    """Read the first shells of a file that :func:`write_summary` wrote.

    Raises:
        CommandError: the file is missing, of another format, or malformed.
    """
    try:
        data: dict[str, Any] = json.loads(path.read_text())
        if data["format"] != FORMAT:
            raise CommandError(f"{path}: expected format {FORMAT}, found {data['format']}; write it again with --json")
        return {name: Peak(**peak) for name, peak in data["peaks"].items()}
    except OSError as error:
        raise CommandError(f"{path}: cannot be read ({error}); expected a file of tessera analyze --json") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CommandError(f"{path}: expected a file of tessera analyze --json ({error!r})") from error


def compare_with_reference(peaks: dict[str, Peak], reference: dict[str, Peak]) -> list[str]:
    """Lines that say how first maxima differ from those of a reference run.

    Raises:
        CommandError: no pair is in both.
    """
    both = [name for name in peaks if name in reference]
    if not both:
        raise CommandError(
            f"--reference: expected some of the pairs {', '.join(peaks) or '(none)'}, found "
            f"{', '.join(reference) or 'none'}"
        )
    lines = []
    for name in both:
        here, there = peaks[name], reference[name]
        moved, taller = here.position - there.position, here.height / there.height - 1
        agrees = abs(moved) <= POSITION_TOLERANCE and abs(taller) <= HEIGHT_TOLERANCE
        lines.append(
            f"{name:<6} position {moved:+.3f} Å, height {taller:+.1%}, coordination "
            f"{here.around_first - there.around_first:+.2f}: {'within' if agrees else 'NOT within'} "
            f"{POSITION_TOLERANCE:g} Å and {HEIGHT_TOLERANCE:.0%}"
        )
    return lines


def compare_with_experiment(peaks: dict[str, Peak], elements: set[str]) -> list[str]:
    """Lines that say how first maxima of pure water differ from measured ones; none for other systems."""
    if elements != {"H", "O"}:
        return []
    return [
        f"{name:<6} position {peaks[name].position - known.position:+.3f} Å of {known.position:.2f} ± "
        f"{known.position_error:g}, height {peaks[name].height - known.height:+.2f} of {known.height:.2f} ± "
        f"{known.height_error:g}; {known.source}"
        for name, known in EXPERIMENT.items()
        if name in peaks
    ]
