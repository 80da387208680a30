# SPDX-License-Identifier: MIT
"""A small random list for the tests of the operators: uneven degrees, receivers without edges, several halo rows."""

import numpy as np
import torch

from tessera.model.graph import EdgeList, edge_list

NUM_OWNED, NUM_HALO, NUM_EDGES = 13, 5, 60


def small_list(num_owned: int = NUM_OWNED, num_halo: int = NUM_HALO, num_edges: int = NUM_EDGES) -> EdgeList:
    random = np.random.default_rng(7)
    receiver = np.sort(random.integers(0, num_owned, num_edges)) if num_edges else np.zeros(0, dtype=np.int64)
    receiver[receiver == 3] = 4  # row 3 receives nothing
    sender = random.integers(0, num_owned + num_halo, num_edges)
    return edge_list(
        torch.from_numpy(np.sort(receiver)),
        torch.from_numpy(sender),
        torch.from_numpy(random.normal(size=(num_edges, 3))),
        num_owned,
        torch.from_numpy(random.integers(0, 2, num_halo)),
        torch.from_numpy(random.integers(0, num_owned, num_halo)),
    )


def values(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
