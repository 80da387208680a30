# SPDX-License-Identifier: MIT
"""Any number of ranks gives what one rank gives: exact decompositions on virtual ranks (float64)."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms

from many_ranks import SYSTEMS, RanksResult, droplet, run_ranks, slab, water_216
from tessera import _C

#: Two decompositions differ only in the order of sums over a few hundred edges, each good to 1e-16.
ENERGY_RTOL = 1e-10
FORCE_ATOL = 1e-9  # eV/Å
VIRIAL_ATOL = 1e-8  # eV, a sum over all edges
RANKS = [2, 3, 4, 8]
CURVES = ["hilbert", "morton"]
PEERS = ["multi-box", "rank-box", "key-range", "all-gather", "spatial-bin"]

Artifact = Callable[..., Path]


@pytest.fixture(scope="session")
def first_order(artifact: Artifact) -> Path:
    return artifact("first", "float64")


@cache
def on_one_rank(path: Path, system: str) -> RanksResult:
    return run_ranks(path, 1, [SYSTEMS[system]()])


def assert_same(found: RanksResult, expected: RanksResult) -> None:
    np.testing.assert_allclose(found.energy, expected.energy, rtol=ENERGY_RTOL)
    np.testing.assert_allclose(found.forces, expected.forces, atol=FORCE_ATOL, rtol=0)
    np.testing.assert_allclose(found.energies, expected.energies, rtol=ENERGY_RTOL)
    np.testing.assert_allclose(found.virial, expected.virial, atol=VIRIAL_ATOL, rtol=0)
    np.testing.assert_allclose(found.atom_virials, expected.atom_virials, atol=VIRIAL_ATOL, rtol=0)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_many_ranks_give_what_one_rank_gives(first_order: Path, system: str, num_ranks: int, curve: str) -> None:
    found = run_ranks(first_order, num_ranks, [SYSTEMS[system]()], curve=curve)
    assert_same(found, on_one_rank(first_order, system))
    counts = [report["num_owned"] for report in found.reports]
    assert sum(counts) == len(SYSTEMS[system]())
    assert max(counts) - min(counts) <= 1
    print(f"\n{system:30} K={num_ranks} {curve:8} |dE|/|E| "  # noqa: T201
          f"{abs(found.energy - on_one_rank(first_order, system).energy).max() / abs(found.energy).max():.1e} max|dF| "
          f"{abs(found.forces - on_one_rank(first_order, system).forces).max():.1e} eV/Å")  # fmt: skip


@pytest.mark.parametrize("peers", PEERS)
@pytest.mark.parametrize("system", ["tilted", "droplet in a large box", "all in one corner"])
def test_every_peer_scheme_finds_all_pairs(first_order: Path, system: str, peers: str) -> None:
    found = run_ranks(first_order, 4, [SYSTEMS[system]()], peers=peers)
    assert_same(found, on_one_rank(first_order, system))


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("system", SYSTEMS)
def test_faiss_finds_the_same_pairs(first_order: Path, system: str, num_ranks: int) -> None:
    if not _C.HAS_FAISS:
        pytest.skip("built without FAISS: install libfaiss-dev and set TESSERA_CMAKE_ARGS=-DTESSERA_FAISS=ON")
    found = run_ranks(first_order, num_ranks, [SYSTEMS[system]()], search="faiss")
    assert_same(found, on_one_rank(first_order, system))


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
@pytest.mark.parametrize("system", SYSTEMS)
def test_rows_exchanged_where_the_model_computes_give_the_same(first_order: Path, system: str, num_ranks: int) -> None:
    """The GPU's exchange with head-room, here over messages between ranks on the host."""
    found = run_ranks(first_order, num_ranks, [SYSTEMS[system]()], exchange="messages")
    assert_same(found, on_one_rank(first_order, system))


@pytest.mark.parametrize("options", [{"overlap": False}, {"balance": "edges"}, {"skin": 0.0}, {"rebuild": 1}])
def test_an_option_changes_no_result(first_order: Path, options: dict) -> None:
    found = run_ranks(first_order, 3, [SYSTEMS["dense beside water"]()], **options)
    assert_same(found, on_one_rank(first_order, "dense beside water"))


def test_balance_edges_evens_the_edges(first_order: Path) -> None:
    frames = [SYSTEMS["dense beside water"]()]
    by_atoms, by_edges = (
        [report["num_edges"] for report in run_ranks(first_order, 4, frames, balance=balance).reports]
        for balance in ("atoms", "edges")
    )
    assert max(by_edges) / np.mean(by_edges) < 0.5 * (1 + max(by_atoms) / np.mean(by_atoms))


def random_walk(atoms: Atoms, num_frames: int, step: float, seed: int = 5) -> list[Atoms]:
    rng = np.random.default_rng(seed)
    frames = [atoms]
    for _ in range(num_frames - 1):
        following = frames[-1].copy()
        following.positions += rng.normal(0, step, atoms.positions.shape)
        frames.append(following)
    return frames


