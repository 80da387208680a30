# SPDX-License-Identifier: MIT
"""Compile an exported program into an AOTInductor package that carries its passport."""

import json
import os
import platform
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch._inductor import config as inductor_config
from torch._inductor import cpu_vec_isa
from torch.export import ExportedProgram

from tessera.cxx_compiler import CxxCompilerError, find_cxx_compiler
from tessera_export.errors import ExportError

#: Key of the passport in the package's metadata.
METADATA_KEY = "tessera"

#: Vector width of a portable artifact: every x86-64 machine since 2013 has AVX2.
PORTABLE_SIMD_BITS = 256


def compile_package(program: ExportedProgram, path: Path, passport_json: str, configs: Mapping[str, object]) -> None:
    """Write the package of `program` to `path` (which ends in `.pt2`).

    Args:
        program: as `trace.export_step` returns it.
        path: a file of this name is overwritten.
        passport_json: stored under METADATA_KEY, where the C++ loader reads it without running model code.
        configs: as `cpu_configs` or `cuda_configs` returns them.

    Raises:
        ExportError: the compiler failed; with its text.
    """
    settings = {**configs, "aot_inductor.metadata": {METADATA_KEY: passport_json}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytree
        try:
            torch._inductor.aoti_compile_and_package(  # noqa: SLF001
                program, package_path=str(path), inductor_configs=settings
            )
        except RuntimeError as error:  # the base of all that Inductor and the C++ compiler raise
            raise ExportError(f"the program does not compile with torch {torch.__version__}: {error}") from error


def replace_passport(path: Path, passport_json: str) -> None:
    """Store another passport in the package at `path`; the compiled code keeps its bytes.

    Raises:
        ExportError: the package holds no passport.
    """
    rewritten = path.with_name(f"{path.name}.part")
    count = 0
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(rewritten, "w", zipfile.ZIP_STORED) as target:
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename.endswith("wrapper_metadata.json"):
                metadata = json.loads(content)
                count += METADATA_KEY in metadata
                content = json.dumps(metadata | {METADATA_KEY: passport_json}).encode()
            target.writestr(zipfile.ZipInfo(entry.filename, entry.date_time), content)
    if count != 1:
        raise ExportError(f"{path}: expected one passport in the package, found {count}; report this torch version")
    os.replace(rewritten, path)  # noqa: PTH105 (the atomic rename is the point)


def check_compiler() -> None:
    """Look for the C++ compiler that Inductor will call, before minutes of work.

    Raises:
        ExportError: there is none, or it is unfit (`tessera.cxx_compiler`).
    """
    try:
        find_cxx_compiler()
    except CxxCompilerError as error:
        raise ExportError(f"C++ compiler: {error}") from error


#: Settings that a correct artifact needs on any device.
_SAFE_SETTINGS: dict[str, object] = {
    # Inductor (2.11 to 2.14) may reuse a buffer that a split exchange still reads: wrong energies, no error.
    "inplace_buffers": False,
    # Keeps the order of exchange start, work that needs no halo, and wait.
    "reorder_for_locality": False,
    # Pays off only from the second export on one machine, and costs ten seconds at the first.
    "aot_inductor.precompile_headers": False,
}


def cpu_configs(is_native: bool) -> dict[str, object]:
    """Give the compiler's settings for a CPU artifact.

    Args:
        is_native: compile for this machine's instruction set instead of the portable one.
    """
    settings = {
        **_SAFE_SETTINGS,
        # The thread count is the run's choice, not the exporting machine's.
        "cpp.dynamic_threads": True,
        "cpp.simdlen": None if is_native else PORTABLE_SIMD_BITS,
    }
    if not is_native and has_march_setting():
        settings["cpp.march"] = ""
    return settings


def cuda_configs() -> dict[str, object]:
    """Give the compiler's settings for an artifact that runs on the GPUs of this machine's kind."""
    return dict(_SAFE_SETTINGS)


def cuda_capability(wanted: str | None = None) -> str:
    """Name the compute capability of the current GPU, "9.0", for which an artifact is compiled.

    Args:
        wanted: what was asked for, spelt "90"; None takes what the GPU has.

    Raises:
        ExportError: this torch has no CUDA, there is no device, or it has another capability than the wanted one.
    """
    capability = None if wanted is None else parse_sm(wanted)
    if not torch.cuda.is_available():
        found = "no device" if torch.version.cuda else f"torch {torch.__version__} without CUDA"
        raise ExportError(
            f"--device cuda: expected a GPU, on which the artifact is compiled and verified, found {found}; "
            "run tessera-export on the machine with the GPU, or use --device cpu"
        )
    found = "{}.{}".format(*torch.cuda.get_device_capability())
    if capability not in (None, found):
        raise ExportError(
            f"--sm {wanted}: expected the compute capability of this device ({torch.cuda.get_device_name()}: {found}), "
            f"on which the artifact is verified before it is written, found {capability}; leave --sm out, or run "
            f"tessera-export on a device of capability {capability}"
        )
    return found


def parse_sm(text: str) -> str:
    """Spell "90" as the capability "9.0"; the last digit is the minor version.

    Raises:
        ExportError: the text is no such number.
    """
    if not re.fullmatch(r"\d{2,3}", text):
        raise ExportError(f"--sm {text}: expected a number such as 90 (compute capability 9.0), found '{text}'; "
                          "nvidia-smi --query-gpu=compute_cap names that of a device")  # fmt: skip
    return f"{text[:-1]}.{text[-1]}"


def has_march_setting() -> bool:
    """Whether this torch can compile without `-march=native` (otherwise no artifact is portable)."""
    return hasattr(inductor_config.cpp, "march")


def cpu_capability(is_native: bool) -> str:
    """Name the instruction set that an artifact needs, as the passport states it: avx2, avx512, ..., or default."""
    if is_native or not has_march_setting():
        return torch.backends.cpu.get_cpu_capability().lower()
    with inductor_config.patch({"cpp.simdlen": PORTABLE_SIMD_BITS}):
        isa = cpu_vec_isa.pick_vec_isa()
    if isinstance(isa, cpu_vec_isa.InvalidVecISA):
        return f"default ({platform.machine()})"
    return str(isa).split()[0].lower()
