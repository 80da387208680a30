# SPDX-License-Identifier: MIT
"""Build the C++ libraries through CMake; everything else is in pyproject.toml."""

import importlib.machinery
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


def installed_package(name: str) -> Path | None:
    """Folder of a package of the target environment, which build isolation hides from `import`."""
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path]
    spec = importlib.machinery.PathFinder.find_spec(name, places)
    return Path(spec.origin).parent if spec and spec.origin else None


class CMakeBuild(build_ext):
    """One CMake project gives all libraries; they are installed inside the package `tessera`."""

    def build_extension(self, ext: Extension) -> None:
        torch = installed_package("torch")
        if torch is None:
            sys.exit(
                "tessera-lammps is compiled against the torch of this environment, and none is installed in "
                f"{sysconfig.get_path('purelib')}. Install it first (pip install 'torch>=2.11,<2.15'), then repeat."
            )
        package = Path(self.get_ext_fullpath(ext.name)).resolve().parent
        build = Path(os.environ.get("TESSERA_BUILD_DIR", self.build_temp)).resolve()
        build.mkdir(parents=True, exist_ok=True)
        import pybind11  # a build requirement, absent from the run-time environment

        options = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_INSTALL_PREFIX": package,
            "Python_EXECUTABLE": sys.executable,
            "pybind11_DIR": pybind11.get_cmake_dir(),
            "TESSERA_TORCH_DIR": torch,
            "TESSERA_MPI_ROOT": os.environ.get("TESSERA_MPI_ROOT", sys.prefix),
            "LAMMPS_ROOT": os.environ.get("LAMMPS_ROOT", installed_package("lammps") or ""),
        }
        command = ["cmake", "-S", str(ROOT), "-B", str(build), *(f"-D{key}={value}" for key, value in options.items())]
        command += os.environ.get("TESSERA_CMAKE_ARGS", "").split()
        jobs = os.environ.get("MAX_JOBS", str(os.cpu_count() or 1))
        subprocess.run(command, check=True)
        subprocess.run(["cmake", "--build", str(build), "--parallel", jobs], check=True)
        subprocess.run(["cmake", "--install", str(build)], check=True)


setup(ext_modules=[Extension("tessera._C", sources=[])], cmdclass={"build_ext": CMakeBuild})
