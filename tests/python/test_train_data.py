# SPDX-License-Identifier: MIT
"""What training reads: configs, labels, neighbors, energies of elements, order."""

import numpy as np
import pytest
from ase.io import read, write
from train_inputs import ENERGIES, config, labelled_frames

from tessera.model.elements import ATOMIC_NUMBERS
from tessera.search.brute_force import neighbor_list
from tessera.train.dataset import batches, read_dataset
from tessera.train.edges import find_edges
from tessera.train.errors import TrainError
from tessera.train.frames import GPA, Frame
from tessera.train.references import fit_references
from tessera.train.settings import read_settings, settings_of

# extxyz stores eight decimals.
STORED = 2e-8
# Roundings of sums of three products of lengths of some 10 Å.
ROUNDING = 1e-12


def bare_frame(numbers, positions, cell, periodic, energy=None):
    return Frame("test", np.array(numbers), positions, cell, periodic, 0, 1, energy, None, None, None)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"optimizer": {"learning_rte": 1.0}}, r"optimizer: expected keys among epochs, .* found learning_rte"),
        ({"loss": {"element_forces": {"Xx": 2}}}, r"loss.element_forces: expected symbols of elements, found 'Xx'"),
        ({"loss": {"element_forces": {"Cl": -1}}}, r"loss.element_forces: expected numbers of at least 0, found -1"),
        ({"loss": {"element_forces": 3}}, r"loss.element_forces: expected a mapping, found 3"),
        ({"loss": {"element_forces": {"Cl": "much"}}}, r"loss.element_forces.Cl: expected float, found 'much'"),
        ({"loss": {"kind": "mae"}}, r"loss.kind: expected squared or huber, found 'mae'"),
        ({"optimizer": {"epochs": "many"}}, r"optimizer.epochs: expected int, found 'many'"),
        ({"optimizer": {"epochs": 0}}, r"optimizer.epochs: expected a number above 0, found 0"),
        ({"data": {"validation_fraction": 1.0}}, r"data.validation_fraction: expected a number from 0 to below 1"),
        ({"references": "keep"}, r"references: expected 'fit' for a new model"),
        ({"dtpye": "float32"}, r"config: expected keys among data, .* found dtpye"),
        ({"data": {"stress_unit": "bar"}}, r"data.stress_unit: expected eV/A\^3 or GPa, found 'bar'"),
    ],
)
def test_a_bad_config_is_refused_with_the_choices(tmp_path, section, message):
    with pytest.raises(TrainError, match=message):
        read_settings(config(tmp_path, **section))


def test_a_config_without_data_is_refused(tmp_path):
    with pytest.raises(TrainError, match="expected the key data, found seed"):
        settings_of({"seed": 1}, tmp_path)


def test_numbers_in_scientific_notation_without_a_point_are_numbers(tmp_path):
    settings = settings_of({"data": {"files": "a.extxyz"}, "optimizer": {"learning_rate": "1e-3"}}, tmp_path)
    assert settings.optimizer.learning_rate == 1e-3
    assert settings.data.files == ("a.extxyz",)


def test_labels_arrive_in_their_units_and_signs(tmp_path):
    frames = labelled_frames(2)
    found = read_dataset(read_settings(config(tmp_path, frames))).training
    for atoms, frame in zip(frames, found, strict=True):
        assert abs(frame.energy - atoms.get_potential_energy()) < STORED
        assert np.abs(frame.forces - atoms.get_forces()).max() < STORED
    assert np.abs(found[0].stress - frames[0].calc.results["stress"]).max() < STORED
    assert found[1].stress is None


def test_labels_under_other_names_and_units_are_read(tmp_path):
    atoms = labelled_frames(1)[0]
    stress = atoms.calc.results["stress"]
    atoms.info |= {"E_dft": atoms.get_potential_energy(), "S_dft": stress / GPA, "charge": -1}
    atoms.arrays["F_dft"] = atoms.get_forces()
    atoms.calc = None
    keys = {"energy_key": "E_dft", "forces_key": "F_dft", "stress_key": "S_dft", "stress_unit": "GPa"}
    (frame,) = read_dataset(read_settings(config(tmp_path, [atoms], data=keys))).training
    assert frame.charge == -1
    assert np.abs(frame.forces - atoms.arrays["F_dft"]).max() < STORED
    assert np.abs(frame.stress - stress).max() < STORED


