# SPDX-License-Identifier: MIT
"""From scores to attention weights (E2Former V2 specification, sections 3.4 and 9.2)."""

from types import ModuleType

import torch
from torch import Tensor, nn

from tessera.kernels.reference import NORMALIZER_FLOOR
from tessera.model.config import ModelConfig
from tessera.model.geometry import StageEdges


class AttentionWeights(nn.Module):
    """Envelope-weighted softmax, or softplus or sigmoid without a normalizer.

    With e^a p summed over neighbors, the exact softmax divides by sum + 1e-3 e^A, A being the largest score in reach:
    a neighbor that enters at the cutoff with the largest score makes the energy jump. The smooth one divides by
    sum + 1e-3 e^0 and is C^2 at the cutoff. Both are evaluated relative to a shift that the result does not depend
    on, so the shift is a constant for the derivative while A in the floor is not: treating that as constant too would
    give wrong forces (specification, section 9.3).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.normalizer, self.is_smooth = config.normalizer, config.softmax == "smooth"

    def forward(
        self, score: Tensor, output_gate: Tensor, stage: StageEdges, kernels: ModuleType
    ) -> tuple[Tensor, Tensor | None]:
        """Return the weights before normalization, [E, H], and the normalizer, [N, H] or None for 1.

        The attention weight of edge e is weights[e] / normalizer[receiver of e].
        """
        envelope = stage.envelope[:, None]
        if self.normalizer == "softplus":
            return nn.functional.softplus(score) * output_gate * envelope, None
        if self.normalizer == "sigmoid":
            return torch.sigmoid(score) * output_gate * envelope, None
        largest = kernels.segment_max(score, stage.active, stage.edges)
        if self.is_smooth:
            shift = largest.detach().clamp(min=0.0)
            floor = torch.exp(-shift)
        else:
            shift = largest.detach()
            floor = torch.exp(largest - shift)
        # Inactive edges may score above the shift; their exponential must not overflow.
        relative = torch.where(stage.active[:, None], score - shift[stage.edges.receiver], torch.zeros_like(score))
        weight = torch.exp(relative) * envelope
        normalizer = kernels.segment_sum(weight, stage.edges) + NORMALIZER_FLOOR * floor
        return weight * output_gate, normalizer
