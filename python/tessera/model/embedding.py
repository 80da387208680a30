# SPDX-License-Identifier: MIT
"""Initial features: the system vector and the edge-degree embedding."""

from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor, nn

from tessera.model.config import ModelConfig
from tessera.model.geometry import StageEdges
from tessera.model.layers import EdgeNetwork
from tessera.model.recompute import Recomputation, tensor_fields
from tessera.model.spline_table import SplineTable

SYSTEM_ROWS = 30
"""Rows of the charge and multiplicity tables."""
CHARGE_RANGE = (-10, 10)
"""e; charges outside are clipped."""
MULTIPLICITY_RANGE = (0, 20)
"""Multiplicities outside are clipped."""


class SystemEmbedding(nn.Module):
    """Charge and multiplicity as one vector for all atoms (E2Former V2 specification, section 2)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.charge_table = nn.Parameter(0.1 * torch.randn(SYSTEM_ROWS, channels))
        self.multiplicity_table = nn.Parameter(0.1 * torch.randn(SYSTEM_ROWS, channels))
        self.mix = nn.Linear(2 * channels, channels)

    def forward(self, charge: Tensor, multiplicity: Tensor) -> Tensor:
        """int64 [1] (e), int64 [1] -> [C]; one a row, int64 [N], [N] -> [N, C], of frames side by side."""
        low, high = CHARGE_RANGE
        charge_row = self.charge_table.index_select(0, charge.clamp(low, high) - low)
        multiplicity_row = self.multiplicity_table.index_select(0, multiplicity.clamp(*MULTIPLICITY_RANGE))
        vector = nn.functional.silu(self.mix(torch.cat([charge_row, multiplicity_row], dim=1)))
        return vector[0] if charge.shape[0] == 1 else vector


class EdgeDegreeEmbedding(nn.Module):
    """First features of an atom: its neighbors' harmonics times radial functions of both elements.

    h[l, m] = (1/average_degree) sum_e Y_lm(n_e) f_l(d_e, Z_i, Z_j) p(d_e) (E2Former V2 specification, section 2).
    The atom's own element enters through the pair tables only.

    Attributes:
        times_recomputed: 0: the radial functions are kept for the backward pass. 1: it evaluates them anew.
        table: takes the network's place (:mod:`tessera.model.radial_table`); nothing of it is kept.
    """

    def __init__(self, config: ModelConfig, num_elements: int) -> None:
        super().__init__()
        self.times_recomputed = 0
        self.table: SplineTable | None = None
        self.scale = 1.0 / config.average_degree
        width = config.num_basis
        self.receiver_table = nn.Parameter(0.1 * torch.randn(num_elements, width))
        self.sender_table = nn.Parameter(0.1 * torch.randn(num_elements, width))
        self.network = EdgeNetwork(
            config.lmax + 1,
            config.num_basis,
            width,
            config.edge_width,
            config.channels,
            layer_norm=config.embedding_layer_norm,
        )

    def forward(self, stage: StageEdges, kernels: ModuleType) -> Tensor:
        """Return the features of owned rows, [N, R, C]."""
        if self.table is not None:
            scale = stage.envelope * self.scale
            place = stage.place(self.table)
            return kernels.table_sum(stage.harmonics, self.table.coefficients, *place, scale, stage.edges)
        if self.times_recomputed == 0:
            return self._features(stage, kernels)
        tensors = tensor_fields(stage)
        (features,) = Recomputation(kernels).first(
            lambda *values: (self._features(replace(stage, **dict(zip(tensors, values, strict=True))), kernels),),
            *tensors.values(),
        )
        return features

    @property
    def has_table(self) -> bool:
        """Whether the radial functions come from a table, so that an edge keeps nothing."""
        return self.table is not None

    @property
    def most_recomputed(self) -> int:
        """Largest useful `times_recomputed`."""
        return 0 if self.has_table else 1

    def _features(self, stage: StageEdges, kernels: ModuleType) -> Tensor:
        radial = self.network(
            stage.basis, self.receiver_table, self.sender_table, stage.receiver_element, stage.sender_element
        )
        weighted = radial.transpose(0, 1) * (stage.envelope * self.scale)[:, None, None]
        return kernels.outer_sum(stage.harmonics, weighted, stage.edges)
