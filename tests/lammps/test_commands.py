# SPDX-License-Identifier: MIT
"""LAMMPS commands around pair_style tessera change no result, or are refused; on 1, 2 and 4 ranks."""

from functools import cache

import numpy as np
import pytest
from command_cases import Case, Outcome, run_cases, write_inputs
from lammps_program import run, run_well

#: Sums in another order, in float64; rounding grows along the few steps of a case.
ENERGY_RTOL = 1e-10
FORCE_ATOL = 1e-8  # eV/Å
PRESSURE_RTOL = 1e-8  # of the largest component
KCAL_PER_EV = 23.060549  # LAMMPS's own conversion
BAR_PER_ATMOSPHERE = 1.01325
UNITS_RTOL = 1e-6  # LAMMPS's constants of metal and real agree to 1e-7

OFTEN = "neigh_modify every 1 delay 0 check no\n"
BONDS = "bond_style zero\nbond_coeff * 0.97\nangle_style zero\nangle_coeff * 104.0\n"


#: Every case follows the trajectory of Case().
CASES = {
    "newton_off": Case(before="newton off"),
    "newton_off_bond_only": Case(before="newton on off"),
    "map_array": Case(before="atom_modify map array"),
    "map_hash": Case(before="atom_modify map hash"),
    "sorted_every_step": Case(before="atom_modify sort 1 2.0"),
    "never_sorted": Case(before="atom_modify sort 0 0.0"),
    "oxygen_first": Case(after=OFTEN + "group oxygen type 2\natom_modify first oxygen"),
    "atom_style_full": Case(style="full", data="full.data", after=OFTEN + BONDS),
    "atom_style_molecular": Case(style="molecular", data="molecular.data", after=OFTEN + BONDS),
    "atom_style_charge": Case(style="charge", data="charge.data"),
    "special_bonds_on": Case(style="full", data="full.data", after=OFTEN + BONDS + "special_bonds charmm"),
    "special_bonds_off": Case(style="full", data="full.data", after=OFTEN + BONDS + "special_bonds lj 1 1 1"),
    "processors_along_x": Case(before="processors * 1 1"),
    "processors_along_z": Case(before="processors 1 1 * map zyx"),
    "tiled": Case(before="comm_style tiled"),
    "balance_rcb": Case(before="comm_style tiled", after=OFTEN + "balance 1.0 rcb"),
    "fix_balance_rcb": Case(before="comm_style tiled", after=OFTEN + "fix even all balance 2 1.0 rcb"),
    "fix_balance_shift": Case(after=OFTEN + "fix even all balance 2 1.0 shift xz 5 1.0"),
    "ghosts_within_one_angstrom": Case(after=OFTEN + "comm_modify cutoff 1.0"),
    "ghosts_within_a_box_length": Case(after=OFTEN + "comm_modify cutoff 14.0"),
    "ghosts_with_velocities": Case(after=OFTEN + "neighbor 2.0 multi\ncomm_modify vel yes mode multi"),
    "no_neighbor_skin": Case(after="neighbor 0.0 bin"),
    "never_reneighbored": Case(after="neigh_modify every 1000 delay 1000 check no"),
    "triclinic_without_tilt": Case(after=OFTEN + "change_box all triclinic"),
    "moved_over_the_faces": Case(after=OFTEN + "displace_atoms all move 4.7 -2.9 11.3"),
    "pair_modify": Case(after=OFTEN + "pair_modify shift yes mix arithmetic"),
    "suffix_omp": Case(before="package omp 1\nsuffix omp"),
    "element_without_atoms": Case(data="three.data", coeff="pair_coeff * * {model} H C O"),
    "null_type_without_atoms": Case(data="three.data", coeff="pair_coeff * * {model} H NULL O"),
    "pair_coeff_twice": Case(coeff="pair_coeff * * {model} O H\npair_coeff * * {model} H O"),
    "pair_coeff_between_runs": Case(coeff="pair_coeff * * {model} O H\nrun 0\npair_coeff * * {model} H O"),
    "another_style_before": Case(coeff="pair_coeff * * {model} O H\npair_style none\npair_style tessera\n"
                                       "pair_coeff * * {model} H O"),
    "run_zero_first": Case(run="run 0\nrun 4"),
    "several_runs": Case(run="run 1\nrun 2\nrun 1"),
    "runs_without_setup": Case(run="run 1 post no\nrun 2 pre no post no\nrun 1 pre no"),
    "run_every": Case(run="run 4 every 2 NULL"),
    "run_upto": Case(run="run 1\nrun 4 upto"),
    "other_keywords_between_runs": Case(run="run 2\npair_style tessera skin 0.3\nrun 2"),
}  # fmt: skip

