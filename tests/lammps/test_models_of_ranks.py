# SPDX-License-Identifier: MIT
"""Ranks on other hosts may see another file under the name of the model, or none: all ranks end, with the reason."""

import os
import subprocess
from pathlib import Path

import pytest
from lammps_program import plugin, program
from water_systems import SMALL, write_data

SECONDS_TO_END = 60  # reaching it means a hang
SCRIPT = """units metal
atom_style atomic
read_data {data}
pair_style tessera
pair_coeff * * model.pt2 H O
run 0
print "energy: $(pe:%.17g)"
"""


def run_in_folders(folders: list[Path], script: str) -> subprocess.CompletedProcess:
    """Run lmp with a rank in each folder, as if each were a host of its own."""
    (folders[0] / "in.test").write_text(script)
    command = [str(Path(program()).with_name("mpiexec"))]
    for k, folder in enumerate(folders):
        command += [":"] * (k > 0) + ["-n", "1", "-wdir", str(folder), program(), "-in", "in.test", "-log", "none"]
    variables = {**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS_TO_END,
        check=False,
    )  # fmt: skip


@pytest.fixture
def hosts(tmp_path):
    write_data(tmp_path / "box.data", SMALL, ["H", "O"])
    folders = [tmp_path / f"host{k}" for k in range(3)]
    for folder in folders:
        folder.mkdir()
    return folders


def put(folder: Path, model: Path) -> None:
    (folder / "model.pt2").symlink_to(model)


def test_copies_of_one_model_on_each_host_are_one_model(hosts, demo):
    for host in hosts:
        put(host, demo)
    done = run_in_folders(hosts, SCRIPT.format(data=hosts[0].parent / "box.data"))
    assert done.returncode == 0, done.stdout
    assert "energy: " in done.stdout


def test_a_rank_that_does_not_see_the_model_ends_all_with_its_reason(hosts, demo):
    for host in (hosts[0], hosts[2]):
        put(host, demo)
    done = run_in_folders(hosts, SCRIPT.format(data=hosts[0].parent / "box.data"))
    assert done.returncode != 0
    text = " ".join(done.stdout.split())
    assert "pair_style tessera: rank 1: model.pt2: expected an artifact, found no such file" in text


def test_another_model_under_the_same_name_on_one_host_is_refused(hosts, demo, artifact):
    for host in hosts[:2]:
        put(host, demo)
    put(hosts[2], artifact("first", "float64"))
    done = run_in_folders(hosts, SCRIPT.format(data=hosts[0].parent / "box.data"))
    assert done.returncode != 0
    text = " ".join(done.stdout.split())
    assert "model.pt2: expected one model on all ranks, found weights" in text
    assert "on rank 0 and" in text
    assert "on rank 2; copy one file to all hosts" in text


def test_a_model_that_no_rank_sees_is_told_once(hosts):
    done = run_in_folders(hosts, SCRIPT.format(data=hosts[0].parent / "box.data"))
    assert done.returncode != 0
    assert done.stdout.count("pair_style tessera: model.pt2: expected an artifact, found no such file") == 1
