# SPDX-License-Identifier: MIT
"""The whole network: embedding, blocks, energy head."""

import copy
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

import torch
from torch import Tensor, nn

from tessera.kernels import reference
from tessera.model.attention import Attention
from tessera.model.block import Block, FeedForward
from tessera.model.config import ModelConfig, Stage
from tessera.model.elements import check_symbols
from tessera.model.embedding import EdgeDegreeEmbedding, SystemEmbedding
from tessera.model.geometry import EdgeGeometry
from tessera.model.graph import Graph
from tessera.model.layers import DegreeLinear, DegreeNorm, ScalarProjection
from tessera.model.repulsion import ScreenedRepulsion
from tessera.model.scores import EdgeTables
from tessera.model.spline_table import SplineTable


class LongRange(nn.Module):
    """`with_cluster: node`: blocks on a long list without hydrogen senders (E2Former V2 specification, section 8)."""

    def __init__(self, config: ModelConfig, num_elements: int) -> None:
        super().__init__()
        self.norm_in = DegreeNorm(config.lmax, config.channels)
        self.blocks = nn.ModuleList(Block(config, stage, num_elements) for stage in config.cluster)
        self.norm_out = DegreeNorm(config.lmax, config.channels)
        self.fuse = DegreeLinear(config.lmax, 2 * config.channels, config.channels)

    def forward(
        self, features: Tensor, system: Tensor, geometry: EdgeGeometry, graph: Graph, kernels: ModuleType
    ) -> Tensor:
        """[N, R, C] -> [N, R, C]."""
        long = self.norm_in(features)
        for block in self.blocks:
            long = block(long, system, geometry.prepare(block.stage), graph, kernels)
        return self.fuse(torch.cat([features, self.norm_out(long)], dim=2))


