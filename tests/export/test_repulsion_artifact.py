# SPDX-License-Identifier: MIT
"""The repulsion of nuclei inside an artifact: it acts in float64, and the passport and `tessera info` tell of it."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from exported import load_model
from tessera import _C
from tessera.cli import main as tessera_main
from tessera.kernels import reference
from tessera.model import forces_and_strain
from tessera_export.compiled import CompiledModel
from tessera_export.passport import weights_sha256
from tessera_export.systems import images_as_halo, random_liquid

#: Å; closest approach of 0.95 Å in the liquid of `random_liquid` becomes this, where O-O has full strength.
CLOSEST = 0.6
#: Relative to the largest: float64 sums of a hundred terms in another order.
SUMS = 1e-12
#: eV; a float32 network of order 1 rounds to 1e-6, the repulsion of some 1e2 eV may add nothing to that.
FLOAT32_NETWORK = 1e-5


def crowd() -> object:
    system = random_liquid(np.random.default_rng(3), 40, [1, 6, 8])
    shrink = CLOSEST / 0.95
    return dataclasses.replace(system, positions=system.positions * shrink, cell=system.cell * shrink)


def test_a_float32_artifact_repels_in_float64_with_and_without_halo_rows(artifact: Callable[..., Path]) -> None:
    system, model = crowd(), load_model("repelled")
    graph = system.graph(model)
    pushed = model.repulsion(graph, reference)
    assert float(pushed.sum()) > 1e2
    compiled, plain = CompiledModel(artifact("repelled", "float32")), CompiledModel(artifact("tiny", "float32"))
    energies, gradients = compiled.run(graph)
    own = plain.run(graph)[0]
    assert float((energies - own - pushed).abs().max()) < FLOAT32_NETWORK
    split = images_as_halo(graph, system.positions)
    assert split.lists[0].num_halo > 0
    split_energies, split_gradients = compiled.run(split)
    assert float((split_energies - energies).abs().max()) < FLOAT32_NETWORK
    forces = [forces_and_strain(*one)[0] for one in ((graph, gradients), (split, split_gradients))]
    assert float((forces[0] - forces[1]).abs().max()) < SUMS * float(forces[0].abs().max()) + FLOAT32_NETWORK


def test_passport_hash_and_info_tell_of_it(artifact: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    passports = {
        name: json.loads(_C.read_passport(str(artifact(name, "float32"))).json) for name in ("tiny", "repelled")
    }
    assert "repulsion" not in passports["tiny"]["model_config"]
    assert passports["repelled"]["model_config"]["repulsion"] == {"inner": 0.5, "outer": 0.8}
    assert passports["repelled"]["weights_sha256"] != passports["tiny"]["weights_sha256"]
    for name, text in (("tiny", "none"), ("repelled", "full below 0.5 and none beyond 0.8 sums of covalent radii")):
        assert tessera_main(["info", str(artifact(name, "float32"))]) == 0
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("repulsion")]
        assert text in line


def test_the_same_weights_have_the_same_hash_as_before() -> None:
    tiny, repelled = load_model("tiny"), load_model("repelled")
    assert all(torch.equal(values, tiny.get_parameter(name)) for name, values in repelled.named_parameters())
    repelled.repulsion = None
    assert weights_sha256(repelled) == weights_sha256(tiny)
