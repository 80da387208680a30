# SPDX-License-Identifier: MIT
"""Extents of recorded steps, and what a config may ask of them; the recording itself needs a GPU (tests/cuda)."""

import pytest
from train_inputs import config, labelled_frames

from tessera.train.errors import TrainError
from tessera.train.packs import Extents
from tessera.train.ranks import Ranks
from tessera.train.record import GROWTH, Ladder
from tessera.train.run import COLUMNS, Run
from tessera.train.settings import read_settings

LOWEST = Extents(1000, 20, (30_000, 70_000))


def test_a_pack_gets_the_lowest_extents_that_hold_all_of_its_own():
    ladder = Ladder(LOWEST)
    assert ladder(LOWEST) == LOWEST
    assert ladder(Extents(10, 2, (5, 9))) == LOWEST
    more_frames = ladder(Extents(900, 21, (20_000, 60_000)))
    assert more_frames == Extents(1150, 23, (34_500, 80_500))
    assert ladder(Extents(1001, 20, (29_000, 70_000))) == more_frames
    assert ladder(Extents(900, 10, (30_000, 80_501))) == ladder(Extents(900, 26, (30_000, 60_000)))


def test_every_pack_fits_and_few_sets_of_extents_serve_all():
    ladder, found = Ladder(LOWEST), set()
    for rows in range(300, 3000, 7):
        needed = Extents(rows, rows // 45, (rows * 31, rows * 69))
        given = ladder(needed)
        found.add(given)
        assert given.rows >= needed.rows
        assert given.frames >= needed.frames
        assert all(own >= wanted for own, wanted in zip(given.edges, needed.edges, strict=True))
        if rows > LOWEST.rows:
            assert given.edges[0] <= needed.edges[0] * GROWTH**1.5
    assert len(found) <= 10


def test_a_recording_without_a_gpu_is_refused(tmp_path):
    path = config(tmp_path, record=True, device="cpu")
    with pytest.raises(TrainError, match="record: expected device: cuda for 'true', found device: cpu; choose one"):
        read_settings(path)


def test_held_out_frames_are_measured_as_often_as_asked(tmp_path):
    path = config(tmp_path, labelled_frames(6), measure_every=2, data={"validation_fraction": 0.3},
                  optimizer={"epochs": 5})  # fmt: skip
    run = Run(read_settings(path), Ranks("cpu"))
    run.prepare_output(resume=False)
    run.train()
    header, *rows = [line.split(",") for line in (tmp_path / "run" / "log.csv").read_text().splitlines()]
    assert header == list(COLUMNS)
    place = header.index("forces_rmse_meV_A")
    assert [bool(row[place]) for row in rows] == [False, True, False, True, False]
    assert all(row[header.index("loss")] for row in rows)
