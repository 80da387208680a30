# SPDX-License-Identifier: MIT
"""The operations as a model on a GPU calls them: the fused ones in Triton, all others compiled (:mod:`tessera.ops`)."""

from tessera.ops import (
    edge_dot,
    halo_start,
    halo_wait,
    harmonic_dot,
    nearest_edges,
    outer_sum,
    recompute_after,
    segment_max,
    segment_sum,
    weighted_sum,
)
from tessera.ops.triton_edges import edge_attention, table_attention, table_sum

__all__ = [
    "edge_attention",
    "edge_dot",
    "halo_start",
    "halo_wait",
    "harmonic_dot",
    "nearest_edges",
    "outer_sum",
    "recompute_after",
    "segment_max",
    "segment_sum",
    "table_attention",
    "table_sum",
    "weighted_sum",
]
