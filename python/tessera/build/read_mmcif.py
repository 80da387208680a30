# SPDX-License-Identifier: MIT
"""Atoms and assembly operators of mmCIF files: the categories that a builder needs, no general CIF reader."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from tessera.build.molecule import AtomRecord
from tessera.commands import CommandError

#: A word of CIF: quoted text ends at a quote that is followed by a space or the end of the line.
WORD = re.compile(r"""'(.*?)'(?=\s|$)|"(.*?)"(?=\s|$)|(#.*)|(\S+)""")
ATOM_CATEGORY, OPERATOR_CATEGORY = "_atom_site.", "_pdbx_struct_oper_list."
#: Items of an atom; a file from a program may lack those with a default.
REQUIRED = ("label_atom_id", "label_comp_id", "Cartn_x", "Cartn_y", "Cartn_z", "type_symbol")


def read_mmcif(lines: Iterable[str], path: Path) -> tuple[list[AtomRecord], list[np.ndarray]]:
    """Read atoms of the first model and the operators of the assembly.

    Returns:
        Atoms in file order; operators [3, 4].

    Raises:
        CommandError: there is no `_atom_site` category with the required items, or a number is malformed.
    """
    atoms: list[dict[str, str]] = []
    operators: list[dict[str, str]] = []
    for category, rows in categories(lines):
        if category == ATOM_CATEGORY:
            atoms += rows
        elif category == OPERATOR_CATEGORY:
            operators += rows
    missing = [item for item in REQUIRED if not atoms or item not in atoms[0]]
    if missing:
        raise CommandError(
            f"{path}: expected the category {ATOM_CATEGORY} with {', '.join(REQUIRED)}; missing: {missing}"
        )
    model = atoms[0].get("pdbx_PDB_model_num")
    try:
        records = [parse_atom(row) for row in atoms if row.get("pdbx_PDB_model_num") == model]
        matrices = [parse_operator(row) for row in operators if re.fullmatch(r"\d+", row.get("id", ""))]
    except (ValueError, KeyError) as error:
        raise CommandError(f"{path}: malformed {ATOM_CATEGORY} or {OPERATOR_CATEGORY} ({error})") from error
    return records, matrices


def categories(lines: Iterable[str]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the two categories with their rows; text fields in semicolons are skipped unless they are values there."""
    words = tokens(lines)
    names: list[str] = []
    values: list[str] = []
    in_loop, reading_names = False, False

    def collected() -> Iterator[tuple[str, list[dict[str, str]]]]:
        if names and len(values) % len(names) == 0:
            category = names[0].partition(".")[0] + "."
            if category in (ATOM_CATEGORY, OPERATOR_CATEGORY):
                items = [name.partition(".")[2] for name in names]
                chunks = range(0, len(values), len(names))
                yield category, [dict(zip(items, values[k : k + len(names)], strict=True)) for k in chunks]

    for word, quoted in words:
        if not quoted and (word == "loop_" or word.startswith("data_")):
            yield from collected()
            names, values, in_loop, reading_names = [], [], word == "loop_", word == "loop_"
        elif not quoted and word.startswith("_"):
            same = names and word.partition(".")[0] == names[0].partition(".")[0]
            if not reading_names and (in_loop or not same):
                yield from collected()
                names, values, in_loop = [], [], False
            names.append(word)
        else:
            reading_names = False
            values.append(word)
    yield from collected()


def tokens(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield words of CIF, and whether they were quoted."""
    text: list[str] | None = None
    for line in lines:
        if line.startswith(";"):
            if text is None:
                text = [line[1:]]
            else:
                yield "".join(text), True
                text = None
            continue
        if text is not None:
            text.append(line)
            continue
        if "'" not in line and '"' not in line and "#" not in line:
            for word in line.split():
                yield word, False
            continue
        for single, double, _, bare in WORD.findall(line):
            if bare:
                yield bare, False
            elif single or double:
                yield single or double, True


def parse_atom(row: dict[str, str]) -> AtomRecord:
    """Prefer the author's names, which people use; `.` and `?` stand for no value."""

    def item(*keys: str) -> str:
        return next((row[key] for key in keys if row.get(key, ".") not in (".", "?")), "")

    return AtomRecord(
        name=item("auth_atom_id", "label_atom_id"),
        residue_name=item("auth_comp_id", "label_comp_id"),
        chain=item("auth_asym_id", "label_asym_id"),
        residue=item("auth_seq_id", "label_seq_id") + item("pdbx_PDB_ins_code"),
        element=item("type_symbol"),
        alternate=item("label_alt_id"),
        position=(float(row["Cartn_x"]), float(row["Cartn_y"]), float(row["Cartn_z"])),
    )


def parse_operator(row: dict[str, str]) -> np.ndarray:
    """Rotation and translation [3, 4] of one operator."""
    return np.array(
        [[*(float(row[f"matrix[{i}][{j}]"]) for j in (1, 2, 3)), float(row[f"vector[{i}]"])] for i in (1, 2, 3)]
    )
