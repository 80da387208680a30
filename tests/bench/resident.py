# SPDX-License-Identifier: MIT
"""How much memory a call takes at its worst."""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import torch


def resident(key: str) -> float:
    """MiB of this process: VmRSS now, VmHWM at its worst since the last reset."""
    return int(re.search(rf"{key}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def reset_peak() -> None:
    """Let VmHWM start again from now."""
    Path("/proc/self/clear_refs").write_text("5")


def measured_growth(call: Callable[[], object], device: str) -> float:
    """MiB that `call` takes at its worst above what there was before: of the device, or of the resident set."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    ctypes.CDLL(None).malloc_trim(0)  # what others freed goes back to the system, or `call` would take it unseen
    before = resident("VmRSS")
    reset_peak()
    call()
    return resident("VmHWM") - before
