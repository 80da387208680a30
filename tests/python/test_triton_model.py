# SPDX-License-Identifier: MIT
"""A whole model on the fused Triton kernels, in the interpreter: energies and forces, and the trace of its step."""

import os

import numpy as np
import pytest
import torch

from tessera.kernels import reference
from tessera.model import E2Former, ModelConfig, Stage, build_graph, energy_and_edge_gradients
from tessera.model.radial_table import tabulate

pytest.importorskip("triton", reason="needs triton (pip install triton==3.6.0)")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("these kernels run compiled here: tests/cuda/test_cuda_triton.py", allow_module_level=True)

from tessera.ops import gpu

#: eV and eV/Å in float64: sums of some tens of terms of order one in another order.
TOLERANCE = 1e-10


def model_of(attention, **options):
    stages = (Stage(3.0, attention, 3.0), Stage(3.0, attention, 3.0))
    config = ModelConfig(lmax=1, channels=8, num_heads=4, head_scalars=2, num_basis=6, out_channels=8,
                         embedding_cutoff=3.0, stages=stages, **options)  # fmt: skip
    torch.manual_seed(5)
    return E2Former(config, ("H", "O")).requires_grad_(requires_grad=False).double()


def molecule(model):
    positions = np.random.default_rng(3).normal(scale=1.2, size=(5, 3))
    return build_graph(model, np.array([8, 1, 1, 8, 1]), positions)


@pytest.mark.parametrize("has_tables", [True, False], ids=["tables", "networks"])
@pytest.mark.parametrize("attention", ["zero-order", "so2-first-order"])
def test_a_model_gives_the_energies_and_edge_gradients_of_the_reference(attention, has_tables):
    model = model_of(attention)
    if has_tables:
        model = tabulate(model, 2)
    model.set_fused(is_fused=True)
    graph = molecule(model)
    expected_energy, expected = energy_and_edge_gradients(model, graph, reference)
    energy, gradients = energy_and_edge_gradients(model, graph, gpu)
    torch.testing.assert_close(energy, expected_energy, rtol=0, atol=TOLERANCE)
    assert sum(gradient.abs().sum() for gradient in expected) > 1e-3
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE)
