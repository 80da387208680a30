# SPDX-License-Identifier: MIT
"""Logs of LAMMPS: tables, units, the drift of the energy and how sure it is."""

import numpy as np
import pytest

from tessera.analyze.thermo import UNITS, fit_drift, inefficiency, read_runs
from tessera.commands import CommandError

HEADER = "units           metal\ntimestep        0.0005   # ps\n"
TABLE = """Per MPI rank memory allocation (min/avg/max) = 2.5 | 2.5 | 2.5 Mbytes
   Step          Temp          TotEng
         0   300           -100.0
Tessera: a line of the pair style
        10   310           -99.0
WARNING: 3 words (src/x.cpp:1)
        20   290           -98.0
Loop time of 1.93144 on 2 procs for 20 steps with 50 atoms
"""
#: eV/atom/ps as µeV/atom/ps and back.
MICRO = 1e6


def write(path, text):
    path.write_text(text)
    return path


def test_every_run_of_a_log_is_read_in_ps_and_ev(tmp_path):
    second = TABLE.replace("50 atoms", "60 atoms")
    runs = read_runs(write(tmp_path / "log", HEADER + TABLE + "timestep 0.001\n" + second))
    assert [run.num_atoms for run in runs] == [50, 60]
    assert runs[0].columns["Temp"].tolist() == [300, 310, 290]
    assert runs[0].time == pytest.approx([0, 0.005, 0.010])
    assert runs[1].time == pytest.approx([0, 0.010, 0.020])
    assert runs[0].energy_per_atom() == pytest.approx([-2.0, -1.98, -1.96])


def test_real_units_are_converted(tmp_path):
    text = "units real\ntimestep 0.5\n" + TABLE
    (run,) = read_runs(write(tmp_path / "log", text))
    assert run.time == pytest.approx([0, 0.005, 0.010])  # fs
    assert run.energy_per_atom()[0] == pytest.approx(-2.0 * 0.0433641, rel=1e-6)  # kcal/mol
    assert UNITS["real"][0] * 23.060548 == pytest.approx(1, rel=1e-6)


def test_what_a_log_does_not_say_can_be_stated(tmp_path):
    path = write(tmp_path / "log", TABLE)
    with pytest.raises(CommandError, match="state it with --units"):
        read_runs(path)
    with pytest.raises(CommandError, match="state it with --timestep"):
        read_runs(path, "metal")
    (run,) = read_runs(path, "metal", 0.5)
    assert run.time == pytest.approx([0, 0.005, 0.010])


def test_a_time_column_wins_over_steps(tmp_path):
    text = HEADER + TABLE.replace("Temp", "Time").replace("300", "1.0").replace("310", "1.5").replace("290", "2.5")
    (run,) = read_runs(write(tmp_path / "log", text))
    assert run.time == pytest.approx([0, 0.5, 1.5])


def test_a_run_that_did_not_finish_is_read_where_it_says_its_atoms(tmp_path):
    text = HEADER + TABLE[: TABLE.index("Loop time")]
    with pytest.raises(CommandError, match="the run did not finish"):
        read_runs(write(tmp_path / "log", text))
    text = (
        text.replace("Temp", "Atoms").replace("   300", "   50").replace("   310", "   50").replace("   290", "   50")
    )
    (run,) = read_runs(write(tmp_path / "log", text))
    assert run.num_atoms == 50


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a table that starts with Step"),
        (HEADER.replace("metal", "lj") + TABLE, "expected units metal or real, found 'lj'"),
    ],
)
def test_logs_without_what_is_needed_are_refused(tmp_path, text, message):
    with pytest.raises(CommandError, match=message):
        read_runs(write(tmp_path / "log", text))


def test_a_table_without_total_energy_is_refused(tmp_path):
    (run,) = read_runs(write(tmp_path / "log", HEADER + TABLE.replace("TotEng", "PotEng")))
    with pytest.raises(CommandError, match=r"expected the column TotEng .* found Step Temp PotEng"):
        run.energy_per_atom()


def test_a_straight_line_has_its_slope_and_no_error():
    time = np.linspace(0, 2, 50)
    drift = fit_drift(time, -165000 + 3e-6 * time)
    assert drift.slope == pytest.approx(3.0, abs=1e-3)  # 165,000 eV leave 3e-11 eV in float64
    assert drift.error < 1e-3


@pytest.mark.parametrize("memory", [0.0, 0.8])
def test_the_error_of_the_drift_is_that_of_many_repetitions(memory):
    # Noise of 5 µeV/atom that forgets itself after 1 / (1 - memory) rows; the slope is 2 µeV/atom/ps.
    random = np.random.default_rng(11)
    time = np.linspace(0, 4, 400)
    off = []
    for _ in range(300):
        white = random.normal(0, 5e-6 * (1 - memory**2) ** 0.5, 400)
        noise = white.copy()
        for k in range(1, 400):
            noise[k] = memory * noise[k - 1] + white[k]
        drift = fit_drift(time, 2e-6 * time + noise)
        off.append((drift.slope - 2) / drift.error)
    # 300 repetitions know a standard deviation to 4 %; the inefficiency is itself estimated, to some 15 %.
    assert np.std(off) == pytest.approx(1, abs=0.25)
    assert abs(np.mean(off)) < 0.25


def test_correlated_rows_carry_less_information():
    random = np.random.default_rng(2)
    white = random.normal(size=20000)
    assert inefficiency(white - white.mean()) == pytest.approx(1, abs=0.1)
    doubled = np.repeat(white, 5)
    assert inefficiency(doubled - doubled.mean()) == pytest.approx(5, rel=0.1)
    assert inefficiency(np.zeros(10)) == 1


def test_a_drift_of_three_rows_is_refused():
    with pytest.raises(CommandError, match="at least 4 rows at different times for a drift, found 3"):
        fit_drift(np.arange(3.0), np.arange(3.0))
    with pytest.raises(CommandError, match="at different times"):
        fit_drift(np.zeros(5), np.arange(5.0))
