# SPDX-License-Identifier: MIT
"""Whole artifacts: they reproduce the published numbers, know their passport, and subsets of elements agree."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from exported import DEMO, load_model
from tessera import _C
from tessera.cli import main as tessera_main
from tessera.model import build_graph, forces_and_strain
from tessera_export.compiled import CompiledModel
from tessera_export.passport import weights_sha256
from tessera_export.systems import random_liquid

#: The published energies are the network's alone, in float64 from the same weights: rounding of some thousand terms.
ENERGY_RELATIVE = 1e-11
FORCE_ABSOLUTE = 1e-9  # eV/Å
#: eV and eV/Å; the same float32 sums over the same weights, tables of other lengths: a few roundings of numbers near 1.
SUBSET_ABSOLUTE = 3e-6


@pytest.mark.parametrize("case", ["case0", "case1", "case2"])
def test_the_demo_artifact_reproduces_the_published_numbers(artifact: Callable[..., Path], case: str) -> None:
    expected = np.load(DEMO / "expected.npz")
    model = load_model("demo")
    graph = build_graph(
        model,
        expected[f"{case}_Z"],
        expected[f"{case}_positions"],
        expected[f"{case}_cell"],
        expected[f"{case}_pbc"],
        charge=int(expected[f"{case}_charge"]),
        multiplicity=int(expected[f"{case}_multiplicity"]),
    )
    energies, gradients = CompiledModel(artifact("demo", "float64")).run(graph)
    forces, strain = forces_and_strain(graph, gradients)
    energy = float(energies.sum()) - float(expected[f"{case}_reference_energy_sum"])
    assert energy == pytest.approx(
        float(expected[f"{case}_energy"]), rel=0.0, abs=ENERGY_RELATIVE * float(-energies.sum())
    )
    assert np.abs(forces.numpy() - expected[f"{case}_forces"]).max() < FORCE_ABSOLUTE
    assert np.abs(strain.numpy() - expected[f"{case}_dE_dstrain"]).max() < FORCE_ABSOLUTE * len(energies)


def test_a_subset_of_elements_gives_the_energies_of_the_whole(artifact: Callable[..., Path]) -> None:
    system = random_liquid(np.random.default_rng(11), 30, [8, 1])
    results = []
    for elements in ((), ("O", "H")):  # the subset in another order
        model = load_model("tiny", elements)
        compiled = CompiledModel(artifact("tiny", "float32", elements))
        graph = system.graph(model)
        energies, gradients = compiled.run(graph)
        results.append((energies - model.reference_energies[graph.element], *gradients))
    for whole, subset in zip(*results, strict=True):
        assert torch.allclose(whole, subset, rtol=0.0, atol=SUBSET_ABSOLUTE)


def test_the_passport_tells_what_was_exported(artifact: Callable[..., Path]) -> None:
    path = artifact("first", "float64")
    model = load_model("first").double()
    passport = json.loads(_C.read_passport(str(path)).json)
    assert passport["format"] == 1
    assert passport["elements"] == ["H", "C", "O"]
    assert passport["cutoffs"] == [3.5, 4.5]
    assert passport["stages"] == [{"cutoff": 3.5, "list": 0}, {"cutoff": 4.5, "list": 1}]
    assert passport["dtype"] == "float64"
    assert passport["torch_version"] == torch.__version__
    assert passport["reference_energies"] == [-13.6, -1029.0, -2041.0]
    assert passport["num_messages"] == passport["num_layers"] == 2
    assert passport["receptive_radius"] == 3.5 + 3.5 + 4.5
    assert passport["weights_sha256"] == weights_sha256(model)


def test_the_weights_hash_changes_with_any_weight() -> None:
    model = load_model("tiny")
    before = weights_sha256(model)
    model.head.layers[0].weight.data[0, 0] += 1e-6
    assert weights_sha256(model) != before


def test_tessera_info_prints_the_passport(artifact: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = artifact("first", "float64")
    assert tessera_main(["info", str(path)]) == 0
    text = capsys.readouterr().out
    for words in (
        "H C O",
        "3.5 Å, 4.5 Å",
        "11.5 Å",
        "float64, matrix products highest",
        "-1029.000000",
        torch.__version__,
    ):
        assert words in text, words
    assert tessera_main(["info", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(_C.read_passport(str(path)).json)


def test_tessera_info_says_what_is_wrong_with_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tessera_main(["info", str(tmp_path / "absent.pt2")]) == 2
    assert "absent.pt2" in capsys.readouterr().err
    garbage = tmp_path / "garbage.pt2"
    garbage.write_bytes(b"PK is not enough")
    assert tessera_main(["info", str(garbage)]) == 2
    text = capsys.readouterr().err
    assert "garbage.pt2" in text
    assert "tessera-export" in text


def test_an_artifact_runs_under_any_name(artifact: Callable[..., Path], tmp_path: Path) -> None:
    renamed = tmp_path / "water at 300 K.pt2"
    renamed.write_bytes(artifact("tiny", "float32").read_bytes())
    system = random_liquid(np.random.default_rng(12), 20, [1, 6, 8])
    graph = system.graph(load_model("tiny"))
    first, _ = CompiledModel(renamed).run(graph)
    second, _ = CompiledModel(artifact("tiny", "float32")).run(graph)
    assert torch.equal(first, second)
