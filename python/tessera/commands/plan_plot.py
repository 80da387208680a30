# SPDX-License-Identifier: MIT
"""The plot of `tessera plan`."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tessera.commands import CommandError
from tessera.commands.plan_load import RankPlan


def draw(plans: Sequence[RankPlan], path: Path) -> None:
    """Draw peers, halo rows, local neighbors and memory over the number of ranks, and write the file.

    Raises:
        CommandError: the file cannot be written.
    """
    mpl.use("Agg")
    figure = Figure(figsize=(10, 7), layout="constrained")
    (peers, halo), (local, memory) = figure.subplots(2, 2)
    draw_peers(peers, plans)
    draw_halo(halo, plans)
    draw_local(local, plans)
    ranks = [plan.num_ranks for plan in plans]
    memory.plot(ranks, [plan.memory_bytes.max() / 2**30 for plan in plans], "o-")
    memory.set(ylabel="memory of the heaviest rank, GiB", yscale="log")
    for axes in (peers, halo, local, memory):
        axes.set_xscale("log", base=2)
        axes.set_xticks(ranks, [str(number) for number in ranks])
        axes.set_xlabel("ranks")
        axes.grid(alpha=0.3)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise CommandError(
            f"--plot {path}: cannot be written ({error}); name a .png file in a folder that is there"
        ) from error


def draw_peers(axes: Axes, plans: Sequence[RankPlan]) -> None:
    """Ranks that the heaviest rank talks to, itself included."""
    ranks = [plan.num_ranks for plan in plans]
    axes.plot(ranks, [plan.lists[-1].peers.max() + 1 for plan in plans], "o-", label="true")
    for name in plans[0].candidates:
        axes.plot(ranks, [plan.candidates[name].max() for plan in plans], ".--", label=name)
    axes.set(ylabel="peers of the heaviest rank", ylim=(0, 1.1 * axes.get_ylim()[1]))
    axes.legend()


def draw_halo(axes: Axes, plans: Sequence[RankPlan]) -> None:
    """Halo rows by cutoff, and the atoms that a rank owns."""
    ranks = [plan.num_ranks for plan in plans]
    axes.plot(ranks, [plan.owned.max() for plan in plans], "k:", label="owned")
    for k, load in enumerate(plans[0].lists):
        label = f"halo, {load.cutoff:g} Å"
        axes.plot(ranks, [plan.lists[k].halo_rows.max() for plan in plans], "o-", label=label)
    axes.set(ylabel="rows of the heaviest rank", yscale="log")
    axes.legend()


def draw_local(axes: Axes, plans: Sequence[RankPlan]) -> None:
    """Part of the edges inside a rank, with the estimate for cubes."""
    ranks = [plan.num_ranks for plan in plans]
    for k, load in enumerate(plans[0].lists):
        (line,) = axes.plot(ranks, [plan.lists[k].local_fraction for plan in plans], "o-", label=f"{load.cutoff:g} Å")
        expected = [plan.lists[k].expected_local_fraction for plan in plans]
        values = [float("nan") if value is None else value for value in expected]
        axes.plot(ranks, values, "--", color=line.get_color(), label="1 - 9 rc / 8 L")
    axes.set(ylabel="local part of the edges", ylim=(0, 1))
    axes.legend()
