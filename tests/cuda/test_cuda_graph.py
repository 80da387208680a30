# SPDX-License-Identifier: MIT
"""The step as a captured graph: replayed over rebuilds, recorded anew when it must be, equal to direct execution."""

import numpy as np
import pytest
from gpu import needs_gpu

from many_ranks import run_ranks, water_216

pytestmark = needs_gpu

ENERGY_RTOL = 1e-10  # float64, sums in another order than on the CPU
FORCE_ATOL = 1e-9  # eV/Å
STEP_LENGTH = 0.03  # Å; an atom moves half the skin in about twenty steps


def wandering(num_frames: int, *, seed: int = 1) -> list:
    """Water whose atoms walk at random."""
    rng = np.random.default_rng(seed)
    frames = [water_216()]
    for _ in range(num_frames - 1):
        moved = frames[-1].copy()
        moved.positions += rng.normal(0, STEP_LENGTH, moved.positions.shape)
        frames.append(moved)
    return frames


def compressed(num_frames: int, last: float) -> list:
    """Water that is squeezed to a cell of `last` times the length."""
    frames = []
    for scale in np.linspace(1, last, num_frames):
        frame = water_216()
        frame.set_cell(frame.cell * scale, scale_atoms=True)
        frames.append(frame)
    return frames


def assert_alike(found, expected) -> None:
    np.testing.assert_allclose(found.energy, expected.energy, rtol=ENERGY_RTOL)
    np.testing.assert_allclose(found.forces, expected.forces, atol=FORCE_ATOL, rtol=0)
    np.testing.assert_allclose(found.virial, expected.virial, atol=1e-8, rtol=0)
    np.testing.assert_allclose(found.energies, expected.energies, rtol=ENERGY_RTOL)
    np.testing.assert_allclose(found.atom_virials, expected.atom_virials, atol=1e-8, rtol=0)


@pytest.mark.parametrize("graph", ["on", "off", "check"])
def test_a_walk_with_rebuilds_is_that_of_the_cpu(artifact, graph):
    frames = wandering(30)
    expected = run_ranks(artifact("first", "float64"), 1, frames, rebuild=4)
    log: list[str] = []
    found = run_ranks(artifact("first", "float64", device="cuda"), 1, frames, rebuild=4, graph=graph, log=log)
    assert_alike(found, expected)
    report = found.reports[0]
    assert report["rebuilds"] >= 7
    assert report["captures"] == (0 if graph == "off" else 1), log
    assert "the model takes about" in log[0]
    assert 0 < report["peak_bytes"] < 2**30


@pytest.mark.parametrize("kernels", ["plain", "fused"])
def test_replay_gives_the_bits_of_direct_execution(artifact, kernels):
    path = artifact("first", "float32", device="cuda", kernels=kernels)
    frames = wandering(6)
    replayed, direct = (run_ranks(path, 1, frames, graph=graph) for graph in ("on", "off"))
    assert np.array_equal(replayed.forces, direct.forces)
    assert np.array_equal(replayed.energy, direct.energy)


def test_more_edges_than_there_is_room_for_are_found_in_time(artifact):
    # a skin of 4 Å: no rebuild while the cell shrinks, so that the room for edges is exceeded within an epoch
    frames = compressed(8, last=0.93)
    expected = run_ranks(artifact("first", "float64"), 1, frames, skin=4.0)
    log: list[str] = []
    found = run_ranks(artifact("first", "float64", device="cuda"), 1, frames, skin=4.0, log=log)
    assert_alike(found, expected)
    report = found.reports[0]
    assert report["repeated_steps"] >= 1
    assert report["captures"] >= 2
    assert "edges of list" in log[-1]


def test_a_graph_outlives_a_cell_that_changes(artifact):
    frames = [frame for pair in zip(compressed(6, last=0.99), wandering(6), strict=True) for frame in pair]
    expected = run_ranks(artifact("first", "float64"), 1, frames)
    found = run_ranks(artifact("first", "float64", device="cuda"), 1, frames)
    assert_alike(found, expected)
