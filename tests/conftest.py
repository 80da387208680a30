# SPDX-License-Identifier: MIT
"""Fixtures for all test folders."""

from exported import artifact  # noqa: F401
