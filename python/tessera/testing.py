# SPDX-License-Identifier: MIT
"""Small seeded models and systems for tests, and graphs rewritten as an artifact sees them."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tessera.model import E2Former, EdgeList, Graph, ModelConfig, Stage, edge_list
from tessera.model.elements import ATOMIC_NUMBERS
from tessera.model.embedding import SystemEmbedding
from tessera.model.layers import DegreeNorm, StackedNorm

PADDING_DISTANCE = 1e3
"""Length of a padding edge in units of the cutoff (ARCHITECTURE.md, The artifact)."""

WEIGHT_GAIN = 2.0
"""Makes random weights of variance 4/(3 inputs), so that signals and forces are of order 1."""


def small_config(
    attention: str = "zero-order", *, lmax: int = 2, cutoffs: Sequence[float] = (3.0, 4.0), **changes: object
) -> ModelConfig:
    """Return a tiny model: 8 channels, 4 heads, one stage a cutoff (Å), the embedding at the first."""
    cap = changes.get("max_neighbors")
    settings: dict[str, object] = {
        "lmax": lmax,
        "channels": 8,
        "num_heads": 4,
        "head_scalars": 2,
        "num_basis": 12,
        "out_channels": 8,
        "embedding_cutoff": cutoffs[0],
        "stages": tuple(Stage(cutoff, attention, cutoff, max_neighbors=cap) for cutoff in cutoffs),
        "average_degree": 4.0,
    }
    return ModelConfig(**(settings | changes))


def random_model(
    config: ModelConfig, elements: Sequence[str] = ("H", "C", "O"), seed: int = 1, dtype: torch.dtype = torch.float64
) -> E2Former:
    """Return a model whose every parameter is random, gains and biases too, so that none can hide."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = E2Former(config, elements)
        with torch.no_grad():
            for module in model.modules():
                gains = isinstance(module, (DegreeNorm, StackedNorm, torch.nn.LayerNorm))
                for name, parameter in module.named_parameters(recurse=False):
                    if gains or name.startswith("bias"):
                        parameter.add_(0.3 * torch.randn_like(parameter))
                    elif "table" in name or name in ("receiver", "sender") or isinstance(module, SystemEmbedding):
                        parameter.copy_(torch.randn_like(parameter))
                    else:
                        parameter.mul_(WEIGHT_GAIN)
        # float32 values, so that both dtypes hold the same model
        return model.to(torch.float32).to(dtype).eval()


@dataclasses.dataclass(frozen=True)
class Atoms:
    """A system as :func:`tessera.model.build_graph` takes it; lengths in Å."""

    numbers: np.ndarray
    positions: np.ndarray
    cell: np.ndarray | None = None
    pbc: tuple[bool, bool, bool] = (False, False, False)
    charge: int = 0
    multiplicity: int = 1


def random_atoms(
    count: int,
    *,
    periodic: bool = True,
    elements: Sequence[str] = ("H", "C", "O"),
    density: float = 0.08,
    seed: int = 2,
) -> Atoms:
    """Return atoms no closer than 0.9 Å in a tilted cell of `density` atoms/Å^3, which is periodic or not there."""
    generator = np.random.default_rng(seed)
    side = (count / density) ** (1.0 / 3.0)
    cell = side * (np.eye(3) + np.array([[0.0, 0.0, 0.0], [0.15, 0.0, 0.0], [-0.1, 0.2, 0.0]]))
    images = np.array(np.meshgrid(*[(-1, 0, 1)] * 3)).reshape(3, -1).T @ cell
    placed = np.empty((0, 3))
    while len(placed) < count:
        candidate = generator.uniform(0.0, 1.0, 3) @ cell
        apart = candidate - placed[:, None, :] - images[None, :, :]
        if (apart**2).sum(-1).min(initial=np.inf) > 0.9**2:
            placed = np.vstack([placed, candidate])
    kinds = [ATOMIC_NUMBERS[symbol] for symbol in elements]
    numbers = generator.choice(kinds, count)
    numbers[: len(kinds)] = kinds[:count]
    return Atoms(numbers, placed, cell if periodic else None, (periodic,) * 3)


def pad_graph(graph: Graph, cutoffs: Sequence[float], rows: int, edges: int, halo: int) -> Graph:
    """Append padding rows, edges and halo rows as the runtime does (ARCHITECTURE.md, The artifact).

    Padding rows have weight 0 and element 0; padding edges join the last owned row, a padding row, to itself over
    1e3 cutoffs; padding halo rows copy row 0.

    Args:
        graph: the system.
        cutoffs: Å, one a list.
        rows: owned rows to append, at least 1 where edges are appended.
        edges: edges to append to each list.
        halo: halo rows to append to each list.

    Raises:
        ValueError: padding edges without a padding row to hold them.
    """
    if edges and not rows:
        raise ValueError(f"expected a padding row for {edges} padding edges, found none; append at least one row")
    num_owned = graph.element.shape[0] + rows
    lists = [
        _pad_list(old, cutoff, num_owned, rows, edges, halo) for old, cutoff in zip(graph.lists, cutoffs, strict=True)
    ]
    zeros = torch.zeros(rows, dtype=torch.int64)
    return dataclasses.replace(
        graph,
        element=torch.cat([graph.element, zeros]),
        weight=torch.cat([graph.weight, zeros.to(torch.float64)]),
        lists=lists,
    )


def _pad_list(old: EdgeList, cutoff: float, num_owned: int, rows: int, edges: int, halo: int) -> EdgeList:
    last = torch.full((edges,), num_owned - 1)
    vector = torch.tensor([PADDING_DISTANCE * cutoff, 0.0, 0.0], dtype=torch.float64).expand(edges, 3)
    sender = torch.where(old.sender >= old.num_owned, old.sender + rows, old.sender)
    zeros = torch.zeros(halo, dtype=torch.int64)
    return edge_list(
        torch.cat([old.receiver, last]),
        torch.cat([sender, last]),
        torch.cat([old.vector, vector]),
        num_owned,
        halo_element=torch.cat([old.halo_element, zeros]),
        halo_rows=torch.cat([_halo_rows(old), zeros]),
    )


def send_through_halo(graph: Graph, seed: int = 3) -> Graph:
    """Let about half of the edges read their sender through a halo row that copies it; the numbers must not change.

    The halo rows stand in random order, so that no owned row is mistaken for the copy with the same place.
    """
    generator = torch.Generator().manual_seed(seed)
    lists = []
    for old in graph.lists:
        moved = torch.rand(old.sender.shape[0], generator=generator) < 0.5
        copied, place = torch.unique(old.sender[moved], return_inverse=True)
        order = torch.randperm(len(copied), generator=generator)
        copied, place = copied[order], torch.argsort(order)[place]
        sender = old.sender.clone()
        sender[moved] = old.num_owned + place
        lists.append(
            edge_list(old.receiver, sender, old.vector, old.num_owned, graph.element[copied], halo_rows=copied)
        )
    return dataclasses.replace(graph, lists=lists)


def _halo_rows(edges: EdgeList) -> Tensor:
    if edges.halo_rows is None:
        raise ValueError(f"expected halo_rows for {edges.num_halo} halo rows, found None; say whom they copy")
    return edges.halo_rows
