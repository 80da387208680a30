# SPDX-License-Identifier: MIT
"""Names of element pairs: `K-O`, the symbols in alphabetical order."""

from ase.data import atomic_numbers, chemical_symbols

from tessera.commands import CommandError


def pair_name(first: int, second: int) -> str:
    """Name of a pair of atomic numbers."""
    return "-".join(sorted((chemical_symbols[first], chemical_symbols[second])))


def parse_pair(text: str) -> str:
    """Read `O-K` or `K-O` as `K-O`.

    Raises:
        CommandError: no two elements joined by a hyphen.
    """
    symbols = text.strip().split("-")
    if len(symbols) != 2 or not all(symbol in atomic_numbers and symbol != "X" for symbol in symbols):
        raise CommandError(f"expected a pair of elements such as K-O, found '{text}'")
    return "-".join(sorted(symbols))
