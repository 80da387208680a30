# SPDX-License-Identifier: MIT
"""CMake refuses a compiler that puts a C++ library of its own into what it links: artifacts crashed beside torch."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """set(CMAKE_CXX_COMPILER {compiler})
set(CMAKE_CXX_FLAGS "{flags}")
set(CMAKE_OBJDUMP {objdump})
include({cmake}/cxx_library.cmake)
require_shared_cxx_library()
"""


def configure(folder: Path, compiler: str, flags: str = "", objdump: str = "objdump") -> subprocess.CompletedProcess:
    """What CMake makes of a compiler."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("cmake is not installed (pip install cmake)")
    script = folder / "probe.cmake"
    text = SCRIPT.format(cmake=ROOT / "cmake", compiler=compiler, flags=flags, objdump=objdump)
    script.write_text(text, encoding="utf-8")
    return subprocess.run([cmake, "-P", str(script)], capture_output=True, text=True, check=False, cwd=folder)


def compiler() -> str:
    """The compiler that artifacts are made with."""
    found = shutil.which(os.environ.get("CXX", "g++"))
    if found is None:
        pytest.skip("no g++ on PATH")
    return found


def wrapped(folder: Path, option: str) -> str:
    """A compiler of the same name that always gets one option more, as some images bring it."""
    program = folder / "g++"
    program.write_text(f'#!/bin/sh\nexec {compiler()} {option} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return str(program)


def test_a_compiler_that_links_the_shared_library_passes(tmp_path):
    done = configure(tmp_path, compiler(), "-O1 -g")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("is_wrapped", [True, False])
def test_a_library_of_its_own_is_refused(tmp_path, is_wrapped):
    option = "-static-libstdc++"
    program = wrapped(tmp_path, option) if is_wrapped else compiler()
    done = configure(tmp_path, program, "" if is_wrapped else option)
    text = " ".join(done.stderr.split())
    assert done.returncode != 0
    assert "expected one whose libraries ask for the shared C++ library" in text
    assert f"those of {program} ask for none" in text
    assert "CXX=/usr/bin/g++" in text


def test_what_cannot_be_looked_at_is_refused(tmp_path):
    done = configure(tmp_path, compiler(), "--no-such-option")
    assert done.returncode != 0
    assert "expected one that links a shared library" in " ".join(done.stderr.split())
    done = configure(tmp_path, compiler(), objdump=str(tmp_path / "none"))
    assert done.returncode != 0
    assert "expected objdump to read what it links" in " ".join(done.stderr.split())
