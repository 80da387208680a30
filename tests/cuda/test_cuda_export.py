# SPDX-License-Identifier: MIT
"""What tessera-export does on a GPU alone: TF32, measured memory, recomputation in a compiled program."""

import numpy as np
import pytest
import torch
from gpu import needs_gpu

from exported import load_model
from tessera import _C
from tessera_export.compiled import CompiledModel
from tessera_export.matmul import matmul_precision
from tessera_export.measure import extents_of, random_graph
from tessera_export.systems import random_liquid

pytestmark = needs_gpu

#: MiB an atom for "first" in float64, plain kernels: embedding, stage 0, stage 1 twice; 0.152 is counted with all kept.
TIGHT = 0.09
#: Relative: float64 sums in another order, through two compilations.
RELATIVE = 1e-10
#: eV and eV/Å: roundings of float32 through two stages, as in test_cuda_artifact.py.
FLOAT32_ATOL = 5e-6
#: The linear model is fitted at 1000 and 2000 atoms; allocations are rounded up to 512 bytes each.
MEMORY_RELATIVE = 0.1


def forces(path, model, system):
    energies, gradients = CompiledModel(path).run(system.graph(model))
    return torch.cat([energies, *(gradient.flatten() for gradient in gradients)])


def test_a_program_that_recomputes_gives_the_same_on_a_gpu(artifact):
    model, system = load_model("first").double(), random_liquid(np.random.default_rng(15), 60, [1, 6, 8])
    plain = forces(artifact("first", "float64", device="cuda", kernels="plain"), model, system)
    path = artifact("first", "float64", device="cuda", recompute=TIGHT, kernels="plain")
    assert _C.read_passport(str(path)).recompute
    frugal = forces(path, model, system)
    assert float((plain - frugal).abs().max()) <= RELATIVE * float(plain.abs().max())


@pytest.mark.parametrize(("kernels", "recompute"), [("plain", None), ("plain", TIGHT), ("fused", None)])
def test_the_passport_predicts_the_peak_of_a_run_of_another_size(artifact, kernels, recompute):
    path = artifact("first", "float64", device="cuda", recompute=recompute, kernels=kernels)
    memory = _C.read_passport(str(path)).memory
    assert memory.measured
    graph = random_graph(load_model("first").cutoffs, 3, rows=6000)
    extents = extents_of(graph)
    compiled = CompiledModel(path)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    compiled.run(graph)
    found = torch.cuda.max_memory_allocated() - before
    predicted = memory.predict(extents.rows, extents.halo_rows, extents.edges)
    print(f"\nGPU memory of {extents.rows} atoms: predicted {predicted / 2**20:.1f} MiB, found {found / 2**20:.1f}")  # noqa: T201
    assert predicted == pytest.approx(found, rel=MEMORY_RELATIVE)


def test_tf32_is_in_the_passport_and_in_the_products(artifact):
    model, system = load_model("first"), random_liquid(np.random.default_rng(15), 60, [1, 6, 8])
    path = artifact("first", "float32", device="cuda", matmul="tf32")
    assert _C.read_passport(str(path)).matmul == "tf32"
    with matmul_precision("tf32"):
        coarse = forces(path, model, system)
    fine = forces(artifact("first", "float32", device="cuda"), model, system)
    assert 1e-6 < float((coarse - fine).abs().max()) < 1e-2  # eV and eV/Å; factors lose 13 of 23 bits


def test_tf32x3_is_in_the_passport_and_errs_no_more_than_float32(artifact):
    model, system = load_model("first"), random_liquid(np.random.default_rng(15), 60, [1, 6, 8])
    path = artifact("first", "float32", device="cuda", matmul="tf32x3", kernels="fused")
    assert _C.read_passport(str(path)).matmul == "tf32x3"
    split = forces(path, model, system)
    fine = forces(artifact("first", "float32", device="cuda", kernels="fused"), model, system)
    count = len(system.positions)
    assert not torch.equal(split, fine)
    assert float((split[count:] - fine[count:]).abs().max()) < FLOAT32_ATOL  # gradients: energies round at 1e3 eV
