# SPDX-License-Identifier: MIT
"""The export itself: one model in, one verified artifact out."""

import copy
import json
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

import tessera.ops
from tessera.model import E2Former
from tessera.model.embedding import CHARGE_RANGE
from tessera_export.errors import ExportError
from tessera_export.package import (
    check_compiler,
    compile_package,
    cpu_capability,
    cpu_configs,
    cuda_capability,
    cuda_configs,
)
from tessera_export.passport import build_passport
from tessera_export.progress import Progress
from tessera_export.trace import count_operator, export_step, trace_step
from tessera_export.verify import verify

logger = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class ExportOptions:
    """How the program is compiled.

    Attributes:
        dtype: of the network, "float32" or "float64"; edge vectors and energies are always float64.
        device: "cpu" or "cuda"; the latter is compiled for and verified on this machine's GPU.
        matmul: precision of float32 matrix products, "highest".
        is_native: compile for this machine's instruction set; other machines may refuse the artifact.
    """

    dtype: str = "float32"
    device: str = "cpu"
    matmul: str = "highest"
    is_native: bool = False


def export_model(model: E2Former, output: Path, options: ExportOptions, progress: Progress) -> dict[str, object]:
    """Trace, compile and verify `model`, then write the artifact to `output` in one step.

    Args:
        model: with the elements that the artifact shall know; changed to the network dtype, gradients switched off.
        output: the `.pt2` to write; untouched unless everything succeeds.
        options: how to compile.
        progress: told of each phase.

    Returns:
        The passport.

    Raises:
        ExportError: the output folder, the compiler or the device is missing, or the model cannot be traced with free
            extents.
        VerificationError: the compiled program disagrees with the eager model.
    """
    check_output(output)
    check_compiler()
    is_cuda = options.device == "cuda"
    capability = cuda_capability() if is_cuda else cpu_capability(options.is_native)
    model = model.to(DTYPES[options.dtype]).requires_grad_(requires_grad=False).eval()
    torch.set_float32_matmul_precision(options.matmul)
    traced = copy.deepcopy(model).to(options.device)
    with progress.phase("trace"):
        module = trace_step(traced, tessera.ops)
        progress.note(f"{len(module.graph.nodes)} nodes")
    passport = build_passport(
        model,
        dtype=options.dtype,
        device=options.device,
        device_capability=capability,
        matmul=options.matmul,
        num_messages=count_operator(module, "halo_start"),
    )
    with progress.phase("export"):
        program = export_step(module, traced)
        progress.note(f"{len(program.graph.nodes)} nodes")
    configs = cuda_configs() if is_cuda else cpu_configs(options.is_native)
    with tempfile.TemporaryDirectory(prefix=".tessera-export-", dir=output.parent) as folder:
        draft = Path(folder) / "model.pt2"
        with progress.phase("compile"):
            compile_package(program, draft, json.dumps(passport), configs)
        with progress.phase("verify"):
            worst = verify(draft, model, CHARGE_RANGE if passport["uses_charge"] else (0, 0))
            progress.note(f"largest difference {worst:.2g} of its bound")
        os.replace(draft, output)  # noqa: PTH105 (the atomic rename is the point)
    return passport


def check_output(output: Path) -> None:
    """Refuse an output that cannot be written, before any work.

    Raises:
        ExportError: names the folder or the ending.
    """
    if output.suffix != ".pt2":
        raise ExportError(f"output {output}: expected a name that ends in .pt2, found '{output.name}'")
    if not output.parent.is_dir():
        raise ExportError(f"output {output}: folder {output.parent} does not exist; create it or choose another")
    if not os.access(output.parent, os.W_OK):
        raise ExportError(f"output {output}: folder {output.parent} cannot be written; choose another")
