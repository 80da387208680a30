# SPDX-License-Identifier: MIT
"""A plugin in a process of another LAMMPS, MPI or torch names both and leaves the pair style unknown."""

import subprocess
from pathlib import Path

import pytest
import torch
from lammps_program import plugin, run, run_well

ROOT = Path(__file__).resolve().parents[2]
ENTRY = ROOT / "csrc" / "plugin" / "open_pair_style.cpp"
USE = "plugin load {plugin}\nunits metal\npair_style tessera\nprint 'style is $(1+1)'\n"
KNOWN = "style is 2"
MINOR = ".".join(torch.__version__.split(".")[:2])
#: What the plugin was compiled for, as CMake finds it; 0 is any LAMMPS.
BUILT_FOR = {"LAMMPS_VERSION": "0", "MPI_NAME": "MPICH", "MPI_LIBRARY": "libmpi.so.12", "TORCH_VERSION": MINOR}


def compile_entry(folder: Path, *, libraries: tuple[Path, ...], **claims: str) -> Path:
    """Compile what LAMMPS opens as if for something else; it looks for torch and the pair style in `libraries`."""
    entry = folder / "otherplugin.so"
    built_for = {**BUILT_FOR, **claims}
    macros = [
        f"-DTESSERA_{name}={value}" if name == "LAMMPS_VERSION" else f'-DTESSERA_{name}="{value}"'
        for name, value in built_for.items()
    ]
    rpath = [f"-Wl,-rpath,{library}" for library in libraries]
    command = ["g++", "-std=c++20", "-shared", "-fPIC", *macros, *rpath, str(ENTRY), "-o", str(entry)]
    subprocess.run(command, check=True, capture_output=True)
    return entry


def own_libraries() -> tuple[Path, ...]:
    return (plugin().parent, Path(torch.__file__).parent / "lib")


def load(entry: Path, folder: Path, **options) -> str:
    """What LAMMPS says of a plugin that must not register the style."""
    finished = run(USE.format(plugin=entry), folder, is_bare=True, environment={"LAMMPS_PLUGIN_PATH": None}, **options)
    assert finished.code != 0
    assert KNOWN not in finished.text
    assert "nrecognized pair style 'tessera'" in finished.text
    text = " ".join(finished.text.split())
    assert text.count("pair_style tessera is not available: the plugin was compiled for ") == 1
    return text


def test_a_plugin_compiled_like_the_built_one_registers_the_style(tmp_path):
    """Else the refusals below would show nothing."""
    entry = compile_entry(tmp_path, libraries=own_libraries())
    text = run_well(USE.format(plugin=entry), tmp_path, is_bare=True, environment={"LAMMPS_PLUGIN_PATH": None}).text
    assert KNOWN in text


@pytest.mark.parametrize("ranks", [1, 2])
def test_another_release_of_lammps_is_named_beside_the_one_compiled_for(tmp_path, ranks):
    entry = compile_entry(tmp_path, libraries=own_libraries(), LAMMPS_VERSION="20200101")
    text = load(entry, tmp_path, ranks=ranks)
    assert "compiled for LAMMPS version 20200101, this is version 202" in text
    assert "Reinstall tessera-lammps with LAMMPS_ROOT (or LAMMPS_SOURCE_DIR) set to that of this LAMMPS." in text


def test_another_mpi_is_named_beside_the_one_compiled_with(tmp_path):
    entry = compile_entry(tmp_path, libraries=own_libraries(), MPI_NAME="Open MPI", MPI_LIBRARY="libmpi.so.40")
    text = load(entry, tmp_path)
    assert "compiled for Open MPI (libmpi.so.40), this LAMMPS uses another MPI: MPICH Version: " in text
    assert "Reinstall tessera-lammps with TESSERA_MPI_ROOT set to that of this LAMMPS." in text


def test_another_torch_is_named_beside_the_one_compiled_with(tmp_path):
    entry = compile_entry(tmp_path, libraries=own_libraries(), TORCH_VERSION="1.13")
    text = load(entry, tmp_path)
    assert f"compiled for torch 1.13, found here is torch {MINOR}. Install torch 1.13, or reinstall" in text


def test_an_absent_torch_is_named(tmp_path):
    entry = compile_entry(tmp_path, libraries=())
    text = load(entry, tmp_path)
    assert f"compiled for torch {MINOR}, which does not load here: libtorch_cpu.so: cannot open" in text


def test_an_absent_part_of_the_plugin_is_named(tmp_path):
    entry = compile_entry(tmp_path, libraries=own_libraries()[1:])
    assert "libraries beside it, of which one does not load: libtessera_pair.so: cannot open" in load(entry, tmp_path)


#: A program with LAMMPS's C interface as of 2020, and nothing else of it: version, sizes of ids and images.
HOST = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int version, tag, image;
int lammps_version(void* lmp) { return version; }
int lammps_extract_setting(void* lmp, const char* name)
{
  return strcmp(name, "tagint") == 0 ? tag : strcmp(name, "imageint") == 0 ? image : 0;
}
int main(int count, char** words)
{
  version = atoi(words[2]); tag = atoi(words[3]); image = atoi(words[4]);
  void* plugin = dlopen(words[1], RTLD_NOW | RTLD_GLOBAL);
  if (!plugin) { printf("%s", dlerror()); return 1; }
  ((void (*)(void*, void*, void*))dlsym(plugin, "lammpsplugin_init"))(0, plugin, 0);
  return 0;
}
"""


def load_in_host(folder: Path, *words: str) -> str:
    """What the built plugin itself writes in such a program."""
    (folder / "host.c").write_text(HOST)
    command = ["gcc", "-w", "-rdynamic", str(folder / "host.c"), "-o", str(folder / "host"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    done = subprocess.run([folder / "host", plugin(), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def own_release(folder: Path) -> str:
    done = run_well("print 'release: $(version)'\n", folder)
    return str(int(done.values("release").item()))


def test_the_plugin_opens_in_any_lammps_and_names_both_releases(tmp_path):
    """The classes of another release lack symbols, so that a library that needs them would not even open."""
    text = load_in_host(tmp_path, "20200303", "4", "4")
    assert f"compiled for LAMMPS version {own_release(tmp_path)}, this is version 20200303." in text


@pytest.mark.parametrize("sizes", [("8", "8"), ("4", "8")])
def test_other_sizes_of_ids_are_refused(tmp_path, sizes):
    text = load_in_host(tmp_path, own_release(tmp_path), *sizes)
    assert f"this LAMMPS has ids of {sizes[0]} and images of {sizes[1]} bytes" in text
    assert "LAMMPS_SMALLBIG" in text


def test_a_lammps_without_mpi_is_refused(tmp_path):
    text = load_in_host(tmp_path, own_release(tmp_path), "4", "4")
    assert "this LAMMPS uses another MPI: none in a shared library" in text
