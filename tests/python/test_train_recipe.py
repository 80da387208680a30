# SPDX-License-Identifier: MIT
"""The recipe of the demo model runs from one command, here for a few steps on the CPU."""

import json
import os
import runpy
import shutil
import subprocess
import sys

import numpy as np
import pytest
import yaml
from ase.io import write
from train_inputs import labelled_frames

from oracle_data import ROOT
from tessera.checkpoint import load_checkpoint
from tessera.model import build_graph

RECIPE = ROOT / "examples" / "models" / "recipe"
#: eV and eV/Å; sums of energies of some 1e4 eV in float64.
ROUNDING = 1e-9
#: Sums of covalent radii: O-H at 0.68 Å.
REACH = 0.7
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python")}


def run(*arguments):
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six frames of two kinds, two of them held out; labels of springs, which no bundled model knows."""
    folder = tmp_path_factory.mktemp("recipe")
    frames = labelled_frames(6)
    for place, atoms in enumerate(frames):
        atoms.info |= {"config_type": "box" if atoms.pbc.any() else "cluster", "split": "val" if place < 2 else "train"}
    write(folder / "frames.extxyz", frames, format="extxyz")
    done = run(
        RECIPE / "train.py", folder / "frames.extxyz", "--output", folder / "demo", "--device", "cpu", "--epochs", 3
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_both_stages_leave_a_model_with_a_smooth_normalizer_and_a_repulsion(folder):
    for stage in ("stage1", "stage2"):
        model = load_checkpoint(folder / "demo" / stage / "model.pt")
        assert model.config.softmax == "smooth"
        assert model.config.repulsion is not None
        assert model.elements == ("H", "O")
        assert len((folder / "demo" / stage / "log.csv").read_text().splitlines()) == 4
    start = load_checkpoint(folder / "demo" / "start" / "model.pt")
    assert start.config.softmax == "smooth"
    assert start.config.repulsion.outer == model.config.repulsion.outer == REACH


def test_the_repulsion_of_the_start_reaches_no_bond_of_a_liquid(folder):
    start = load_checkpoint(folder / "demo" / "start" / "model.pt")
    stored = np.load(RECIPE.parent / "expected.npz")
    for case in range(3):
        frame = {key: stored[f"case{case}_{key}"] for key in ("Z", "positions", "cell", "pbc")}
        graph = build_graph(start, frame["Z"], frame["positions"], frame["cell"], frame["pbc"])
        assert float(start.repulsion(graph).abs().sum()) == 0


@pytest.mark.parametrize("outer", [None, 0.8])
def test_a_start_without_a_repulsion_gets_one_and_another_keeps_its_own(tmp_path, monkeypatch, outer):
    models = RECIPE.parent
    config = yaml.safe_load((models / "config.yaml").read_text())
    config = {key: value for key, value in config.items() if not key.startswith(("softmax", "repulsion"))}
    if outer:
        config |= {"repulsion": "zbl", "repulsion_inner": 0.5, "repulsion_outer": outer}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(models / "tessera-demo.pt", tmp_path / "model.pt")
    monkeypatch.syspath_prepend(RECIPE)
    runpy.run_path(RECIPE / "train.py")["write_start"](tmp_path / "start", tmp_path / "model.pt")
    start = load_checkpoint(tmp_path / "start" / "model.pt")
    assert start.config.softmax == "smooth"
    assert start.config.repulsion.outer == (outer or REACH)


def test_errors_are_measured_by_kind_for_the_start_and_each_stage(folder):
    metrics = json.loads((folder / "demo" / "metrics.json").read_text())
    assert list(metrics) == ["start", "stage1", "stage2"]
    for errors in metrics.values():
        assert list(errors) == ["box", "cluster", "all"]
        assert errors["all"]["frames"] == 2
        assert {"forces", "energy", "stress"} <= set(errors["box"])
        assert "stress" not in errors["cluster"]
    assert metrics["stage2"]["all"]["forces"] < metrics["start"]["all"]["forces"]


def test_the_measurement_alone_gives_the_same_numbers(folder):
    done = run(RECIPE / "measure.py", folder / "demo" / "stage2" / "model.pt", "--frames", folder / "frames.extxyz",
               "--output", folder / "again.json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = json.loads((folder / "again.json").read_text()).values()
    assert found == json.loads((folder / "demo" / "metrics.json").read_text())["stage2"]
    assert f"{found['all']['forces']:.1f}" in done.stdout


def test_the_curves_are_drawn_from_the_files_of_a_run(folder):
    demo = folder / "demo"
    done = run(RECIPE / "curves.py", demo / "stage1" / "log.csv", demo / "stage2" / "log.csv",
               "--metrics", demo / "metrics.json", "--output", folder / "training.png")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (folder / "training.png").stat().st_size > 0


def test_the_expected_numbers_of_the_bundled_model_can_be_written_anew(tmp_path):
    models = RECIPE.parent
    done = run(RECIPE / "expected.py", models / "tessera-demo.pt", "--output", tmp_path / "again.npz")
    assert done.returncode == 0, done.stderr
    with np.load(models / "expected.npz") as stored, np.load(tmp_path / "again.npz") as found:
        assert set(found.files) == set(stored.files)
        for key in stored.files:
            if stored[key].dtype.kind == "f":
                assert np.abs(found[key] - stored[key]).max() < ROUNDING, key
            else:
                assert np.array_equal(found[key], stored[key]), key


def test_a_folder_in_the_way_is_refused(folder):
    done = run(RECIPE / "train.py", folder / "frames.extxyz", "--output", folder / "demo", "--device", "cpu")
    assert done.returncode == 2
    assert "expected a new folder for --output, found" in done.stderr


@pytest.mark.parametrize("stage", ["stage1", "stage2"])
def test_the_stages_ask_for_a_clock_and_exact_products(stage):
    config = yaml.safe_load((RECIPE / f"{stage}.yaml").read_text())
    assert 0 < config["optimizer"]["minutes"] < 10
    assert config["dtype"] == "float32"


def test_the_second_stage_alone_goes_on_from_the_start(folder, tmp_path):
    demo = tmp_path / "demo"
    done = run(
        RECIPE / "train.py", folder / "frames.extxyz", "--output", demo, "--device", "cpu", "--epochs", 1,
        "--stages", "stage2", "--start", folder / "demo" / "stage1" / "model.pt",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in demo.iterdir()) == ["metrics.json", "stage2", "stage2.yaml", "start"]
    metrics = json.loads((demo / "metrics.json").read_text())
    assert list(metrics) == ["start", "stage2"]
    before = json.loads((folder / "demo" / "metrics.json").read_text())
    assert metrics["start"]["box"]["forces"] == pytest.approx(before["stage1"]["box"]["forces"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--minutes", 1), "--minutes: expected one number for each of stage1, stage2, found 1"),
        (("--stages", "stage2", "stage1"), "--stages: expected some of stage1, stage2 in this order, found stage2"),
    ],
)
def test_stages_and_minutes_that_do_not_go_together_are_refused(tmp_path, options, message):
    done = run(RECIPE / "train.py", "frames.extxyz", "--output", tmp_path / "demo", *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "demo").exists()
