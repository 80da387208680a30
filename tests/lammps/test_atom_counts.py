# SPDX-License-Identifier: MIT
"""Atoms that come and go: after every event the energy is that of a fresh run of the same configuration."""

import re
from pathlib import Path

import numpy as np
import pytest
from lammps_program import Finished, run_well
from water_systems import water, write_data

SAME_ENERGY_RTOL = 1e-10  # one configuration, other row order
SAME_FORCE_ATOL = 1e-9  # eV/Å, likewise

START = """units metal
atom_style atomic
atom_modify map yes
read_data {data}
pair_style tessera {options}
pair_coeff * * {model} H O
"""
MOTION = """velocity all create 300.0 4711 loop geom
timestep 0.00025
fix move all nve
thermo_style custom step atoms pe
thermo_modify lost ignore
"""
#: After each event: the energy in use, then the configuration for a fresh run.
SNAPSHOT = """print "atoms: $(atoms)"
print "energy: $(pe:%.17g)"
write_dump all custom event.{0}.dump id type x y z fx fy fz modify sort id format float %.17g
write_data event.{0}.data nocoeff
"""
FRESH = """clear
{start}
run 0
print "energy: $(pe:%.17g)"
write_dump all custom event.{index}.dump id type x y z fx fy fz modify sort id format float %.17g
"""
REBUILDS = r"Tessera: (\d+) steps on \d+ rank\(s\), \d+ rebuilds \((.*?)\), (\d+) cuts"


@pytest.fixture
def box(tmp_path):
    write_data(tmp_path / "box.data", water((2, 2, 3), seed=6), ["H", "O"])
    return tmp_path


@pytest.fixture
def first(artifact):
    return artifact("first", "float64")


def start(model: Path, *, data: str = "box.data", options: str = "skin 1.0") -> str:
    return START.format(data=data, options=options, model=model)


def assert_fresh_runs_agree(model: Path, events: list[str], folder: Path, ranks: int) -> tuple[Finished, list[int]]:
    """Run the events one after another, then each configuration by itself on one rank; the counts of atoms."""
    script = start(model) + MOTION
    script += "".join(event + SNAPSHOT.format(k) for k, event in enumerate(events))
    done = run_well(script, folder, ranks=ranks)
    fresh = "".join(FRESH.format(start=start(model, data=f"event.{k}.data"), index=k) for k in range(len(events)))
    alone = run_well(fresh, folder)
    np.testing.assert_allclose(done.values("energy"), alone.values("energy"), rtol=SAME_ENERGY_RTOL)
    for k in range(len(events)):
        found, expected = (one.dump(f"event.{k}.dump")[0] for one in (done, alone))
        np.testing.assert_allclose(found[:, 5:], expected[:, 5:], rtol=0, atol=SAME_FORCE_ATOL)
    return done, [int(count) for count in done.values("atoms")[:, 0]]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_created_and_deleted_atoms_count_at_once(box, first, ranks):
    events = [
        "run 2\n",
        "group some id 1:20:3\ndelete_atoms group some compress no\nrun 2\n",
        "create_atoms 2 random 5 3411 NULL overlap 1.6 maxtry 500\nrun 0\n",
        "delete_atoms random fraction 0.3 yes all NULL 8123\nreset_atoms id\nrun 2\n",
        "region far block 0 3 INF INF INF INF\ndelete_atoms region far\nrun 2\n",
    ]
    done, counts = assert_fresh_runs_agree(first, events, box, ranks)
    assert counts[0] == 36
    assert counts[1] == 29
    assert counts[2] > counts[1]
    assert counts[3] < counts[2]
    for _, causes, cuts in re.findall(REBUILDS, done.text)[1:]:
        assert "migration" in causes or "first step" in causes
        assert int(cuts) >= 1, "atoms are cut anew when their set has changed"


