# SPDX-License-Identifier: MIT
"""The verification: it sees what it must see, and an artifact that fails it is never written."""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import tessera.ops
from exported import small_model
from tessera.model import E2Former, energy_and_edge_gradients, forces_and_strain
from tessera_export import cli, pipeline, recompute
from tessera_export.errors import VerificationError
from tessera_export.progress import PHASES
from tessera_export.systems import LIQUID_SIZES, SMALLEST_DISTANCE, images_as_halo, random_liquid, verification_systems
from tessera_export.trace import trace_step
from tessera_export.verify import FLOAT64_RELATIVE, Results, compare

#: Reordered float64 sums of some hundred terms.
ROUNDING = 1e-12


@pytest.fixture
def results() -> Results:
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    return Results(draw(5), draw(9, 3), draw(5, 3), draw(3, 3))


@pytest.mark.parametrize("quantity", ["energies", "edge_gradients", "forces", "strain_derivative"])
def test_one_wrong_number_in_any_quantity_is_refused(results: Results, quantity: str) -> None:
    values = {name: tensor.clone() for name, tensor in vars(results).items()}
    values[quantity].view(-1)[3] += 3.0 * FLOAT64_RELATIVE
    with pytest.raises(VerificationError, match=quantity.replace("_", " ")):
        compare("case", Results(**values), results, results)


def test_equal_results_pass_and_a_not_a_number_does_not(results: Results) -> None:
    assert compare("case", results, results, results) == 0.0
    forces = results.forces.clone()
    forces[0, 0] = torch.nan
    spoilt = Results(results.energies, results.edge_gradients, forces, results.strain_derivative)
    with pytest.raises(VerificationError, match="forces"):
        compare("case", spoilt, results, results)


def test_a_float32_artifact_is_measured_by_the_rounding_of_eager_float32(results: Results) -> None:
    def shifted(amount: float) -> Results:
        return Results(*(tensor + amount for tensor in vars(results).values()))

    compare("case", shifted(4e-5), eager=shifted(1e-5), exact=results)
    with pytest.raises(VerificationError):
        compare("case", shifted(2e-4), eager=shifted(1e-5), exact=results)


def test_the_systems_hold_every_element_every_size_and_every_trap() -> None:
    numbers = list(range(1, 19))  # so many that a small random system would miss some
    systems = verification_systems(numbers, cutoff=5.0, charges=(-1, 1))
    assert [len(system.numbers) for system in systems[:3]] == list(LIQUID_SIZES)
    assert all(set(system.numbers) == set(numbers) for system in systems[:3])
    assert {system.charge for system in systems} == {-1, 0, 1}
    model = small_model("tiny")
    sizes = {system.name: (len(system.numbers), system.graph(model).lists[0].vector.shape[0]) for system in
             verification_systems([1, 6, 8], cutoff=3.0, charges=(0, 0))}  # fmt: skip
    assert sizes["three atoms without an edge"] == (3, 0)
    assert sizes["one atom"] == (1, 0)
    assert sizes["a pair and a lone atom"] == (3, 2)


def test_the_liquids_keep_their_distance_across_faces() -> None:
    system = random_liquid(np.random.default_rng(3), 200, [1, 8])
    distances = small_graph(system).lists[0].vector.norm(dim=-1)
    assert len(distances) > 0
    assert float(distances.min()) >= SMALLEST_DISTANCE


def small_graph(system) -> object:
    return system.graph(small_model("tiny"))


def test_halo_rows_copy_each_atom_once_and_change_nothing() -> None:
    model = small_model("first").double()
    system = random_liquid(np.random.default_rng(4), 20, [1, 6, 8])
    graph = system.graph(model)
    split = images_as_halo(graph, system.positions)
    for plain, edges in zip(graph.lists, split.lists, strict=True):
        assert len(edges.halo_rows) == len(set(edges.halo_rows.tolist())) > 0
        assert torch.equal(edges.owned_sender(), plain.sender)
        assert torch.equal(edges.halo_element, graph.element[edges.halo_rows])
    energy, gradients = energy_and_edge_gradients(model, graph)
    split_energy, split_gradients = energy_and_edge_gradients(model, split)
    assert torch.allclose(energy, split_energy, rtol=0.0, atol=ROUNDING)
    for one, other in zip(forces_and_strain(graph, gradients), forces_and_strain(split, split_gradients), strict=True):
        assert torch.allclose(one, other, rtol=0.0, atol=ROUNDING)


@pytest.fixture(scope="module")
def traced() -> torch.fx.GraphModule:
    return trace_step(small_model("tiny"), tessera.ops)


@pytest.fixture
def export_with(
    monkeypatch: pytest.MonkeyPatch, artifact: Callable[..., Path], traced: torch.fx.GraphModule
) -> Callable[..., int]:
    """Run the command on the tiny model, with a trace made before and a compiler that hands out an older artifact.

    `spoil` changes the model between trace and verification, so that program and model differ.
    """

    intact = artifact("tiny", "float32")

    def run(output: Path, spoil: Callable[[E2Former], None] = lambda _: None, compiled: Path = intact) -> int:
        model = small_model("tiny")

        def hand_out(_program: object, draft: Path, *_rest: object) -> None:
            shutil.copy(compiled, draft)
            spoil(model)

        monkeypatch.setattr(recompute, "trace_step", lambda *_: traced)
        monkeypatch.setattr(pipeline, "export_step", lambda *_: traced)
        monkeypatch.setattr(pipeline, "compile_package", hand_out)
        monkeypatch.setattr(cli, "load_model", lambda _: model)
        return cli.main(["model.pt", "-o", str(output)])

    return run


@pytest.mark.parametrize(
    "name",
    [
        "embedding.sender_table",
        "embedding.network.weight_mid",
        "blocks.0.attention_norm.weight",
        "blocks.0.attention.query.partner_weight",
        "blocks.0.attention.value.weight",
        "final_norm.bias",
        "head.layers.2.weight",
        "system.charge_table",
    ],
)
def test_one_wrong_weight_stops_the_export_and_nothing_is_written(
    export_with: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    def spoil(model: E2Former) -> None:
        weight = model.get_parameter(name)
        row = weight.shape[0] // 3 if name == "system.charge_table" else 0  # row of charge 0
        weight.data[row].view(-1)[0] += 0.05

    assert export_with(tmp_path / "model.pt2", spoil) == 3
    assert "the compiled program is wrong, nothing was written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_intact_model_is_written_with_nothing_beside_it(
    export_with: Callable[..., int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "model.pt2"
    with caplog.at_level(logging.INFO):
        assert export_with(output) == 0
    assert list(tmp_path.iterdir()) == [output]
    for phase in PHASES:
        assert any(message.startswith(phase) for message in caplog.messages), phase


def test_an_older_artifact_stays_when_the_new_one_is_wrong(export_with: Callable[..., int], tmp_path: Path) -> None:
    output = tmp_path / "model.pt2"
    output.write_bytes(b"older")
    assert export_with(output, lambda model: model.head.layers[2].weight.data.add_(0.05)) == 3
    assert output.read_bytes() == b"older"


def test_a_program_that_does_not_load_is_not_written(
    export_with: Callable[..., int], artifact: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = tmp_path / "half.pt2"
    content = artifact("tiny", "float32").read_bytes()
    half.write_bytes(content[: len(content) // 2])
    assert export_with(tmp_path / "model.pt2", compiled=half) == 3
    assert "does not run, nothing was written" in capsys.readouterr().err
    assert not (tmp_path / "model.pt2").exists()
