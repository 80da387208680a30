# SPDX-License-Identifier: MIT
"""E2Former V2 as plain PyTorch modules, written from the E2Former V2 specification."""

from tessera.model.config import ModelConfig, Stage
from tessera.model.derivatives import energy_and_edge_gradients, forces_and_strain, with_vectors
from tessera.model.graph import EdgeList, Graph, build_graph, edge_list
from tessera.model.network import E2Former

__all__ = [
    "E2Former",
    "EdgeList",
    "Graph",
    "ModelConfig",
    "Stage",
    "build_graph",
    "edge_list",
    "energy_and_edge_gradients",
    "forces_and_strain",
    "with_vectors",
]
