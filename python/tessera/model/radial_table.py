# SPDX-License-Identifier: MIT
"""Edge networks as splines of the distance, one a pair of elements.

An edge network sees nothing but the distance and both elements, so in a model whose weights are fixed it is a set of
functions of one variable. Uniform quintic B-splines interpolate them: four continuous derivatives, and forces are the
exact gradient of the tabulated energy. The error falls with the sixth power of the interval.
"""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor

from tessera.kernels.reference import SPLINE_ROWS
from tessera.model.embedding import EdgeDegreeEmbedding
from tessera.model.geometry import radial_basis
from tessera.model.layers import EdgeNetwork
from tessera.model.network import E2Former
from tessera.model.scores import EdgeGate
from tessera.model.spline_table import SplineTable

MARGIN = 40
"""Intervals beyond either end of the grid that take part in the interpolation: the influence of an end falls by 0.43 an
interval (the largest pole of the quintic spline's filter), below 1e-14 after these."""


def tabulate(model: E2Former, intervals_per_width: int) -> E2Former:
    """Return a copy whose edge networks are tables where they can be: the embedding's, and the gates' of score QK.

    Args:
        model: select its elements first: a table holds every pair of them.
        intervals_per_width: intervals in one width of the radial basis, 2*cutoff/(B-1).

    Raises:
        ValueError: fewer than one interval a width.
    """
    if intervals_per_width < 1:
        raise ValueError(f"expected at least 1 interval a width of the radial basis, found {intervals_per_width}")
    tabled = copy.deepcopy(model)
    for part, stage in _parts(tabled):
        intervals = max(1, round(0.5 * (model.config.num_basis - 1) * stage.cutoff / stage.basis_cutoff))
        intervals *= intervals_per_width
        if isinstance(part, EdgeDegreeEmbedding):
            elements = part.receiver_table, part.sender_table
            network, shape = part.network, (model.config.lmax + 1, model.config.channels)
        else:
            elements = part.tables.receiver, part.tables.sender
            network, shape = part.gate.network, (2, model.config.num_heads)
        values = _sample(network, *elements, stage.cutoff, stage.basis_cutoff, intervals)
        coefficients = interpolate(values).flatten(0, 1).unflatten(1, shape)
        table = SplineTable(coefficients.to(model.dtype), stage.cutoff, intervals)
        if isinstance(part, EdgeDegreeEmbedding):
            part.table = table
        else:
            part.gate.table = table
    return tabled


def has_tables(model: E2Former) -> bool:
    """Whether an edge network of `model` is a table."""
    return any(isinstance(module, SplineTable) for module in model.modules())


def table_bytes(model: E2Former, intervals_per_width: int) -> int:
    """Count the bytes that the tables of :func:`tabulate` take."""
    config, pairs = model.config, len(model.elements) ** 2
    rows = pairs * (0.5 * (config.num_basis - 1) * intervals_per_width + SPLINE_ROWS)
    widths = [
        (config.lmax + 1) * config.channels if isinstance(part, EdgeDegreeEmbedding) else 2 * config.num_heads
        for part, _ in _parts(model)
    ]
    return round(rows * sum(widths) * torch.finfo(model.dtype).bits / 8)


def _parts(model: E2Former) -> Iterator[tuple]:
    """Give the parts whose edge network can be a table, with the stage that they see."""
    yield model.embedding, model.embedding_stage
    blocks = [*model.blocks, *(model.long_range.blocks if model.long_range is not None else ())]
    for block in blocks:
        if isinstance(block.attention.gate, EdgeGate):
            yield block.attention, block.stage


def _sample(
    network: EdgeNetwork, receiver: Tensor, sender: Tensor, cutoff: float, basis_cutoff: float, intervals: int
) -> Tensor:
    """Evaluate a network at the nodes and MARGIN beyond: float64 [pairs, nodes, outputs of all networks].

    The radial basis is a sum of Gaussians, so it has values at distances below 0 and beyond the cutoff too.
    """
    network = copy.deepcopy(network).double()
    receiver, sender = receiver.detach().double(), sender.detach().double()
    nodes = torch.arange(-MARGIN, intervals + MARGIN + 1, dtype=torch.float64, device=receiver.device)
    basis = radial_basis(nodes * (cutoff / intervals), basis_cutoff, network.num_basis)
    count = receiver.shape[0]
    found = []
    with torch.no_grad():
        for pair in range(count * count):
            elements = [torch.full((len(nodes),), element, device=basis.device) for element in divmod(pair, count)]
            found.append(network(basis, receiver, sender, *elements).transpose(0, 1).flatten(1))
    return torch.stack(found)


def interpolate(values: Tensor) -> Tensor:
    """Give the coefficients of the quintic spline through `values`, without the MARGIN: [P, K + 1 + 2 MARGIN, F].

    Returns:
        float64 [P, K + 5, F]: intervals 0 to K-1 use six consecutive rows each, from their own number.
    """
    count = values.shape[1]
    at_node = torch.tensor([1.0, 26.0, 66.0, 26.0, 1.0], dtype=torch.float64, device=values.device) / 120.0
    matrix = sum(
        torch.diag(torch.ones(count - abs(place), dtype=torch.float64, device=values.device), place)
        * at_node[place + 2]
        for place in range(-2, 3)
    )
    coefficients = torch.linalg.solve(matrix, values)
    return coefficients[:, MARGIN - 2 : count - MARGIN + 2]
