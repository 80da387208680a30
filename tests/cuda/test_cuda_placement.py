# SPDX-License-Identifier: MIT
"""Each rank of LAMMPS on a GPU of its own, however GPUs are numbered or hidden; replicas divide them."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gpu import needs_gpu
from lammps_program import plugin, program

from many_ranks import WATER_216
from tessera import _C

pytestmark = needs_gpu

NUM_GPUS = _C.num_gpus() if _C.HAS_CUDA else 0
needs_two = pytest.mark.skipif(NUM_GPUS < 2, reason="needs two visible GPUs (tests/cuda/run_all.sh)")

ENERGY_RTOL = 1e-10  # float64, sums in another order than on the CPU
FORCE_ATOL = 1e-9  # eV/Å
EVEN_MIB = 300  # between the GPUs of ranks with equal shares; a second context on a GPU alone takes more
SECONDS_TO_END = 300

MEMORY = "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits"  # MiB, a line a GPU
SCRIPT = """units metal
atom_style atomic
{worlds}
read_data {data}
replicate 2 2 2
pair_style tessera
pair_coeff * * {model} H O
run 0
print "energy: $(pe:%.17g)" file energy.${{r}}
write_dump all custom forces.${{r}}.dump id fx fy fz modify sort id format float %.17g
shell {memory} > memory.${{r}}
"""
#: One line a rank: of the process that runs the rank, what a wrapper script gives it.
WRAPPER = """#!/bin/sh
{before}
exec "$@"
"""


def launch_ranks(folder: Path, model: Path, *, ranks: int, worlds: int = 1, before: str = ""):
    """Run lmp behind a script that sets up each rank's environment with `before`."""
    variable = f"variable r world {' '.join(map(str, range(worlds)))}" if worlds > 1 else "variable r index 0"
    (folder / "in.test").write_text(SCRIPT.format(worlds=variable, data=WATER_216, model=model, memory=MEMORY))
    (folder / "rank.sh").write_text(WRAPPER.format(before=before))
    (folder / "rank.sh").chmod(0o755)
    command = [str(Path(program()).with_name("mpiexec")), "-n", str(ranks), str(folder / "rank.sh"), program()]
    command += ["-in", "in.test", "-log", "log.test"]
    if worlds > 1:
        command += ["-partition", f"{worlds}x{ranks // worlds}"]
    variables = {**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=SECONDS_TO_END, check=False,
    )  # fmt: skip


def results(folder: Path, replica: int = 0) -> tuple[float, np.ndarray]:
    """Energy and forces by id."""
    energy = float((folder / f"energy.{replica}").read_text().split()[1])
    table = (folder / f"forces.{replica}.dump").read_text().split("ITEM: ATOMS", 1)[1].split("\n", 1)[1]
    return energy, np.array([line.split() for line in table.splitlines()], dtype=float)[:, 1:]


@pytest.fixture(scope="module")
def models(artifact):
    return {device: artifact("first", "float64", device=device) for device in ("cpu", "cuda")}


@pytest.fixture(scope="module")
def expected(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpu")
    done = launch_ranks(folder, models["cpu"], ranks=1)
    assert done.returncode == 0, done.stdout[-3000:]
    return results(folder)


def assert_same(found: tuple[float, np.ndarray], expected: tuple[float, np.ndarray]) -> None:
    assert found[0] == pytest.approx(expected[0], rel=ENERGY_RTOL)
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=FORCE_ATOL)


def visible_gpus() -> list[str]:
    """Their numbers, as CUDA_VISIBLE_DEVICES and nvidia-smi have them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return given.split(",") if re.fullmatch(r"[\d,]+", given) else [str(k) for k in range(NUM_GPUS)]


LAUNCHES = {
    "all GPUs visible to each rank": "",
    "one GPU visible to each rank": 'export CUDA_VISIBLE_DEVICES=$(echo "$GPUS" | cut -d, -f$((MPI_LOCALRANKID + 1)))',
    "GPUs in another order": 'export CUDA_VISIBLE_DEVICES=$(echo "$GPUS" | tr , "\\n" | tac | paste -sd,)',
}


@needs_two
@pytest.mark.parametrize("launch", LAUNCHES)
def test_each_rank_computes_on_a_gpu_of_its_own(tmp_path, models, expected, launch):
    """Reports: tensors on two devices, or all ranks on GPU 0 (allegro 70, 11; pair_mace)."""
    before = f"GPUS={','.join(visible_gpus())}\n" + LAUNCHES[launch]
    idle = subprocess.run(MEMORY.split(), capture_output=True, text=True, check=True).stdout  # this process holds some
    done = launch_ranks(tmp_path, models["cuda"], ranks=NUM_GPUS, before=before)
    assert done.returncode == 0, done.stdout[-3000:]
    assert_same(results(tmp_path), expected)
    during = (tmp_path / "memory.0").read_text()
    used = [int(after) - int(first) for after, first in zip(during.split(), idle.split(), strict=True)]
    used = [used[int(gpu)] for gpu in visible_gpus()]
    print(f"\nGPU MiB used with {launch}: {used}")  # noqa: T201
    assert min(used) > EVEN_MIB, "each holds a rank"
    assert max(used) - min(used) < EVEN_MIB


@needs_two
def test_a_rank_from_whom_the_gpu_is_hidden_ends_all_of_them(tmp_path, models):
    """SevenNet 161: one of two ranks silently ran on the CPU."""
    before = '[ "$MPI_LOCALRANKID" = 1 ] && export CUDA_VISIBLE_DEVICES='
    done = launch_ranks(tmp_path, models["cuda"], ranks=2, before=before)
    assert done.returncode != 0
    text = " ".join(done.stdout.split())
    assert re.search(r"rank 1: \S+: expected a CUDA device .* found no device", text), text[-2000:]


@needs_two
def test_replicas_divide_the_gpus(tmp_path, models, expected):
    """mace 195: all replicas on one GPU. -partition 2x1, each result that of a single run."""
    done = launch_ranks(tmp_path, models["cuda"], ranks=2, worlds=2)
    assert done.returncode == 0, done.stdout[-3000:]
    devices = []
    for replica in (0, 1):
        assert_same(results(tmp_path, replica), expected)
        log = (tmp_path / f"log.test.{replica}").read_text()
        devices += re.findall(r"Tessera: rank 0 computes on (cuda:\d+)", log)
    assert devices == ["cuda:0", "cuda:1"]
