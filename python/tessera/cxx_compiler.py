# SPDX-License-Identifier: MIT
"""The C++ compiler that makes artifacts: it must be there and take its C++ library from where torch does."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

#: What the smallest program with a stream asks for where the library is not put into it.
SHARED_LIBRARY = b"libstdc++.so"
PROBE = """#include <sstream>
#include <string>
std::string tessera_probe(unsigned long number) {
  std::ostringstream text;
  text << number;
  return text.str();
}
"""


class CxxCompilerError(Exception):
    """No compiler is there, or it is unfit; the message says what to do."""


def find_cxx_compiler() -> str:
    """Return the path of the compiler that Inductor calls: that of the variable CXX, or g++.

    Raises:
        CxxCompilerError: there is none; it links no shared library; or it puts a C++ library of its own into what it
            links, of which torch's process then has two: what is compiled does not load, or crashes.
    """
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise CxxCompilerError(
            f"expected {name} on PATH, found none; install it (Debian: apt-get install g++) or set CXX"
        )
    with tempfile.TemporaryDirectory(prefix="tessera-probe-") as folder:
        source, library = Path(folder, "probe.cpp"), Path(folder, "probe.so")
        source.write_text(PROBE, encoding="utf-8")
        command = [path, "-shared", "-fPIC", str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise CxxCompilerError(
                f"expected one that links a shared library, found that {path} does not; set CXX to another: "
                f"{done.stderr.strip()[-400:]}"
            )
        if SHARED_LIBRARY not in library.read_bytes():
            raise CxxCompilerError(
                f"expected one whose programs ask for the shared C++ library ({SHARED_LIBRARY.decode()}), as torch's "
                f"do, found that those of {path} ask for none; set CXX to another (CXX=/usr/bin/g++)"
            )
    return path
