# SPDX-License-Identifier: MIT
"""The export itself: one model in, one verified artifact out."""

import copy
import importlib
import json
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

import tessera.ops
from tessera.model import E2Former
from tessera.model.embedding import CHARGE_RANGE
from tessera.model.radial_table import table_bytes
from tessera_export.errors import ExportError
from tessera_export.largest_step import LargestStep, check_largest_step, largest_step
from tessera_export.matmul import check_matmul, matmul_precision
from tessera_export.measure import measured_memory
from tessera_export.package import (
    check_compiler,
    compile_package,
    cpu_capability,
    cpu_configs,
    cuda_capability,
    cuda_configs,
    replace_passport,
)
from tessera_export.passport import build_passport
from tessera_export.progress import Progress
from tessera_export.recompute import Choice, choose
from tessera_export.tables import FIRST_INTERVALS, MOST_BYTES, Tables, choose_tables, fits
from tessera_export.trace import count_operator, export_step
from tessera_export.verify import verify

logger = logging.getLogger(__name__)

#: eV/Å, about what float32 arithmetic leaves of a force.
RADIAL_TOLERANCE = 1e-6
#: Any quantity on any system of the verification may differ from the networks' by this many times the tolerance,
#: which is for forces on two of the systems.
TABLE_ALLOWANCE = 5.0
DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class ExportOptions:
    """How the program is compiled.

    Attributes:
        dtype: of the network, "float32" or "float64"; edge vectors and energies are always float64.
        device: "cpu" or "cuda"; the latter is compiled for and verified on this machine's GPU.
        matmul: precision of float32 matrix products, "highest", or "tf32" or "tf32x3" on a GPU.
        is_native: compile for this machine's instruction set; other machines may refuse the artifact.
        sm: compute capability that the GPU must have, "90"; None takes that of the present one.
        recompute: MiB an atom of water that a run may need; None recomputes nothing.
        kernels: "fused" (attention in one kernel that keeps nothing of the edges) or "plain".
        radial: "table" (edge networks as splines of the distance) or "exact"; None: tables for fused float32.
        radial_tolerance: largest error of a force that tables may bring, eV/Å (`tables.choose_tables`).
        largest_step: atoms of a liquid that a step of one GPU must take; None takes as many as 32-bit indices hold.
    """

    dtype: str = "float32"
    device: str = "cpu"
    matmul: str = "highest"
    is_native: bool = False
    sm: str | None = None
    recompute: float | None = None
    kernels: str = "fused"
    radial: str | None = None
    radial_tolerance: float = RADIAL_TOLERANCE
    largest_step: int | None = None

    @property
    def is_fused(self) -> bool:
        """Whether attention stages become one kernel each."""
        return self.kernels == "fused"


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
        ExportError: the output folder, the compiler or the device is missing, options contradict each other, the
            budget of memory cannot be met, or the model cannot be traced with free extents.
        VerificationError: the compiled program disagrees with the eager model.
    """
    check_output(output)
    check_compiler()
    capability = required_capability(options)
    model = model.to(DTYPES[options.dtype]).requires_grad_(requires_grad=False).eval()
    # Exact products also for TF32: what depends on weights alone is computed now and becomes a constant.
    with matmul_precision("highest"):
        original, tables = model, tabulated(model, options, progress)
        if tables is not None:
            model = tables.model
        traced = copy.deepcopy(model).to(options.device)
        traced.set_fused(is_fused=options.is_fused)
        traced.set_split(is_split=options.matmul == "tf32x3")
        with progress.phase("trace"):
            choice = choose(traced, operations(options), options.recompute)
            progress.note(f"{len(choice.module.graph.nodes)} nodes")
            largest = bounded_step(choice, options)
            if largest is not None:
                progress.note(str(largest))
        passport = build_passport(
            original,
            dtype=options.dtype,
            device=options.device,
            device_capability=capability,
            matmul="highest",
            num_messages=count_operator(choice.module, "halo_start"),
            recompute=choice.labels,
            memory=choice.memory,
            largest=largest,
            kernels="fused" if options.is_fused else "plain",
            tables=None if tables is None else tables.to_dict(),
        )
        with progress.phase("export"):
            program = export_step(choice.module, traced, largest)
            progress.note(f"{len(program.graph.nodes)} nodes")
        del traced
        with tempfile.TemporaryDirectory(prefix=".tessera-export-", dir=output.parent) as folder:
            draft = Path(folder) / "model.pt2"
            with progress.phase("compile"):
                configs = cuda_configs() if options.device == "cuda" else cpu_configs(options.is_native)
                compile_package(program, draft, json.dumps(passport), configs)
            del program
            with progress.phase("verify"):
                worst = verify_package(draft, model, passport, options, original)
                progress.note(f"largest difference {worst:.2g} of its bound")
                if options.device == "cuda":
                    memory = measured_memory(draft, choice.memory, model)
                    passport["memory"] = memory.to_dict()
                    replace_passport(draft, json.dumps(passport))
                    progress.note(f"{memory.per_atom(model.cutoffs):.3f} MiB an atom of water")
                    check_budget(options.recompute, memory.per_atom(model.cutoffs), choice)
            os.replace(draft, output)  # noqa: PTH105 (the atomic rename is the point)
    return passport


def bounded_step(choice: Choice, options: ExportOptions) -> LargestStep | None:
    """Say how large a step the program shall take: on the CPU, where indices have 64 bits, any."""
    if options.device != "cuda":
        return None
    found = largest_step(choice.module, len(choice.cutoffs))
    return found if options.largest_step is None else found.raised(options.largest_step, choice.cutoffs)


def tabulated(model: E2Former, options: ExportOptions, progress: Progress) -> Tables | None:
    """Tabulate the edge networks if `options` ask for it or leave it open; None: they stay exact.

    Raises:
        ExportError: tables are asked for without fused kernels, or would be too large, or cannot be fine enough.
    """
    if options.radial == "table" and not options.is_fused:
        raise ExportError("--radial table: expected --kernels fused, which evaluate tables, found plain; change either")
    if options.radial == "exact" or not options.is_fused or (options.radial is None and options.dtype != "float32"):
        return None
    if not fits(model):
        size = table_bytes(model, FIRST_INTERVALS) / 2**20
        text = f"tables of {len(model.elements)} elements would take {size:.0f} MiB (at most {MOST_BYTES / 2**20:.0f})"
        if options.radial == "table":
            raise ExportError(f"--radial table: {text}; keep the elements of your system with --elements")
        logger.warning("%s: edge networks stay exact, which is slower; --elements keeps those of your system", text)
        return None
    with progress.phase("tables"):
        found = choose_tables(model, options.radial_tolerance, CHARGE_RANGE)
        progress.note(
            f"{found.intervals_per_width} intervals a width, {found.num_bytes / 2**20:.1f} MiB, forces within "
            f"{found.force_error:.1e} eV/Å"
        )
    return found


def operations(options: ExportOptions) -> ModuleType:
    """Return the operations that the traced program calls: on a GPU the fused ones are Triton kernels.

    Raises:
        ExportError: Triton is missing.
    """
    if options.device != "cuda" or not options.is_fused:
        return tessera.ops
    return import_triton("tessera.ops.gpu", "--kernels fused")


def import_triton(name: str, option: str) -> ModuleType:
    """Import a module of Triton kernels that `option` needs.

    Raises:
        ExportError: Triton is missing.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ExportError(
            f"{option}: expected Triton, which these kernels of a GPU are written in, found none that loads ({error}); "
            "install the triton of this torch, or leave the option out"
        ) from error


