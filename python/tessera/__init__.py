# SPDX-License-Identifier: MIT
"""Tessera: E2Former V2 in LAMMPS and ASE, compiled ahead of time."""

import importlib
from typing import Any

__version__ = "0.1.0"
__all__ = ["TesseraCalculator", "__version__", "load_checkpoint"]

_LAZY = {"TesseraCalculator": "tessera.calculator", "load_checkpoint": "tessera.checkpoint"}


def __getattr__(name: str) -> Any:
    """Import the heavy doors only when somebody opens them (`tessera info` needs no torch)."""
    if name not in _LAZY:
        raise AttributeError(f"module 'tessera' has no attribute '{name}'; it offers {', '.join(__all__)}")
    return getattr(importlib.import_module(_LAZY[name]), name)
