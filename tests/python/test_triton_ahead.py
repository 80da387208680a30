# SPDX-License-Identifier: MIT
"""The fused kernels compiled for an H200, and traced as the exporter traces them, on a machine without a GPU."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs triton (pip install triton==3.6.0)")

#: Of an H200's processor, and the most threads that it runs at a time.
REGISTERS, MOST_THREADS = 65536, 2048
SCRIPT = Path(__file__).with_name("triton_ahead.py")


@functools.cache
def run(what):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    process = subprocess.run(
        [sys.executable, SCRIPT, what], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout)


def test_no_kernel_of_the_papers_model_spills_registers():
    found = run("spills")
    # three attention kernels with gates and tables, A = 1 and 3; their records; two sums; halves: two widths, pairs of
    # three degrees
    assert len(found) == 3 * 2 * 2 + 1 + 2 + 2 + 3
    spilled = {name: kernel for name, kernel in found.items() if kernel["spilled"]}
    assert not spilled
    in_warps = [kernel for name, kernel in found.items() if "split_" not in name]
    # a number a warp: how many edges the longest row has
    assert all(kernel["shared"] <= 64 for kernel in in_warps), "sums over heads must stay in one warp"
    assert all(kernel["barriers"] <= 2 for kernel in in_warps), "no warp waits for another one at each edge"


def test_the_gradients_of_pairs_leave_a_gpu_full():
    found = {name: kernel["registers"] for name, kernel in run("spills").items() if "split_pair_gradients" in name}
    assert len(found) == 3
    assert max(found.values()) <= REGISTERS // MOST_THREADS


def test_an_exported_step_names_the_operators_and_its_kernels_write_nothing_but_their_results():
    found = run("trace")
    assert found["operators"] == [
        "tessera_triton.table_attention.default",
        "tessera_triton.table_sum.default",
        "tessera_triton.split_rows.default",
        "tessera_triton.split_pair_gradients.default",
        "tessera_triton.table_sum_backward.default",
        "tessera_triton.table_attention_backward_receivers.default",
        "tessera_triton.table_attention_backward_senders.default",
    ]
    assert len(set(found["free"])) == 3  # rows, extended rows and edges stay symbols
    assert found["writes"] == [
        ["index", "numbers"],
        ["message", "statistics"],
        ["sums"],
        ["halves", "scales"],
        ["halves", "scales"],
        ["grad_fraction", "grad_harmonics", "grad_scale"],
        ["index", "numbers"],
        ["grad_factor", "grad_place", "grad_query", "terms"],
        ["index", "numbers"],
        ["grad_payload"],
    ]


def test_a_model_is_exported_with_the_kernels_as_operators_and_all_extents_free():
    assert run("model") == {
        "tessera_triton.table_sum.default": 1,
        "tessera_triton.table_attention.default": 2,
        "tessera_triton.table_attention_backward_receivers.default": 2,
        "tessera_triton.table_attention_backward_senders.default": 2,
        "tessera_triton.table_sum_backward.default": 1,
    }


def test_generated_code_for_a_gpu_counts_in_64_bits_where_a_bound_lets_32_overflow():
    """Without a bound it counts in 32 bits whatever comes, which is why exported extents have bounds."""
    assert run("indices") == {"none": ["i32"], "fitting": ["i32"], "larger": ["i64"]}
