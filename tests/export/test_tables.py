# SPDX-License-Identifier: MIT
"""Tables of edge networks in an export: as fine as the tolerance asks, refused where they cannot be had."""

import dataclasses
import json

import numpy as np
import pytest
import torch

import tessera.ops
from exported import Request, export, load_model, small_model
from tessera import _C
from tessera.cli import main as tessera_main
from tessera.kernels import reference
from tessera.model import E2Former, energy_and_edge_gradients, forces_and_strain
from tessera.model.radial_table import has_tables
from tessera_export import cli, tables
from tessera_export.compiled import CompiledModel
from tessera_export.errors import ExportError
from tessera_export.memory import memory_model
from tessera_export.passport import weights_sha256
from tessera_export.pipeline import ExportOptions, tabulated
from tessera_export.progress import Progress
from tessera_export.recompute import ladder
from tessera_export.systems import random_liquid
from tessera_export.tables import choose_tables
from tessera_export.trace import trace_step

CHARGES = (-1, 1)


def forces(model: E2Former, graph) -> torch.Tensor:
    return forces_and_strain(graph, energy_and_edge_gradients(model, graph, reference)[1])[0]


@pytest.mark.parametrize("tolerance", [1e-3, 1e-6])
def test_forces_on_other_atoms_stay_near_the_tolerance(tolerance: float) -> None:
    model = small_model("first").double()
    chosen = choose_tables(model, tolerance, CHARGES)
    assert chosen.force_error <= tolerance
    liquid = random_liquid(np.random.default_rng(77), 60, [1, 6, 8])
    graph = liquid.graph(model)
    error = (forces(chosen.model, graph) - forces(model, graph)).abs().max().item()
    assert error <= 5.0 * tolerance  # other distances, other environments
    assert error > 0.0


def test_a_smaller_tolerance_takes_a_finer_table() -> None:
    model = small_model("first").double()
    coarse, fine = (choose_tables(model, tolerance, CHARGES) for tolerance in (1e-3, 1e-7))
    assert fine.intervals_per_width > coarse.intervals_per_width
    assert fine.num_bytes > coarse.num_bytes


def test_a_tolerance_that_no_table_reaches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MOST_INTERVALS", 10)
    with pytest.raises(ExportError, match=r"at most 10 intervals a width .* found an error of .* --radial exact"):
        choose_tables(small_model("first").double(), 1e-12, CHARGES)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, float("nan")])
def test_a_tolerance_must_be_positive(tolerance: float) -> None:
    with pytest.raises(ExportError, match="expected a positive number"):
        choose_tables(small_model("tiny"), tolerance, CHARGES)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (ExportOptions(), True),
        (ExportOptions(dtype="float64"), False),
        (ExportOptions(dtype="float64", radial="table"), True),
        (ExportOptions(radial="exact"), False),
        (ExportOptions(kernels="plain"), False),
    ],
    ids=["float32", "float64", "float64 asked for", "exact asked for", "plain kernels"],
)
def test_tables_are_the_default_of_fused_float32_alone(options: ExportOptions, expected: bool) -> None:
    model = small_model("tiny").to(torch.float64 if options.dtype == "float64" else torch.float32)
    progress = Progress()
    try:
        found = tabulated(model, options, progress)
    finally:
        progress.close()
    assert (found is not None) is expected
    assert not has_tables(model)
    assert found is None or has_tables(found.model)


def test_tables_without_fused_kernels_are_refused() -> None:
    with pytest.raises(ExportError, match="expected --kernels fused"):
        tabulated(small_model("tiny"), ExportOptions(kernels="plain", radial="table"), Progress())


def test_tables_too_large_are_left_out_with_a_word_or_refused_if_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tables, "MOST_BYTES", 1000)
    monkeypatch.setattr("tessera_export.pipeline.MOST_BYTES", 1000)
    model, progress = small_model("tiny"), Progress()
    with caplog.at_level("WARNING", logger="tessera_export"):
        assert tabulated(model, ExportOptions(), progress) is None
    assert "edge networks stay exact" in caplog.text
    assert "--elements" in caplog.text
    with pytest.raises(ExportError, match=r"tables of 3 elements would take .* --elements"):
        tabulated(model, ExportOptions(radial="table"), progress)