@pytest.mark.parametrize("ranks", [1, 2])
def test_all_atoms_may_go_and_others_come(box, first, ranks):
    script = start(first) + MOTION.replace("fix move all nve\n", "")
    script += 'run 0\ndelete_atoms group all\nrun 1\nprint "empty: $(atoms) $(pe:%.17g)"\n'
    script += "create_atoms 2 single 1.0 1.0 1.0\ncreate_atoms 1 single 1.9 1.0 1.0\nrun 1\n"
    script += 'print "pair: $(atoms) $(pe:%.17g)"\nwrite_data event.0.data nocoeff\n'
    done = run_well(script, box, ranks=ranks)
    assert np.array_equal(done.values("empty"), [[0.0, 0.0]])
    alone = run_well(FRESH.format(start=start(first, data="event.0.data"), index=0), box)
    assert done.values("pair")[0].tolist() == pytest.approx([2.0, alone.values("energy").item()], rel=SAME_ENERGY_RTOL)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_evaporating_atoms_leave_at_once(box, first, ranks):
    events = [
        "region all block INF INF INF INF INF INF\nfix steam all evaporate 1 2 all 4931\nrun 1\n",
        "run 1\n",
        "run 3\n",
    ]
    _, counts = assert_fresh_runs_agree(first, events, box, ranks)
    assert counts == [34, 32, 26]


def test_deposited_atoms_count_on_four_ranks(box, first):
    rain = "region sky block 0 6.2 0 6.2 0 9.3\nfix rain all deposit 4 2 1 5471 region sky near 1.2 attempt 500\n"
    events = [rain + "run 2\n", "run 2\n"]
    _, counts = assert_fresh_runs_agree(first, events, box, 4)
    assert counts[-1] > 36


GCMC = "fix swap all gcmc 1 {exchanges} {moves} 2 29494 {temperature} {potential} 0.2 full_energy {more}\n"


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_grand_canonical_insertions_and_moves_keep_the_energy_right(box, first, ranks):
    """The reference energy of O is -2041 eV, so that insertions always pass at this chemical potential."""
    swap = GCMC.format(exchanges=3, moves=3, temperature=300.0, potential=0.0, more="overlap_cutoff 0.8 max 45")
    _, counts = assert_fresh_runs_agree(first, [swap + "run 1\n", "run 1\n", "run 1\n"], box, ranks)
    assert counts[-1] > 36


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_grand_canonical_deletion_costs_the_energy_of_the_atom(box, first, ranks):
    """fix gcmc tries it by `neigh_modify exclude` on one atom; 2041 eV against a potential of -1000, none passes."""
    swap = GCMC.format(exchanges=6, moves=0, temperature=50000.0, potential=-1000.0, more="max 12")
    swap = "group oxygen type 2\n" + swap.replace("swap all", "swap oxygen")  # a hydrogen may go
    script = start(first) + MOTION.replace("fix move all nve\n", "") + swap + "run 2\n"
    script += 'print "deletions: $(f_swap[5]) $(f_swap[6])"\n'
    attempts, successes = run_well(script, box, ranks=ranks).values("deletions")[0]
    assert attempts > 0
    assert successes == 0


SWAP = "fix swap all atom/swap 1 5 29494 30000.0 ke no types 1 2\n"


@pytest.mark.parametrize("ranks", [1, 2])
def test_swapped_types_count_at_once(box, first, ranks):
    """Monte Carlo that exchanges types in place: no atom moves, no list of LAMMPS is built."""
    done, _ = assert_fresh_runs_agree(first, [SWAP + "run 1\n", "run 2\n"], box, ranks)
    kinds = [frame[0][:, 1] for frame in (done.dump("event.0.dump"), done.dump("event.1.dump"))]
    assert (kinds[0] != kinds[1]).any(), "some exchange was accepted"


WIDOM = """fix test all widom 1 5 1 29494 30000.0
run 2
print "inserted: $(f_test[1]:%.17g) $(f_test[2]:%.17g)"
print "left: $(atoms) $(pe:%.17g)"
"""


def test_atoms_inserted_on_trial_are_weighed_alike_on_all_numbers_of_ranks_and_leave(box, first):
    """fix widom takes the energy of the whole system with each atom that it tries."""
    before = run_well(start(first) + 'run 0\nprint "left: $(atoms) $(pe:%.17g)"\n', box).values("left")
    runs = {ranks: run_well(start(first) + WIDOM, box, ranks=ranks) for ranks in (1, 2, 4)}
    for done in runs.values():
        assert "Fix widom using full_energy option" in done.text
        np.testing.assert_allclose(done.values("left"), before, rtol=SAME_ENERGY_RTOL)
        np.testing.assert_allclose(done.values("inserted"), runs[1].values("inserted"), rtol=1e-8)  # exponentials
    assert runs[1].values("inserted")[0, 0] < -1.0, "eV: a hydrogen has an energy, and finds room"
