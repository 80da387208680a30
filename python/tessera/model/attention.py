# SPDX-License-Identifier: MIT
"""Attention over neighbors: scores, weights, messages (E2Former V2 specification, sections 3.2 to 3.5)."""

import math
from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor, nn

from tessera.model.config import ModelConfig, Stage
from tessera.model.geometry import StageEdges
from tessera.model.graph import Graph
from tessera.model.layers import DegreeLinear, ScalarProjection
from tessera.model.recompute import Recomputation, tensor_fields
from tessera.model.scores import DirectionGate, DirectionMixGate, EdgeGate, EdgeTables
from tessera.model.tensor_algebra import moment_coupling
from tessera.model.weights import AttentionWeights

_GATES = {"QK": EdgeGate, "QKdot": DirectionGate, "QKdotS": DirectionMixGate}


class Attention(nn.Module):
    """One attention stage with one halo exchange.

    The sender projects Key and Value; the payload of a row is [Key (d_k*H) | Value ((lmax+1)^2*C)], in planes of heads
    (:mod:`tessera.kernels.reference`).

    Attributes:
        times_recomputed: 0: gates, scores and messages are kept for the backward pass. 1: it evaluates them anew.
            2: gates twice, so that their insides and those of the scores are not held together. With a table, which
            leaves none of these, 1: it evaluates the maps anew whose products become queries and keys.
        is_fused: from query, payload and gates to the message in one kernel, which keeps nothing of the edges; without
            it, by operations that each pass over all edges.
    """

    def __init__(self, config: ModelConfig, stage: Stage, num_elements: int) -> None:
        super().__init__()
        self.times_recomputed = 0
        self.is_fused = False
        self.num_heads, self.head_scalars = config.num_heads, config.head_scalars
        lmax, channels = config.lmax, config.channels
        self.channels = channels
        self.query = ScalarProjection(lmax, channels, config.score_width, config.num_heads, config.head_scalars)
        self.key = ScalarProjection(lmax, channels, config.score_width, config.num_heads, config.head_scalars)
        self.value = DegreeLinear(lmax, channels, channels)
        self.tables = EdgeTables(num_elements)
        self.gate = _GATES[config.score](config)
        self.weights = AttentionWeights(config)
        if stage.attention == "zero-order":
            self.message = ZeroOrderMessage()
            self.out = DegreeLinear(lmax, channels, channels)
        else:
            self.message = FirstOrderMessage(config)
            self.out = DegreeLinear(lmax, config.out_channels, channels)

    def forward(self, features: Tensor, stage: StageEdges, graph: Graph, kernels: ModuleType) -> Tensor:
        """Return what the neighbors tell each atom: [N, R, C] -> [N, R, C]."""
        key = self._project(self.key, features, kernels)
        payload = torch.cat([key.flatten(1), self.value(features).flatten(1)], dim=1)
        ticket = kernels.halo_start(payload, graph.plan, stage.edges, stage.list_index)

        query = self._project(self.query, features, kernels) * (1.0 / math.sqrt(self.head_scalars))
        if self.has_table:
            extended = kernels.halo_wait(payload, ticket, graph.plan, stage.edges, stage.list_index)
            return self.out(self._message_from_table(query, extended, stage, kernels))
        if self.times_recomputed == 0:
            gates = self.gate(features, stage, self.tables, kernels)
            extended = kernels.halo_wait(payload, ticket, graph.plan, stage.edges, stage.list_index)
            return self.out(self._message(*gates, query, extended, stage, kernels))

        recomputation, tensors = Recomputation(kernels, self.times_recomputed), tensor_fields(stage)

        def edges(values: tuple[Tensor, ...]) -> StageEdges:
            return replace(stage, **dict(zip(tensors, values, strict=True)))

        gates = recomputation.first(
            lambda features, *values: self.gate(features, edges(values), self.tables, kernels),
            features, *tensors.values(),
        )  # fmt: skip
        extended = kernels.halo_wait(payload, ticket, graph.plan, stage.edges, stage.list_index)
        message = recomputation.second(
            lambda score_gate, output_gate, query, extended, *values: self._message(
                score_gate, output_gate, query, extended, edges(values), kernels
            ),
            gates, query, extended, *tensors.values(),
        )  # fmt: skip
        return self.out(message)

    @property
    def can_be_fused(self) -> bool:
        """Whether the fused kernel has this stage's normalizer."""
        return self.weights.normalizer == "softmax"

    @property
    def has_table(self) -> bool:
        """Whether the fused kernel takes its gates from a table, so that an edge keeps nothing at all."""
        return self.is_fused and isinstance(self.gate, EdgeGate) and self.gate.table is not None

    @property
    def most_recomputed(self) -> int:
        """Largest useful `times_recomputed`."""
        return 1 if self.has_table else 2

    def _project(self, projection: ScalarProjection, features: Tensor, kernels: ModuleType) -> Tensor:
        if not self.has_table or self.times_recomputed == 0:
            return projection(features)
        products = Recomputation(kernels).first(lambda features: (projection.products(features),), features)[0]
        return projection.of_products(products)

    def _message(
        self, score_gate: Tensor, output_gate: Tensor, query: Tensor, extended: Tensor, stage: StageEdges,
        kernels: ModuleType,
    ) -> Tensor:  # fmt: skip
        """Gates [E, H], query [N, d_k, H], rows of the exchange [M, P] -> [N, R, channels of the message]."""
        planes = extended.unflatten(1, (-1, self.num_heads))
        if self.is_fused:
            gates, factor = torch.stack([score_gate, output_gate], dim=1), self.message.factor(stage)
            is_smooth = self.weights.is_smooth
            fused = kernels.edge_attention(
                query, planes, gates, stage.envelope, factor, stage.active, stage.edges, is_smooth
            )
            return self.message(self._by_row(fused))
        key, value = planes.split((self.head_scalars, planes.shape[1] - self.head_scalars), dim=1)
        key, value = key.transpose(1, 2), value.reshape(planes.shape[0], -1, self.channels)
        score = score_gate * kernels.edge_dot(query.transpose(1, 2), key, stage.edges)
        weight, normalizer = self.weights(score, output_gate, stage, kernels)
        factor = self.message.factor(stage)
        by_moment = weight[:, None] if factor is None else weight[:, None] * factor[:, :, None]
        moments = normalize_heads(kernels.weighted_sum(by_moment, value, stage.edges), normalizer)
        return self.message(moments)

    def _message_from_table(self, query: Tensor, extended: Tensor, stage: StageEdges, kernels: ModuleType) -> Tensor:
        """As :meth:`_message`, the kernel evaluating the gates."""
        table = self.gate.table
        fused = kernels.table_attention(
            query, extended.unflatten(1, (-1, self.num_heads)), table.coefficients, *stage.place(table),
            stage.envelope, stage.envelope_slope(table), self.message.factor(stage), stage.active, stage.edges,
            self.weights.is_smooth,
        )  # fmt: skip
        return self.message(self._by_row(fused))

    def _by_row(self, message: Tensor) -> Tensor:
        """[N, A, R*C/H, H] -> [N, A, R, C]."""
        return message.view(*message.shape[:2], -1, self.channels)


