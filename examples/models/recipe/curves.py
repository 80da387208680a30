# SPDX-License-Identifier: MIT
"""Draw the learning curves of both stages, and the errors by kind of frame before, between and after them.

python curves.py demo/stage1/log.csv demo/stage2/log.csv --metrics demo/metrics.json --output training.png
"""

import argparse
import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

TERMS = {"loss_forces": "forces", "loss_energy": "energy per atom", "loss_stress": "virial per atom"}


def read_log(path: Path) -> dict[str, list[float]]:
    """Return the columns of a log.csv that every epoch has: `step`, `seconds` and the terms of the loss."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows] for name in ("step", "seconds", *TERMS)}


def draw_terms(axes: Axes, logs: Sequence[Mapping[str, Sequence[float]]]) -> None:
    """Terms of the loss, means over each epoch without weights, over minutes of training; a line where a stage ends."""
    started = 0.0
    for stage, log in enumerate(logs):
        ends = [started + sum(log["seconds"][: place + 1]) for place in range(len(log["seconds"]))]
        for color, (name, label) in enumerate(TERMS.items()):
            minutes = [end / 60 for end in ends]
            axes.plot(minutes, log[name], f"C{color}", linewidth=1.2, label=label if stage == 0 else None)
        started = ends[-1]
        if stage + 1 < len(logs):
            axes.axvline(started / 60, color="0.6", linewidth=0.8)
    axes.set(xlabel="minutes", ylabel="mean penalty (Huber; eV, Å)", yscale="log", title="training frames")
    axes.legend(fontsize="small")


def draw_errors(axes: Axes, metrics: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Force errors of each kind of held-out frame, root mean square, for the start and after each stage."""
    first = next(iter(metrics.values()))
    kinds = [kind for kind in first if kind != "all"]
    for kind in sorted(kinds, key=lambda kind: -first[kind]["forces"]):
        errors = [of_model[kind]["forces"] for of_model in metrics.values()]
        axes.plot(list(metrics), errors, "o-", label=kind, markersize=4)
    axes.set(ylabel="force error (meV/Å)", yscale="log", title="held-out frames", xlim=(-0.2, len(metrics) - 0.8))
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))


def main() -> None:
    """Read, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", type=Path, nargs="+", help="log.csv of each stage, in order")
    parser.add_argument("--metrics", type=Path, required=True, help="metrics.json as train.py writes it")
    parser.add_argument("--output", type=Path, default=Path("training.png"))
    arguments = parser.parse_args()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    draw_terms(left, [read_log(path) for path in arguments.logs])
    draw_errors(right, json.loads(arguments.metrics.read_text(encoding="utf-8")))
    figure.tight_layout()
    figure.savefig(arguments.output, dpi=110)


if __name__ == "__main__":
    main()
