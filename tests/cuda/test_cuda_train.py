# SPDX-License-Identifier: MIT
"""Training on a GPU: the same numbers as on the CPU, files that either place goes on from, the compiled step."""

import csv

import pytest
import torch
from train_inputs import config, labelled_frames

from tessera.checkpoint import load_checkpoint
from tessera.train.ranks import Ranks
from tessera.train.run import Run
from tessera.train.settings import read_settings
from tessera.train.step import eager_step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch sees")

#: Relative; float64 sums with atomics in another order (1e-15), which Adam's first steps amplify.
SAME = 1e-6
OPTIMIZER = {"epochs": 2, "batch_edges": 40}


def start(path, device):
    return Run(read_settings(path), Ranks(device))


def trained(path, device, *, resume=False, until=None):
    run = start(path, device)
    run.prepare_output(resume=resume)
    run.train(until)
    return run


def weights(run):
    return torch.cat([values.detach().cpu().flatten() for values in run.optimizer.averaged.parameters()])


def test_a_gpu_trains_as_the_cpu_does_and_either_goes_on_from_the_others_checkpoint(tmp_path):
    frames = labelled_frames(6)
    found = {}
    for name, first, second in (("cpu", "cpu", "cpu"), ("gpu", "cuda", "cuda"), ("moved", "cuda", "cpu"),
                                ("back", "cpu", "cuda")):  # fmt: skip
        for device in (first, second):
            path = config(tmp_path / name, frames, optimizer=OPTIMIZER, model={"repulsion": "zbl"}, device=device,
                          data={"validation_fraction": 0.3})  # fmt: skip
            is_second = (tmp_path / name / "run" / "checkpoint.pt").exists()
            run = trained(path, device, resume=is_second, until=None if is_second else 1)
        found[name] = weights(run)
        with (tmp_path / name / "run" / "log.csv").open(encoding="utf-8") as file:
            assert len(list(csv.DictReader(file))) == 2
        assert load_checkpoint(tmp_path / name / "run" / "model.pt").reference_energies.device.type == "cpu"
    for name, values in found.items():
        assert float((values - found["cpu"]).abs().max()) < SAME * float(found["cpu"].abs().max()), name


@pytest.mark.parametrize("compiled", [False, True])
def test_the_recorded_step_equals_the_eager_one_for_every_batch_and_after_updates(tmp_path, compiled):
    # Frozen: derivatives of weights in embedding and attention, whose compilation takes as long as all the rest.
    frozen = {"frozen": ["embedding.*", "blocks.0.attention.*"]} if compiled else {}
    path = config(tmp_path, labelled_frames(6), optimizer=OPTIMIZER, model=frozen, device="cuda", record=True,
                  compile=compiled)  # fmt: skip
    run = start(path, "cuda")
    eager = eager_step(run.model, run.parameters, run.settings.loss)
    run.prepare_step()
    for epoch in range(2):
        for batch in run.order(epoch):
            (pack,) = run.packs(batch)
            assert not pack.graph.element.is_cuda  # page-locked: the recording copies it
            expected = [one.clone() for one in eager(pack.to("cuda"))]
            for found, value in zip(run.gradients([pack]), expected, strict=True):
                assert float((found - value).abs().max()) < SAME * max(1.0, float(value.abs().max()))
            run.optimizer.update(expected[1:])


def test_a_recorded_run_ends_where_an_eager_one_does(tmp_path):
    found = []
    for name, record in (("eager", False), ("recorded", True)):
        path = config(tmp_path / name, labelled_frames(6), optimizer=OPTIMIZER, device="cuda", record=record)
        found.append(weights(trained(path, "cuda")))
    assert float((found[1] - found[0]).abs().max()) < SAME * float(found[0].abs().max())
