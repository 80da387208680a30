# SPDX-License-Identifier: MIT
"""pair_style hybrid in all its forms: energies and forces add up, or the input is refused."""

import re
from pathlib import Path

import numpy as np
import pytest
from lammps_program import Finished, program, run, run_well
from water_systems import SMALL, water, write_data

SUM_RTOL = 1e-10  # sums of the same float64 numbers in another order
SUM_FORCE_ATOL = 1e-9  # eV/Å: rounding of the model in another row order

START = """units metal
atom_style charge
read_data box.data
set type 1 charge 0.4
set type 2 charge -0.8
"""
SHOW = """thermo_modify format float %.15g
run 0
print "energy: $(pe:%.17g)"
print "pressure: $(pxx:%.17g) $(pyy:%.17g) $(pzz:%.17g) $(pxy:%.17g) $(pxz:%.17g) $(pyz:%.17g)"
write_dump all custom forces.dump id fx fy fz modify sort id format float %.17g
"""


@pytest.fixture
def box(tmp_path):
    return write_charged(tmp_path)


def write_charged(folder: Path, atoms=SMALL, types=("H", "O"), **options) -> Path:
    """Box for atom_style charge: the same data file with a column of charges."""
    write_data(folder / "box.data", atoms, list(types), **options)
    head, tail = (folder / "box.data").read_text().split("Atoms # atomic\n\n")
    rows = [line.split() for line in tail.splitlines()]
    lines = [" ".join([*row[:2], "0.0", *row[2:]]) for row in rows]
    (folder / "box.data").write_text(head + "Atoms # charge\n\n" + "\n".join(lines) + "\n")
    return folder


@pytest.fixture
def first(artifact):
    return artifact("first", "float64")


def assert_sum(done: Finished, parts: list[Finished], weights: tuple[float, ...] = (1.0, 1.0)) -> None:
    for name in ("energy", "pressure"):
        expected = sum(weight * part.values(name) for weight, part in zip(weights, parts, strict=True))
        scale = sum(np.abs(part.values(name)).max() for part in parts)
        np.testing.assert_allclose(done.values(name), expected, rtol=0, atol=SUM_RTOL * scale, err_msg=name)
    forces = [part.dump("forces.dump")[0][:, 1:] for part in parts]
    expected = sum(weight * force for weight, force in zip(weights, forces, strict=True))
    assert min(np.abs(force).max() for force in forces) > 1e-6, "eV/Å: each part pulls"
    np.testing.assert_allclose(done.dump("forces.dump")[0][:, 1:], expected, rtol=0, atol=SUM_FORCE_ATOL)


PARTNERS = {  # pair_style, pair_coeff (with {0} the style's name in a hybrid)
    "lj/cut": ("lj/cut 5.0", "pair_coeff * * {0} 0.002 2.6\n"),
    "zbl": ("zbl 1.5 2.5", "pair_coeff 1 1 {0} 1 1\npair_coeff 1 2 {0} 1 8\npair_coeff 2 2 {0} 8 8\n"),
    "coul/cut": ("coul/cut 6.0", "pair_coeff * * {0}\n"),
    "dispersion/d3": ("dispersion/d3 original pbe 12.0 8.0", "pair_coeff * * {0} H O\n"),
}


@pytest.mark.parametrize(("name", "ranks"), [("lj/cut", 4), ("zbl", 2), ("coul/cut", 2), ("dispersion/d3", 1)])
def test_an_overlay_adds_its_partner_to_the_model(box, first, name, ranks):
    style, coefficients = PARTNERS[name]
    partner = run(START + f"pair_style {style}\n" + coefficients.format("") + SHOW, box)
    if f"Unrecognized pair style '{name}'" in partner.text:
        pytest.skip(f"this LAMMPS was built without pair_style {name}")
    assert partner.code == 0, partner.text[-2000:]
    alone = run_well(START + f"pair_style tessera\npair_coeff * * {first} H O\n" + SHOW, box)
    both = f"pair_style hybrid/overlay {style} tessera skin 0.7\n" + coefficients.format(name)
    done = run_well(START + both + f"pair_coeff * * tessera {first} H O\n" + SHOW, box, ranks=ranks)
    assert_sum(done, [alone, partner])


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_two_models_in_one_overlay_add_up(box, first, demo, ranks):
    """Each copy has its options, exchanges and custom operators; `compute pair` tells their energies apart."""
    alone = [run_well(START + f"pair_style tessera\npair_coeff * * {m} H O\n" + SHOW, box) for m in (first, demo)]
    both = f"""pair_style hybrid/overlay tessera skin 0.5 tessera skin 1.5 balance edges
pair_coeff * * tessera 1 {first} H O
pair_coeff * * tessera 2 {demo} H O
compute one all pair tessera 1
compute two all pair tessera 2
thermo_style custom step pe c_one c_two pxx pyy pzz pxy pxz pyz
"""
    shares = 'print "shares: $(c_one:%.17g) $(c_two:%.17g)"\n'
    done = run_well(START + both + SHOW + shares, box, ranks=ranks)
    assert_sum(done, alone)
    expected = [part.values("energy").item() for part in alone]
    np.testing.assert_allclose(done.values("shares")[0], expected, rtol=SUM_RTOL)


