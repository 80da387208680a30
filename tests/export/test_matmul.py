# SPDX-License-Identifier: MIT
"""TF32 products: what they round, that the setting is put back, and how far they may move results."""

import numpy as np
import pytest
import torch

from exported import small_model
from tessera.kernels import reference
from tessera.model import energy_and_edge_gradients
from tessera_export.errors import VerificationError
from tessera_export.matmul import RoundedProducts, matmul_precision, round_to_tf32
from tessera_export.systems import random_liquid
from tessera_export.verify import FLOAT32_RELATIVE, TF32_RELATIVE, Results, compare

#: Half of the last of 10 bits of mantissa, relative.
HALF_UNIT = 2.0**-11


def test_the_setting_holds_within_the_block_and_ends_with_it() -> None:
    before = torch.get_float32_matmul_precision()
    with matmul_precision("tf32"):
        assert torch.get_float32_matmul_precision() == "high"
        with matmul_precision("highest"):
            assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == before
    with pytest.raises(RuntimeError), matmul_precision("tf32"):
        raise RuntimeError
    assert torch.get_float32_matmul_precision() == before


def test_rounding_goes_to_the_nearest_of_ten_bits() -> None:
    unit = 2.0**-10
    values = torch.tensor([1.0, 1.0 + unit, 1.0 + 0.4 * unit, 1.0 + 0.6 * unit, -3.0, 0.0, 1e-20])
    expected = torch.tensor([1.0, 1.0 + unit, 1.0, 1.0 + unit, -3.0, 0.0])
    assert torch.equal(round_to_tf32(values)[:6], expected)
    random = torch.randn(1000, generator=torch.Generator().manual_seed(2))
    error = (round_to_tf32(random) / random - 1.0).abs()
    assert 0.9 * HALF_UNIT < float(error.max()) <= HALF_UNIT
    assert torch.equal(round_to_tf32(random.double()), random.double())


@pytest.mark.parametrize("name", ["mm", "bmm", "addmm", "baddbmm"])
def test_every_kind_of_product_rounds_its_factors_and_nothing_else(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    batch = (2,) if "b" in name else ()
    bias, first, second = (torch.randn(*batch, 3, 3, generator=generator) for _ in range(3))
    bias = [bias] if "add" in name else []
    with RoundedProducts():
        found = getattr(torch, name)(*bias, first, second)
        summed = first + second
    assert torch.equal(found, getattr(torch, name)(*bias, round_to_tf32(first), round_to_tf32(second)))
    assert not torch.equal(found, getattr(torch, name)(*bias, first, second))
    assert torch.equal(summed, first + second)


@pytest.fixture(scope="module")
def results() -> dict[str, Results]:
    """One system by the eager model: float64, float32, and float32 with TF32 products in both passes."""
    model = small_model("first")
    graph = random_liquid(np.random.default_rng(6), 40, [1, 6, 8]).graph(model)

    def collect() -> Results:
        return Results.collect(model, graph, *energy_and_edge_gradients(model, graph, reference))

    single = collect()
    with RoundedProducts():
        rounded = collect()
    spoilt_model = small_model("first")
    spoilt_model.head.layers[2].weight.data.add_(0.05)
    spoilt = Results.collect(spoilt_model, graph, *energy_and_edge_gradients(spoilt_model, graph, reference))
    model.double()
    return {"exact": collect(), "float32": single, "tf32": rounded, "spoilt": spoilt}


def test_tf32_moves_results_further_than_float32_and_no_further_than_its_bound(results: dict[str, Results]) -> None:
    errors = {name: float((results[name].forces - results["exact"].forces).abs().max()) for name in ("float32", "tf32")}
    assert errors["tf32"] > 20.0 * errors["float32"]
    assert compare("tf32", results["tf32"], results["tf32"], results["exact"], TF32_RELATIVE) < 1.0


def test_the_narrow_bound_tells_tf32_from_float32(results: dict[str, Results]) -> None:
    assert compare("float32", results["float32"], results["float32"], results["exact"], FLOAT32_RELATIVE) < 1.0
    with pytest.raises(VerificationError):
        compare("tf32", results["tf32"], results["float32"], results["exact"], FLOAT32_RELATIVE)


def test_a_wrong_layer_exceeds_the_bound_of_tf32_too(results: dict[str, Results]) -> None:
    with pytest.raises(VerificationError):
        compare("spoilt", results["spoilt"], results["tf32"], results["exact"], TF32_RELATIVE)
