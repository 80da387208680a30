# SPDX-License-Identifier: MIT
"""Compiled code that checks its inputs (AOTI_RUNTIME_CHECK_INPUTS) accepts those of the engine, at every extent."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from many_ranks import SYSTEMS, run_ranks

#: Ranks without atoms and without edges, halo rows of none and of many, several images of one atom.
CASES = [("5 atoms", 1), ("5 atoms", 8), ("cell smaller than the cutoff", 2), ("all in one corner", 3)]

#: The variable is read once a process, so a process of its own runs this.
PROGRAM = """import json, sys
import torch
from many_ranks import SYSTEMS, run_ranks
path, cases = sys.argv[1], json.loads(sys.argv[2])
loader = torch._C._aoti.AOTIModelPackageLoader(path, "model", False, 1, -1)
try:
    loader.run([torch.zeros(2) for _ in range(19)])  # 5 inputs and 7 for each of two lists; the first is an integer
except RuntimeError as error:
    print("refused: " + str(error).splitlines()[0])
for name, num_ranks in cases:
    found = run_ranks(path, num_ranks, [SYSTEMS[name]()])
    print("result: " + json.dumps([found.energy.tolist(), found.forces.tolist()]))
"""


def run_checked(path, *, is_checked: bool) -> list[str]:
    """What PROGRAM prints."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    variables.pop("AOTI_RUNTIME_CHECK_INPUTS", None)
    if is_checked:
        variables["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
    command = [sys.executable, "-c", PROGRAM, str(path), json.dumps(CASES)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def path(artifact):
    return artifact("first", "float64")


def test_inputs_pass_the_checks_of_the_compiled_code_and_give_the_same(path):
    lines = run_checked(path, is_checked=True)
    assert lines[0].startswith("refused: input_handles[0]: unmatched dtype"), "the checks are at work"
    results = [json.loads(line.removeprefix("result: ")) for line in lines if line.startswith("result: ")]
    assert len(results) == len(CASES)
    for (name, num_ranks), (energy, forces) in zip(CASES, results, strict=True):
        expected = run_ranks(path, num_ranks, [SYSTEMS[name]()])
        assert np.array_equal(energy, expected.energy)
        assert np.array_equal(forces, expected.forces)
