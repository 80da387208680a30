# SPDX-License-Identifier: MIT
"""Batches of equal edges, batches laid out ahead, runs that end by the clock, evaluation in groups."""

import gzip
import itertools
import threading
import time
import types

import numpy as np
import pytest
import torch
import yaml
from train_inputs import config, labelled_frames

from tessera.train import measure
from tessera.train.dataset import FRAMES_WORTH_WORKERS, batches_of_edges
from tessera.train.edges import find_edges
from tessera.train.errors import TrainError
from tessera.train.measure import compare
from tessera.train.prefetch import ahead
from tessera.train.ranks import Ranks
from tessera.train.run import Run
from tessera.train.settings import read_settings

ROUNDING = 1e-10
"""Energies of some 10 eV and forces of order 1 in float64, summed with other frames beside them."""
LIMIT = 0.002
"""Minutes: 120 looks at the clock of the test."""
NEARLY_OVER = 0.05
"""Relative; the last look may be three of 120 before the end, where half a cosine is 0.15 % of its height off."""
SIZES = np.random.default_rng(3).integers(20, 4000, 300)


def start(path):
    return Run(read_settings(path), Ranks("cpu"))


def test_batches_of_edges_hold_every_frame_once_and_nearly_equal_edges():
    wanted = 20_000
    for epoch in range(3):
        found = batches_of_edges(SIZES, wanted, 1, epoch)
        assert sorted(place for batch in found for place in batch) == list(range(300))
        assert len(found) == int(SIZES.sum()) // wanted
        edges = [SIZES[batch].sum() for batch in found]
        assert max(edges) < wanted + 2 * SIZES.max()
        assert min(edges) > wanted - 2 * SIZES.max()
    assert batches_of_edges(SIZES, wanted, 1, 2) == found
    assert batches_of_edges(SIZES, wanted, 1, 1) != found


def test_a_frame_larger_than_a_batch_is_refused():
    with pytest.raises(TrainError, match=r"expected room for the largest frame, which has \d+ edges, found 1000"):
        batches_of_edges(SIZES, 1000, 1, 0)


def test_a_run_takes_batches_of_edges(tmp_path):
    run = start(config(tmp_path, optimizer={"batch_edges": 40, "epochs": 2}))
    run.prepare_output(resume=False)
    run.train()
    assert run.optimizer.step == 2 * len(run.order(0))
    assert len(run.order(0)) == sum(len(one.receiver) for one in run.data.training_edges) // 40


def test_batches_made_ahead_arrive_in_order_and_no_further_ahead_than_asked():
    made, lock = [], threading.Lock()

    def make(item):
        with lock:
            made.append(item)
        return item * item

    found = []
    for value in ahead(make, range(20), threads=3):
        found.append(value)
        time.sleep(0)
        assert len(made) <= len(found) + 3
    assert found == [item * item for item in range(20)] == list(ahead(make, range(20), threads=0))


def test_an_error_in_a_batch_made_ahead_reaches_the_loop():
    def make(item):
        if item == 3:
            raise TrainError("no frame")
        return item

    found = []
    with pytest.raises(TrainError, match="no frame"):
        found.extend(ahead(make, range(10), threads=2))
    assert len(found) <= 3


def test_threads_that_lay_batches_out_change_no_bit(tmp_path, monkeypatch):
    weights = []
    for name, threads in (("alone", 0), ("threads", 3)):
        monkeypatch.setattr("tessera.train.run.THREADS", {"cpu": threads})
        run = start(config(tmp_path / name, labelled_frames(6)))
        run.prepare_output(resume=False)
        run.train()
        weights.append(torch.cat([values.flatten() for values in run.model.parameters()]))
    assert torch.equal(*weights)


def test_a_run_ends_by_the_clock_with_its_schedule_and_stays_over_when_resumed(tmp_path, monkeypatch):
    ticks = itertools.count()
    clock = types.SimpleNamespace(perf_counter=lambda: 1e-3 * next(ticks))  # a millisecond passes between two looks
    monkeypatch.setattr("tessera.train.run.time", clock)
    optimizer = {"epochs": 100_000, "minutes": LIMIT, "warmup_steps": 0, "final_fraction": 0.1}
    path = config(tmp_path, optimizer=optimizer)
    run = start(path)
    run.prepare_output(resume=False)
    run.train()
    assert 0.3 * 60e3 * LIMIT < run.optimizer.step < 60e3 * LIMIT
    rate = float((tmp_path / "run" / "log.csv").read_text().splitlines()[-1].split(",")[2])
    assert rate == pytest.approx(0.1 * run.settings.optimizer.learning_rate, rel=NEARLY_OVER)
    resumed = start(path)
    resumed.prepare_output(resume=True)
    resumed.train()
    assert resumed.optimizer.step == run.optimizer.step


def test_frames_evaluated_together_have_the_errors_of_single_ones(tmp_path, monkeypatch):
    run = start(config(tmp_path, labelled_frames(7), model={"repulsion": "zbl"}))
    frames, edges = run.data.training, run.data.training_edges
    together = compare(run.model, frames, edges).values
    repelled = measure.repulsion_energies(run.model, frames, edges)
    monkeypatch.setattr(measure, "EDGES_AT_ONCE", 1)
    single = compare(run.model, frames, edges).values
    for kind, values in single.items():
        assert len(values)
        assert np.abs(together[kind] - values).max() < ROUNDING, kind
    assert len(single["energy"]) == 7
    assert np.abs(np.array(repelled) - measure.repulsion_energies(run.model, frames, edges)).max() < ROUNDING
    assert max(repelled) > 0
    run.model.repulsion = None
    sizes = np.array([len(frame.numbers) for frame in frames])
    without = compare(run.model, frames, edges).values["energy"]
    assert np.abs((single["energy"] - without)[:, 1] * sizes - repelled).max() < ROUNDING


def test_neighbors_found_by_several_processes_are_those_of_one(tmp_path, monkeypatch):
    monkeypatch.setattr("tessera.train.dataset.FRAMES_WORTH_WORKERS", 4)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)))
    assert FRAMES_WORTH_WORKERS > 4
    run = start(config(tmp_path, labelled_frames(6)))
    for frame, found in zip(run.data.training, run.data.training_edges, strict=True):
        expected = find_edges(frame, max(run.model.cutoffs))
        assert np.array_equal(found.receiver, expected.receiver)
        assert np.array_equal(found.sender, expected.sender)
        assert np.array_equal(found.shift, expected.shift)


def test_a_compressed_file_reads_like_a_plain_one_and_once_through(tmp_path):
    path = config(tmp_path, labelled_frames(5))
    plain = start(path).data.training
    (tmp_path / "frames.extxyz.gz").write_bytes(gzip.compress((tmp_path / "frames.extxyz").read_bytes()))
    settings = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({**settings, "data": {"files": ["frames.extxyz.gz"]}}))
    for found, expected in zip(start(path).data.training, plain, strict=True):
        assert np.array_equal(found.positions, expected.positions)
        assert np.array_equal(found.forces, expected.forces)
