# SPDX-License-Identifier: MIT
"""One picture of an analysis: distributions with coordination numbers, energy with its drift, temperature."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

from tessera.analyze.distributions import Distribution, Peak, smoothed
from tessera.analyze.summary import Measured
from tessera.analyze.thermo import Drift, Run
from tessera.commands import CommandError

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

#: Coordination numbers above this are not drawn.
MOST_NEIGHBORS = 12


def draw(
    path: Path,
    distributions: Sequence[Distribution],
    peaks: dict[str, Peak],
    measured: dict[str, Measured],
    run: Run | None,
    drift: Drift | None,
) -> None:
    """Draw what there is, side by side; distributions of rare pairs only where no other has a first shell.

    Raises:
        CommandError: the file cannot be written, or its ending names no format of pictures.
    """
    distributions = [one for one in distributions if one.name in peaks] or distributions
    panels = [lambda axes: draw_distributions(axes, distributions, peaks, measured)] if distributions else []
    panels += [lambda axes: draw_coordination(axes, distributions, peaks)] if distributions else []
    if run is not None and "TotEng" in run.columns:
        panels.append(lambda axes: draw_energy(axes, run, drift))
    if run is not None and "Temp" in run.columns:
        panels.append(lambda axes: draw_temperature(axes, run))
    figure, all_axes = plt.subplots(1, max(1, len(panels)), figsize=(4.2 * max(1, len(panels)), 3.6), squeeze=False)
    for panel, axes in zip(panels, all_axes[0], strict=False):
        panel(axes)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=100)
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: cannot be written ({error})") from error
    finally:
        plt.close(figure)


def draw_distributions(
    axes: Axes, distributions: Sequence[Distribution], peaks: dict[str, Peak], measured: dict[str, Measured]
) -> None:
    """g(r) of each pair, counted and smoothed; first maxima marked, measured ones as crosses."""
    for one in distributions:
        smooth = smoothed(one.density, one.radii[1] - one.radii[0])
        (line,) = axes.plot(one.radii, smooth, label=one.name, linewidth=1.2)
        axes.plot(one.radii, one.density, color=line.get_color(), linewidth=0.4, alpha=0.5)
        if one.name in peaks:
            axes.plot(peaks[one.name].position, peaks[one.name].height, "o", color=line.get_color(), markersize=4)
            if known := measured.get(one.name):
                axes.errorbar(
                    known.position,
                    known.height,
                    known.height_error,
                    known.position_error,
                    "kx",
                    label=f"{one.name} measured",
                )
    axes.axhline(1, color="grey", linewidth=0.5)
    # Rare pairs have tall single bins; the first shells set the scale.
    highest = max(
        [peak.height for peak in peaks.values()], default=float(max(one.density.max() for one in distributions))
    )
    axes.set(xlabel="r (Å)", ylabel="g(r)", title="distributions", ylim=(0, 1.2 * max(highest, 1.0)))
    axes.legend()


def draw_coordination(axes: Axes, distributions: Sequence[Distribution], peaks: dict[str, Peak]) -> None:
    """Neighbors within r, the number at the first minimum marked."""
    for one in distributions:
        first, second = one.name.split("-")
        (line,) = axes.plot(one.radii, one.around_first, label=f"{second} around {first}", linewidth=1.2)
        if one.name in peaks:
            axes.plot(peaks[one.name].minimum, peaks[one.name].around_first, "o", color=line.get_color(), markersize=4)
    axes.set(xlabel="r (Å)", ylabel="atoms within r", ylim=(0, MOST_NEIGHBORS), title="coordination")
    axes.legend()


def draw_energy(axes: Axes, run: Run, drift: Drift | None) -> None:
    """Total energy against time, with the line."""
    energy = run.energy_per_atom()
    change = (energy - energy[0]) * 1e6
    axes.plot(run.time, change, linewidth=1.0)
    if drift is not None:
        line = np.polyfit(run.time, change, 1)
        axes.plot(
            run.time, np.polyval(line, run.time), "--", label=f"{drift.slope:+.1f} ± {drift.error:.1f} µeV/atom/ps"
        )
        axes.legend()
    axes.set(xlabel="time (ps)", ylabel="total energy (µeV/atom)", title="energy")


def draw_temperature(axes: Axes, run: Run) -> None:
    """Temperature against time, with the mean."""
    axes.plot(run.time, run.columns["Temp"], linewidth=1.0)
    axes.axhline(run.columns["Temp"].mean(), linestyle="--", label=f"mean {run.columns['Temp'].mean():.0f} K")
    axes.set(xlabel="time (ps)", ylabel="temperature (K)", title="temperature")
    axes.legend()
