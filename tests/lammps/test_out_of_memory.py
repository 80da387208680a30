# SPDX-License-Identifier: MIT
"""A rank that gets no more memory ends the whole run with its reason (the system's limit, no hook in the product)."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lammps_program import TIMEOUT, plugin, program, run
from water_systems import write_data

from many_ranks import water_216

SECONDS_TO_END = 10
MASSES = {"H": 1.008, "C": 12.011, "O": 15.999}

LAST_WORDS = 0.15  # s between a rank's reason and its end, of the 0.2 s of base/last_words.hpp; file times are coarse

#: Leaves one rank of the run in this folder the address space that it has used so far, and some MiB.
LIMIT = """import pathlib, re, resource
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        is_lmp = (process / "exe").readlink().name == "lmp"
        if not is_lmp or (process / "cwd").readlink() != pathlib.Path.cwd():
            continue
        if {mark} in (process / "environ").read_bytes():
            peak = int(re.search(r"VmPeak:\\s+(\\d+) kB", (process / "status").read_text())[1])
            limit = (peak + {spare} * 1024) * 1024
            resource.prlimit(int(process.name), resource.RLIMIT_AS, (limit, limit))
            print("the rank is limited", flush=True)
    except OSError:  # ended meanwhile, or another user's
        continue
"""
SCRIPT = """units metal
atom_style atomic
read_data box.data
replicate {copies}
{sparse}
pair_style tessera skin {skin}
pair_coeff * * {model} H C O
thermo_style custom step pe
run 0
shell "{python} limit.py"
run 0
print "the same step fits the limit"
{dense}
shell "touch dense"
run 0
"""
SCALE = "change_box all x scale {0} y scale {0} z scale {0} remap"
#: Denser atoms have more pairs. Either the model's features outgrow the limit, or the search's pairs do before them.
CASES = {
    "model": {"name": "first", "skin": 0.5, "copies": "2 2 2", "sparse": "", "dense": SCALE.format(0.6)},
    "search": {"name": "tiny", "skin": 8.0, "copies": "2 2 2", "sparse": SCALE.format(4), "dense": SCALE.format(0.25)},
}
#: MiB beyond the first step. Repeating it takes up to 31 (model) and 2 (search) more, as the allocator's blocks fall;
#: the dense one 860 and 110.
SPARE = {"model": 200, "search": 40}
REASONS = {
    "model": r"the model failed: .*can't allocate memory",  # libtorch's words
    "search": r"expected memory for the atoms, pairs and features of this rank, found none left; use more ranks",
}


def write_script(folder: Path, case: str, model: Path, mark: str) -> str:
    """The script, and what it reads; the limit is for the rank with `mark` in its environment."""
    write_data(folder / "box.data", water_216(), ["H", "C", "O"], masses=MASSES)
    limit = LIMIT.replace("{spare}", str(SPARE[case])).replace("{mark}", f'b"{mark}"')
    (folder / "limit.py").write_text(limit)
    return SCRIPT.format(model=model, python=sys.executable, **CASES[case])


@pytest.fixture(scope="module")
def thief(tmp_path_factory):
    """Library that takes all memory once a large request was refused."""
    library = tmp_path_factory.mktemp("thief") / "take_all_memory.so"
    source = Path(__file__).with_name("take_all_memory.cpp")
    command = [os.environ.get("CXX", "g++"), "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.mark.parametrize(("case", "is_robbed"), [("model", False), ("search", False), ("model", True)])
def test_a_rank_without_memory_ends_the_run_within_ten_seconds(tmp_path, artifact, thief, case, is_robbed):
    """The words of the refusal take memory too: the engine keeps some for them (base/memory_reserve.hpp)."""
    model = artifact(CASES[case]["name"], "float32" if case == "search" else "float64")
    script = write_script(tmp_path, case, model, r"PMI_RANK=1\0")
    done = run(script, tmp_path, ranks=2, environment={"LD_PRELOAD": str(thief)} if is_robbed else None)
    ended = time.time()
    assert "the rank is limited" in done.text, done.text[-3000:]
    assert "the same step fits the limit" in done.text, done.text[-3000:]
    assert done.code != 0
    seconds = ended - (tmp_path / "dense").stat().st_mtime
    assert seconds < SECONDS_TO_END
    reason = re.search(r"ERROR on proc 1: pair_style tessera: (.*)", done.text)
    assert reason, done.text[-3000:]
    assert re.search(REASONS[case], reason[1]), reason[1]


def test_a_rank_waits_between_its_reason_and_its_end(tmp_path, artifact):
    """MPICH's launcher drops what a rank writes right before MPI_Abort. Here both go to files, whose times say
    when the reason was written and when MPI_Abort was called."""
    model = artifact(CASES["model"]["name"], "float64")
    script = write_script(tmp_path, "model", model, r"TESSERA_TEST_LIMIT=1\0")
    (tmp_path / "in.test").write_text(script)
    variables = {**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "TESSERA_TEST_LIMIT": "1"}
    command = [program(), "-in", "in.test", "-log", "none"]
    words, end = tmp_path / "words", tmp_path / "end"
    with words.open("w") as stdout, end.open("w") as stderr:
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, stdout=stdout, stderr=stderr, timeout=TIMEOUT, check=False
        )
    text = words.read_text()
    assert done.returncode != 0
    assert re.search(r"ERROR on proc 0: pair_style tessera: .*" + REASONS["model"], text), text[-3000:]
    assert end.read_text().splitlines()[-1].startswith("Abort("), "MPICH's word, as MPI_Abort is called"
    assert end.stat().st_mtime - words.stat().st_mtime > LAST_WORDS