class EnergyHead(nn.Module):
    """Energy of an atom from its scalar features (specification, section 4)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(channels, channels), nn.Linear(channels, channels),
                                     nn.Linear(channels, 1)])  # fmt: skip

    def forward(self, scalars: Tensor) -> Tensor:
        """[N, C] -> [N], eV."""
        first, second, last = self.layers
        return last(nn.functional.silu(second(nn.functional.silu(first(scalars)))))[:, 0]


class E2Former(nn.Module):
    """E2Former V2: energies of atoms from their neighbors' directions, elements and the system's charge.

    Element tables are indexed by the place in `elements`, not by atomic number. The dtype of the parameters is the
    dtype of the network; edge vectors, energies and exact constants stay float64 through `.to(torch.float32)`.

    Args:
        config: the shape of the network.
        elements: chemical symbols in table order; None takes `config.elements`.

    Raises:
        ValueError: unknown or repeated elements, or none at all.
    """

    def __init__(self, config: ModelConfig, elements: Sequence[str] | None = None) -> None:
        super().__init__()
        self.config = config
        self.elements = check_symbols(elements if elements is not None else config.elements or ())
        count = len(self.elements)
        self.system = SystemEmbedding(config.channels)
        self.embedding = EdgeDegreeEmbedding(config, count)
        self.blocks = nn.ModuleList(Block(config, stage, count) for stage in config.stages)
        self.long_range = LongRange(config, count) if config.cluster else None
        self.final_norm = None if config.cluster else DegreeNorm(config.lmax, config.channels)
        self.head = EnergyHead(config.channels)
        self.repulsion = (
            None if config.repulsion is None else ScreenedRepulsion(self.elements, config.repulsion, self.cutoffs[0])
        )
        energies = config.reference_energies or {}
        table = torch.tensor([energies.get(symbol, 0.0) for symbol in self.elements], dtype=torch.float64)
        self.register_buffer("reference_energies", table)
        hydrogen = torch.tensor([symbol == "H" for symbol in self.elements])
        self.register_buffer("hydrogen", hydrogen, persistent=False)

    def forward(self, graph: Graph, kernels: ModuleType = reference) -> Tensor:
        """Return the energies of owned rows, reference energies included, float64 [N], eV; 0 for padding."""
        energy = self.network_energy(graph, kernels).to(torch.float64) + self.reference_energies[graph.element]
        if self.repulsion is not None:
            energy = energy + self.repulsion(graph, kernels)
        return energy * graph.weight

    def network_energy(self, graph: Graph, kernels: ModuleType = reference) -> Tensor:
        """Return what the network alone says of each row, [N] in the network's dtype, eV."""
        config = self.config
        geometry = EdgeGeometry(
            graph, config.cutoffs, config.lmax, config.num_basis, self.dtype, self.hydrogen, kernels
        )
        system = self.system(graph.charge, graph.multiplicity)
        features = self.embedding(geometry.prepare(self.embedding_stage), kernels)
        for block in self.blocks:
            features = block(features, system, geometry.prepare(block.stage), graph, kernels)
        if self.long_range is not None:
            features = self.long_range(features, system, geometry, graph, kernels)
        else:
            features = self.final_norm(features)
        return self.head(features[:, 0])

    @property
    def embedding_stage(self) -> Stage:
        """What the embedding sees: a stage without attention."""
        config = self.config
        return Stage(
            cutoff=config.embedding_cutoff,
            attention="zero-order",
            basis_cutoff=config.embedding_basis_cutoff,
            max_neighbors=config.max_neighbors,
        )

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the parameters."""
        return self.system.charge_table.dtype

    @property
    def cutoffs(self) -> tuple[float, ...]:
        """Distinct cutoffs in Å, ascending: one neighbor list each."""
        return self.config.cutoffs

    @property
    def lists(self) -> tuple[float, ...]:
        """The same: list l of a graph holds the edges within lists[l]."""
        return self.config.cutoffs

    @property
    def stages(self) -> list[dict[str, float | int]]:
        """Cutoff (Å) and list of each attention stage, as in the passport."""
        return [{"cutoff": s.cutoff, "list": self.cutoffs.index(s.cutoff)} for s in self.config.all_stages]

    @property
    def num_messages(self) -> int:
        """Halo exchanges of one forward pass."""
        return len(self.config.all_stages)

    @property
    def parts(self) -> dict[str, EdgeDegreeEmbedding | Attention]:
        """The parts that work on edges, in the order in which they run: "embedding", "stage 0", "stage 1", ..."""
        blocks = [*self.blocks, *(self.long_range.blocks if self.long_range is not None else ())]
        return {"embedding": self.embedding} | {f"stage {k}": block.attention for k, block in enumerate(blocks)}

    def set_recomputed(self, times: Mapping[str, int]) -> None:
        """Let the backward pass compute the insides of some parts anew; energies and gradients keep their values.

        They can be differentiated once only. Parts that are not named keep their insides.

        Args:
            times: how often, by name as in :attr:`parts`: 0 or 1, or 2 for the gates of an attention stage. Set fused
                kernels first: with a table the embedding keeps nothing, and a stage only its queries and keys.

        Raises:
            ValueError: a name that is no part, or another number.
        """
        unknown = sorted(set(times) - set(self.parts))
        if unknown:
            raise ValueError(
                f"expected parts among {', '.join(self.parts)}, found {', '.join(unknown)}; correct the name"
            )
        for name, part in self.parts.items():
            if times.get(name, 0) not in range(part.most_recomputed + 1):
                raise ValueError(
                    f"{name}: expected to be recomputed 0 to {part.most_recomputed} times, found {times[name]}; "
                    "change it"
                )
            part.times_recomputed = times.get(name, 0)

    def set_fused(self, *, is_fused: bool) -> None:
        """Let each attention stage run as one kernel where there is one, or as operations over all edges.

        Energies and gradients stay the same but for the order of sums. A stage without a softmax has no such kernel.
        """
        for part in self.parts.values():
            if isinstance(part, Attention):
                part.is_fused = is_fused and part.can_be_fused

    def set_split(self, *, is_split: bool) -> None:
        """Let the linear maps of atoms multiply in halves on tensor cores (:mod:`tessera.model.split_products`).

        Edge networks, the vector of the system and the head stay as they are: they take little time.
        """
        for module in self.modules():
            if isinstance(module, (DegreeLinear, ScalarProjection, FeedForward)):
                module.set_split(is_split=is_split)

    def select_elements(self, elements: Sequence[str]) -> "E2Former":
        """Return a copy that knows only `elements`, in this order.

        Raises:
            ValueError: an element that this model does not know, or its edge networks are tables.
        """
        if any(isinstance(module, SplineTable) for module in self.modules()):
            raise ValueError("expected edge networks, found tables of all pairs; select elements before tabulate()")
        symbols = check_symbols(elements)
        unknown = [symbol for symbol in symbols if symbol not in self.elements]
        if unknown:
            raise ValueError(
                f"expected elements among {', '.join(self.elements)}, found {', '.join(unknown)}; leave them out or "
                "use a model that was trained on them"
            )
        rows = torch.tensor([self.elements.index(symbol) for symbol in symbols], device=self.reference_energies.device)
        reduced = copy.deepcopy(self)
        reduced.elements = symbols
        for module in reduced.modules():
            for name in element_tables(module):
                table = getattr(module, name)
                kept = table.detach()[rows].clone()
                if isinstance(table, nn.Parameter):
                    kept = nn.Parameter(kept, requires_grad=table.requires_grad)
                setattr(module, name, kept)
        return reduced

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "E2Former":
        """Move or cast the parameters; float64 buffers are exact constants and change only their device."""
        exact = [
            (module, name, buffer)
            for module in self.modules()
            for name, buffer in module.named_buffers(recurse=False)
            if buffer.dtype == torch.float64
        ]
        super()._apply(fn, recurse)
        for module, name, buffer in exact:
            setattr(module, name, buffer.to(getattr(module, name).device))
        return self


def element_tables(module: nn.Module) -> tuple[str, ...]:
    """Return the names of a module's own tensors whose rows are elements."""
    tables: dict[type, tuple[str, ...]] = {
        E2Former: ("reference_energies", "hydrogen"),
        EdgeDegreeEmbedding: ("receiver_table", "sender_table"),
        EdgeTables: ("receiver", "sender"),
        ScreenedRepulsion: ("nuclear_charge", "inverse_length", "radius"),
    }
    return tables.get(type(module), ())
