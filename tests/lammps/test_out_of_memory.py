# SPDX-License-Identifier: MIT
"""A rank that gets no more memory ends the whole run with its reason (the system's limit, no hook in the product)."""

import re
import sys
import time

import pytest
from lammps_program import run
from water_systems import write_data

from many_ranks import water_216

SECONDS_TO_END = 10
#: With nothing left at all, the words of the refusal can be missing (one run of about thirty on a busy machine, cut off
#: inside the message of torch): the run still ends at once with an error code, which every attempt checks.
ATTEMPTS = 3
MASSES = {"H": 1.008, "C": 12.011, "O": 15.999}

#: Leaves rank 1 of the run in this folder the address space that it has used so far, and 16 MiB.
LIMIT = """import pathlib, re, resource
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        is_lmp = (process / "exe").readlink().name == "lmp"
        if not is_lmp or (process / "cwd").readlink() != pathlib.Path.cwd():
            continue
        if b"PMI_RANK=1\\0" in (process / "environ").read_bytes():
            peak = int(re.search(r"VmPeak:\\s+(\\d+) kB", (process / "status").read_text())[1])
            limit = (peak + 16 * 1024) * 1024
            resource.prlimit(int(process.name), resource.RLIMIT_AS, (limit, limit))
            print("rank 1 is limited", flush=True)
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
#: Arrays have many MB, so that what is left when one is refused suffices for the words of the refusal, which torch
#: allocates too.
CASES = {
    "model": {"name": "first", "skin": 0.5, "copies": "2 2 2", "sparse": "", "dense": SCALE.format(0.6)},
    "search": {"name": "tiny", "skin": 8.0, "copies": "2 2 2", "sparse": SCALE.format(4), "dense": SCALE.format(0.25)},
}
REASONS = {
    "model": r"the model failed: .*can't allocate memory",  # libtorch's words
    "search": r"expected memory for the atoms, pairs and features of this rank, found none left; use more ranks",
}


@pytest.mark.parametrize("case", CASES)
def test_a_rank_without_memory_ends_the_run_within_ten_seconds(tmp_path, artifact, case):
    changes = dict(CASES[case])
    model = artifact(changes.pop("name"), "float32" if case == "search" else "float64")
    write_data(tmp_path / "box.data", water_216(), ["H", "C", "O"], masses=MASSES)
    (tmp_path / "limit.py").write_text(LIMIT)
    reasons = [reason_of_the_end(tmp_path, SCRIPT.format(model=model, python=sys.executable, **changes))]
    while reasons[-1] is None and len(reasons) < ATTEMPTS:
        reasons.append(reason_of_the_end(tmp_path, SCRIPT.format(model=model, python=sys.executable, **changes)))
    assert reasons[-1], f"no reason in {len(reasons)} runs"
    assert re.search(REASONS[case], reasons[-1]), reasons[-1]


def reason_of_the_end(folder, script):
    """Run, see that the run ends in time and with an error, and give the reason that it states."""
    done = run(script, folder, ranks=2)
    seconds = time.time() - (folder / "dense").stat().st_mtime
    assert "rank 1 is limited" in done.text
    assert "the same step fits the limit" in done.text
    assert done.code != 0
    assert seconds < SECONDS_TO_END
    reason = re.search(r"ERROR on proc 1: pair_style tessera: (.*)", done.text)
    return reason[1] if reason else None