def required_capability(options: ExportOptions) -> str:
    """Check the options of the device and name the instruction set or SM that the artifact will need.

    Raises:
        ExportError: options contradict each other, or the device is missing or another one.
    """
    if options.recompute is not None and not options.recompute > 0.0:
        raise ExportError(f"--recompute {options.recompute:g}: expected a positive number of MiB an atom; change it")
    check_largest_step(options.largest_step, options.device)
    check_matmul(options.matmul, options.device, options.dtype)
    if options.device == "cuda":
        return cuda_capability(options.sm)
    if options.sm is not None:
        raise ExportError(f"--sm {options.sm}: expected --device cuda, found {options.device}; leave --sm out")
    return cpu_capability(options.is_native)


def check_budget(budget: float | None, measured: float, choice: Choice) -> None:
    """Refuse a program that takes more on the device than was counted and allowed.

    Args:
        budget: MiB an atom of water, None for any.
        measured: MiB an atom of water.
        choice: what was compiled.

    Raises:
        ExportError: names both, and the budget by which the next choice is taken.
    """
    if budget is not None and measured > budget:
        raise ExportError(
            f"--recompute {budget:g}: expected at most {budget:g} MiB an atom, found {measured:.3f} when the program "
            f"ran (counted: {choice.per_atom:.3f}; recomputed: {', '.join(choice.labels) or 'nothing'}); give "
            f"{budget * choice.per_atom / measured:.3f}, so that the next choice is taken, or at least {measured:.3f}"
        )


def verify_package(
    draft: Path, model: E2Former, passport: dict[str, object], options: ExportOptions, original: E2Former
) -> float:
    """Compare the package with the eager model, first with exact products, then with those of `options.matmul`.

    The compiled code is the same for both, so the narrow bounds of exact products hold for a TF32 artifact too. A model
    whose edge networks are tables is what the package computes; that both follow the `original` is seen as well.

    Returns:
        The largest ratio of a difference to its bound.

    Raises:
        VerificationError: as `verify.verify`.
    """
    charges = CHARGE_RANGE if passport["uses_charge"] else (0, 0)
    worst = verify(draft, model, charges)
    if model is not original:
        slack = TABLE_ALLOWANCE * options.radial_tolerance
        worst = max(worst, verify(draft, original, charges, tolerance=slack))
    if options.matmul != "highest":
        passport["matmul"] = options.matmul
        replace_passport(draft, json.dumps(passport))
        worst = max(worst, verify(draft, model, charges, options.matmul))
    return worst


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
