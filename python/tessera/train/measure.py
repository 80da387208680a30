# SPDX-License-Identifier: MIT
"""How far a model is from the labels, and the pictures of that."""

import dataclasses
from pathlib import Path

import numpy as np
import torch

from tessera.kernels import reference
from tessera.model import E2Former
from tessera.train.edges import FrameEdges
from tessera.train.frames import GPA, Frame
from tessera.train.loss import predict
from tessera.train.packs import PADDING_ROWS, Counts, make_packs

KINDS = {
    "energy": ("energy without references", "eV/atom", 1e3, "meV/atom"),
    "forces": ("force components", "eV/Å", 1e3, "meV/Å"),
    "stress": ("stress components", "GPa", 1.0, "GPa"),
}
"""Kind of label: title, unit, factor and unit of its error."""


@dataclasses.dataclass
class Comparison:
    """Labels and predictions of one set of frames, by kind: [count, 2] each, label first, in the units of KINDS."""

    values: dict[str, np.ndarray]

    def rmse(self) -> dict[str, float]:
        """Root mean square errors, meV/atom, meV/Å, GPa; NaN where there is no label."""
        found = {}
        for kind, (_, _, factor, _) in KINDS.items():
            values = self.values[kind]
            error = values[:, 1] - values[:, 0]
            found[kind] = factor * float(np.sqrt(np.mean(error**2))) if len(values) else float("nan")
        return found


def compare(model: E2Former, frames: list[Frame], edges: list[FrameEdges]) -> Comparison:
    """Evaluate a model on frames, one after the other."""
    parts: dict[str, list[np.ndarray]] = {kind: [np.zeros((0, 2))] for kind in KINDS}
    for frame, own in zip(frames, edges, strict=True):
        pack = make_packs(model, [frame], [own], Counts.of([frame]))[0].to(model.reference_energies.device)
        found = predict(model, pack, create_graph=False)
        references = float(model.reference_energies[pack.graph.element][:-PADDING_ROWS].sum())
        size = len(frame.numbers)
        if frame.energy is not None:
            pair = np.array([[frame.energy, float(found.energy[0])]])
            parts["energy"].append((pair - references) / size)
        if frame.forces is not None:
            parts["forces"].append(np.column_stack([frame.forces.ravel(), found.forces[:size].cpu().numpy().ravel()]))
        if frame.stress is not None:
            stress = found.virial[0].cpu().numpy() / frame.volume
            parts["stress"].append(np.column_stack([frame.stress.ravel(), stress.ravel()]) / GPA)
    return Comparison({kind: np.concatenate(values) for kind, values in parts.items()})


def repulsion_energies(model: E2Former, frames: list[Frame], edges: list[FrameEdges]) -> list[float] | None:
    """Return the model's untrained repulsion in each frame, eV; None for a model without."""
    if model.repulsion is None:
        return None
    device = model.reference_energies.device
    energies = []
    with torch.no_grad():
        for frame, own in zip(frames, edges, strict=True):
            pack = make_packs(model, [frame], [own], Counts.of([frame]))[0].to(device)
            energies.append(float(model.repulsion(pack.graph, reference).sum()))
    return energies


def draw_parity(path: Path, comparison: Comparison, title: str) -> None:
    """Draw predictions over labels, one panel a kind that has labels."""
    import matplotlib as mpl  # noqa: PLC0415  (heavy, and only wanted at the end of a run)

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    kinds = [kind for kind in KINDS if len(comparison.values[kind])]
    figure, axes = plt.subplots(1, len(kinds), figsize=(4.2 * len(kinds), 4.0), squeeze=False)
    errors = comparison.rmse()
    for axis, kind in zip(axes[0], kinds, strict=True):
        name, unit, _, error_unit = KINDS[kind]
        values = comparison.values[kind]
        low, high = float(values.min()), float(values.max())
        axis.plot([low, high], [low, high], color="0.6", linewidth=0.8)
        axis.plot(values[:, 0], values[:, 1], ".", markersize=2, rasterized=True)
        axis.set(xlabel=f"label, {unit}", ylabel=f"model, {unit}")
        axis.set_title(f"{name}: RMSE {errors[kind]:.3g} {error_unit}", fontsize="medium")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)