def test_frames_without_labels_are_refused_with_the_names_that_exist(tmp_path):
    path = config(tmp_path, data={"energy_key": "E_dft", "forces_key": "F_dft"})
    with pytest.raises(TrainError, match=r"expected 'E_dft' or 'F_dft', found .*energy.*; set data.energy_key"):
        read_dataset(read_settings(path))


def test_stress_of_an_open_system_is_refused(tmp_path):
    path = config(tmp_path)
    frames = read(tmp_path / "frames.extxyz", index=":")
    frames[1].info["S"] = np.eye(3)
    write(tmp_path / "frames.extxyz", frames, format="extxyz")
    settings = read_settings(config(tmp_path / "other", frames, data={"stress_key": "S"}))
    assert path.exists()
    with pytest.raises(TrainError, match="expected stress only where all three axes are periodic"):
        read_dataset(settings)


def test_a_fraction_and_a_key_hold_frames_out(tmp_path):
    frames = labelled_frames(6)
    for place, atoms in enumerate(frames):
        atoms.info["part"] = "val" if place == 2 else "train"
    data = read_dataset(read_settings(config(tmp_path, frames, data={"split_key": "part", "validation_fraction": 0.4})))
    assert len(data.training) == 3
    assert [frame.source.split()[-1] for frame in data.validation if frame.split == "val"] == ["2"]
    with pytest.raises(TrainError, match="expected frames with prt=val"):
        read_dataset(read_settings(config(tmp_path / "b", frames, data={"split_key": "prt"})))


TILTED = np.array([[3.0, 0.0, 0.0], [1.5, 4.0, 0.0], [-1.0, 0.7, 9.0]])


@pytest.mark.parametrize(
    ("cell", "periodic"),
    [(TILTED, (True, True, True)), (TILTED, (True, False, True)), (np.eye(3), (False, False, False))],
    ids=["smaller than the cutoff and tilted", "one open axis", "open"],
)
def test_the_edges_are_those_of_a_search_over_all_pairs(cell, periodic):
    positions = np.random.default_rng(2).normal(scale=3.0, size=(12, 3))  # many outside the cell
    cutoff = 4.1
    frame = bare_frame([1] * 12, positions, cell, periodic)
    found, expected = find_edges(frame, cutoff), neighbor_list(positions, cell, periodic, cutoff)
    assert len(expected.receiver) > 12
    assert np.array_equal(found.receiver, expected.receiver)
    vectors, others = found.vectors(frame), expected.vector
    order = np.lexsort((*np.round(vectors, 6).T, found.sender, found.receiver))
    other = np.lexsort((*np.round(others, 6).T, expected.sender, expected.receiver))
    assert np.array_equal(found.sender[order], expected.sender[other])
    assert np.abs(vectors[order] - others[other]).max() < ROUNDING * 10


def test_reference_energies_of_independent_compositions_are_found():
    def frame(numbers):
        return bare_frame(numbers, np.zeros((len(numbers), 3)), np.eye(3), (False,) * 3,
                          sum(ENERGIES[n] for n in numbers))  # fmt: skip

    found = fit_references([frame([1, 1, 8]), frame([1, 8]), frame([8])], ("H", "O"))
    for symbol, energy in found.items():
        assert abs(energy - ENERGIES[ATOMIC_NUMBERS[symbol]]) < ROUNDING * 100


def test_compositions_that_do_not_tell_elements_apart_are_fitted_and_reported(caplog):
    frames = [bare_frame([1, 1, 8] * n, np.zeros((3 * n, 3)), np.eye(3), (False,) * 3, -26.0 * n) for n in (1, 2)]
    found = fit_references(frames, ("H", "O", "Cl"))
    assert abs(2 * found["H"] + found["O"] + 26.0) < ROUNDING * 100
    assert found["Cl"] == pytest.approx(0.0, abs=ROUNDING)
    assert "fix 1 combinations of 3 reference energies" in caplog.text
    assert "no Cl in the data" in caplog.text


def test_an_epochs_order_depends_on_seed_and_epoch_alone():
    first, again, other = batches(10, 4, 1, 0), batches(10, 4, 1, 0), batches(10, 4, 1, 1)
    assert first == again != other
    assert sorted(place for batch in other for place in batch) == list(range(10))
    assert [len(batch) for batch in first] == [4, 4, 2]