@pytest.mark.parametrize("ranks", [1, 2])
def test_two_models_in_one_overlay_move_atoms_together(box, first, demo, ranks):
    """Lists of two skins are kept and built anew at different steps."""
    both = "pair_style hybrid/overlay tessera skin {} tessera skin {}\n"
    both += f"pair_coeff * * tessera 1 {first} H O\npair_coeff * * tessera 2 {demo} H O\n"
    motion = "velocity all create 600.0 81 loop geom\ntimestep 0.0005\nfix 1 all nve\nrun 10\n"
    kept = run_well(START + both.format(0.3, 1.5) + motion + SHOW, box, ranks=ranks)
    built = run_well(START + both.format(0.0, 0.0) + motion + SHOW, box)
    assert kept.values("energy").item() == pytest.approx(built.values("energy").item(), rel=SUM_RTOL)


def test_a_scaled_hybrid_mixes_two_models(box, first, demo):
    alone = [run_well(START + f"pair_style tessera\npair_coeff * * {m} H O\n" + SHOW, box) for m in (first, demo)]
    both = "variable w equal 0.25\npair_style hybrid/scaled v_w tessera 0.75 tessera\n"
    both += f"pair_coeff * * tessera 1 {first} H O\npair_coeff * * tessera 2 {demo} H O\n"
    done = run_well(START + both + SHOW, box, ranks=2)
    assert_sum(done, alone, (0.25, 0.75))


@pytest.mark.parametrize("ranks", [1, 4])
def test_each_model_of_a_hybrid_sees_its_own_types(tmp_path, first, demo, ranks):
    """Two kinds of water in one box, a model for each, Lennard-Jones between them."""
    atoms = water((2, 2, 3), seed=6)
    kinds = [{"H": 1, "O": 2}[s] + (2 if k // 3 % 2 else 0) for k, s in enumerate(atoms.symbols)]
    types = ["H", "O", "H", "O"]
    write_charged(tmp_path, atoms, types, type_of_atom=kinds)
    single = "pair_style tessera\npair_coeff * * {} {}\n"
    maps = ((first, "H O NULL NULL"), (demo, "NULL NULL H O"))
    alone = [run_well(START + single.format(*each) + SHOW, tmp_path) for each in maps]
    cross = "pair_coeff 1*2 3*4 {} 0.001 2.0\n"
    nothing = "pair_coeff 1*2 1*2 0.0 1.0\npair_coeff 3*4 3*4 0.0 1.0\n"
    alone.append(run_well(START + "pair_style lj/cut 5.0\n" + cross.format("") + nothing + SHOW, tmp_path))
    both = "pair_style hybrid lj/cut 5.0 tessera tessera\n" + cross.format("lj/cut")
    both += "".join(f"pair_coeff * * tessera {k + 1} {model} {names}\n" for k, (model, names) in enumerate(maps))
    assert_sum(run_well(START + both + SHOW, tmp_path, ranks=ranks), alone, (1.0, 1.0, 1.0))


@pytest.mark.parametrize("other", ["lj/cut 0.01 2.0", "none"])
def test_a_hybrid_that_takes_a_pair_of_types_from_the_model_is_refused(box, first, other):
    """In `hybrid` a later pair_coeff takes the pair 1 1 away; a model of many bodies cannot leave it out."""
    script = f"pair_style hybrid tessera lj/cut 5.0\npair_coeff * * tessera {first} H O\n"
    script += f"pair_coeff 1 1 {other}\npair_coeff 2 2 lj/cut 0.01 2.0\n"
    done = run(START + script + SHOW, box, ranks=2)
    assert done.code != 0
    assert re.search(r"ERROR.*pair_style tessera.*hybrid", done.text)


def test_no_keyword_or_value_is_the_name_of_a_pair_style(box):
    """A hybrid ends the options of one style at the first word that names another."""
    text = run(START + "pair_style tessera wrong 1\n", box).text
    keywords = re.search(r"one of the keywords ([a-z, ]+);", text)[1].split(", ")
    assert "skin" in keywords
    listed = run_well("info styles pair\n", Path(box)).text
    styles = set(listed.split("Pair styles:", 1)[1].split("Info-Info", 1)[0].split())
    assert {"tessera", "lj/cut", "hybrid"} <= styles, program()
    values = {"hilbert", "morton", "atoms", "edges", "cells", "faiss", "yes", "no", "auto", "staged", "direct"}
    values |= {"multi-box", "rank-box", "key-range", "all-gather", "spatial-bin"}
    assert not styles & ({*keywords} | values)
