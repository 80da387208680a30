# SPDX-License-Identifier: MIT
"""The bundled model gives the numbers that its training left beside it."""

import numpy as np
import pytest
import torch

from oracle_data import ROOT
from tessera.checkpoint import load_checkpoint
from tessera.model import build_graph, energy_and_edge_gradients, forces_and_strain
from tessera.model.config import RepulsionRange

MODELS = ROOT / "examples" / "models"
# float64: roundings of energies of some 1e4 eV (1e-12) and forces of order 1 eV/Å; float32: of the network.
TOLERANCES = {
    torch.float64: {"energy": 1e-9, "atom": 1e-11, "force": 1e-10, "strain": 1e-9},
    torch.float32: {"energy": 2e-4, "atom": 2e-6, "force": 5e-5, "strain": 2e-4},
}


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("case", [0, 1, 2], ids=["water", "KCl", "amino acid"])
def test_the_demo_model_reproduces_its_expected_numbers(case, dtype):
    stored = np.load(MODELS / "expected.npz")
    expected = {key.split("_", 1)[1]: stored[key] for key in stored.files if key.startswith(f"case{case}_")}
    model = load_checkpoint(MODELS / "tessera-demo.pt").to(dtype)
    graph = build_graph(model, expected["Z"], expected["positions"], expected["cell"], expected["pbc"],
                        charge=int(expected["charge"]), multiplicity=int(expected["multiplicity"]))  # fmt: skip
    energy, gradients = energy_and_edge_gradients(model, graph)
    forces, strain = forces_and_strain(graph, gradients)
    bound = TOLERANCES[dtype]
    total = float(expected["energy"]) + float(expected["reference_energy_sum"])
    assert abs(float(energy.sum()) - total) <= bound["energy"]
    network = (energy - model.reference_energies[graph.element]).numpy()
    assert np.abs(network - expected["per_atom_energy"]).max() <= bound["atom"]
    assert np.abs(forces.numpy() - expected["forces"]).max() <= bound["force"]
    assert np.abs(strain.numpy() - expected["dE_dstrain"]).max() <= bound["strain"]


def test_the_demo_model_states_its_layout():
    model = load_checkpoint(MODELS / "tessera-demo.pt")
    assert model.elements == ("H", "C", "N", "O", "S", "Cl", "K")
    assert model.cutoffs == (4.5, 6.0)
    assert model.stages == [{"cutoff": 4.5, "list": 0}, {"cutoff": 4.5, "list": 0}, {"cutoff": 6.0, "list": 1}]
    assert model.config.receptive_radius == 19.5
    assert model.config.softmax == "smooth"
    assert model.config.repulsion == RepulsionRange(0.45, 0.7)
    assert model.dtype == torch.float32


def test_reference_energies_keep_float64_through_a_cast():
    model = load_checkpoint(MODELS / "tessera-demo.pt").to(torch.float32)
    assert model.reference_energies.dtype == torch.float64
    assert float(model.reference_energies[0]) == -165.14822042105297
