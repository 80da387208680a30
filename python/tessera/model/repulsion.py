# SPDX-License-Identifier: MIT
"""The repulsion of two nuclei at distances where no data are: a network alone lets atoms fall through each other."""

from collections.abc import Sequence
from types import ModuleType

import torch
from torch import Tensor, nn

from tessera.kernels import reference
from tessera.model.config import RepulsionRange
from tessera.model.elements import ATOMIC_NUMBERS
from tessera.model.geometry import SHORTEST_DISTANCE
from tessera.model.graph import Graph

COULOMB = 14.399645
"""eV Å, e²/(4 pi epsilon_0)."""
SCREENING_LENGTH = 0.4685
"""Å, 0.8854 Bohr radii."""
SCREENING_POWER = 0.23
SCREENING = ((0.18175, 3.19980), (0.50986, 0.94229), (0.28022, 0.40290), (0.02817, 0.20162))
"""Weight and decay of each exponential of the universal screening function."""


class ScreenedRepulsion(nn.Module):
    """Screened Coulomb repulsion of nuclei (Ziegler, Biersack, Littmark 1985), switched off well inside of bonds.

    V(d) = k Z_i Z_j / d * phi(d / a) * s(d), a = 0.4685 Å / (Z_i^0.23 + Z_j^0.23); s falls from 1 at `inner` to 0 at
    `outer` sums of covalent radii (Cordero 2008) with two continuous derivatives. No parameter is trained. Everything
    is float64, whatever the network's dtype.

    Args:
        elements: symbols in table order.
        reach: where it acts.
        cutoff: Å, of the list that it reads; no pair may reach beyond.

    Raises:
        ValueError: an element without a covalent radius, or a cutoff shorter than the range of the largest pair.
    """

    def __init__(self, elements: Sequence[str], reach: RepulsionRange, cutoff: float) -> None:
        super().__init__()
        self.reach = reach
        numbers = torch.tensor([ATOMIC_NUMBERS[symbol] for symbol in elements], dtype=torch.float64)
        radii = covalent_radii(elements)
        longest = 2.0 * reach.outer * float(radii.max())
        if longest > cutoff:
            raise ValueError(
                f"repulsion: expected a shortest cutoff of at least {longest:.2f} Å, which the largest element's pair "
                f"reaches, found {cutoff:g} Å; lower repulsion_outer or name fewer elements"
            )
        # Rows are elements (tessera.model.network.element_tables).
        self.register_buffer("nuclear_charge", numbers)
        self.register_buffer("inverse_length", numbers**SCREENING_POWER / SCREENING_LENGTH)
        self.register_buffer("radius", radii)

    def forward(self, graph: Graph, kernels: ModuleType = reference) -> Tensor:
        """Return each owned row's half of its pairs, float64 [N], eV; the shortest list is read."""
        edges = graph.lists[0]
        sender = torch.cat([graph.element, edges.halo_element])[edges.sender]
        receiver = graph.element[edges.receiver]
        squared = (edges.vector * edges.vector).sum(-1)
        distance = torch.sqrt(squared.clamp(min=SHORTEST_DISTANCE**2))
        return kernels.segment_sum(0.5 * self.pair_energy(distance, receiver, sender)[:, None], edges)[:, 0]

    def pair_energy(self, distance: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Evaluate V(d): float64 [E] (Å), int64 [E] (places in the element table) twice -> float64 [E], eV."""
        scaled = distance * (self.inverse_length[first] + self.inverse_length[second])
        screening = sum(weight * torch.exp(-decay * scaled) for weight, decay in SCREENING)
        bare = COULOMB * self.nuclear_charge[first] * self.nuclear_charge[second] / distance
        return bare * screening * self._switch(distance, self.radius[first] + self.radius[second])

    def _switch(self, distance: Tensor, radii: Tensor) -> Tensor:
        """1 below `inner`, 0 beyond `outer`; value and two derivatives are continuous."""
        width = self.reach.outer - self.reach.inner
        rest = ((self.reach.outer - distance / radii) / width).clamp(min=0.0).clamp(max=1.0)
        return rest * rest * rest * (10.0 + rest * (rest * 6.0 - 15.0))


def covalent_radii(elements: Sequence[str]) -> Tensor:
    """Return covalent radii, float64 [elements], Å (Cordero et al. 2008, as ASE holds them).

    Raises:
        ValueError: elements of which that table has none.
    """
    from ase import data  # noqa: PLC0415  (only models with a repulsion need it)

    radii = [float(data.covalent_radii[ATOMIC_NUMBERS[symbol]]) for symbol in elements]
    absent = [symbol for symbol, radius in zip(elements, radii, strict=True) if radius == data.missing]
    if absent:
        raise ValueError(
            f"repulsion: expected elements with a known covalent radius, found {', '.join(absent)}; name the elements "
            "of your system without these"
        )
    return torch.tensor(radii, dtype=torch.float64)
