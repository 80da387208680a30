# SPDX-License-Identifier: MIT
"""Checkpoint to artifact: trace, compile, verify, write (ARCHITECTURE.md, "The artifact")."""
