# SPDX-License-Identifier: MIT
"""A model with a repulsion in training: labels are learned minus what it gives, and it is written with the model."""

import numpy as np
import pytest
import yaml
from ase.data import covalent_radii
from train_inputs import ENERGIES, config, labelled_frames

from tessera.checkpoint import load_checkpoint
from tessera.train.errors import TrainError
from tessera.train.ranks import Ranks
from tessera.train.run import Run
from tessera.train.settings import read_settings

OUTER = 0.8
"""Sums of covalent radii where the repulsion ends by default."""
FITTED = 1e-6
"""eV; extxyz stores eight decimals of labels that a repulsion of some 100 eV enters."""


def start(path):
    return Run(read_settings(path), Ranks("cpu"))


def crowded_frames():
    """Frames whose energies are sums over elements plus the repulsion of one close pair of oxygens, 0.6 Å apart."""
    frames = labelled_frames(4, periodic=(False,))
    for atoms, numbers in zip(frames, ([8, 8], [8, 8, 1], [8, 8, 1, 1], [8, 8, 8]), strict=True):
        del atoms[len(numbers) :]
        atoms.numbers = numbers
        atoms.positions = [[0.0, 0, 0], [0.6, 0, 0], [0, 5.0, 0], [0, 0, 5.0]][: len(numbers)]
        length = 0.4685 / (2 * 8**0.23)
        terms = ((0.18175, 3.1998), (0.50986, 0.94229), (0.28022, 0.4029), (0.02817, 0.20162))
        screened = 14.399645 * 64 / 0.6 * sum(w * np.exp(-k * 0.6 / length) for w, k in terms)
        atoms.calc.results = {
            "energy": sum(ENERGIES[n] for n in numbers) + screened,
            "forces": np.zeros((len(atoms), 3)),
        }
    return frames


def test_energies_of_elements_are_fitted_without_the_repulsion(tmp_path):
    assert 0.5 * 2 * covalent_radii[8] > 0.6  # full strength
    run = start(config(tmp_path / "with", crowded_frames(), model={"repulsion": "zbl"}))
    found = dict(zip(run.model.elements, run.model.reference_energies.tolist(), strict=True))
    assert found["H"] == pytest.approx(ENERGIES[1], abs=FITTED)
    assert found["O"] == pytest.approx(ENERGIES[8], abs=FITTED)
    plain = start(config(tmp_path / "without", crowded_frames()))
    assert abs(plain.model.reference_energies[1] - ENERGIES[8]) > 1.0


def test_it_is_written_with_the_model_and_read_back(tmp_path):
    run = start(config(tmp_path, model={"repulsion": "zbl"}, optimizer={"epochs": 1}))
    run.prepare_output(resume=False)
    run.train()
    found = load_checkpoint(tmp_path / "run" / "model.pt")
    assert found.config.repulsion is not None
    assert found.config.repulsion.outer == OUTER
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["repulsion"] == "zbl"
    assert set(found.state_dict()) == set(run.model.state_dict())


def test_fine_tuning_adds_or_drops_it(tmp_path):
    run = start(config(tmp_path / "first", model={"repulsion": "zbl"}, optimizer={"epochs": 1}))
    run.prepare_output(resume=False)
    run.train()
    path = config(tmp_path / "tuned")
    settings = yaml.safe_load(path.read_text())
    for wanted, has_one in (("keep", True), ("none", False), ("zbl", True)):
        model = {"checkpoint": str(tmp_path / "first" / "run" / "model.pt"), "repulsion": wanted}
        path.write_text(yaml.safe_dump({**settings, "model": model}))
        assert (start(path).model.repulsion is not None) == has_one


def test_another_word_is_refused(tmp_path):
    with pytest.raises(TrainError, match=r"model\.repulsion: expected keep or zbl or none, found 'lj'"):
        read_settings(config(tmp_path, model={"repulsion": "lj"}))
