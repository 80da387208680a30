# SPDX-License-Identifier: MIT
"""Peak memory of a traced step, counted from the lives of its tensors.

Each node of the graph allocates its output and frees what nobody reads any more; views share the storage of what they
view. All sizes are linear in the extents of ARCHITECTURE.md (rows, halo rows, edges), so a life is a row of
coefficients, and the peak for given extents is a maximum of linear functions.
"""

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy
import torch
from torch import Tensor, fx

from tessera_export.errors import ExportError
from tessera_export.flat import input_specs

#: Atoms per Å^3 for which budgets are meant and coefficients are taken: water.
WATER_DENSITY = 0.1
#: Owned rows of the system on which the worst moment is looked for: enough for constants not to matter.
TYPICAL_ROWS = 10_000
MEBIBYTE = 2.0**20


@dataclass(frozen=True)
class Extents:
    """What a run is given: owned rows, and for each list halo rows and edges."""

    rows: float
    halo_rows: tuple[float, ...]
    edges: tuple[float, ...]

    @classmethod
    def liquid(cls, rows: float, cutoffs: Sequence[float], density: float = WATER_DENSITY) -> "Extents":
        """Give the extents of a liquid of `density` atoms/Å^3 on one rank, cutoffs in Å."""
        edges = (rows * density * 4.0 / 3.0 * math.pi * cutoff**3 for cutoff in cutoffs)
        return cls(rows, (0.0,) * len(cutoffs), tuple(edges))

    def vector(self) -> np.ndarray:
        """Return [1, N, H_0, H_1, ..., E_0, E_1, ...], the factors of a row of coefficients."""
        return np.array([1.0, self.rows, *self.halo_rows, *self.edges])


@dataclass(frozen=True)
class MemoryModel:
    """Bytes of one run at its worst moment, linear in the extents (passport key `memory`)."""

    bytes_per_row: float
    bytes_per_halo_row: tuple[float, ...]
    bytes_per_edge: tuple[float, ...]
    bytes: float
    measured: bool = False

    def predict(self, extents: Extents) -> float:
        """Bytes of a run."""
        factors = [self.bytes, self.bytes_per_row, *self.bytes_per_halo_row, *self.bytes_per_edge]
        return float(np.dot(factors, extents.vector()))

    def per_atom(self, cutoffs: Sequence[float]) -> float:
        """MiB an atom of water on one rank, leaving out what does not grow with the system."""
        extents = Extents.liquid(TYPICAL_ROWS, cutoffs)
        return (self.predict(extents) - self.bytes) / TYPICAL_ROWS / MEBIBYTE

    def corrected(self, scale: float, constant: float) -> "MemoryModel":
        """Multiply all that grows with the system by `scale`, add `constant` bytes, and say that it was measured."""
        return replace(
            self,
            bytes_per_row=scale * self.bytes_per_row,
            bytes_per_halo_row=tuple(scale * value for value in self.bytes_per_halo_row),
            bytes_per_edge=tuple(scale * value for value in self.bytes_per_edge),
            bytes=self.bytes + constant,
            measured=True,
        )

    def to_dict(self) -> dict[str, object]:
        """Give the passport's spelling; whole bytes."""
        return {
            "bytes_per_row": round(self.bytes_per_row),
            "bytes_per_halo_row": [round(value) for value in self.bytes_per_halo_row],
            "bytes_per_edge": [round(value) for value in self.bytes_per_edge],
            "bytes": round(self.bytes),
            "measured": self.measured,
        }


def memory_model(module: fx.GraphModule, cutoffs: Sequence[float]) -> MemoryModel:
    """Count the peak of `module` on a large system of water, as a linear model of the extents.

    Args:
        module: as `trace.trace_step` returns it.
        cutoffs: Å, one a list.

    Raises:
        ExportError: a tensor of the graph has a size that is not linear in the extents.
    """
    lives = live_bytes(module, len(cutoffs))
    totals = lives @ Extents.liquid(TYPICAL_ROWS, cutoffs).vector()
    constant, per_row, *rest = lives[int(totals.argmax())]
    num_lists = len(cutoffs)
    return MemoryModel(per_row, tuple(rest[:num_lists]), tuple(rest[num_lists:]), constant + constant_bytes(module))


def constant_bytes(module: fx.GraphModule) -> int:
    """Bytes of the weights and other constants of a graph."""
    storages = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = operator.attrgetter(node.target)(module)
            storages[value.untyped_storage().data_ptr()] = value.numel() * value.element_size()
    return sum(storages.values())


def live_bytes(module: fx.GraphModule, num_lists: int) -> np.ndarray:
    """Bytes alive while each node runs, as coefficients of :meth:`Extents.vector`: [nodes, 2 + 2 * lists].

    Inputs are alive throughout, for the caller holds them, and outputs to the end. Constants are left out.
    """
    nodes = list(module.graph.nodes)
    sizes = Sizes(nodes, num_lists)
    storages, owners = assign_storages(nodes)
    last_use = [len(nodes) - 1 if owner.op == "placeholder" else 0 for owner, _ in owners]
    for place, node in enumerate(nodes):
        for source in (node, *node.all_input_nodes):
            for storage in flatten(storages[source]):
                last_use[storage] = max(last_use[storage], place)
    changes = np.zeros((len(nodes) + 1, 2 + 2 * num_lists))
    place_of = {node: place for place, node in enumerate(nodes)}
    for storage, (owner, value) in enumerate(owners):
        size = sizes.coefficients(value)
        changes[place_of[owner]] += size
        changes[last_use[storage] + 1] -= size
    return changes.cumsum(0)[:-1]


