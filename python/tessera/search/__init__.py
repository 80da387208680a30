# SPDX-License-Identifier: MIT
"""Neighbor searches in numpy: oracles of the compiled search, good for small systems."""
