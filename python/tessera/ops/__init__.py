# SPDX-License-Identifier: MIT
"""The message-passing operations as compiled operators: same names and arguments as :mod:`tessera.kernels.reference`.

An artifact calls them with no Python; here are what tracing needs of them: the shapes of their outputs and their
derivatives. They are differentiable once, which is what forces need; training differentiates twice and takes the
reference.
"""

import torch  # noqa: F401  (first: tessera._C finds the libraries that it has loaded)

try:
    from tessera import _C  # noqa: F401  (loading it registers torch.ops.tessera)
except ImportError as error:
    raise ImportError(
        f"expected the compiled libraries of Tessera, found none that load ({error}); run pip install ."
    ) from error

from tessera.ops.attention import edge_attention, table_attention, table_sum
from tessera.ops.edges import (
    edge_dot,
    harmonic_dot,
    nearest_edges,
    outer_sum,
    segment_max,
    segment_sum,
    weighted_sum,
)
from tessera.ops.halo import halo_start, halo_wait
from tessera.ops.recompute import recompute_after

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
