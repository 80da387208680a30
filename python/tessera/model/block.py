# SPDX-License-Identifier: MIT
"""One block: attention and a gated feed-forward network on normalised features."""

from types import ModuleType

import torch
from torch import Tensor, nn

from tessera.model.attention import Attention
from tessera.model.config import ModelConfig, Stage
from tessera.model.geometry import StageEdges
from tessera.model.graph import Graph
from tessera.model.layers import DegreeLinear, DegreeNorm, linear
from tessera.model.split_products import SplitWeight, split_weight

SILU_GAIN = 1.6791767923989418
SIGMOID_GAIN = 1.8467055342154763
"""Second-moment constants of the published gate, not stored in checkpoints (specification, section 3.6)."""


class FeedForward(nn.Module):
    """`s3`: scalars pass a SiLU, higher degrees a sigmoid gate made of the scalars (specification, section 3.6)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.lmax = config.lmax
        self.gate_halves: SplitWeight | None = None
        self.into = DegreeLinear(config.lmax, config.channels, config.channels)
        self.gates = nn.Linear(config.channels, config.channels * (config.lmax + 1))
        self.out = DegreeLinear(config.lmax, config.channels, config.channels)

    def forward(self, features: Tensor) -> Tensor:
        """[N, R, C] -> [N, R, C]."""
        x = self.into(features)
        flat = linear(x[:, 0], self.gates.weight, self.gates.bias, self.gate_halves)
        gates = flat.view(x.shape[0], self.lmax + 1, -1)
        opened = torch.sigmoid(gates[:, 1:]) * SIGMOID_GAIN
        rows = [nn.functional.silu(gates[:, :1]) * SILU_GAIN]
        rows += [
            opened[:, degree - 1 : degree] * x[:, degree**2 : (degree + 1) ** 2] for degree in range(1, self.lmax + 1)
        ]
        return self.out(torch.cat(rows, dim=1))

    def set_split(self, *, is_split: bool) -> None:
        """Make the gates of halves, or as precise as the process is set."""
        self.gate_halves = split_weight(self.gates.weight, is_split=is_split)


class Block(nn.Module):
    """h += Attention(Norm(h) + system vector); h += FeedForward(Norm(h)) (specification, section 3)."""

    def __init__(self, config: ModelConfig, stage: Stage, num_elements: int) -> None:
        super().__init__()
        self.stage = stage
        self.attention_norm = DegreeNorm(config.lmax, config.channels)
        self.attention = Attention(config, stage, num_elements)
        self.feed_forward_norm = DegreeNorm(config.lmax, config.channels)
        self.feed_forward = FeedForward(config)

    def forward(self, features: Tensor, system: Tensor, edges: StageEdges, graph: Graph, kernels: ModuleType) -> Tensor:
        """[N, R, C], system vector [C] or [N, C] -> [N, R, C]."""
        features = features + self.attention(self.attention_norm(features, system), edges, graph, kernels)
        return features + self.feed_forward(self.feed_forward_norm(features))
