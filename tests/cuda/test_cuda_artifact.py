# SPDX-License-Identifier: MIT
"""Artifacts on a GPU against the same models on the CPU, on one rank and several; LAMMPS end to end."""

import json
from functools import cache

import numpy as np
import pytest
from gpu import needs_gpu
from lammps_program import run_well

from many_ranks import SYSTEMS, WATER_216, run_ranks, water_216
from tessera import _C

pytestmark = needs_gpu

#: float64: sums in another order than on the CPU.
ENERGY_RTOL = 1e-10
FORCE_ATOL = 1e-9  # eV/Å
#: eV/Å; float32 network: rounding errors through two layers, observed 2e-7; TF32 products would give 1e-4 and more.
#: Fused float32 has tables, which the exporter lets bring 1e-6 eV/Å on its own liquids; with them 2.2e-7 was seen.
FLOAT32_FORCE_ATOL = 5e-6
FLOAT32_ENERGY_ATOL = 1e-4  # eV an atom


with_all_kernels = pytest.mark.parametrize("kernels", ["plain", "fused"])


@pytest.fixture(scope="module")
def on_the_cpu(artifact):
    """Results of one rank on the CPU in float64, by model and system, each computed once."""

    @cache
    def get(name: str, system: str):
        return run_ranks(artifact(name, "float64"), 1, [SYSTEMS[system]()])

    return get


@with_all_kernels
@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_gpu_gives_what_the_cpu_gives(artifact, on_the_cpu, system, num_ranks, kernels):
    expected = on_the_cpu("first", system)
    path = artifact("first", "float64", device="cuda", kernels=kernels)
    found = run_ranks(path, num_ranks, [SYSTEMS[system]()])
    np.testing.assert_allclose(found.energy, expected.energy, rtol=ENERGY_RTOL)
    np.testing.assert_allclose(found.forces, expected.forces, atol=FORCE_ATOL, rtol=0)
    np.testing.assert_allclose(found.virial, expected.virial, atol=1e-8, rtol=0)
    print(f"\nGPU float64 {kernels} {system:30} K={num_ranks} |dE|/|E| "  # noqa: T201
          f"{abs(found.energy / expected.energy - 1).max():.1e} max|F| {abs(expected.forces).max():.1e} "
          f"max|dF| {abs(found.forces - expected.forces).max():.1e} eV/Å")  # fmt: skip


@with_all_kernels
@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("name", ["first", "tiny"])
def test_float32_stays_close_to_float64(artifact, on_the_cpu, name, num_ranks, kernels):
    expected = on_the_cpu(name, "W216")
    path = artifact(name, "float32", device="cuda", kernels=kernels)
    assert (json.loads(_C.read_passport(str(path)).json)["tables"] is not None) == (kernels == "fused")
    found = run_ranks(path, num_ranks, [water_216()])
    np.testing.assert_allclose(found.energies, expected.energies, atol=FLOAT32_ENERGY_ATOL, rtol=1e-6)
    np.testing.assert_allclose(found.forces, expected.forces, atol=FLOAT32_FORCE_ATOL, rtol=0)
    print(f"\nGPU float32 {kernels} {name} K={num_ranks} "  # noqa: T201
          f"max|dF| {abs(found.forces - expected.forces).max():.1e} eV/Å")  # fmt: skip


@with_all_kernels
def test_results_repeat_bit_for_bit(artifact, kernels):
    path = artifact("first", "float32", device="cuda", kernels=kernels)
    once, again = (run_ranks(path, 1, [water_216()]) for _ in range(2))
    assert np.array_equal(once.forces, again.forces)


def test_ranks_are_dealt_out_over_the_visible_devices(artifact):
    path = str(artifact("tiny", "float32", device="cuda"))
    count = _C.num_gpus()
    for rank in range(2 * count):
        assert _C.Artifact(path, local_rank=rank).device.startswith(f"cuda:{rank % count}, ")


SCRIPT = """units metal
atom_style atomic
boundary p p p
atom_modify map yes
read_data {data}
pair_style tessera
pair_coeff * * {model} {elements}
velocity all create 300.0 8123 loop geom
timestep 0.0005
fix 1 all nve
thermo_style custom step pe press
thermo_modify format float %.15g
variable e equal pe
variable p equal press
run 5
print "energy: $(v_e)"
print "pressure: $(v_p)"
"""


@pytest.mark.parametrize(("kernels", "ranks"), [("plain", 1), ("fused", 1), ("fused", 2)])
def test_lammps_runs_on_the_gpu_as_on_the_cpu(artifact, tmp_path, kernels, ranks):
    def energies(device, number):
        path = artifact("first", "float64", device=device, kernels=kernels if device == "cuda" else "fused")
        script = SCRIPT.format(data=WATER_216, model=path, elements="H O")
        return run_well(script, tmp_path, ranks=number)

    expected, found = energies("cpu", 1), energies("cuda", ranks)
    assert "Tessera: rank 0 computes on cuda:0, NVIDIA" in found.text
    if ranks > 1:
        route = "rows travel from GPU to GPU over NCCL" if _C.num_gpus() > 1 else "rows pass through page-locked memory"
        assert route in found.text
    np.testing.assert_allclose(found.values("energy"), expected.values("energy"), rtol=1e-9)
    np.testing.assert_allclose(found.values("pressure"), expected.values("pressure"), rtol=1e-6)
