# SPDX-License-Identifier: MIT
"""The smallest artifact that uses every operator: one list, one exchange, compiled once a run in a few seconds."""

import json
from pathlib import Path

import torch
from small_graph import NUM_EDGES, NUM_HALO, NUM_OWNED
from torch.export import Dim
from torch.fx.experimental.proxy_tensor import make_fx

from tessera import ops
from tessera.model.graph import EdgeList
from tessera_export.package import compile_package, cpu_capability, cpu_configs

HEADS, CHANNELS, CUTOFF = 2, 4, 3.0

#: Every key that format 1 promises.
PASSPORT = {
    "format": 1,
    "elements": ["H", "O"],
    "cutoffs": [CUTOFF],
    "stages": [{"cutoff": CUTOFF, "list": 0}],
    "dtype": "float64",
    "matmul": "highest",
    "device": "cpu",
    "device_capability": cpu_capability(is_native=False),
    "torch_version": torch.__version__,
    "uses_charge": True,
    "charge_range": [-10, 10],
    "multiplicity_range": [1, 9],
    "reference_energies": [0.0, 0.0],
    "energy_unit": "eV",
    "length_unit": "angstrom",
    "weights_sha256": "",
    "num_layers": 1,
    "num_messages": 1,
    "recompute": [],
    "memory": {
        "bytes_per_row": 1000,
        "bytes_per_halo_row": [200],
        "bytes_per_edge": [30],
        "bytes": 4,
        "measured": False,
    },
    "channels": CHANNELS,
    "receptive_radius": CUTOFF,
    "model_config": {},
    "tessera_version": "0.1.0",
}


def step(kernels, inputs, halo_rows=None):
    """Energies [N] and dE/d(edge vector) [E, 3] of a made-up model; `inputs` as in ARCHITECTURE.md."""
    plan, element, weight, charge, multiplicity, halo_element, vector, *index = inputs
    vector = vector.detach().requires_grad_()
    edges = EdgeList(halo_element, vector, *index, halo_rows=halo_rows)
    distance = vector.square().sum(1).sqrt()
    active = distance < CUTOFF
    envelope = torch.where(active, (1 - distance / CUTOFF) ** 2, 0.0)
    active = kernels.nearest_edges(distance.detach(), active, edges, 5) | active
    unit = torch.cat([torch.ones_like(distance)[:, None], vector / distance[:, None]], dim=1)
    ramp = torch.arange(1, 2 * CHANNELS + 1, dtype=torch.float64).reshape(2, CHANNELS)
    radial = (envelope[:, None, None] * ramp).sin()
    rows = kernels.outer_sum(unit, radial, edges)  # [N, 4, C]
    kind = torch.nn.functional.one_hot(element, 2).double() @ (ramp / 10)
    rows = torch.cat([rows[:, :1] + kind[:, None], rows[:, 1:]], dim=1)

    payload = rows.reshape(-1, 4 * CHANNELS).tanh()
    ticket = kernels.halo_start(payload, plan, edges, 0)
    local = kernels.segment_sum(envelope[:, None], edges)
    extended = kernels.halo_wait(payload, ticket, plan, edges, 0).reshape(-1, 4, CHANNELS)

    query, key = rows[:, 0].reshape(-1, HEADS, 2), extended[:, 0].reshape(-1, HEADS, 2)
    score = kernels.edge_dot(query, key, edges)
    largest = kernels.segment_max(score, active, edges)
    shift = largest.detach()  # a gather that carried a gradient would come back as a scatter with atomics
    attention = (score - shift[edges.receiver]).clamp(max=30).exp() * envelope[:, None]
    normalizer = kernels.segment_sum(attention, edges) + 1e-3 * (largest - shift).exp()
    along = kernels.harmonic_dot(unit, rows, edges).sum((1, 2))
    moments = kernels.weighted_sum(torch.stack([attention, attention * along[:, None]], 1), extended, edges)
    moments = moments.reshape(-1, 2, 4, CHANNELS // HEADS, HEADS) / normalizer[:, None, None, None]
    offset = 0.1 * charge.double() + 0.01 * multiplicity.double()
    energy = (moments.square().sum((1, 2, 3, 4)).log1p() + local[:, 0] + offset) * weight
    (gradient,) = torch.autograd.grad(energy.sum(), [vector])
    return energy.detach(), gradient


def example_inputs():
    """Zeros of extents that all differ, so that tracing gives each its own symbol."""
    n, e, h = NUM_OWNED + 10, NUM_EDGES + 1, NUM_HALO + 14
    long, double = torch.int64, torch.float64
    shapes = [((1,), long), ((n,), long), ((n,), double), ((1,), long), ((1,), long), ((h,), long), ((e, 3), double)]
    shapes += [((e,), long), ((e,), long), ((n, 2), long), ((e,), long), ((n + h, 2), long)]
    return tuple(torch.zeros(shape, dtype=dtype) for shape, dtype in shapes)


class _Positional(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs)


def write(path: Path) -> None:
    traced = make_fx(lambda *inputs: step(ops, inputs), tracing_mode="symbolic")(*example_inputs())
    n, e, h, m = (Dim(name, min=2) for name in "nehm")
    shapes = ({}, {0: n}, {0: n}, {}, {}, {0: h}, {0: e}, {0: e}, {0: e}, {0: n}, {0: e}, {0: m})
    program = torch.export.export(_Positional(traced), example_inputs(), dynamic_shapes=(shapes,), strict=False)
    compile_package(program, path, json.dumps(PASSPORT), cpu_configs(is_native=False))
