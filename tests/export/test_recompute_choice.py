# SPDX-License-Identifier: MIT
"""Budgets of memory: what is recomputed for one, that the program really does it, and which are refused."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import tessera.ops
from exported import load_model, small_model
from tessera import _C
from tessera.cli import main as tessera_main
from tessera.model import E2Former
from tessera_export import recompute
from tessera_export.compiled import CompiledModel
from tessera_export.errors import ExportError
from tessera_export.memory import MemoryModel, memory_model
from tessera_export.pipeline import check_budget
from tessera_export.recompute import Choice, choose, ladder
from tessera_export.simplify import simplify
from tessera_export.systems import images_as_halo, random_liquid
from tessera_export.trace import count_operator, trace_step

#: MiB an atom for "first" in float64, which needs 0.152 when all is kept and 0.069 at least.
TIGHT = 0.07
#: Relative to the largest value: float64 sums in another order, through two compilations.
RELATIVE = 1e-12
ALL = {"embedding": 1, "stage 0": 1, "stage 1": 2}


@pytest.fixture(scope="module")
def traces() -> dict[str, torch.fx.GraphModule]:
    model = small_model("first").double()
    kept = trace_step(model, tessera.ops)
    model.set_recomputed(ALL)
    return {"kept": kept, "recomputed": trace_step(model, tessera.ops)}


def names(module: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in module.graph.nodes]


def test_what_is_computed_twice_is_not_merged(traces: dict[str, torch.fx.GraphModule]) -> None:
    """One layer normalisation in each of two places a network; the embedding's three networks go through it at once."""
    count = {name: names(module).count("aten.native_layer_norm.default") for name, module in traces.items()}
    networks = 1 + 1 + 2  # evaluated anew: embedding, stage 0, stage 1 twice
    assert count["recomputed"] == count["kept"] + 2 * networks
    simplify(traces["recomputed"])
    assert names(traces["recomputed"]).count("aten.native_layer_norm.default") == count["recomputed"]


def test_exchanges_are_acts_and_happen_once(traces: dict[str, torch.fx.GraphModule]) -> None:
    for name in ("halo_start", "halo_wait", "halo_reverse_start", "halo_reverse_wait"):
        assert count_operator(traces["recomputed"], name) == 2, name


@pytest.mark.parametrize("kind", ["kept", "recomputed"])
def test_edge_networks_stand_between_start_and_end_of_each_exchange(traces, kind: str) -> None:
    order = names(traces[kind])
    for start, end, work in (
        ("tessera.halo_start.default", "tessera.halo_wait.default", "aten.native_layer_norm.default"),
        ("tessera.halo_reverse_start.default", "tessera.halo_reverse_wait.default",
         "aten.native_layer_norm_backward.default"),
    ):  # fmt: skip
        starts, ends = ([place for place, name in enumerate(order) if name == target] for target in (start, end))
        for first, last in zip(starts, ends, strict=True):
            assert order[first:last].count(work) >= 2, (start, first, last)


def test_each_rung_needs_no_more_than_the_one_before() -> None:
    model = small_model("first").double()
    needs = []
    for times in ladder(model):
        model.set_recomputed(times)
        needs.append(memory_model(trace_step(model, tessera.ops), model.cutoffs).per_atom(model.cutoffs))
    assert needs == sorted(needs, reverse=True)
    assert needs[-1] < 0.5 * needs[0]


def test_the_ladder_goes_from_the_first_to_run_to_the_longest_cutoff() -> None:
    assert list(ladder(small_model("first"))) == [
        {},
        {"embedding": 1},
        {"embedding": 1, "stage 0": 1},
        {"embedding": 1, "stage 0": 1, "stage 1": 2},
        {"embedding": 1, "stage 0": 2, "stage 1": 2},
    ]


