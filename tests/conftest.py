# SPDX-License-Identifier: MIT
"""Fixtures for all test folders."""

import os

import torch

if not torch.cuda.is_available():
    # Triton kernels then run in Triton's interpreter, which must be chosen before anything imports triton.
    os.environ.setdefault("TRITON_INTERPRET", "1")

from exported import artifact  # noqa: F401
