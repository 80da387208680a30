# SPDX-License-Identifier: MIT
"""An artifact run from Python as the engine runs it: C++ loader, C++ operators, C++ padding."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tessera import _C
from tessera.model import Graph


class CompiledModel:
    """A loaded artifact that takes a Graph.

    Args:
        path: the `.pt2`.

    Raises:
        RuntimeError: the file is no artifact for this machine (the loader's own text).
    """

    def __init__(self, path: Path) -> None:
        self._artifact = _C.Artifact(str(path))

    def run(self, graph: Graph) -> tuple[Tensor, list[Tensor]]:
        """Evaluate one system, or one rank of it with its halo rows filled by the rank itself.

        Args:
            graph: unpadded; where a list has halo rows, `halo_rows` says which owned row each of them copies.

        Returns:
            Energies of the atoms [N] in eV, and dE/d(edge vector) [E, 3] in eV/Å for each list; float64.

        Raises:
            RuntimeError: the compiled code or an operator failed.
        """
        rows = [_owned_rows(edges.halo_rows) for edges in graph.lists]
        exchange = _C.SelfExchange(rows, len(graph.element)) if any(len(row) for row in rows) else None
        lists = [
            (
                edges.halo_element.to(torch.int32).numpy(),
                edges.vector.numpy(),
                edges.receiver.numpy(),
                edges.sender.numpy(),
            )
            for edges in graph.lists
        ]
        energies, gradients = self._artifact.run(
            graph.element.to(torch.int32).numpy(),
            lists,
            charge=int(graph.charge),
            multiplicity=int(graph.multiplicity),
            plan=exchange.handle if exchange else 0,
        )
        return torch.from_numpy(energies), [torch.from_numpy(gradient) for gradient in gradients]


def _owned_rows(halo_rows: Tensor | None) -> np.ndarray:
    return np.empty(0, dtype=np.int64) if halo_rows is None else halo_rows.numpy()
