# SPDX-License-Identifier: MIT
"""The time that a step cannot go below on a device: its matrix products, and its rows moved once a pass."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from step_ways import WATER, move, synchronize, water_graph
from torch.utils.flop_counter import FlopCounterMode

import tessera.ops
from tessera.model import E2Former, Graph, energy_and_edge_gradients

PASSES = 3
"""Over the rows of an attention stage: forward, backward by receivers and by senders."""


@dataclass(frozen=True)
class Speed:
    """What a device shows for large products, operations a second, and for a large copy, bytes a second."""

    exact: float
    tf32: float
    bandwidth: float


def device_speed(device: str) -> Speed:
    size = 8192 if device == "cuda" else 1024
    a, b = torch.rand(size, size, device=device), torch.rand(size, size, device=device)
    source = torch.rand(2**28 if device == "cuda" else 2**25, device=device)
    target = torch.empty_like(source)
    flops = 2.0 * size**3
    exact = tf32 = flops / best_seconds(lambda: a @ b, device)
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        tf32 = flops / best_seconds(lambda: a @ b, device)
        torch.backends.cuda.matmul.allow_tf32 = False
    return Speed(exact, tf32, 8.0 * source.numel() / best_seconds(lambda: target.copy_(source), device))


def best_seconds(function: Callable[[], object], device: str) -> float:
    """Shortest of five calls, after one that is not counted."""
    times = []
    for _ in range(6):
        synchronize(device)
        start = time.perf_counter()
        function()
        synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times[1:])


@dataclass(frozen=True)
class Counts:
    """Operations of an atom's matrix products with edge networks and without, and bytes of its rows."""

    flops: float
    flops_with_tables: float
    num_bytes: float

    def seconds(self, speed: Speed, *, has_tables: bool, is_tf32: bool) -> float:
        """Least time of an atom: products one after the other with rows."""
        flops = self.flops_with_tables if has_tables else self.flops
        return flops / (speed.tf32 if is_tf32 else speed.exact) + self.num_bytes / speed.bandwidth


def count(model: E2Former, device: str) -> Counts:
    """Count a step of one box of water, an atom's share."""
    graph = water_graph(model, (1, 1, 1))
    own, moved = copy.deepcopy(model).to(device), move(graph, device)
    with FlopCounterMode(display=False) as counter:
        energy_and_edge_gradients(own, moved, tessera.ops)
    total = float(counter.get_total_flops())
    row = model.config.num_heads * model.config.head_scalars + (model.config.lmax + 1) ** 2 * model.config.channels
    num_bytes = 4.0 * PASSES * row * len(model.config.all_stages)
    return Counts(total / WATER, (total - edge_network_flops(model, graph)) / WATER, num_bytes)


def edge_network_flops(model: E2Former, graph: Graph) -> float:
    """Operations that tables save: all products with an edge network's weights, forward and backward by its inputs."""
    total = 0.0
    for part, stage in zip(model.parts.values(), (model.embedding_stage, *model.config.all_stages), strict=True):
        network = part.network if hasattr(part, "network") else part.gate.network
        weights = sum(weight.numel() for name, weight in network.named_parameters() if name.startswith("weight"))
        num_networks, hidden, _ = network.weight_in.shape
        # Only the radial inputs reach an edge: products with the rows of elements are made once.
        weights -= 2 * network.table_width * num_networks * hidden
        num_edges = graph.lists[model.cutoffs.index(stage.cutoff)].receiver.shape[0]
        total += 4.0 * weights * num_edges
    return total
