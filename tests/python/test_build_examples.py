# SPDX-License-Identifier: MIT
"""The lessons' inputs build what their pair_coeff and dump lines say."""

import re
from pathlib import Path

import pytest

from tessera import cli

EXAMPLES = Path(__file__).parents[2] / "examples"
LESSONS = ("5-kcl/in.kcl", "6-protein/in.protein", "7-capsid/in.capsid")


def expand(text, folder):
    """Replace LAMMPS variables by their defaults; the output goes to `folder`."""
    values = dict(re.findall(r"^variable (\w+) +index (.+?)(?: +#.*)?$", text, re.MULTILINE))
    values["out"] = str(folder)
    return re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], text)


@pytest.mark.parametrize("lesson", LESSONS)
def test_the_types_of_a_lesson_are_those_of_the_structure_it_builds(lesson, tmp_path, monkeypatch, capsys):
    path = EXAMPLES / lesson
    text = expand(path.read_text(), tmp_path)
    monkeypatch.chdir(path.parent)
    (command,) = re.findall(r"^shell tessera (build .+)$", text, re.MULTILINE)
    assert cli.main(command.split()) == 0
    elements = re.search(r"LAMMPS +pair_coeff \* \* model\.pt2 (.+)", capsys.readouterr().out)[1]
    assert re.search(r"^pair_coeff +\* \* model\.pt2 (.+)$", text, re.MULTILINE)[1] == elements
    assert re.search(r"^dump_modify .* element (.+)$", text, re.MULTILINE)[1] == elements
    (data,) = re.findall(r"^read_data +(\S+)$", text, re.MULTILINE)
    assert Path(data).read_text().splitlines()[3] == f"{len(elements.split())} atom types"