@pytest.mark.parametrize(("num_ranks", "exchange"), [(1, "auto"), (3, "auto"), (3, "messages")])
def test_rebuilds_recuts_and_migration_change_no_result(first_order: Path, num_ranks: int, exchange: str) -> None:
    frames = random_walk(water_216(), 8, 0.04)
    expected = run_ranks(first_order, 1, frames, rebuild=1, skin=0.0)
    found = run_ranks(first_order, num_ranks, frames, migrate=True, skin=0.6, recut=3, exchange=exchange)
    assert_same(found, expected)
    report = found.reports[0]
    assert report["steps"] == 8
    assert 1 < report["rebuilds"] < 8
    assert report["cuts"] >= (2 if num_ranks > 1 else 1)
    counts = [report["num_owned"] for report in found.reports]
    assert max(counts) - min(counts) <= 1


def test_a_deforming_cell_rebuilds_in_time(first_order: Path) -> None:
    frames = []
    for k in range(6):
        frame = slab()
        cell = frame.cell.array.copy()
        cell[0, 0] *= 1 - 0.012 * k
        cell[1, 0] += 0.25 * k
        frame.set_cell(cell, scale_atoms=True)
        frames.append(frame)
    expected = run_ranks(first_order, 1, frames, rebuild=1, skin=0.0)
    for num_ranks in (1, 4):
        found = run_ranks(first_order, num_ranks, frames, skin=0.8)
        assert_same(found, expected)
        assert found.reports[0]["rebuilds"] < 6


@pytest.mark.parametrize("exchange", ["auto", "messages"])
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_step_sends_two_messages_a_stage_and_peer(first_order: Path, num_ranks: int, exchange: str) -> None:
    """Fused payload: one message forward and one back for each attention stage (2 here) and peer."""
    found = run_ranks(first_order, num_ranks, [water_216()] * 3, recut=0, exchange=exchange)
    for report in found.reports:
        assert report["messages"] == 2 * 2 * report["num_peers"] * 3
        assert report["num_peers"] == num_ranks - 1


def test_results_repeat_bit_for_bit(first_order: Path) -> None:
    once, again = (run_ranks(first_order, 3, [droplet()]) for _ in range(2))
    assert np.array_equal(once.forces, again.forces)
    assert np.array_equal(once.energy, again.energy)


def test_a_rank_that_fails_ends_all_ranks_with_its_reason(first_order: Path) -> None:
    broken = water_216()
    broken.positions[17, 1] = np.nan
    with pytest.raises(RuntimeError, match=r"position of atom 18 is .*nan"):
        run_ranks(first_order, 4, [water_216(), broken])


def test_coincident_atoms_are_an_error_on_any_number_of_ranks(first_order: Path) -> None:
    broken = water_216()
    broken.positions[100] = broken.positions[3] + 1e-6
    for num_ranks in (1, 3):
        with pytest.raises(RuntimeError, match=r"two atoms at .* Å apart; the model needs at least 0.0001"):
            run_ranks(first_order, num_ranks, [broken])


def test_the_load_report_names_causes_and_extremes(first_order: Path) -> None:
    text = run_ranks(first_order, 2, random_walk(water_216(), 5, 0.1), skin=0.5).load
    assert "5 steps on 2 rank(s)" in text
    assert "first step 1" in text
    assert "displacement" in text
    for name in ("owned atoms", "halo atoms", "edges", "peers", "feature bytes a step", "exchange wait ms a step"):
        numbers = re.search(rf"^Tessera: {name} +(\S+) +(\S+) +(\S+)$", text, re.MULTILINE)
        assert numbers, name
        least, mean, most = map(float, numbers.groups())
        assert 0 <= least <= mean <= most, name


@pytest.fixture(scope="session")
def large_water(artifact: Artifact) -> tuple[Path, Atoms, RanksResult]:
    """23,328 atoms, a model that is quick on them, and what one rank says."""
    model, atoms = artifact("tiny", "float64"), water_216().repeat((3, 3, 4))
    return model, atoms, run_ranks(model, 1, [atoms])


@pytest.mark.parametrize(("num_ranks", "curve"), [(1, "morton"), *((k, c) for k in (2, 4, 8) for c in CURVES)])
def test_twenty_thousand_atoms_on_many_ranks(
    large_water: tuple[Path, Atoms, RanksResult], num_ranks: int, curve: str
) -> None:
    model, atoms, expected = large_water
    found = run_ranks(model, num_ranks, [atoms], curve=curve)
    np.testing.assert_allclose(found.energy, expected.energy, rtol=ENERGY_RTOL)
    np.testing.assert_allclose(found.forces, expected.forces, atol=FORCE_ATOL, rtol=0)
    np.testing.assert_allclose(found.virial, expected.virial, atol=VIRIAL_ATOL, rtol=0)
    assert np.abs(expected.forces).max() > 1e-2
    counts = [report["num_owned"] for report in found.reports]
    assert sum(counts) == len(atoms) == 23_328
    assert max(counts) - min(counts) <= 1


def test_an_exchange_that_is_impossible_here_is_refused(first_order: Path) -> None:
    with pytest.raises(RuntimeError, match=r"exchange nccl: .*use `exchange auto`"):
        run_ranks(first_order, 2, [water_216()], exchange="nccl")