@pytest.fixture
def made_up_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory by the number of parts recomputed, instead of a count of traces that would take seconds each."""
    per_atom = {0: 8.0, 1: 4.0, 2: 2.0, 3: 1.0, 4: 1.5}

    class Memory:
        def __init__(self, rung: int) -> None:
            self.rung = rung

        def per_atom(self, _cutoffs: object) -> float:
            return per_atom[self.rung]

    rungs = iter(range(5))
    monkeypatch.setattr(recompute, "trace_step", lambda *_: None)
    monkeypatch.setattr(recompute, "memory_model", lambda *_: Memory(next(rungs)))


@pytest.mark.usefixtures("made_up_needs")
@pytest.mark.parametrize(("budget", "rung"), [(None, 0), (8.0, 0), (7.9, 1), (4.0, 1), (2.5, 2), (1.0, 3)])
def test_as_little_as_possible_is_recomputed(budget: float | None, rung: int) -> None:
    model = small_model("first")
    choice = choose(model, tessera.ops, budget)
    assert choice.times == list(ladder(model))[rung]
    assert {name: part.times_recomputed for name, part in model.parts.items() if part.times_recomputed} == choice.times


@pytest.mark.usefixtures("made_up_needs")
def test_a_budget_that_cannot_be_met_is_refused_with_the_least_possible() -> None:
    with pytest.raises(ExportError) as refusal:
        choose(small_model("first"), tessera.ops, 0.9)
    assert "expected a budget of at least 1.000 MiB an atom" in str(refusal.value)
    assert "recomputing embedding, stage 0, stage 1 twice" in str(refusal.value)
    assert "found 0.9" in str(refusal.value)


def test_the_choice_leaves_a_trace_that_meets_the_budget() -> None:
    model = small_model("tiny")
    everything = memory_model(trace_step(model, tessera.ops), model.cutoffs).per_atom(model.cutoffs)
    choice = choose(model, tessera.ops, 0.9 * everything)
    assert choice.labels == ["embedding"]
    assert choice.memory.per_atom(model.cutoffs) <= 0.9 * everything
    assert memory_model(choice.module, model.cutoffs) == choice.memory


def test_a_program_that_takes_more_than_the_budget_when_it_runs_is_refused() -> None:
    choice = Choice(torch.fx.GraphModule({}, torch.fx.Graph()), {"embedding": 1}, MemoryModel(2**20, (), (), 0.0), ())
    check_budget(1.2, 1.2, choice)
    check_budget(None, 99.0, choice)
    with pytest.raises(ExportError) as refusal:
        check_budget(1.2, 1.5, choice)
    assert "expected at most 1.2 MiB an atom, found 1.500 when the program ran" in str(refusal.value)
    assert "recomputed: embedding" in str(refusal.value)
    assert "give 0.800" in str(refusal.value)


def results(path: Path, model: E2Former) -> list[torch.Tensor]:
    system = random_liquid(np.random.default_rng(13), 40, [1, 6, 8])
    graph = images_as_halo(system.graph(model), system.positions)
    energies, gradients = CompiledModel(path).run(graph)
    return [energies - model.reference_energies[graph.element], *gradients]


def test_a_compiled_program_that_recomputes_gives_the_same(artifact: Callable[..., Path]) -> None:
    model = load_model("first").double()
    plain = results(artifact("first", "float64"), model)
    frugal = results(artifact("first", "float64", recompute=TIGHT), model)
    for one, other in zip(plain, frugal, strict=True):
        assert float((one - other).abs().max()) <= RELATIVE * float(one.abs().max())


def test_the_passport_names_what_is_recomputed_and_the_memory_that_is_left(
    artifact: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plain = _C.read_passport(str(artifact("first", "float64")))
    path = artifact("first", "float64", recompute=TIGHT)
    frugal = _C.read_passport(str(path))
    assert (plain.recompute, frugal.recompute) == ([], ["embedding", "stage 0", "stage 1 twice"])
    assert not frugal.memory.measured
    counts = (1000, [0, 0], [18_000, 38_000])
    assert frugal.memory.predict(*counts) < 0.6 * plain.memory.predict(*counts)
    assert json.loads(frugal.json)["memory"]["bytes_per_edge"] == frugal.memory.bytes_per_edge
    assert tessera_main(["info", str(path)]) == 0
    text = capsys.readouterr().out
    assert "embedding, stage 0, stage 1 twice" in text
    assert "MB in any case (counted)" in text
    assert f"{frugal.memory.bytes_per_edge[1] / 1e3:.1f} kB an edge of 4.5 Å" in text
