# SPDX-License-Identifier: MIT
"""How far a model is from the labels, and the pictures of that."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from tessera.model import E2Former
from tessera.train.edges import FrameEdges
from tessera.train.frames import GPA, Frame
from tessera.train.loss import predict
from tessera.train.packs import Counts, make_pack

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


def errors_by_kind(model: E2Former, frames: list[Frame], edges: list[FrameEdges]) -> dict[str, dict[str, float]]:
    """Return root mean square errors of each kind of frame and of all: keys `frames`, `atoms`, and those of KINDS.

    Units are those of :meth:`Comparison.rmse`; kinds of label that no frame has are left out.
    """
    table = {}
    for kind in [*sorted({str(frame.kind) for frame in frames}), "all"]:
        places = [place for place, frame in enumerate(frames) if kind in ("all", str(frame.kind))]
        chosen = [frames[place] for place in places]
        errors = compare(model, chosen, [edges[place] for place in places]).rmse()
        table[kind] = {"frames": len(chosen), "atoms": sum(len(frame.numbers) for frame in chosen)}
        table[kind] |= {name: round(error, 4) for name, error in errors.items() if error == error}  # noqa: PLR0124 (NaN)
    return table


EDGES_AT_ONCE = 200_000
"""Edges of the frames that are evaluated together: many small frames cost a GPU as much time as one large one."""


def compare(model: E2Former, frames: list[Frame], edges: list[FrameEdges]) -> Comparison:
    """Evaluate a model on frames; the values stand in the order of the frames."""
    found: list[dict[str, np.ndarray]] = [{} for _ in frames]
    for places in _evaluated_together(edges):
        for place, values in zip(places, _evaluate(model, frames, edges, places), strict=True):
            found[place] = values
    empty = np.zeros((0, 2))
    return Comparison({kind: np.concatenate([empty, *(one[kind] for one in found if kind in one)]) for kind in KINDS})


def _evaluated_together(edges: list[FrameEdges]) -> list[list[int]]:
    """Group places of frames, in order, in chunks of EDGES_AT_ONCE."""
    groups: list[list[int]] = []
    size = 0
    for place, own in enumerate(edges):
        if not groups or size + len(own.receiver) > EDGES_AT_ONCE:
            groups.append([])
            size = 0
        groups[-1].append(place)
        size += len(own.receiver)
    return groups


def _evaluate(
    model: E2Former, frames: list[Frame], edges: list[FrameEdges], places: list[int]
) -> Iterator[dict[str, np.ndarray]]:
    """Labels and predictions of each frame, by kind: [count, 2], in the units of KINDS."""
    chosen = [frames[place] for place in places]
    pack = make_pack(model, chosen, [edges[place] for place in places], Counts.of(chosen))
    pack = pack.to(model.reference_energies.device)
    prediction = predict(model, pack, create_graph=False)
    table = model.reference_energies[pack.graph.element] * pack.graph.weight
    references = torch.zeros_like(prediction.energy).index_add(0, pack.labels.frame, table).cpu().numpy()
    energy, forces, virial = (
        one.detach().cpu().numpy() for one in (prediction.energy, prediction.forces, prediction.virial)
    )
    row = 0
    for place, frame in enumerate(chosen):
        size, values = len(frame.numbers), {}
        if frame.energy is not None:
            values["energy"] = (np.array([[frame.energy, energy[place]]]) - references[place]) / size
        if frame.forces is not None:
            values["forces"] = np.column_stack([frame.forces.ravel(), forces[row : row + size].ravel()])
        if frame.stress is not None:
            stress = virial[place] / frame.volume
            values["stress"] = np.column_stack([frame.stress.ravel(), stress.ravel()]) / GPA
        row += size
        yield values


def repulsion_energies(model: E2Former, frames: list[Frame], edges: list[FrameEdges]) -> list[float] | None:
    """Return the model's untrained repulsion in each frame, eV; None for a model without."""
    if model.repulsion is None:
        return None
    energies = [0.0] * len(frames)
    with torch.no_grad():
        for places in _evaluated_together(edges):
            chosen = [frames[place] for place in places]
            pack = make_pack(model, chosen, [edges[place] for place in places], Counts.of(chosen))
            pack = pack.to(model.reference_energies.device)
            own = model.repulsion(pack.graph)
            totals = torch.zeros_like(pack.labels.energy).index_add(0, pack.labels.frame, own).tolist()
            for place, total in zip(places, totals, strict=False):  # the last one is the padding's
                energies[place] = total
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