#: Cases for each number of ranks; a step on more ranks than cores costs much more than one on a single rank.
CASES_OF_RANKS = {
    1: list(CASES),
    2: ["newton_off", "map_hash", "oxygen_first", "atom_style_charge", "special_bonds_off", "balance_rcb", "suffix_omp",
        "element_without_atoms", "pair_coeff_between_runs", "another_style_before", "run_every", "several_runs"],
    4: ["sorted_every_step", "atom_style_full", "processors_along_x", "fix_balance_rcb", "fix_balance_shift",
        "ghosts_within_one_angstrom", "moved_over_the_faces", "runs_without_setup"],
}  # fmt: skip


@pytest.fixture(scope="module")
def model(artifact):
    return artifact("first", "float64")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("commands")
    write_inputs(path)
    return path


@pytest.fixture(scope="module")
def plain(model, folder) -> Outcome:
    return run_cases({"plain": Case()}, folder, model, ranks=1)["plain"]


@pytest.fixture(scope="module")
def outcomes(model, folder):
    """Give `outcomes(ranks)`: what all cases of that number of ranks printed, in one program."""

    @cache
    def get(ranks: int) -> dict[str, Outcome]:
        cases = {"plain": Case(), **{name: CASES[name] for name in CASES_OF_RANKS[ranks]}}
        return run_cases(cases, folder, model, ranks=ranks)

    return get


def assert_follows(found: Outcome, expected: Outcome) -> None:
    assert set(found.rows) == set(expected.rows), "steps"
    for step, row in expected.rows.items():
        np.testing.assert_allclose(found.rows[step][:2], row[:2], rtol=ENERGY_RTOL, err_msg=f"energies of step {step}")
        scale = np.abs(row[2:]).max()
        np.testing.assert_allclose(found.rows[step][2:], row[2:], rtol=0, atol=PRESSURE_RTOL * scale)
    np.testing.assert_allclose(found.forces, expected.forces, rtol=0, atol=FORCE_ATOL)


@pytest.mark.parametrize(
    ("ranks", "name"), [(ranks, name) for ranks, names in CASES_OF_RANKS.items() for name in ["plain", *names]]
)
def test_the_trajectory_is_that_of_the_plain_script(outcomes, plain, ranks, name):
    assert_follows(outcomes(ranks)[name], plain)


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_rank_of_lammps_holds_atoms(outcomes, ranks):
    """Else the cases would say nothing about many ranks."""
    assert len(set(outcomes(ranks)["plain"].ranks)) == ranks


def test_the_plain_trajectory_moves(plain):
    """Else equal trajectories would show nothing."""
    energies = [row[0] for row in plain.rows.values()]
    assert np.ptp(energies) > 0.01, "eV"
    assert np.abs(plain.forces).max() > 0.1, "eV/Å"


HEAD = """units metal
atom_style {style}
read_data {style}.data
pair_style tessera
pair_coeff * * {model} H O
"""
EXCLUDES = {
    "exclude type": "neigh_modify exclude type 1 1\n",
    "exclude group": "group some id 1:9\nneigh_modify exclude group some some\n",
    "exclude molecule": "neigh_modify exclude molecule/intra all\n",
    "include group": "group some id 1:9\natom_modify first some\nneigh_modify include some\n",
}


@pytest.mark.parametrize("kind", EXCLUDES)
def test_pairs_left_out_by_neigh_modify_are_refused(folder, model, kind):
    """The engine has its own list, so leaving pairs out has no effect on it: say so instead of computing them."""
    script = HEAD.format(style="full", model=model).replace("pair_style", BONDS + "pair_style") + EXCLUDES[kind]
    finished = run(script + "run 0\n", folder)
    assert finished.code != 0, "expected an error"
    assert "neigh_modify" in finished.text[finished.text.index("ERROR") :].splitlines()[0]


def test_an_exclusion_taken_back_is_no_exclusion(folder, model, plain):
    script = HEAD.format(style="charge", model=model) + EXCLUDES["exclude type"] + "neigh_modify exclude none\n"
    done = run_well(script + 'run 0\nprint "energy: $(pe:%.17g)"\n', folder)
    assert done.values("energy").item() == pytest.approx(plain.rows[0][0], rel=ENERGY_RTOL)
    assert "neigh_modify exclude" not in done.text, "no warning of it"


def test_units_real_follow_units_metal_on_two_ranks(folder, model):
    """20 steps; LAMMPS's own constants of the two differ in the seventh digit."""
    often = Case().after
    cases = {units: Case(units=units, run="run 20", after=often) for units in ("metal", "real")}
    metal, real = run_cases(cases, folder, model, ranks=2).values()
    for step, row in metal.rows.items():
        np.testing.assert_allclose(real.rows[step][:2], KCAL_PER_EV * row[:2], rtol=UNITS_RTOL)
        found, scale = BAR_PER_ATMOSPHERE * real.rows[step][2:], np.abs(row[2:]).max()
        np.testing.assert_allclose(found, row[2:], rtol=0, atol=10 * UNITS_RTOL * scale)
    scale = np.abs(metal.forces).max()
    np.testing.assert_allclose(real.forces / KCAL_PER_EV, metal.forces, rtol=0, atol=10 * UNITS_RTOL * scale)
    assert len(metal.rows) == 21
