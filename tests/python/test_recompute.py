# SPDX-License-Identifier: MIT
"""Recomputed parts of the network: the same energies and gradients from fewer kept numbers."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from exported import SEED, SMALL_CONFIGS, SMALL_ELEMENTS, small_model
from tessera import ops
from tessera.kernels import reference
from tessera.model import E2Former, energy_and_edge_gradients
from tessera_export.systems import random_liquid

#: Relative to the largest gradient: equal float64 terms, added in another order where several parts read a number.
GRADIENT_RELATIVE = 1e-14
KERNELS = {"reference": reference, "operators": ops}


@pytest.fixture
def graph():
    return random_liquid(np.random.default_rng(5), 30, [1, 6, 8]).graph(small_model("first"))


def model_with(score: str) -> E2Former:
    torch.manual_seed(SEED)
    config = dataclasses.replace(SMALL_CONFIGS["first"], score=score)
    return E2Former(config, SMALL_ELEMENTS).double().requires_grad_(requires_grad=False)


@pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("score", ["QK", "QKdot", "QKdotS"])
@pytest.mark.parametrize("times", [1, 2])
def test_energies_are_equal_and_gradients_differ_by_rounding(graph, kernels, score: str, times: int) -> None:
    model = model_with(score)
    energy, gradients = energy_and_edge_gradients(model, graph, kernels)
    model.set_recomputed({"embedding": 1, "stage 0": times, "stage 1": times})
    again, recomputed = energy_and_edge_gradients(model, graph, kernels)
    assert torch.equal(energy, again)
    for one, other in zip(gradients, recomputed, strict=True):
        assert float((one - other).abs().max()) <= GRADIENT_RELATIVE * float(one.abs().max())
        assert float(one.abs().max()) > 0.0


def evaluations(model: E2Former, times: dict[str, int], run: Callable[[], object]) -> dict[str, int]:
    """How often the edge network of each part was evaluated during `run`."""
    networks: dict[str, nn.Module] = {"embedding": model.embedding.network}
    networks |= {f"stage {place}": block.attention.gate.network for place, block in enumerate(model.blocks)}
    counts = dict.fromkeys(networks, 0)

    def count(name: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            counts[name] += 1

        return hook

    handles = [network.register_forward_hook(count(name)) for name, network in networks.items()]
    model.set_recomputed(times)
    run()
    for handle in handles:
        handle.remove()
    return counts


@pytest.mark.parametrize(
    "times", [{}, {"embedding": 1}, {"stage 0": 1}, {"stage 1": 2}, {"embedding": 1, "stage 0": 2, "stage 1": 1}]
)
def test_the_edge_networks_of_the_named_parts_alone_run_again(graph, times: dict[str, int]) -> None:
    model = model_with("QK")
    counts = evaluations(model, times, lambda: energy_and_edge_gradients(model, graph))
    assert counts == {name: 1 + times.get(name, 0) for name in model.parts}


def kept_bytes(model: E2Former, graph) -> int:
    """Bytes that autograd keeps between the forward and the backward pass, each storage once."""
    storages: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    for edges in graph.lists:
        edges.vector.requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(graph)
    return sum(storages.values())


def test_each_part_that_is_recomputed_keeps_less(graph) -> None:
    model = model_with("QK")
    kept = []
    for times in ({}, {"embedding": 1}, {"embedding": 1, "stage 0": 1}, {"embedding": 1, "stage 0": 1, "stage 1": 1}):
        model.set_recomputed(times)
        kept.append(kept_bytes(model, graph))
    assert kept == sorted(kept, reverse=True)
    assert kept[-1] < 0.5 * kept[0]


def test_a_setting_is_forgotten_with_the_next_one(graph) -> None:
    model = model_with("QK")
    model.set_recomputed({"stage 0": 2})
    counts = evaluations(model, {"stage 1": 1}, lambda: energy_and_edge_gradients(model, graph))
    assert counts == {"embedding": 1, "stage 0": 1, "stage 1": 2}


def test_parts_go_through_the_long_range_blocks_too() -> None:
    stage = dataclasses.replace(SMALL_CONFIGS["tiny"].stages[0], cutoff=6.0, drops_hydrogen_senders=True)
    model = E2Former(dataclasses.replace(SMALL_CONFIGS["tiny"], cluster=(stage,)), SMALL_ELEMENTS)
    assert list(model.parts) == ["embedding", "stage 0", "stage 1"]
    assert model.parts["stage 1"] is model.long_range.blocks[0].attention


def test_a_recomputed_model_cannot_be_differentiated_twice(graph) -> None:
    model = model_with("QK")
    model.set_recomputed({"stage 0": 1})
    _, gradients = energy_and_edge_gradients(model, graph, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradients[0].sum().backward()


@pytest.mark.parametrize(
    ("times", "complaint"),
    [
        ({"stage 2": 1}, "expected parts among embedding, stage 0, stage 1, found stage 2"),
        ({"stage 0": 3}, "stage 0: expected to be recomputed 0 to 2 times, found 3"),
        ({"embedding": 2}, "embedding: expected to be recomputed 0 to 1 times, found 2"),
    ],
)
def test_other_parts_and_numbers_are_refused(times: dict[str, int], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        model_with("QK").set_recomputed(times)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool], ids=str)
def test_the_operator_copies_any_tensor(dtype: torch.dtype) -> None:
    x = (torch.arange(12).reshape(3, 4) % 3).to(dtype)
    for original in (x, x.T):
        copy = ops.recompute_after(original, torch.zeros(2))
        assert torch.equal(copy, original)
        assert copy.is_contiguous()
        assert copy.data_ptr() != x.data_ptr()
