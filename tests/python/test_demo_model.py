# SPDX-License-Identifier: MIT
"""The bundled model gives the numbers that its training left beside it."""

import numpy as np
import pytest
import torch
from ase import Atoms
from ase.geometry import find_mic
from ase.neighborlist import build_neighbor_list, natural_cutoffs

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


WATER = Atoms("OHH", [[0, 0, 0], [0.586, 0.757, 0], [0.586, -0.757, 0]])  # Å, hydrogens away from what it meets
PARTNERS = {"O of water": (WATER, 1.05, 2.88), "Cl-": (Atoms("Cl"), 1.2, 2.39)}
"""What comes to a hydrogen of carbon, how near (Å), and what that takes at least by the model's teacher (eV)."""


def first_residue_of_the_demo() -> Atoms:
    """A capped alanine from the third case, whole and alone."""
    stored = np.load(MODELS / "expected.npz")
    box = Atoms(stored["case2_Z"], stored["case2_positions"], cell=stored["case2_cell"], pbc=True)
    bonds = build_neighbor_list(box, natural_cutoffs(box, mult=1.15), skin=0.0, self_interaction=False, bothways=True)
    molecules = [molecule_of(bonds, int(carbon)) for carbon in np.flatnonzero(box.numbers == 6)]
    smallest = min(molecules, key=len)
    for atom, before in smallest.items():
        box.positions[atom] = box.positions[before] + find_mic(box.positions[atom] - box.positions[before], box.cell)[0]
    return Atoms(box.numbers[list(smallest)], box.positions[list(smallest)])


def molecule_of(bonds, start: int) -> dict[int, int]:
    """Give all atoms of a molecule, each with a bonded one that stands before it."""
    found, open_ends = {start: start}, [start]
    for atom in open_ends:
        for other in bonds.get_neighbors(atom)[0].tolist():
            if other not in found:
                found[other] = atom
                open_ends.append(other)
    return found


@pytest.mark.parametrize("name", PARTNERS)
def test_nothing_falls_onto_the_hydrogens_of_carbon(name):
    """A model that had seen no such contact held a water 1.05 Å from one, twice in a shell of 60 peptides."""
    model = load_checkpoint(MODELS / "tessera-demo.pt").to(torch.float64)
    residue, (partner, near, least) = first_residue_of_the_demo(), PARTNERS[name]
    distances = residue.get_all_distances() + 9.0 * np.eye(len(residue))
    hydrogens = [h for h in np.flatnonzero(residue.numbers == 1) if residue.numbers[distances[h].argmin()] == 6]

    def energy(hydrogen: int, distance: float) -> float:
        outward = residue.positions[hydrogen] - residue.positions[distances[hydrogen].argmin()]
        outward /= np.linalg.norm(outward)
        turned = partner.copy()
        turned.rotate([1, 0, 0], outward)
        turned.positions += residue.positions[hydrogen] + distance * outward
        both = residue + turned
        charge = -1 if name == "Cl-" else 0
        graph = build_graph(model, both.numbers, both.positions, np.zeros((3, 3)), [False] * 3, charge=charge)
        return float(energy_and_edge_gradients(model, graph)[0].sum())

    costs = [energy(hydrogen, near) - energy(hydrogen, 3.0) for hydrogen in hydrogens]
    assert len(costs) == 10
    assert min(costs) > 0.7 * least  # 0.88 of it is found; without such frames 0.1 (water) and 0.3 (Cl-)


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
