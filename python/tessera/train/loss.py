# SPDX-License-Identifier: MIT
"""What a model says of a pack, how far that is from the labels, and the gradients of that."""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from tessera.model import E2Former, energy_and_edge_gradients
from tessera.train.packs import Pack
from tessera.train.settings import LossSettings


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Energies, forces and strain derivatives of a pack; F frames, N rows, padding included."""

    energy: Tensor
    """float64 [F], eV."""
    forces: Tensor
    """float64 [N, 3], eV/Å."""
    virial: Tensor
    """float64 [F, 3, 3], dE/dstrain, eV: stress (ASE's sign) times volume, minus LAMMPS's virial."""


def predict(model: E2Former, pack: Pack, *, create_graph: bool) -> Prediction:
    """Evaluate energies and their first derivatives, differentiable once more with `create_graph`."""
    graph, frame = pack.graph, pack.labels.frame
    num_frames = pack.labels.energy.shape[0]
    energy, gradients = energy_and_edge_gradients(model, graph, create_graph=create_graph)
    forces = torch.zeros_like(pack.labels.forces)
    virial = torch.zeros_like(pack.labels.virial).view(num_frames, 9)
    for edges, gradient in zip(graph.lists, gradients, strict=True):
        forces = forces.index_add(0, edges.receiver, -gradient).index_add(0, edges.owned_sender(), gradient)
        outer = (edges.vector[:, :, None] * gradient[:, None, :]).flatten(1)
        virial = virial.index_add(0, frame[edges.receiver], outer)
    total = torch.zeros_like(pack.labels.energy).index_add(0, frame, energy)
    return Prediction(total, forces, virial.view(num_frames, 3, 3))


def loss_terms(prediction: Prediction, pack: Pack, loss: LossSettings) -> Tensor:
    """Mean penalties of energy per atom (eV), force components (eV/Å) and virial per atom (eV), float64 [3].

    With several ranks or packs a batch, these are the pack's shares: they add up to the batch's means.
    """
    labels = pack.labels
    energy = (prediction.energy - labels.energy) * labels.per_atom
    forces = prediction.forces - labels.forces
    virial = (prediction.virial - labels.virial) * labels.per_atom[:, None, None]
    return torch.stack([
        (penalty(energy, loss.kind, loss.energy_delta) * labels.energy_weight).sum(),
        (penalty(forces, loss.kind, loss.forces_delta).sum(1) * labels.force_weight).sum(),
        (penalty(virial, loss.kind, loss.stress_delta).sum((1, 2)) * labels.virial_weight).sum(),
    ])  # fmt: skip


def penalty(residual: Tensor, kind: str, delta: float) -> Tensor:
    """r² (`squared`), or its Huber form, r² up to |r| = delta and 2 delta |r| - delta² beyond (`huber`)."""
    square = residual * residual
    if kind == "squared":
        return square
    size = residual.abs()
    return torch.where(size <= delta, square, 2.0 * delta * size - delta * delta)


def loss_and_gradients(
    model: E2Former, parameters: Sequence[Tensor], pack: Pack, loss: LossSettings
) -> tuple[Tensor, ...]:
    """Return the three terms and the gradient of their weighted sum by each parameter: (float64 [3], *gradients)."""
    terms = loss_terms(predict(model, pack, create_graph=True), pack, loss)
    weights = (loss.energy, loss.forces, loss.stress)
    total = sum(weight * term for weight, term in zip(weights, terms.unbind(), strict=True))
    gradients = torch.autograd.grad(total, parameters, materialize_grads=True)
    return (terms.detach(), *gradients)
