# SPDX-License-Identifier: MIT
"""What training refuses."""


class TrainError(ValueError):
    """A config, a file or a result is no good; the text says what was expected, found, and how to go on."""
