# SPDX-License-Identifier: MIT
"""What can go wrong in an export, each with the exit code of the command."""


class ExportError(Exception):
    """The export was asked for something it cannot do; the text says what was expected, found, and how to go on."""

    exit_code = 2


class VerificationError(ExportError):
    """The compiled program disagrees with the eager reference; no file was written."""

    exit_code = 3