def normalize_heads(summed: Tensor, normalizer: Tensor | None) -> Tensor:
    """Divide [N, A, R, C] by the normalizer of each channel's head, [N, H]; head of channel c is c mod H."""
    if normalizer is None:
        return summed
    num_rows, moments, orders, channels = summed.shape
    num_heads = normalizer.shape[1]
    by_head = summed.view(num_rows, moments, orders, channels // num_heads, num_heads)
    return (by_head / normalizer.view(num_rows, 1, 1, 1, num_heads)).view_as(summed)


class ZeroOrderMessage(nn.Module):
    """Weighted sum of the senders' values: directions enter only through the features (section 3.5a)."""

    def factor(self, stage: StageEdges) -> None:
        """Return what an edge's weight is multiplied with: nothing."""

    def forward(self, moments: Tensor) -> Tensor:
        """[N, 1, R, C] -> [N, R, C]."""
        return moments[:, 0]


class FirstOrderMessage(nn.Module):
    """Product of the senders' values with the edge directions, coupled to degrees (section 3.5b).

    The product is linear in the direction, so each atom sums three moments sum_e w_e n_e V_j, one an axis, and the
    constant coupling acts on them: edges carry no products, no frame and no absolute position enters. The
    cross-product paths mix polar and axial parts: mirror images get different energies.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        matrix, self.paths = moment_coupling(config.lmax)
        self.register_buffer("coupling", matrix, persistent=False)
        self.mix = nn.ModuleList(
            nn.Linear(count * config.channels, config.out_channels, bias=False) for count in self.paths
        )

    def factor(self, stage: StageEdges) -> Tensor:
        """Return what an edge's weight is multiplied with, one an axis: [E, 3]."""
        return stage.direction

    def forward(self, moments: Tensor) -> Tensor:
        """[N, 3, R, C] -> [N, R, out_channels]."""
        coupled = torch.matmul(self.coupling.to(moments.dtype), moments.flatten(1, 2))
        outputs, first = [], 0
        for degree, (paths, mix) in enumerate(zip(self.paths, self.mix, strict=True)):
            orders = 2 * degree + 1
            block = coupled[:, first : first + orders * paths]
            outputs.append(mix(block.reshape(block.shape[0], orders, -1)))
            first += orders * paths
        return torch.cat(outputs, dim=1)
