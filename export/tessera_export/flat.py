# SPDX-License-Identifier: MIT
"""The artifact's positional inputs: names, order, and how a Graph becomes them (ARCHITECTURE.md, "Inputs")."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tessera.model import EdgeList, Graph

#: Inputs of the system as a whole, and of each list.
NUM_SYSTEM, NUM_LIST = 5, 7


@dataclass(frozen=True)
class InputSpec:
    """One positional input: dtype, and its extents as numbers (fixed) or names (dynamic).

    Dynamic names: `N` owned rows, `E{l}` edges and `H{l}` halo rows of list l, `M{l}` = N + H{l}.
    """

    name: str
    dtype: torch.dtype
    extents: tuple[int | str, ...]


def input_specs(num_lists: int) -> list[InputSpec]:
    """List the inputs of an artifact with `num_lists` neighbour lists, in order."""
    integer, real = torch.int64, torch.float64
    specs = [
        InputSpec("plan", integer, (1,)),
        InputSpec("element", integer, ("N",)),
        InputSpec("weight", real, ("N",)),
        InputSpec("charge", integer, (1,)),
        InputSpec("multiplicity", integer, (1,)),
    ]
    for index in range(num_lists):
        edges, halo, rows = f"E{index}", f"H{index}", f"M{index}"
        specs += [
            InputSpec(f"halo_element_{index}", integer, (halo,)),
            InputSpec(f"edge_vector_{index}", real, (edges, 3)),
            InputSpec(f"receiver_{index}", integer, (edges,)),
            InputSpec(f"sender_{index}", integer, (edges,)),
            InputSpec(f"receiver_range_{index}", integer, ("N", 2)),
            InputSpec(f"sender_order_{index}", integer, (edges,)),
            InputSpec(f"sender_range_{index}", integer, (rows, 2)),
        ]
    return specs


def unflatten(inputs: Sequence[Tensor]) -> Graph:
    """Build the Graph that the model takes from the artifact's positional inputs."""
    plan, element, weight, charge, multiplicity = inputs[:NUM_SYSTEM]
    lists = []
    for start in range(NUM_SYSTEM, len(inputs), NUM_LIST):
        halo_element, vector, *index = inputs[start : start + NUM_LIST]
        lists.append(EdgeList(halo_element, vector, *index))
    return Graph(plan, element, weight, charge, multiplicity, lists)
