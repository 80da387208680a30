# SPDX-License-Identifier: MIT
"""Correcting the counted memory by runs, and storing what was found in a finished package."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from exported import load_model
from tessera import _C
from tessera_export import measure
from tessera_export.compiled import CompiledModel
from tessera_export.errors import ExportError
from tessera_export.measure import correct, measured_memory
from tessera_export.memory import MEBIBYTE, Extents, MemoryModel
from tessera_export.package import replace_passport
from tessera_export.systems import random_liquid

COUNTED = MemoryModel(1000.0, (10.0,), (100.0,), 7.0)


def test_the_corrected_model_gives_the_measured_peaks() -> None:
    extents = [Extents(rows, (0,), (50 * rows,)) for rows in (1000, 2000)]
    counts = [COUNTED.predict(each) - COUNTED.bytes for each in extents]
    workspace = 32 * MEBIBYTE
    corrected = correct(COUNTED, counts, [0.8 * count + workspace for count in counts])
    assert corrected.measured
    assert corrected.bytes == pytest.approx(7.0 + workspace, rel=1e-12)
    assert corrected.bytes_per_halo_row == pytest.approx((8.0,), rel=1e-12)
    for each, count in zip(extents, counts, strict=True):
        assert corrected.predict(each) == pytest.approx(0.8 * count + workspace + 7.0, rel=1e-12)


def test_a_run_that_does_not_grow_is_refused() -> None:
    with pytest.raises(ExportError, match=r"expected the larger of two runs to take more than 3\.0 MiB, found 3\.0"):
        correct(COUNTED, [1e6, 2e6], [3 * MEBIBYTE, 3 * MEBIBYTE])


def test_both_runs_are_measured_on_the_random_graph_and_too_large_ones_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**40, 2**40))
    sizes = []

    def peak(_path: Path, graph) -> float:
        sizes.append(len(graph.element))
        return 3.0 * COUNTED.predict(measure.extents_of(graph))

    monkeypatch.setattr(measure, "_peak_of_run", peak)
    found = measured_memory(tmp_path, COUNTED, load_model("tiny"))
    assert sizes == list(measure.SIZES)
    assert found.bytes_per_edge == pytest.approx((300.0,), rel=1e-12)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (MEBIBYTE, 2**40))
    with pytest.raises(ExportError, match="to measure a run of 2000 atoms, found 1"):
        measured_memory(tmp_path, COUNTED, load_model("tiny"))


def test_a_package_takes_another_passport_and_keeps_its_code(artifact: Callable[..., Path], tmp_path: Path) -> None:
    original, path = artifact("tiny", "float32"), tmp_path / "model.pt2"
    shutil.copy(original, path)
    passport = json.loads(_C.read_passport(str(path)).json)
    passport["memory"] |= {"bytes": 12345, "measured": True}
    replace_passport(path, json.dumps(passport))
    assert list(tmp_path.iterdir()) == [path]
    assert json.loads(_C.read_passport(str(path)).json) == passport
    assert _C.read_passport(str(path)).memory.measured
    graph = random_liquid(np.random.default_rng(14), 20, [1, 6, 8]).graph(load_model("tiny"))
    for one, other in zip(CompiledModel(path).run(graph), CompiledModel(original).run(graph), strict=True):
        assert torch.equal(torch.cat(list(one)) if isinstance(one, list) else one,
                           torch.cat(list(other)) if isinstance(other, list) else other)  # fmt: skip


def test_a_package_without_a_passport_is_not_given_one(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data/aotinductor/model/a.wrapper_metadata.json", "{}")
    with pytest.raises(ExportError, match="expected one passport in the package, found 0"):
        replace_passport(path, "{}")
