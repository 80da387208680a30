# SPDX-License-Identifier: MIT
"""The ASE calculator on compiled artifacts: cells of every kind, derivatives, symmetries, errors."""

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.calculators.calculator import CalculatorSetupError, PropertyNotImplementedError
from ase.md.verlet import VelocityVerlet
from ase.units import fs

from exported import load_model
from many_ranks import small_cell, tilted, water_216
from tessera import TesseraCalculator
from tessera.model import build_graph, energy_and_edge_gradients, forces_and_strain
from tessera.testing import random_atoms

ENERGY_RTOL = 1e-10  # float64, sums in another order
FORCE_ATOL = 1e-9  # eV/Å, likewise
SYMMETRY_ATOL = 1e-8  # eV/Å: rotated positions carry rounding of their own
STEP = 1e-4  # Å or strain; truncation below 1e-7 of the curvature, rounding of 1e-10 eV / STEP below 1e-6
STRAIN = 2e-5  # likewise
DIFFERENCE_ATOL = 5e-6  # eV/Å, eV
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def demo(artifact) -> TesseraCalculator:
    return TesseraCalculator(artifact("demo", "float64"))


@pytest.fixture(scope="session")
def first_order(artifact) -> TesseraCalculator:
    return TesseraCalculator(artifact("first", "float64"))


@pytest.fixture(params=["demo", "first_order"])
def calculator(request) -> TesseraCalculator:
    return request.getfixturevalue(request.param)


def with_calculator(atoms: Atoms, calculator: TesseraCalculator) -> Atoms:
    atoms = atoms.copy()
    atoms.calc = calculator
    return atoms


