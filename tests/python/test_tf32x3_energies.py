# SPDX-License-Identifier: MIT
"""What three products of TF32 do to a model's energies and forces: emulated in torch, linear map by linear map."""

import numpy as np
import torch

from tessera.kernels import reference
from tessera.model import E2Former, ModelConfig, Stage, build_graph, energy_and_edge_gradients, layers

NUM_SYSTEMS = 4
#: The claim of --matmul tf32x3 (issue 6): energy errors within three times those of plain FP32.
LARGEST_RATIO = 3.0


def rounded(x):
    """11 significant bits, as tensor cores take."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class Product(torch.autograd.Function):
    """Row by row x @ w^T as high * low + low * high + high * high, and so its gradient."""

    @staticmethod
    def forward(ctx, features, weight, terms):
        ctx.save_for_backward(weight)
        ctx.terms = terms
        return product(features, weight, terms)

    @staticmethod
    def backward(ctx, grad):
        (weight,) = ctx.saved_tensors
        return product(grad, weight.transpose(1, 2), ctx.terms), None, None


def product(features, weight, terms):
    high, weight_high = rounded(features.contiguous()), rounded(weight.contiguous())
    total = torch.einsum("nri,roi->nro", high, weight_high)
    if terms == 3:
        low, weight_low = rounded(features - high), rounded(weight - weight_high)
        total = total + torch.einsum("nri,roi->nro", low, weight_high) + torch.einsum("nri,roi->nro", high, weight_low)
    return total


def emulated(terms):
    def degree_linear(features, row_weight, bias):
        total = Product.apply(features, row_weight, terms)
        return total if bias is None else total + layers.scalar_row(bias, row_weight.shape[0])

    return degree_linear


def model_of(dtype):
    stages = (Stage(4.0, "zero-order", 4.0), Stage(4.0, "so2-first-order", 4.0))
    config = ModelConfig(lmax=2, channels=64, num_heads=16, head_scalars=8, num_basis=16, out_channels=64,
                         embedding_cutoff=4.0, stages=stages)  # fmt: skip
    torch.manual_seed(5)
    return E2Former(config, ("H", "O")).requires_grad_(requires_grad=False).to(dtype)


def outcomes(dtype):
    """Atom energies and edge gradients of several random systems, one array each."""
    model, energies, gradients = model_of(dtype), [], []
    for seed in range(NUM_SYSTEMS):
        random = np.random.default_rng(seed)
        grid = np.stack(np.meshgrid(*[np.arange(3)] * 3, indexing="ij"), axis=-1).reshape(-1, 3) * 1.8
        positions = grid + random.normal(scale=0.15, size=grid.shape)
        graph = build_graph(model, random.choice([1, 8], len(grid)), positions)
        energy, gradient = energy_and_edge_gradients(model, graph, reference)
        energies.append(energy.detach().double())
        gradients.append(gradient[0].detach().double())
    return torch.cat(energies), torch.cat(gradients)


def test_energy_and_force_errors_of_three_products_are_those_of_fp32(monkeypatch):
    exact = outcomes(torch.float64)
    plain = outcomes(torch.float32)
    errors = {"plain": [(a - b).square().mean().sqrt() for a, b in zip(plain, exact, strict=True)]}
    for terms in (1, 3):
        monkeypatch.setattr(layers, "degree_linear", emulated(terms))
        errors[terms] = [(a - b).square().mean().sqrt() for a, b in zip(outcomes(torch.float32), exact, strict=True)]
    for of_plain, of_three, of_one in zip(errors["plain"], errors[3], errors[1], strict=True):
        assert of_three <= LARGEST_RATIO * of_plain
        assert of_one >= 30 * of_plain  # one product is worse by orders, so the test sees products