def test_unknown_words_list_the_known_ones(capsys) -> None:
    with pytest.raises(SystemExit):
        cli.main(["model.pt", "-o", "m.pt2", "--radial", "spline"])
    text = capsys.readouterr().err
    assert "table" in text
    assert "exact" in text


def test_with_tables_only_queries_and_keys_are_left_to_recompute() -> None:
    model = small_model("first")
    assert len(list(ladder(model))) > 3
    tabled = choose_tables(model, 1e-3, CHARGES).model
    tabled.set_fused(is_fused=True)
    assert list(ladder(tabled)) == [{}, {"stage 0": 1}]
    with pytest.raises(ValueError, match="embedding: expected to be recomputed 0 to 0 times"):
        tabled.set_recomputed({"embedding": 1})


def test_recomputed_queries_and_keys_save_memory_and_change_nothing() -> None:
    model = choose_tables(small_model("first").double(), 1e-3, CHARGES).model
    model.set_fused(is_fused=True)
    graph = random_liquid(np.random.default_rng(3), 60, [1, 6, 8]).graph(model)
    results, need = [], []
    for times in ({}, {"stage 0": 1}):
        model.set_recomputed(times)
        results.append(energy_and_edge_gradients(model, graph, tessera.ops))
        need.append(memory_model(trace_step(model, tessera.ops), model.cutoffs).per_atom(model.cutoffs))
    assert need[1] < 0.95 * need[0]
    assert torch.equal(results[0][0], results[1][0])
    for one, other in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)


def test_a_fused_step_needs_less_memory_and_tables_least() -> None:
    model = small_model("first").requires_grad_(requires_grad=False)
    need = {}
    need["plain"] = memory_model(trace_step(model, tessera.ops), model.cutoffs).per_atom(model.cutoffs)
    model.set_fused(is_fused=True)
    need["fused"] = memory_model(trace_step(model, tessera.ops), model.cutoffs).per_atom(model.cutoffs)
    tabled = choose_tables(model, 1e-4, CHARGES).model
    tabled.set_fused(is_fused=True)
    need["tables"] = memory_model(trace_step(tabled, tessera.ops), model.cutoffs).per_atom(model.cutoffs)
    assert need["tables"] < 0.5 * need["fused"] < 0.5 * need["plain"]


def test_the_passport_says_how_edge_networks_are_evaluated(artifact, capsys) -> None:
    tabled, exact = artifact("tiny", "float32"), artifact("first", "float64")
    found = json.loads(_C.read_passport(str(tabled)).json)
    assert found["kernels"] == "fused"
    assert found["tables"]["intervals_per_width"] >= tables.FIRST_INTERVALS
    assert found["tables"]["force_error"] <= 1e-6
    assert json.loads(_C.read_passport(str(exact)).json)["tables"] is None
    for path, words in ((tabled, "intervals in a width"), (exact, "exact")):
        assert tessera_main(["info", str(path)]) == 0
        line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("edge networks"))
        assert words in line


def test_the_hash_of_the_weights_is_that_of_the_networks(artifact) -> None:
    """A restart file must find the same model whether it was exported with tables or without."""
    found = json.loads(_C.read_passport(str(artifact("tiny", "float32"))).json)
    assert found["weights_sha256"] == weights_sha256(load_model("tiny", ()))


def test_plain_and_fused_programs_agree(artifact) -> None:
    fused = artifact("first", "float64")
    plain = export(dataclasses.replace(Request("first", "float64"), kernels="plain"))
    assert json.loads(_C.read_passport(str(plain)).json)["kernels"] == "plain"
    model = small_model("first").double()
    graph = random_liquid(np.random.default_rng(3), 60, [1, 6, 8]).graph(model)
    results = [CompiledModel(path).run(graph) for path in (fused, plain)]
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-12, atol=1e-12)
    for one, other in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