class Sizes:
    """Evaluates symbolic sizes as linear functions of the extents."""

    def __init__(self, nodes: Sequence[fx.Node], num_lists: int) -> None:
        self._names = ["N", *(f"H{l}" for l in range(num_lists)), *(f"E{l}" for l in range(num_lists))]
        self._extent_of: dict[sympy.Symbol, tuple[str, ...]] = {}
        inputs = [node for node in nodes if node.op == "placeholder"]
        for spec, node in zip(input_specs(num_lists), inputs, strict=True):
            for name, size in zip(spec.extents, node.meta["val"].shape, strict=True):
                expression = _expression(size)
                if isinstance(name, str) and expression.is_Symbol:
                    self._extent_of[expression] = ("N", f"H{name[1:]}") if name.startswith("M") else (name,)
        # Tracing gives the weights' widths symbols too; their values stand beside them.
        self._widths = {
            _expression(size): size.node.hint
            for node in nodes
            for value in tensors_of(node.meta.get("val"))
            for size in value.shape
            if isinstance(size, torch.SymInt) and _expression(size).is_Symbol
        }
        self._known: dict[object, np.ndarray] = {}

    def coefficients(self, value: Tensor) -> np.ndarray:
        """Bytes of a tensor, as :meth:`numbers`."""
        return self.numbers(value) * value.element_size()

    def numbers(self, value: Tensor) -> np.ndarray:
        """Numbers in a tensor as [constant, per row, per halo row of each list, per edge of each list].

        Raises:
            ExportError: the size is not linear in the extents.
        """
        numel = _expression(1)
        for size in value.shape:
            numel = numel * _expression(size)
        if numel not in self._known:
            self._known[numel] = self._linear(numel)
        return self._known[numel]

    def _linear(self, numel: sympy.Expr) -> np.ndarray:
        constant = self._at(numel, {})
        slopes = [self._at(numel, {name: 1}) - constant for name in self._names]
        probe = {name: 1000 + 7 * place for place, name in enumerate(self._names)}
        expected = constant + sum(slope * count for slope, count in zip(slopes, probe.values(), strict=True))
        if self._at(numel, probe) != expected:
            raise ExportError(
                f"memory: expected tensors whose sizes are linear in {', '.join(self._names)}, found {numel}; "
                "report this model"
            )
        return np.array([constant, *slopes], dtype=np.float64)

    def _at(self, numel: sympy.Expr, counts: dict[str, int]) -> int:
        unknown = numel.free_symbols - set(self._extent_of) - set(self._widths)
        if unknown:
            raise ExportError(
                f"memory: expected sizes in terms of the inputs' extents, found {numel}; report this model"
            )
        values = self._widths | {
            symbol: sum(counts.get(name, 0) for name in names) for symbol, names in self._extent_of.items()
        }
        return int(numel.subs(values))


def tensors_of(value: object) -> Iterator[Tensor]:
    """Give all tensors of a node's value, which may be a nested list."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)


def _expression(size: int | torch.SymInt) -> sympy.Expr:
    return sympy.Integer(size) if isinstance(size, int) else size.node.expr


Storages = list["int | Storages"]


def assign_storages(nodes: Sequence[fx.Node]) -> tuple[dict[fx.Node, Storages], list[tuple[fx.Node, Tensor]]]:
    """Say which storages each node's value lies in, and which node allocated each, as what tensor."""
    owners: list[tuple[fx.Node, Tensor]] = []

    def allocate(node: fx.Node, value: object) -> Storages:
        if isinstance(value, Tensor):
            owners.append((node, value))
            return [len(owners) - 1]
        return [allocate(node, item) for item in value] if isinstance(value, (list, tuple)) else []

    storages: dict[fx.Node, Storages] = {}
    for node in nodes:
        if node.op in ("get_attr", "output"):
            storages[node] = []
        elif node.target is operator.getitem:
            source = storages[node.args[0]]
            # a list of views has one storage for all of its items
            storages[node] = source[node.args[1]] if any(isinstance(item, list) for item in source) else source
        elif is_view(node):
            storages[node] = list(flatten(storages[node.args[0]]))
        else:
            storages[node] = allocate(node, node.meta.get("val"))
    return storages, owners


def is_view(node: fx.Node) -> bool:
    """Whether a node's value lies in the storage of its first argument."""
    if node.target is torch.ops.aten._unsafe_view.default:  # noqa: SLF001
        return True
    if not isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001
        return False
    returns = node.target._schema.returns  # noqa: SLF001
    return bool(returns) and returns[0].alias_info is not None


def flatten(storages: Storages) -> Iterator[int]:
    """Give all storages of a nested list."""
    for item in storages:
        if isinstance(item, list):
            yield from flatten(item)
        else:
            yield item
