# SPDX-License-Identifier: MIT
"""What an artifact was not compiled for is refused on all ranks alike, before anything runs on it."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from many_ranks import run_ranks, slab, water_216
from tessera import _C
from tessera_export.package import METADATA_KEY, replace_passport

MUCH = 10**9
#: Two decompositions differ only in the order of sums over a few hundred edges, each good to 1e-16.
ENERGY_RTOL = 1e-10


@pytest.fixture
def bounded(artifact: Callable[..., Path], tmp_path: Path) -> Callable[..., Path]:
    """Give the artifact "first" with bounds in its passport: `bounded(rows=..., halo_rows=..., edges=...)`."""
    source = artifact("first", "float64")

    def write(rows: int = MUCH, halo_rows: tuple = (MUCH, MUCH), edges: tuple = (MUCH, MUCH)) -> Path:
        path = tmp_path / "bounded.pt2"
        shutil.copy(source, path)
        with zipfile.ZipFile(path) as package:
            (name,) = (name for name in package.namelist() if name.endswith("wrapper_metadata.json"))
            passport = json.loads(json.loads(package.read(name))[METADATA_KEY])
        largest = {"rows": rows, "halo_rows": list(halo_rows), "edges": list(edges)}
        replace_passport(path, json.dumps(passport | {"largest_step": largest}))
        return path

    return write


def refusal(path: Path, num_ranks: int, frames: list) -> str:
    with pytest.raises(_C.TesseraError) as caught:
        run_ranks(path, num_ranks, frames)
    return str(caught.value)


def edges_of(path: Path, num_ranks: int) -> list[int]:
    return [report["num_edges"] for report in run_ranks(path, num_ranks, [water_216()]).reports]


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_a_step_at_the_bounds_runs_and_a_larger_one_names_atoms_bound_and_way_out(
    bounded: Callable[..., Path], num_ranks: int
) -> None:
    atoms = len(water_216()) // num_ranks
    expected = run_ranks(bounded(), num_ranks, [water_216()])
    found = run_ranks(bounded(rows=atoms + 1), num_ranks, [water_216()])
    np.testing.assert_allclose(found.energy, expected.energy, rtol=ENERGY_RTOL)
    text = refusal(bounded(rows=atoms), num_ranks, [water_216()])
    assert (
        f"expected at most {atoms - 1} atoms on a rank, which is what the model was compiled for, found {atoms}" in text
    )
    assert (
        f"use more ranks, each with a GPU, or export the model again with tessera-export --largest-step {atoms}" in text
    )


def test_the_rank_with_the_most_halo_rows_speaks_for_all(bounded: Callable[..., Path]) -> None:
    halo_rows = max(report["num_halo"] for report in run_ranks(bounded(), 3, [slab()]).reports)
    run_ranks(bounded(halo_rows=(MUCH, halo_rows)), 3, [slab()])
    text = refusal(bounded(halo_rows=(MUCH, halo_rows - 1)), 3, [slab()])
    assert f"expected at most {halo_rows - 1} rows of other ranks within 4.5 Å on a rank" in text
    assert f"found {halo_rows};" in text


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_edges_beyond_the_bound_are_refused_with_the_size_to_export_for(
    bounded: Callable[..., Path], num_ranks: int
) -> None:
    text = refusal(bounded(edges=(MUCH, 1000)), num_ranks, [water_216()])
    found = int(text.split("found ")[1].split(";")[0])
    assert "expected at most 1000 edges within 4.5 Å on a rank" in text
    assert 1000 < found < max(edges_of(bounded(), num_ranks))  # one list of two
    run_ranks(bounded(edges=(MUCH, found)), num_ranks, [water_216()])
    assert f"found {found};" in refusal(bounded(edges=(MUCH, found - 1)), num_ranks, [water_216()])
    atoms = int(np.ceil(found / (0.1 * 4 / 3 * np.pi * 4.5**3)))
    assert text.endswith(f"--largest-step {atoms}")


def test_edges_that_come_during_a_run_are_refused_too(bounded: Callable[..., Path]) -> None:
    dilute, dense = water_216(), water_216()
    dense.set_cell(0.93 * dense.cell.array, scale_atoms=True)
    text = refusal(bounded(edges=(MUCH, 2)), 2, [dilute])
    edges = int(text.split("found ")[1].split(";")[0])
    assert "edges within 4.5 Å" in refusal(bounded(edges=(MUCH, edges)), 2, [dilute, dense])


def test_an_artifact_that_runs_by_itself_refuses_too(bounded: Callable[..., Path]) -> None:
    single = _C.Artifact(str(bounded(rows=3)))
    nothing = (np.empty(0, np.int32), np.empty((0, 3)), np.empty(0, np.int64), np.empty(0, np.int64))
    energies, _ = single.run(np.zeros(2, np.int32), [nothing, nothing], charge=0, multiplicity=1)
    assert energies.shape == (2,)
    with pytest.raises(_C.TesseraError, match=r"expected at most 2 atoms on a rank, .* found 3;"):
        single.run(np.zeros(3, np.int32), [nothing, nothing], charge=0, multiplicity=1)
