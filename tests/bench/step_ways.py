# SPDX-License-Identifier: MIT
"""Ways to compute one step of water: eagerly, from an artifact on a CPU, from one on a GPU; and the exact result.

Boxes are copies of one box of 216 waters, so energy and forces of that one in float64, with the networks themselves and
plain operations, are those of every copy: exact results cost 648 atoms at any size.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Protocol

import numpy as np
import torch
from gpu_step import Run
from resident import measured_growth

import tessera.ops
from many_ranks import water_216
from tessera.kernels import reference
from tessera.model import E2Former, Graph, build_graph, energy_and_edge_gradients, forces_and_strain
from tessera_export.compiled import CompiledModel

Shape = tuple[int, int, int]
WATER = 648
"""Atoms of the box that is copied."""


@dataclass
class Outcome:
    """Energy (eV), forces (eV/Å, [N, 3]) and the most memory that a step takes, MiB."""

    energy: float
    forces: np.ndarray
    peak: float = 0.0


class Way(Protocol):
    """One way to compute steps of one box."""

    def first(self) -> Outcome:
        """Compute the box as it is; buffers then have their size."""

    def step(self) -> float:
        """Compute one step more and return its seconds."""


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def water_graph(model: E2Former, shape: Shape) -> Graph:
    atoms = water_216().repeat(shape)
    return build_graph(model, atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc)


def move(graph: Graph, device: str) -> Graph:
    """Return the same graph on a device; its plan names host data."""

    def tensors(value: object) -> dict[str, torch.Tensor]:
        return {name: field.to(device) for name, field in vars(value).items() if isinstance(field, torch.Tensor)}

    lists = [replace(edges, **tensors(edges)) for edges in graph.lists]
    return replace(graph, **(tensors(graph) | {"plan": graph.plan}), lists=lists)


def outcome(graph: Graph, energies: torch.Tensor, gradients: list[torch.Tensor]) -> Outcome:
    forces = forces_and_strain(graph, gradients)[0]
    return Outcome(float(energies.sum()), forces.cpu().numpy())


def exact_outcome(model: E2Former, device: str) -> Outcome:
    """Energy and forces of one box in float64; on a CPU with fused kernels, whose rows fit its memory."""
    graph = move(water_graph(model, (1, 1, 1)), device)
    exact = copy.deepcopy(model).double().to(device)
    exact.set_fused(is_fused=device == "cpu")
    kernels: ModuleType = tessera.ops if device == "cpu" else reference
    return outcome(graph, *energy_and_edge_gradients(exact, graph, kernels))


class OnGraph:
    """Steps on edges that were found before: `run` maps a graph to energies and edge gradients."""

    def __init__(self, run: Callable, graph: Graph, device: str) -> None:
        self._run, self._graph, self._device = run, graph, device
        self._found: tuple[torch.Tensor, list[torch.Tensor]] | None = None

    def first(self) -> Outcome:
        peak = measured_growth(self.step, self._device)
        found = outcome(self._graph, *self._found)
        self._found = None
        return replace(found, peak=peak)

    def step(self) -> float:
        synchronize(self._device)
        start = time.perf_counter()
        self._found = self._run(self._graph)
        synchronize(self._device)
        return time.perf_counter() - start


def eager_way(model: E2Former, shape: Shape, device: str) -> OnGraph:
    """Plain PyTorch."""
    own = copy.deepcopy(model).to(device)
    graph = move(water_graph(model, shape), device)
    return OnGraph(lambda graph: energy_and_edge_gradients(own, graph, reference), graph, device)


def artifact_way(path: Path, model: E2Former, shape: Shape) -> OnGraph:
    """Run a CPU's artifact, with the C++ loader and operators."""
    return OnGraph(CompiledModel(path).run, water_graph(model, shape), "cpu")


class EngineWay:
    """Steps of the engine on a GPU, atoms moving: edges, model and forces, replayed as a graph."""

    def __init__(self, path: Path, shape: Shape) -> None:
        self._run = Run(path, shape, "on")

    def first(self) -> Outcome:
        found = self._run.evaluate()
        result = Outcome(found["energy"], np.array(found["forces"]))
        self._run.step()
        result.peak = self._run.engine.report()["peak_bytes"] / 2**20
        return result

    def step(self) -> float:
        before = self._run.engine.report()["total_seconds"]
        self._run.step()
        return self._run.engine.report()["total_seconds"] - before
