# SPDX-License-Identifier: MIT
"""CMake reads the release of LAMMPS from a source tree or an installation, and refuses one that is too old."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """include({cmake}/lammps_version.cmake)
read_lammps_version(found "{include}" "{root}")
message("found ${{found}}")
require_lammps_version(${{found}} "{include}")
"""


def configure(folder: Path) -> subprocess.CompletedProcess:
    """What CMake makes of a LAMMPS in `folder`: headers in include/lammps or src."""
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("cmake is not installed (pip install cmake)")
    include = folder / "src" if (folder / "src").exists() else folder / "include" / "lammps"
    script = folder / "read.cmake"
    script.write_text(SCRIPT.format(cmake=ROOT / "cmake", include=include, root=folder))
    return subprocess.run([cmake, "-P", str(script)], capture_output=True, text=True, check=False)


def source_tree(folder: Path, release: str) -> Path:
    (folder / "src").mkdir()
    (folder / "src" / "version.h").write_text(f'#define LAMMPS_VERSION "{release}"\n#define LAMMPS_UPDATE "Update 2"\n')
    return folder


@pytest.mark.parametrize(
    ("release", "number"), [("4 Feb 2025", 20250204), ("2 Aug 2023", 20230802), ("29 September 2024", 20240929)]
)
def test_a_source_tree_tells_its_release(tmp_path, release, number):
    done = configure(source_tree(tmp_path, release))
    assert done.returncode == 0, done.stderr
    assert f"found {number}\n" in done.stderr


def test_an_installation_tells_its_release(tmp_path):
    config = tmp_path / "lib" / "cmake" / "LAMMPS"
    config.mkdir(parents=True)
    (config / "LAMMPSConfigVersion.cmake").write_text('set(PACKAGE_VERSION "2025.7.22")\n')
    assert "found 20250722\n" in configure(tmp_path).stderr


def test_a_release_without_what_the_style_uses_is_refused_with_both_numbers(tmp_path):
    """Debian 12 has the sources of September 2021."""
    done = configure(source_tree(tmp_path, "29 Sep 2021"))
    assert done.returncode != 0
    text = " ".join(done.stderr.split())
    assert "LAMMPS: expected release 20230802 or newer (yyyymmdd), found 20210929 in" in text
    assert "-DLAMMPS_SOURCE_DIR=" in text


def test_headers_that_do_not_tell_pass(tmp_path):
    (tmp_path / "include" / "lammps").mkdir(parents=True)
    done = configure(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "found 0\n" in done.stderr
