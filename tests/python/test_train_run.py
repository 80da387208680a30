# SPDX-License-Identifier: MIT
"""Whole runs: learning, checkpoints, resuming, ranks, fine-tuning."""

import csv
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml
from train_inputs import config, labelled_frames

from oracle_data import ROOT
from tessera.checkpoint import load_checkpoint
from tessera.model import build_graph, energy_and_edge_gradients
from tessera.train.cli import main
from tessera.train.errors import TrainError
from tessera.train.optimizer import learning_rate
from tessera.train.ranks import Ranks
from tessera.train.run import COLUMNS, Run
from tessera.train.settings import OptimizerSettings, read_settings

FALL = 20.0
"""How far the loss must fall when four frames are learned by heart."""
RANKS = 1e-6
"""Relative: two ranks add the same float64 gradients in another order (1e-15), which Adam's first steps amplify."""
WRITTEN = 1e-10
"""eV; a float64 checkpoint keeps every digit, sums of some 10 eV are rounded."""


def trained(path, until=None, *, resume=False):
    run = Run(read_settings(path), Ranks("cpu"))
    run.prepare_output(resume=resume)
    run.train(until)
    return run


def rows(path):
    with (path / "run" / "log.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_four_frames_are_learned_by_heart(tmp_path):
    optimizer = {"epochs": 150, "batch_size": 4, "warmup_steps": 5, "learning_rate": 1e-2, "ema": 0.0}
    run = trained(config(tmp_path, optimizer=optimizer))
    log = rows(tmp_path)
    assert tuple(log[0]) == COLUMNS
    assert len(log) == 150
    assert float(log[-1]["loss"]) < float(log[0]["loss"]) / FALL
    assert (tmp_path / "run" / "parity.png").stat().st_size > 1000
    assert run.optimizer.step == 150


def test_the_written_model_gives_the_energies_of_the_averaged_weights(tmp_path):
    run = trained(config(tmp_path))
    model = load_checkpoint(tmp_path / "run" / "model.pt")
    assert model.config.softmax == "smooth"
    frame = run.data.training[0]
    graph = build_graph(model, frame.numbers, frame.positions, frame.cell, frame.periodic)
    found, expected = (float(energy_and_edge_gradients(one, graph)[0].sum()) for one in (model, run.optimizer.averaged))
    plain = float(energy_and_edge_gradients(run.model, graph)[0].sum())
    assert abs(found - expected) < WRITTEN
    assert abs(found - plain) > WRITTEN


def test_a_resumed_run_ends_with_the_same_bits(tmp_path):
    whole = trained(config(tmp_path / "whole", optimizer={"epochs": 4}))
    path = config(tmp_path / "parts", optimizer={"epochs": 4})
    assert trained(path, until=2).epoch == 2
    resumed = trained(path, resume=True)
    assert resumed.epoch == 4
    expected, found = whole.optimizer.state(), resumed.optimizer.state()
    assert found["step"] == expected["step"]
    for kind in ("model", "averaged"):
        for name, values in expected[kind].items():
            assert torch.equal(found[kind][name], values), name
    for place, moments in expected["adam"]["state"].items():
        for name, values in moments.items():
            assert torch.equal(found["adam"]["state"][place][name], values), name
    assert [row["loss"] for row in rows(tmp_path / "parts")] == [row["loss"] for row in rows(tmp_path / "whole")]


def test_a_run_in_the_way_and_another_config_are_refused(tmp_path):
    path = config(tmp_path)
    with pytest.raises(TrainError, match=r"--resume: expected .*checkpoint.pt, found none"):
        trained(path, resume=True)
    trained(path, until=1)
    with pytest.raises(TrainError, match="expected a new folder for output, found a run in"):
        trained(path)
    with pytest.raises(TrainError, match=r"optimizer.learning_rate: 0.005 then, 0.1 now"):
        trained(config(tmp_path, optimizer={"learning_rate": 0.1}), resume=True)


@pytest.mark.parametrize("count", [2])
def test_ranks_that_share_batches_train_as_one(tmp_path, count):
    # Batches of three frames: two on one rank, one on the other; charges and open cells mix.
    optimizer = {"epochs": 2, "batch_size": 3}
    alone = trained(config(tmp_path / "alone", optimizer=optimizer))
    path = config(tmp_path / "many", optimizer=optimizer)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count),
               "-m", "tessera.train.cli", str(path)]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    state = torch.load(tmp_path / "many" / "run" / "checkpoint.pt", weights_only=True)["optimizer"]
    assert state["step"] == alone.optimizer.step == 4
    for name, values in alone.model.state_dict().items():
        if values.is_floating_point():
            assert float((state["model"][name] - values).abs().max()) < RANKS * max(1.0, float(values.abs().max())), (
                name
            )