def cluster() -> Atoms:
    """Four waters in vacuum, no cell, far from any symmetry."""
    atoms = Atoms()
    rng = np.random.default_rng(21)
    for k in range(4):
        water = molecule("H2O")
        water.rotate(rng.uniform(0, 180), rng.normal(size=3))
        water.translate([2.9 * (k % 2), 2.8 * (k // 2), 0.4 * k])
        atoms += water
    atoms.rattle(0.05, seed=2)
    return atoms


def thin_slab() -> Atoms:
    atoms = water_216()[:120]
    atoms.pbc = [True, False, True]
    return atoms


def random_system(elements) -> Atoms:
    """40 atoms of all these elements at liquid density in a tilted cell."""
    made = random_atoms(40, elements=elements, seed=3)
    return Atoms(made.numbers, made.positions, cell=made.cell, pbc=made.pbc)


SYSTEMS = {"cluster": cluster, "slab": thin_slab, "tilted": tilted, "several images": small_cell}


@pytest.mark.parametrize("case", [0, 1, 2])
def test_the_bundled_model_gives_its_published_numbers(demo, case):
    expected = np.load(ROOT / "examples" / "models" / "expected.npz")
    get = lambda name: expected[f"case{case}_{name}"]  # noqa: E731
    atoms = Atoms(get("Z"), get("positions"), cell=get("cell"), pbc=get("pbc").astype(bool))
    atoms.info["charge"] = int(get("charge"))
    atoms.calc = demo
    energy = get("energy") + get("reference_energy_sum")
    assert atoms.get_potential_energy() == pytest.approx(float(energy), rel=ENERGY_RTOL)
    np.testing.assert_allclose(atoms.get_forces(), get("forces"), atol=FORCE_ATOL, rtol=0)
    stress = get("dE_dstrain") / atoms.get_volume()
    np.testing.assert_allclose(atoms.get_stress(voigt=False), stress, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", SYSTEMS)
def test_forces_are_the_differences_of_the_energy(calculator, name):
    atoms = with_calculator(SYSTEMS[name](), calculator)
    forces = atoms.get_forces()
    for index, axis in [(0, 0), (1, 1), (len(atoms) - 1, 2)]:
        energies = []
        for sign in (1, -1):
            moved = with_calculator(atoms, calculator)
            moved.positions[index, axis] += sign * STEP
            energies.append(moved.get_potential_energy())
        assert forces[index, axis] == pytest.approx(-(energies[0] - energies[1]) / (2 * STEP), abs=DIFFERENCE_ATOL)
    np.testing.assert_allclose(forces.sum(0), 0, atol=FORCE_ATOL)


@pytest.mark.parametrize("name", ["tilted", "several images"])
def test_the_stress_is_the_derivative_by_strain(calculator, name):
    """On few atoms: among many, some pair crosses a cutoff under strain, where the exact maximum may step."""
    atoms = with_calculator(random_system(("H", "C", "O")) if name == "tilted" else small_cell(), calculator)
    stress = atoms.get_stress(voigt=False)
    for a, b in [(0, 0), (1, 2), (2, 0)]:
        energies = []
        for sign in (1, -1):
            strain = np.eye(3)
            strain[a, b] += sign * STRAIN / 2
            strain[b, a] += sign * STRAIN / 2
            strained = with_calculator(atoms, calculator)
            strained.set_cell(atoms.cell.array @ strain, scale_atoms=True)
            energies.append(strained.get_potential_energy())
        slope = (energies[0] - energies[1]) / (2 * STRAIN)
        assert stress[a, b] * atoms.get_volume() == pytest.approx(slope, rel=1e-6, abs=DIFFERENCE_ATOL)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_translation_changes_nothing(calculator, name):
    atoms = with_calculator(SYSTEMS[name](), calculator)
    moved = with_calculator(atoms, calculator)
    moved.positions += [3.21, -17.4, 55.0]
    assert moved.get_potential_energy() == pytest.approx(atoms.get_potential_energy(), rel=ENERGY_RTOL)
    np.testing.assert_allclose(moved.get_forces(), atoms.get_forces(), atol=SYMMETRY_ATOL, rtol=0)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_rotation_turns_the_forces(calculator, name):
    atoms = with_calculator(SYSTEMS[name](), calculator)
    turn = np.linalg.qr(np.random.default_rng(9).normal(size=(3, 3)))[0]
    turn *= np.linalg.det(turn)  # proper
    turned = with_calculator(atoms, calculator)
    turned.set_cell(atoms.cell.array @ turn.T)
    turned.positions = atoms.positions @ turn.T
    assert turned.get_potential_energy() == pytest.approx(atoms.get_potential_energy(), rel=ENERGY_RTOL)
    np.testing.assert_allclose(turned.get_forces(), atoms.get_forces() @ turn.T, atol=SYMMETRY_ATOL, rtol=0)


def test_a_mirror_image_differs_only_with_first_order_attention(demo, first_order):
    mirrored = cluster()
    mirrored.positions[:, 0] *= -1
    energies = {
        name: [with_calculator(atoms, calculator).get_potential_energy() for atoms in (cluster(), mirrored)]
        for name, calculator in (("zero", demo), ("first", first_order))
    }
    assert energies["zero"][0] == pytest.approx(energies["zero"][1], rel=ENERGY_RTOL)
    assert abs(energies["first"][0] - energies["first"][1]) > 1e-6


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_permutation_permutes_the_forces(calculator, name):
    atoms = with_calculator(SYSTEMS[name](), calculator)
    order = np.random.default_rng(4).permutation(len(atoms))
    permuted = with_calculator(atoms[order], calculator)
    assert permuted.get_potential_energy() == pytest.approx(atoms.get_potential_energy(), rel=ENERGY_RTOL)
    np.testing.assert_allclose(permuted.get_forces(), atoms.get_forces()[order], atol=FORCE_ATOL, rtol=0)


@pytest.mark.parametrize("name", SYSTEMS)
def test_shares_of_the_atoms_add_up(calculator, name):
    atoms = with_calculator(SYSTEMS[name](), calculator)
    assert atoms.get_potential_energies().sum() == pytest.approx(atoms.get_potential_energy(), rel=ENERGY_RTOL)
    if atoms.cell.rank == 3:
        np.testing.assert_allclose(atoms.get_stresses().sum(0), atoms.get_stress(), atol=1e-10, rtol=0)


def test_a_large_periodic_box_equals_no_box(calculator):
    free = with_calculator(cluster(), calculator)
    boxed = with_calculator(cluster(), calculator)
    boxed.set_cell([60, 60, 60])
    boxed.pbc = True
    np.testing.assert_allclose(boxed.get_forces(), free.get_forces(), atol=FORCE_ATOL, rtol=0)


def test_steps_that_reuse_the_topology_equal_fresh_ones(artifact):
    atoms = water_216()[:90]
    rng = np.random.default_rng(0)
    atoms.set_velocities(rng.normal(0, 0.02, atoms.positions.shape))
    reusing = TesseraCalculator(artifact("demo", "float64"), skin=1.0)
    atoms.calc = reusing
    dynamics = VelocityVerlet(atoms, timestep=0.5 * fs)
    dynamics.run(10)
    fresh = with_calculator(atoms, TesseraCalculator(artifact("demo", "float64"), skin=0.0))
    np.testing.assert_allclose(atoms.get_forces(), fresh.get_forces(), atol=FORCE_ATOL, rtol=0)
    report = reusing._engine.report()
    assert report["steps"] == 11
    assert report["rebuilds"] < 11


def test_one_calculator_serves_systems_of_any_size(demo):
    alone = [with_calculator(SYSTEMS[name](), demo).get_potential_energy() for name in SYSTEMS]
    again = [with_calculator(SYSTEMS[name](), demo).get_potential_energy() for name in reversed(SYSTEMS)]
    assert alone == pytest.approx(again[::-1], rel=ENERGY_RTOL)


def test_a_single_atom_has_an_energy_and_no_force(demo):
    atom = with_calculator(Atoms("O"), demo)
    assert np.isfinite(atom.get_potential_energy())
    np.testing.assert_array_equal(atom.get_forces(), np.zeros((1, 3)))


def test_the_charge_comes_from_the_argument_or_the_atoms(artifact, demo):
    ion = cluster()
    ion.info["charge"] = 1
    from_info = with_calculator(ion, demo).get_potential_energy()
    charged = TesseraCalculator(artifact("demo", "float64"), charge=1)
    assert with_calculator(cluster(), charged).get_potential_energy() == pytest.approx(from_info, rel=ENERGY_RTOL)
    assert with_calculator(cluster(), demo).get_potential_energy() != pytest.approx(from_info, rel=1e-12)


def test_an_unknown_element_is_answered_with_the_known_ones(demo):
    with pytest.raises(CalculatorSetupError, match=r"the model knows H C N O S Cl K; found Au"):
        with_calculator(Atoms("AuH", positions=[[0, 0, 0], [0, 0, 1.5]]), demo).get_potential_energy()


def test_a_periodic_axis_needs_a_cell_vector(demo):
    with pytest.raises(CalculatorSetupError, match="axis 1 is periodic but its cell vector is zero"):
        with_calculator(Atoms("H", cell=[5, 0, 5], pbc=[True, True, True]), demo).get_potential_energy()


def test_stress_needs_a_volume(demo):
    with pytest.raises(PropertyNotImplementedError, match="stress needs a cell with three vectors, found 0"):
        with_calculator(cluster(), demo).get_stress()


def test_a_charge_that_is_no_integer_is_refused(artifact):
    calculator = TesseraCalculator(artifact("demo", "float64"), charge=0.5)
    with pytest.raises(CalculatorSetupError, match=r"charge must be an integer, found 0\.5"):
        with_calculator(cluster(), calculator).get_potential_energy()


def test_a_charge_beyond_the_model_is_refused(artifact):
    calculator = TesseraCalculator(artifact("demo", "float64"), charge=11)
    with pytest.raises(RuntimeError, match=r"charge: expected -10 to 10 .*found 11"):
        with_calculator(cluster(), calculator).get_potential_energy()


def test_a_missing_artifact_is_named():
    with pytest.raises(RuntimeError, match=r"nowhere\.pt2"):
        TesseraCalculator("nowhere.pt2")


def test_systems_without_any_order_agree_with_the_eager_model(demo):
    """The fixture systems are water; here are all elements of the model."""
    model = load_model("demo").double()
    atoms = random_system(model.elements)
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc, 0, 1)
    energies, gradients = energy_and_edge_gradients(model, graph)
    atoms.calc = demo
    np.testing.assert_allclose(atoms.get_potential_energies(), energies.numpy(), rtol=ENERGY_RTOL)
    np.testing.assert_allclose(atoms.get_forces(), forces_and_strain(graph, gradients)[0].numpy(), atol=FORCE_ATOL)
