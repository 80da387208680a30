# SPDX-License-Identifier: MIT
"""Chemical symbols and atomic numbers."""

from collections.abc import Iterable

_TABLE = (
    "X H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb "
    "Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au "
    "Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm"
)
SYMBOLS: tuple[str, ...] = tuple(_TABLE.split())
"""Symbol by atomic number, 1 to 100 (the range of the public element tables); entry 0 is no element."""

ATOMIC_NUMBERS: dict[str, int] = {symbol: number for number, symbol in enumerate(SYMBOLS)}


def check_symbols(symbols: Iterable[str]) -> tuple[str, ...]:
    """Return the symbols as a tuple, each known and none twice.

    Raises:
        ValueError: an unknown or repeated symbol, or no symbol at all.
    """
    checked = tuple(str(symbol) for symbol in symbols)
    unknown = [symbol for symbol in checked if symbol == "X" or symbol not in ATOMIC_NUMBERS]
    if unknown:
        raise ValueError(
            f"expected chemical symbols from H to Fm, found {', '.join(map(repr, unknown))}; "
            "write them as in the periodic table, e.g. H,O,Cl"
        )
    repeated = sorted({symbol for symbol in checked if checked.count(symbol) > 1})
    if repeated:
        raise ValueError(f"expected each element once, found {', '.join(repeated)} more than once; remove the repeats")
    if not checked:
        raise ValueError("expected at least one element, found none; name the elements of your system, e.g. H,O")
    return checked
