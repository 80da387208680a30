# SPDX-License-Identifier: MIT
"""Energies with their derivatives; forces and strain derivative from edge gradients."""

from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor

from tessera.kernels import reference
from tessera.model.graph import Graph
from tessera.model.network import E2Former


def energy_and_edge_gradients(
    model: E2Former, graph: Graph, kernels: ModuleType = reference, *, create_graph: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """Differentiate the total energy with respect to the edge vectors, in one backward pass.

    Args:
        model: the network.
        graph: one system; its vectors are read, not changed.
        kernels: the message-passing operations.
        create_graph: keep the graph of the gradients, as a loss on forces needs.

    Returns:
        Energies of owned rows, float64 [N], eV, and for each list dE/d(edge vector), float64 [E, 3], eV/Å.
    """
    with torch.enable_grad():
        vectors = [edges.vector.detach().requires_grad_() for edges in graph.lists]
        energy = model(with_vectors(graph, vectors), kernels)
        gradients = torch.autograd.grad(energy.sum(), vectors, create_graph=create_graph, materialize_grads=True)
    return (energy if create_graph else energy.detach()), list(gradients)


def with_vectors(graph: Graph, vectors: list[Tensor]) -> Graph:
    """Return the same system with other edge vectors, float64 [E, 3] for each list, Å."""
    lists = [replace(edges, vector=vector) for edges, vector in zip(graph.lists, vectors, strict=True)]
    return replace(graph, lists=lists)


def forces_and_strain(graph: Graph, gradients: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Assemble forces and dE/dstrain (E2Former V2 specification, section 5).

    With g = dE/dv and v = r_i - r_j: F_i -= g, F_j += g; dE/dstrain_ab = sum_e v_a g_b. LAMMPS's virial is minus
    that; stress is dE/dstrain divided by the volume.

    Args:
        graph: the system; halo rows must say whom they copy.
        gradients: dE/d(edge vector) for each list, float64 [E, 3], eV/Å.

    Returns:
        Forces on owned rows, float64 [N, 3], eV/Å, and dE/dstrain, float64 [3, 3], eV.
    """
    forces = torch.zeros(graph.element.shape[0], 3, dtype=torch.float64, device=graph.element.device)
    strain = torch.zeros(3, 3, dtype=torch.float64, device=graph.element.device)
    for edges, gradient in zip(graph.lists, gradients, strict=True):
        forces = forces.index_add(0, edges.receiver, -gradient).index_add(0, edges.owned_sender(), gradient)
        strain = strain + edges.vector.T @ gradient
    return forces, strain
