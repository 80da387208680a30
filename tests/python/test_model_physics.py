# SPDX-License-Identifier: MIT
"""What any energy of atoms obeys: forces are differences, symmetries hold, entering neighbors are smooth."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from tessera import ops
from tessera.kernels import reference
from tessera.model import build_graph, energy_and_edge_gradients, forces_and_strain
from tessera.model.radial_table import tabulate
from tessera.testing import random_atoms, random_model, small_config

# Central differences of 4th order at 2e-4 Å: truncation 2e-15 times a fifth derivative of up to 1e7 eV/Å^5 in these
# stiff random models, rounding 1e-14 eV / 2e-4 Å.
STEP, DIFFERENCE_FORCE = 2e-4, 2e-8
# Symmetries are exact; what remains are float64 roundings of sums of some hundred terms.
SYMMETRY_ENERGY, SYMMETRY_FORCE = 1e-11, 1e-10
VARIANTS = {
    "zero-order": ("zero-order", {}),
    "first-order": ("so2-first-order", {}),
    "first-order lmax 1": ("so2-first-order", {"lmax": 1, "out_channels": 4}),
    "smooth": ("so2-first-order", {"softmax": "smooth"}),
    "QKdot": ("zero-order", {"score": "QKdot"}),
    "QKdotS": ("so2-first-order", {"score": "QKdotS"}),
    "softplus": ("zero-order", {"normalizer": "softplus"}),
    "sigmoid": ("so2-first-order", {"normalizer": "sigmoid"}),
    "without layer norm": ("zero-order", {"embedding_layer_norm": False}),
    "cluster": ("zero-order", {"cluster": "long"}),
    "bell cluster": ("zero-order", {"cluster": "bell"}),
    "fused": ("zero-order", {"kernels": "fused"}),
    "fused first-order": ("so2-first-order", {"kernels": "fused"}),
    "fused smooth": ("so2-first-order", {"kernels": "fused", "softmax": "smooth"}),
    "tables": ("zero-order", {"kernels": "tables"}),
    "first-order tables": ("so2-first-order", {"kernels": "tables"}),
    "tables in a cluster": ("zero-order", {"kernels": "tables", "cluster": "bell"}),
}
MIXES_PARITIES = ("first-order", "first-order lmax 1", "smooth", "QKdotS", "sigmoid", "fused first-order",
                  "fused smooth", "first-order tables")  # fmt: skip


def variant(name):
    attention, changes = VARIANTS[name]
    changes = dict(changes)
    kernels = changes.pop("kernels", "plain")
    if "cluster" in changes:
        plain = small_config(attention).stages[-1]
        changes["cluster"] = (
            dataclasses.replace(
                plain, cutoff=5.0, basis_cutoff=5.0, minimum_distance=0.1, drops_hydrogen_senders=True,
                bell_envelope=changes["cluster"] == "bell",
            ),
        )  # fmt: skip
    model = random_model(small_config(attention, **changes))
    if kernels == "tables":  # as fine as they are here, the energy of the tables is not that of the networks
        model = tabulate(model, 4)
    model.set_fused(is_fused=kernels != "plain")
    return model


def evaluate(model, atoms):
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell, atoms.pbc, atoms.charge, atoms.multiplicity)
    is_fused = any(block.attention.is_fused for block in model.blocks)
    atom_energy, gradients = energy_and_edge_gradients(model, graph, ops if is_fused else reference)
    forces, strain = forces_and_strain(graph, gradients)
    return float(atom_energy.sum()), forces.numpy(), strain.numpy()


def difference(function):
    """Fourth-order central difference at 0."""
    values = [function(k * STEP) for k in (-2, -1, 1, 2)]
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * STEP)


@pytest.mark.parametrize("name", VARIANTS)
def test_forces_are_minus_the_energy_differences(name):
    model, atoms = variant(name), random_atoms(9)
    forces = evaluate(model, atoms)[1]
    assert np.abs(forces).max() > 0.01  # a flat energy would agree with anything
    for atom, axis in ((0, 0), (4, 1), (8, 2)):

        def energy(step, atom=atom, axis=axis):
            positions = atoms.positions.copy()
            positions[atom, axis] += step
            return evaluate(model, dataclasses.replace(atoms, positions=positions))[0]

        assert abs(forces[atom, axis] + difference(energy)) < DIFFERENCE_FORCE * max(1.0, np.abs(forces).max())


@pytest.mark.parametrize("name", ["zero-order", "first-order", "cluster", "tables in a cluster"])
@pytest.mark.parametrize("count", [3, 9], ids=["cell smaller than the cutoff", "larger cell"])
def test_the_strain_derivative_is_the_energy_difference_of_a_strained_cell(name, count):
    model, atoms = variant(name), random_atoms(count)
    strain = evaluate(model, atoms)[2]
    for a, b in ((0, 0), (1, 2), (2, 1)):

        def energy(step, a=a, b=b):
            stretch = np.eye(3)
            stretch[a, b] += step * 0.1  # a strain moves distant atoms by more than itself
            strained = dataclasses.replace(atoms, positions=atoms.positions @ stretch, cell=atoms.cell @ stretch)
            return evaluate(model, strained)[0] / 0.1

        assert abs(strain[a, b] - difference(energy)) < 10 * DIFFERENCE_FORCE * max(1.0, np.abs(strain).max())
    np.testing.assert_allclose(strain, strain.T, atol=SYMMETRY_FORCE * max(1.0, np.abs(strain).max()))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_proper_rotation_turns_the_forces_and_keeps_the_energy(name):
    model, atoms = variant(name), random_atoms(9)
    turn = Rotation.from_rotvec([0.7, -1.1, 0.4]).as_matrix()
    energy, forces, strain = evaluate(model, atoms)
    turned = evaluate(model, dataclasses.replace(atoms, positions=atoms.positions @ turn.T, cell=atoms.cell @ turn.T))
    scale = max(1.0, np.abs(forces).max())
    assert abs(turned[0] - energy) < SYMMETRY_ENERGY * max(1.0, abs(energy))
    np.testing.assert_allclose(turned[1], forces @ turn.T, atol=SYMMETRY_FORCE * scale)
    np.testing.assert_allclose(turned[2], turn @ strain @ turn.T, atol=10 * SYMMETRY_FORCE * scale)


@pytest.mark.parametrize("name", VARIANTS)
def test_only_messages_that_mix_parities_tell_mirror_images_apart(name):
    model, atoms = variant(name), random_atoms(9)
    mirror = np.diag([-1.0, 1.0, 1.0])
    energy = evaluate(model, atoms)[0]
    mirrored = evaluate(model, dataclasses.replace(atoms, positions=atoms.positions @ mirror, cell=atoms.cell @ mirror))
    if name in MIXES_PARITIES:
        assert abs(mirrored[0] - energy) > 1e-4
    else:
        assert abs(mirrored[0] - energy) < SYMMETRY_ENERGY * max(1.0, abs(energy))


@pytest.mark.parametrize("name", ["zero-order", "first-order", "QKdotS", "cluster", "first-order tables"])
def test_translation_and_lattice_shifts_change_nothing(name):
    model, atoms = variant(name), random_atoms(9)
    energy, forces, _ = evaluate(model, atoms)
    far = np.array([900.0, -3.0, 0.1])
    lattice_steps = np.random.default_rng(5).integers(-2, 3, (9, 3)) @ atoms.cell
    moved = evaluate(model, dataclasses.replace(atoms, positions=atoms.positions + far + lattice_steps))
    # Positions near 900 Å carry roundings of 1e-13 Å.
    assert abs(moved[0] - energy) < 1e-10 * max(1.0, abs(energy))
    np.testing.assert_allclose(moved[1], forces, atol=1e-9 * max(1.0, np.abs(forces).max()))
    assert np.abs(forces.sum(0)).max() < SYMMETRY_FORCE * max(1.0, np.abs(forces).max())


@pytest.mark.parametrize("name", ["zero-order", "first-order", "QKdot", "cluster", "tables"])
def test_permuted_atoms_keep_their_forces(name):
    model, atoms = variant(name), random_atoms(9)
    order = np.random.default_rng(6).permutation(9)
    energy, forces, _ = evaluate(model, atoms)
    permuted = evaluate(
        model, dataclasses.replace(atoms, positions=atoms.positions[order], numbers=atoms.numbers[order])
    )
    assert abs(permuted[0] - energy) < SYMMETRY_ENERGY * max(1.0, abs(energy))
    np.testing.assert_allclose(permuted[1], forces[order], atol=SYMMETRY_FORCE * max(1.0, np.abs(forces).max()))


@pytest.mark.parametrize("quantity", ["charge", "multiplicity"])
def test_charge_and_multiplicity_change_the_energy_up_to_their_limits(quantity):
    model, atoms = variant("zero-order"), random_atoms(9)

    def energy(value):
        return evaluate(model, dataclasses.replace(atoms, **{quantity: value}))[0]

    limit = {"charge": 10, "multiplicity": 20}[quantity]
    assert abs(energy(limit) - energy(limit - 1)) > 1e-4
    assert energy(limit) == energy(limit + 5)


def entering_atom(distance, direction):
    """A close pair and one more atom at `distance` from the first; the outer cutoff of the tests is 4 Å."""
    unit = np.asarray(direction) / np.linalg.norm(direction)
    pair = np.array([[0.0, 0.0, 0.0], [-1.0, 0.3, 0.2]])
    return dataclasses.replace(
        random_atoms(3, periodic=False), numbers=np.array([8, 1, 6]), positions=np.vstack([pair, distance * unit])
    )


def largest_jumps(softmax):
    """Largest jump of energy and force over models and directions when a neighbor crosses the cutoff."""
    gap, energy_jump, force_jump = 1e-9, 0.0, 0.0
    for seed in range(6):
        model = random_model(small_config("so2-first-order", cutoffs=(4.0,), softmax=softmax), seed=seed)
        inside, outside = (evaluate(model, entering_atom(4.0 + side * gap, [1, 0.2 * seed, 0.5])) for side in (-1, 1))
        energy_jump = max(energy_jump, abs(inside[0] - outside[0]))
        force_jump = max(force_jump, np.abs(inside[1] - outside[1]).max())
    return energy_jump, force_jump


def test_a_neighbor_that_enters_changes_nothing_under_the_smooth_softmax():
    energy_jump, force_jump = largest_jumps("smooth")
    # Over 2e-9 Å a smooth energy changes by force times gap, a smooth force by stiffness (up to 1e2 eV/Å^2) times gap.
    assert energy_jump < 1e-7
    assert force_jump < 1e-6


def test_a_neighbor_that_enters_makes_the_exact_softmax_jump():
    energy_jump, force_jump = largest_jumps("exact")
    assert energy_jump > 1e-5
    assert force_jump > 1e-5


@pytest.mark.parametrize("name", ["first-order", "fused first-order", "first-order tables"])
def test_isolated_atoms_have_energies_and_no_forces(name):
    model = variant(name)
    atoms = dataclasses.replace(
        random_atoms(3, periodic=False), positions=np.array([[0.0, 0, 0], [50.0, 0, 0], [0, 50.0, 0]])
    )
    energy, forces, _ = evaluate(model, atoms)
    assert np.isfinite(energy)
    assert not forces.any()


@pytest.mark.parametrize("name", ["first-order", "fused first-order", "first-order tables"])
def test_coincident_atoms_give_finite_forces(name):
    model = variant(name)
    atoms = dataclasses.replace(
        random_atoms(3, periodic=False), positions=np.array([[0.0, 0, 0], [0.0, 0, 0], [0, 1.5, 0]])
    )
    energy, forces, _ = evaluate(model, atoms)
    assert np.isfinite(energy)
    assert np.isfinite(forces).all()


def test_float32_follows_float64_when_a_neighbor_sits_just_inside_the_cutoff():
    # Here the expanded envelope polynomial would cancel to noise that the norm amplifies by up to 316.
    atoms = entering_atom(3.985, [1.0, 0.0, 0.0])
    atoms = dataclasses.replace(atoms, positions=atoms.positions[[0, 2]], numbers=atoms.numbers[[0, 2]])
    model = random_model(small_config("so2-first-order", cutoffs=(4.0,)))
    exact = evaluate(model, atoms)[1]
    single = evaluate(model.to(torch.float32), atoms)[1]
    assert np.abs(exact).max() > 1e-3
    np.testing.assert_allclose(single, exact, atol=2e-5 * max(1.0, np.abs(exact).max()))
