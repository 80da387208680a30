# SPDX-License-Identifier: MIT
"""The picture beside a table of `step.py`: time and memory an atom, a bar a variant, a group a size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Bar(Protocol):
    """What the picture needs of a row: atoms asked for and computed, and numbers of the latter."""

    size: int
    atoms: int
    label: str
    milliseconds: float
    peak: float


def draw(rows: Sequence[Bar], path: Path, title: str) -> None:
    """Write bars of µs and KiB an atom, both on logarithmic axes."""
    import matplotlib as mpl  # noqa: PLC0415 (only the picture needs it)

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    sizes = list(dict.fromkeys(row.size for row in rows))
    labels = list(dict.fromkeys(row.label for row in rows))
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), constrained_layout=True)
    width = 0.8 / len(labels)
    for place, label in enumerate(labels):
        found = [row for row in rows if row.label == label]
        at = [sizes.index(row.size) + (place + 0.5) * width - 0.4 for row in found]
        values = ([1e3 * row.milliseconds / row.atoms for row in found], [1024 * row.peak / row.atoms for row in found])
        for axis, heights in zip(axes, values, strict=True):
            bars = axis.bar(at, heights, width, label=label)
            axis.bar_label(bars, fmt="%.3g", fontsize=7)
    for axis, label in zip(axes, ("µs a step and atom", "KiB an atom, at the peak"), strict=True):
        axis.set_xticks(range(len(sizes)), [f"{size} atoms" for size in sizes])
        axis.set_ylabel(label)
        axis.set_yscale("log")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
