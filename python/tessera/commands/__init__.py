# SPDX-License-Identifier: MIT
"""Subcommands of `tessera`, one a module."""


class CommandError(Exception):
    """A subcommand cannot do what it was asked; the text says what was expected, found, and how to go on."""