def test_a_compiled_run_is_compiled_once_and_ends_where_an_eager_one_does(tmp_path, caplog):
    caplog.set_level(logging.INFO, "tessera.train")
    # Frozen: derivatives of weights in embedding and attention, whose compilation takes as long as all the rest.
    sections = {"optimizer": {"epochs": 2, "batch_size": 2}, "model": {"frozen": ["embedding.*", "*.attention.*"]}}
    eager, compiled = (
        trained(config(tmp_path / str(chosen), labelled_frames(6), compile=chosen, **sections))
        for chosen in (False, True)
    )
    assert len({pack.labels.forces.shape for batch in eager.order(0) for pack in eager.packs(batch)}) > 1
    assert len({pack.labels.forces.shape for batch in compiled.order(1) for pack in compiled.packs(batch)}) == 1
    assert caplog.text.count("compiled the step for") == 1
    for (name, found), expected in zip(
        compiled.optimizer.averaged.named_parameters(), eager.optimizer.averaged.parameters(), strict=True
    ):
        assert float((found - expected).detach().abs().max()) <= RANKS * float(expected.detach().abs().max()), name


def test_fine_tuning_moves_only_what_is_not_frozen(tmp_path):
    trained(config(tmp_path / "first"), until=1)
    source = tmp_path / "first" / "run"
    model = {"checkpoint": str(source / "model.pt"), "frozen": ["embedding.*", "blocks.*.attention.*"]}
    path = config(tmp_path / "tuned", references="keep")
    settings = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**settings, "model": model}))
    before = load_checkpoint(source / "model.pt")
    after = trained(path).model
    assert torch.equal(before.reference_energies, after.reference_energies)
    moved = {name for name, values in after.named_parameters()
             if not torch.equal(values, before.get_parameter(name))}  # fmt: skip
    assert not any(name.startswith("embedding.") or ".attention." in name for name in moved)
    assert {"head.layers.0.weight", "final_norm.weight"} <= moved


def test_a_pattern_that_matches_nothing_is_refused_with_the_names(tmp_path):
    settings = read_settings(config(tmp_path, model={"frozen": ["embedder.*"]}))
    with pytest.raises(TrainError, match=r"found 'embedder.\*', which matches none; they are .*embedding.network"):
        Run(settings, Ranks("cpu"))


def test_held_out_frames_are_reported(tmp_path):
    trained(config(tmp_path, data={"validation_fraction": 0.25}), until=1)
    (row,) = rows(tmp_path)
    assert float(row["forces_rmse_meV_A"]) > 0


def test_the_command_reports_bad_input_without_a_traceback(tmp_path, capsys):
    assert main([str(tmp_path / "none.yaml")]) == 2
    assert "tessera-train: error: expected a config at" in capsys.readouterr().err


def test_the_rate_rises_and_falls():
    settings = OptimizerSettings(learning_rate=1.0, warmup_steps=4, final_fraction=0.1)
    rates = [learning_rate(step, (step - 4) / 16, settings) for step in range(21)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert np.all(np.diff(rates[4:]) < 0)
    assert rates[20] == pytest.approx(0.1)
