# SPDX-License-Identifier: MIT
"""Edge gates of the three score types (E2Former V2 specification, sections 3.3 and 3.4).

Each returns (score gate, output gate), both [E, H]: the first multiplies the product of query and key, the second the
attention weight. None of them reads a halo row.
"""

import math
from types import ModuleType

import torch
from torch import Tensor, nn

from tessera.kernels.reference import spline
from tessera.model.config import ModelConfig
from tessera.model.geometry import StageEdges
from tessera.model.layers import DegreeLinear, EdgeNetwork
from tessera.model.spline_table import SplineTable
from tessera.model.tensor_algebra import harmonics

TABLE_WIDTH = 128
"""Width of a block's element tables, whatever the channels (specification, section 3.3)."""


class EdgeTables(nn.Module):
    """Receiver's and sender's element rows of one block, [elements, 128] each."""

    def __init__(self, num_elements: int) -> None:
        super().__init__()
        self.receiver = nn.Parameter(0.1 * torch.randn(num_elements, TABLE_WIDTH))
        self.sender = nn.Parameter(0.1 * torch.randn(num_elements, TABLE_WIDTH))


def run_network(network: EdgeNetwork, stage: StageEdges, tables: EdgeTables) -> Tensor:
    """Evaluate a single edge network on a stage's edges, [E, outputs]."""
    return network(stage.basis, tables.receiver, tables.sender, stage.receiver_element, stage.sender_element)[0]


def edge_network(config: ModelConfig, outputs: int) -> EdgeNetwork:
    """Return one edge network of an attention stage."""
    return EdgeNetwork(1, config.num_basis, TABLE_WIDTH, config.edge_width, outputs)


class EdgeGate(nn.Module):
    """QK: both gates come from the edge network, score gate first; `table` takes the network's place."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table: SplineTable | None = None
        self.network = edge_network(config, 2 * config.num_heads)

    def forward(
        self, features: Tensor, stage: StageEdges, tables: EdgeTables, kernels: ModuleType  # noqa: ARG002
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """[N, R, C] -> (score gate, output gate), [E, H] each."""
        if self.table is not None:
            gates = spline(self.table.coefficients, *stage.place(self.table))
            return gates[:, 0], gates[:, 1]
        score_gate, output_gate = run_network(self.network, stage, tables).chunk(2, dim=1)
        return score_gate, output_gate


class DirectionGate(nn.Module):
    """QKdot: the score gate weighs the receiver's features along the edge with radial functions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.num_basis * (config.lmax + 1)
        self.network = edge_network(config, config.num_heads)
        self.radial_network = edge_network(config, width)
        self.direction = DegreeLinear(config.lmax, config.channels, config.num_basis)
        self.mix = nn.Linear(width, config.num_heads)

    def forward(
        self, features: Tensor, stage: StageEdges, tables: EdgeTables, kernels: ModuleType
    ) -> tuple[Tensor, Tensor]:
        """[N, R, C] -> (score gate, output gate), [E, H] each."""
        output_gate = run_network(self.network, stage, tables)
        integral_normalised = stage.harmonics * (1.0 / math.sqrt(4.0 * math.pi))
        along = kernels.harmonic_dot(integral_normalised, self.direction(features), stage.edges)
        return self.mix(along.flatten(1) * run_network(self.radial_network, stage, tables)), output_gate


class DirectionMixGate(nn.Module):
    """QKdotS: a small network on the receiver's features along the raw edge vector, modulated by the edge network.

    The edge network's first half is the output gate here, its second half the modulation.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        heads = config.num_heads
        self.num_heads, self.lmax = heads, config.lmax
        self.network = edge_network(config, 2 * heads)
        self.direction = DegreeLinear(config.lmax, config.channels, heads // (config.lmax + 1) + 1)
        self.mix_in = nn.Linear(heads, heads)
        self.norm = nn.LayerNorm(heads)
        self.mix_out = nn.Linear(heads, heads)

    def forward(
        self, features: Tensor, stage: StageEdges, tables: EdgeTables, kernels: ModuleType
    ) -> tuple[Tensor, Tensor]:
        """[N, R, C] -> (score gate, output gate), [E, H] each."""
        output_gate, modulation = run_network(self.network, stage, tables).chunk(2, dim=1)
        along = kernels.harmonic_dot(harmonics(stage.vector, self.lmax), self.direction(features), stage.edges)
        mixed = self.norm(self.mix_in(along.flatten(1)[:, : self.num_heads] * modulation))
        return self.mix_out(nn.functional.silu(mixed)), output_gate
