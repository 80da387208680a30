# SPDX-License-Identifier: MIT
"""Rooms open doors only to rooms below them (ARCHITECTURE.md, The house)."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {
    "base": 0,
    "device": 1,
    "comm": 1,
    "partition": 2,
    "search": 3,
    "plan": 4,
    "topology": 5,
    "model": 6,
    "engine": 7,
}
# Headers of other projects, and the only places that may include them.
VENDOR_RULES = {
    r"mpi\.h": r"csrc/tessera/comm/mpi[^/]*$",
    r"nccl\.h": r"csrc/tessera/comm/nccl[^/]*$",
    r"(torch|ATen|c10)/": r"csrc/tessera/(model|engine)/|csrc/bindings/|tests/cpp/(model|engine)/",
    r"cuda[^/]*\.h": r"csrc/tessera/device/[^/]*\.cpp$|csrc/tessera/comm/nccl\.cpp$|\.cuh?$",
    r".*\.cuh": r"\.cuh?$",  # in a .cpp the same inline functions would lack their GPU half
    r"pybind11/": r"csrc/bindings/",
    r"faiss/": r"csrc/tessera/search/faiss[^/]*$",
}
LAMMPS_HEADERS = (
    r"(pair|atom|comm|domain|error|force|memory|neighbor|update|utils|lammps|pointers|version|fix|modify)\.h"
)
# Python: a package may import these packages of the project, and no other.
PYTHON_RULES = {
    "tessera.kernels": {"tessera.kernels", "tessera.model.graph", "tessera.ops"},
    "tessera.search": {"tessera.search"},
    "tessera.model": {"tessera.model", "tessera.kernels", "tessera.search"},
    "tessera.build": {"tessera.build", "tessera.commands"},
    "tessera.train": {
        "tessera.train",
        "tessera.model",
        "tessera.build.pairs",
        "tessera.checkpoint",
        "tessera.checkpoint_keys",
    },
    "tessera.analyze": {"tessera.analyze", "tessera.build", "tessera.commands"},
}


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def sources() -> list[Path]:
    patterns = ("*.hpp", "*.cpp", "*.h", "*.cu", "*.cuh")
    return sorted(
        p for folder in ("csrc", "pair_tessera") for pattern in patterns for p in (ROOT / folder).rglob(pattern)
    )


def violations(path: str, headers: list[str]) -> list[str]:
    """What the rules have against a file at `path` (relative to the root) that includes `headers`."""
    found = []
    room = re.match(r"csrc/tessera/(\w+)/", path)
    for header in headers:
        target = re.match(r"tessera/(\w+)/", header)
        if room and target and FLOORS[target[1]] > FLOORS[room[1]]:
            found.append(f"{path} (floor {FLOORS[room[1]]}) includes {header} (floor {FLOORS[target[1]]})")
        for pattern, place in VENDOR_RULES.items():
            if re.match(pattern, header) and not re.search(place, path):
                found.append(f"{path} includes {header}; only {place} may")
        if re.fullmatch(LAMMPS_HEADERS, header) and not path.startswith("pair_tessera/"):
            found.append(f"{path} includes {header} of LAMMPS; only pair_tessera/ may")
        if path.startswith("csrc/plugin/") and header != "dlfcn.h" and re.search(r"[./]", header):
            found.append(f"{path} includes {header}; what opens in any process stands on the standard library alone")
    return found


def test_the_house_has_sources() -> None:
    rooms = {match[1] for p in sources() if (match := re.match(r"csrc/tessera/(\w+)/", p.relative_to(ROOT).as_posix()))}
    assert {"base", "comm", "search", "plan", "topology", "model", "engine"} <= rooms <= set(FLOORS)


@pytest.mark.parametrize("path", sources(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_room_includes_only_rooms_below_it(path: Path) -> None:
    assert violations(path.relative_to(ROOT).as_posix(), includes(path)) == []


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("csrc/tessera/search/x.cpp", "tessera/plan/halo_plan.hpp"),
        ("csrc/tessera/plan/x.cpp", "mpi.h"),
        ("csrc/tessera/topology/x.hpp", "ATen/Tensor.h"),
        ("csrc/tessera/model/x.cpp", "pybind11/numpy.h"),
        ("csrc/tessera/engine/x.cpp", "domain.h"),
        ("csrc/plugin/x.cpp", "tessera/base/error.hpp"),
    ],
)
def test_the_rules_catch_a_door_to_the_wrong_floor(path: str, header: str) -> None:
    assert violations(path, [header])


def test_only_the_pair_style_is_under_the_gpl() -> None:
    for path in sources():
        head = path.read_text()[:200]
        licence = "GPL-2.0-only" if path.relative_to(ROOT).parts[0] == "pair_tessera" else "MIT"
        assert f"SPDX-License-Identifier: {licence}" in head, path


def test_python_packages_import_only_what_they_may() -> None:
    for package, allowed in PYTHON_RULES.items():
        for path in (ROOT / "python" / package.replace(".", "/")).glob("*.py"):
            for name in re.findall(r"^\s*(?:from|import) (tessera[\w.]*)", path.read_text(), re.MULTILINE):
                assert name == "tessera" or any(name.startswith(a) for a in allowed), f"{path} imports {name}"


def test_tessera_never_imports_the_exporter() -> None:
    for path in (ROOT / "python").rglob("*.py"):
        assert "tessera_export" not in re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE), path


def test_no_file_has_a_name_that_says_nothing() -> None:
    for folder in ("python", "export", "csrc", "pair_tessera", "tests"):
        for path in (ROOT / folder).rglob("*"):
            assert path.stem not in {"utils", "util", "common", "misc", "helpers"}, path
