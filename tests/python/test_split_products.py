# SPDX-License-Identifier: MIT
"""What products of halves do to a model's energies and forces; a CPU multiplies the same halves, exactly."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from tessera.kernels import halves as room
from tessera.kernels import reference
from tessera.model import E2Former, ModelConfig, Stage, build_graph, energy_and_edge_gradients, layers, split_products
from tessera.model.split_products import SplitWeight
from tessera.model.tensor_algebra import degree_of_row

NUM_SYSTEMS = 4
#: What --matmul tf32x3 promises: energy errors within three times those of plain FP32.
LARGEST_RATIO = 3.0


def model_of(dtype):
    stages = (Stage(4.0, "zero-order", 4.0), Stage(4.0, "so2-first-order", 4.0))
    config = ModelConfig(lmax=2, channels=64, num_heads=16, head_scalars=8, num_basis=16, out_channels=64,
                         embedding_cutoff=4.0, stages=stages)  # fmt: skip
    torch.manual_seed(5)
    return E2Former(config, ("H", "O")).requires_grad_(requires_grad=False).to(dtype)


def outcomes(dtype, *, is_split=False):
    """Atom energies and edge gradients of several random systems, one array each."""
    model, energies, gradients = model_of(dtype), [], []
    model.set_split(is_split=is_split)
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
    exact, plain = outcomes(torch.float64), outcomes(torch.float32)
    three = outcomes(torch.float32, is_split=True)
    leave_out_the_rest(monkeypatch)
    one = outcomes(torch.float32, is_split=True)
    for expected, of_plain, of_three, of_one in zip(exact, plain, three, one, strict=True):
        plain_error = root_mean_square(of_plain - expected)
        assert root_mean_square(of_three - expected) <= LARGEST_RATIO * plain_error
        assert root_mean_square(of_one - expected) >= 30 * plain_error  # so the test sees which products are made


def root_mean_square(values):
    return values.square().mean().sqrt()


def leave_out_the_rest(monkeypatch):
    """Multiply the high halves alone."""
    halves = room.halves

    def high_alone(*arguments):
        high, low, scale = halves(*arguments)
        return high, low * 0.0, scale

    for module in (room, split_products):
        monkeypatch.setattr(module, "halves", high_alone)


#: Sizes of rows: as they are, close to both ends of float32, and so different that one scale would lose the small ones.
SIZES = {"one": 1.0, "tiny": 1e-25, "huge": 1e30, "each": 10.0 ** np.linspace(-20, 20, 50)[:, None]}


def mapped(features, weight):
    """[rows, inputs], [outputs, inputs] -> [rows, outputs], in halves."""
    return SplitWeight(weight[None])(features[:, None])[:, 0]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("inputs", "outputs"), [(256, 64), (1536, 8), (5, 3)])
def test_products_and_gradients_err_as_float32_does(inputs, outputs, size):
    generator = torch.Generator().manual_seed(3)
    scale = torch.tensor(SIZES[size])
    features = (torch.randn(50, inputs, generator=generator) * scale).float()
    weight = torch.randn(outputs, inputs, generator=generator) / inputs**0.5
    incoming = (torch.randn(50, outputs, generator=generator) * scale).float()

    def outcome(product, dtype):
        leaf = features.to(dtype).requires_grad_()
        found = product(leaf, weight.to(dtype))
        (gradient,) = torch.autograd.grad((found * incoming.to(dtype)).sum(), leaf)
        return [(values.detach().double() / scale) for values in (found, gradient)]

    exact = outcome(torch.nn.functional.linear, torch.float64)
    plain = outcome(torch.nn.functional.linear, torch.float32)
    split = outcome(mapped, torch.float32)
    for expected, of_plain, of_split in zip(exact, plain, split, strict=True):
        smallest = 2.0**-24 * root_mean_square(expected)
        largest = LARGEST_RATIO * max(root_mean_square(of_plain - expected), smallest)
        assert root_mean_square(of_split - expected) <= largest


def test_each_degree_has_its_weight_and_its_gradient():
    generator = torch.Generator().manual_seed(4)
    features = torch.randn(7, 9, 6, generator=generator, requires_grad=True)
    weight, incoming = torch.randn(3, 5, 6, generator=generator), torch.randn(7, 9, 5, generator=generator)
    expected = torch.einsum("nri,roi->nro", features, weight[[0, 1, 1, 1, 2, 2, 2, 2, 2]])
    (expected_gradient,) = torch.autograd.grad((expected * incoming).sum(), features)
    found = SplitWeight(weight)(features)
    (gradient,) = torch.autograd.grad((found * incoming).sum(), features)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-5)


#: Sizes of atoms whose squares are not too large for float32, beside a bias of order one.
SIZES_OF_PAIRS = {"one": 1.0, "tiny": 1e-10, "huge": 1e10, "each": 10.0 ** np.linspace(-10, 10, 50)[:, None, None]}


@pytest.mark.parametrize("size", SIZES_OF_PAIRS)
def test_sums_of_products_of_two_maps_and_their_gradients_err_as_float32_does(size):
    generator = torch.Generator().manual_seed(6)
    features = (torch.randn(50, 9, 96, generator=generator) * torch.tensor(SIZES_OF_PAIRS[size])).float()
    weight = torch.randn(3, 2 * 40, 96, generator=generator) / 96**0.5 * torch.tensor([1.0, 8.0, 0.1])[:, None, None]
    bias, incoming = torch.randn(40, generator=generator), torch.randn(50, 3 * 40, generator=generator)

    def outcome(dtype, *, is_split):
        leaf = features.to(dtype).requires_grad_()
        if is_split:
            found = SplitWeight(weight).sum_of_products(leaf, bias)
        else:
            by_row = weight.to(dtype)[degree_of_row(2)]
            first, second = layers.degree_linear(leaf, by_row, functional.pad(bias, (0, 40)).to(dtype)).chunk(2, dim=2)
            found = layers.sum_by_degree(first * second, 2).flatten(1)
        (gradient,) = torch.autograd.grad(found, leaf, incoming.to(dtype))
        return [values.detach().double().flatten(1) for values in (found, gradient)]

    exact, plain = outcome(torch.float64, is_split=False), outcome(torch.float32, is_split=False)
    split = outcome(torch.float32, is_split=True)
    for expected, of_plain, of_split in zip(exact, plain, split, strict=True):
        of_atom = expected.square().mean(1, keepdim=True).sqrt()
        plain_error, split_error = (root_mean_square((x - expected) / of_atom) for x in (of_plain, of_split))
        assert split_error <= LARGEST_RATIO * max(plain_error, 2.0**-24)


def test_a_projection_with_biases_errs_as_float32_does():
    torch.manual_seed(8)
    projection = layers.ScalarProjection(2, 64, 32, 4, 2).requires_grad_(requires_grad=False)
    projection.bias.normal_()
    features, incoming = torch.randn(20, 9, 64), torch.randn(20, 2, 4)

    def outcome(dtype, *, is_split):
        projection.to(dtype).set_split(is_split=is_split)
        leaf = features.to(dtype).requires_grad_()
        found = projection(leaf)
        return [x.detach().double() for x in (found, *torch.autograd.grad(found, leaf, incoming.to(dtype)))]

    plain, split = outcome(torch.float32, is_split=False), outcome(torch.float32, is_split=True)
    for expected, of_plain, of_split in zip(outcome(torch.float64, is_split=False), plain, split, strict=True):
        assert root_mean_square(of_split - expected) <= LARGEST_RATIO * root_mean_square(of_plain - expected)


def test_what_is_no_number_in_an_atom_stays_there():
    features = torch.ones(3, 4, 2)
    features[1, 2, 0] = float("nan")
    features.requires_grad_()
    found = SplitWeight(torch.ones(2, 6, 2)).sum_of_products(features, torch.ones(3))
    (gradient,) = torch.autograd.grad(found.sum(), features)
    assert found.isnan().any(dim=1).tolist() == [False, True, False]
    assert gradient[1, 2].isnan().all()
    assert gradient.isnan().sum() == gradient[1, 2].numel()


def test_small_numbers_beside_large_ones_in_a_row_keep_their_share():
    features = torch.tensor([[3e4, 1e-7, 0.0, -2e-3]])
    torch.testing.assert_close(mapped(features, torch.eye(4)), features, rtol=0, atol=3e4 * 2.0**-24)


def test_rows_of_zeros_stay_zero_and_what_is_no_number_stays_none():
    features = torch.tensor([[0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0], [1.0, 2.0]])
    found = mapped(features, torch.tensor([[1.0, 1.0]]))
    assert found[0] == 0.0
    assert not found[1:3].isfinite().any()
    assert found[3] == 3.0


@pytest.mark.parametrize("product", ["forward", "sum_of_products"])
@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.zeros(2, 4, 3).double(), "features: expected torch.float32 .any, 4, 3., found torch.float64"),
        (torch.zeros(2, 3, 3), r"features: expected torch.float32 .any, 4, 3., found torch.float32 \[2, 3, 3\]"),
        (torch.zeros(4, 3), r"found torch.float32 \[4, 3\]"),
    ],
    ids=["dtype", "rows", "dimensions"],
)
def test_other_features_are_refused(features, message, product):
    bias = () if product == "forward" else (torch.zeros(2),)
    with pytest.raises(ValueError, match=message):
        getattr(SplitWeight(torch.zeros(2, 4, 3)), product)(features, *bias)


@pytest.mark.parametrize("weight", [torch.zeros(2, 5, 3).double(), torch.zeros(5, 3)], ids=["dtype", "dimensions"])
def test_other_weights_are_refused(weight):
    with pytest.raises(ValueError, match=r"weight: expected torch.float32 .L\+1, outputs, inputs., found"):
        SplitWeight(weight)
