# SPDX-License-Identifier: MIT
"""Thermodynamic tables of a LAMMPS log: temperature, and the drift of the total energy with its error."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tessera.commands import CommandError

#: By LAMMPS units: eV of one unit of energy, ps of one unit of time.
UNITS = {"metal": (1.0, 1.0), "real": (0.0433641153, 1e-3)}
#: Rows that a drift with an error needs.
LEAST_ROWS = 4


@dataclass(frozen=True)
class Run:
    """Table of one `run`.

    Attributes:
        columns: by the name in the log, [rows]; energies as LAMMPS printed them.
        time: [rows], ps since the first row.
        num_atoms: atoms of the run.
        energy_unit: eV.
    """

    columns: dict[str, np.ndarray]
    time: np.ndarray
    num_atoms: int
    energy_unit: float

    def energy_per_atom(self) -> np.ndarray:
        """Total energy, eV an atom.

        Raises:
            CommandError: the log has no column for it.
        """
        if "TotEng" not in self.columns:
            raise CommandError(
                f"log: expected the column TotEng (thermo_style ... etotal), found {' '.join(self.columns)}"
            )
        return self.columns["TotEng"] * self.energy_unit / self.num_atoms


@dataclass(frozen=True)
class Drift:
    """Line through the total energy: slope and its standard error, µeV/atom/ps; scatter about it, µeV/atom."""

    slope: float
    error: float
    scatter: float


def read_runs(path: Path, units: str | None = None, step_size: float | None = None) -> list[Run]:
    """Read all tables of a log.

    Units and time step are those that the log echoes before a table (`units metal`, `timestep 0.0005`). A log that was
    opened later in the input does not have them; then the caller must, or the table has a column Time.

    Args:
        path: log of LAMMPS.
        units: metal or real, where the log does not say.
        step_size: fs, where the log does not say.

    Raises:
        CommandError: the file is missing, or a table, a unit style or a time step.
    """
    if not path.is_file():
        raise CommandError(f"{path}: no such file; expected a log of LAMMPS")
    lines = path.read_text(errors="replace").splitlines()
    echoed, echoed_step, runs = None, None, []
    k = 0
    while k < len(lines):
        words = lines[k].split("#")[0].split()
        if words[:1] == ["units"] and len(words) == 2:
            echoed = words[1]
        elif words[:1] == ["timestep"] and len(words) == 2 and re.fullmatch(r"[0-9.eE+-]+", words[1]):
            echoed_step = float(words[1])
        elif words[:1] == ["Step"]:
            table, k = read_table(lines, k)
            end = lines[k] if k < len(lines) else ""
            k -= end.split()[:1] == ["Step"]  # the next table starts at once
            if len(table["Step"]):
                energy_unit, time_unit = unit_factors(echoed or units, path)
                time = elapsed(table, echoed_step, time_unit, step_size, path)
                runs.append(Run(table, time, count_atoms(table, end, path), energy_unit))
        k += 1
    if not runs:
        raise CommandError(f"{path}: expected a table that starts with Step, found none (thermo_style one or custom)")
    return runs


def unit_factors(units: str | None, path: Path) -> tuple[float, float]:
    """EV and ps of the units of a log."""
    if units is None:
        raise CommandError(f"{path}: expected the line 'units metal' or 'units real' in the log; state it with --units")
    if units not in UNITS:
        raise CommandError(f"{path}: expected units {' or '.join(UNITS)}, found '{units}'")
    return UNITS[units]


def elapsed(
    table: dict[str, np.ndarray], echoed: float | None, time_unit: float, stated: float | None, path: Path
) -> np.ndarray:
    """Time since the first row, ps: from the column Time, or the steps and the time step."""
    if "Time" in table:
        return (table["Time"] - table["Time"][0]) * time_unit
    if stated is not None:
        step = stated * 1e-3
    elif echoed is not None:
        step = echoed * time_unit
    else:
        raise CommandError(
            f"{path}: expected a line 'timestep ...' in the log, or a column Time; state it with --timestep"
        )
    return (table["Step"] - table["Step"][0]) * step


def count_atoms(table: dict[str, np.ndarray], end: str, path: Path) -> int:
    """Atoms of a run, from the line after its table or from a column."""
    match = re.search(r"with (\d+) atoms", end)
    atoms = int(match[1]) if match else int(table["Atoms"][-1]) if "Atoms" in table else 0
    if not atoms:
        raise CommandError(
            f"{path}: expected 'Loop time ... with N atoms' after the table; the run did not finish, and the table has "
            "no column Atoms (thermo_style custom ... atoms)"
        )
    return atoms


def read_table(lines: list[str], header: int) -> tuple[dict[str, np.ndarray], int]:
    """Read rows until `Loop time` or the end; returns the columns and the line where they end."""
    names, rows = lines[header].split(), []
    for k in range(header + 1, len(lines)):
        words = lines[k].split()
        if lines[k].startswith("Loop time") or words[:1] == ["Step"]:
            break
        try:
            row = [float(word) for word in words]
        except ValueError:
            continue  # a line of a style or a warning between two rows
        if len(row) == len(names):
            rows.append(row)
    else:
        k = len(lines)
    columns = np.array(rows).reshape(-1, len(names)).T
    return dict(zip(names, columns, strict=True)), k


def fit_drift(time: np.ndarray, energy: np.ndarray) -> Drift:
    """Fit a line by least squares; its error accounts for residuals that are correlated in time.

    The variance of the slope for independent residuals is multiplied by their statistical inefficiency,
    1 + 2 sum of autocorrelations up to the first that is not positive.

    Args:
        time: [rows], ps.
        energy: [rows], eV an atom.

    Raises:
        CommandError: fewer than four rows, or no time between them.
    """
    if len(time) < LEAST_ROWS or not np.ptp(time) > 0:
        raise CommandError(
            f"log: expected at least {LEAST_ROWS} rows at different times for a drift, found {len(time)}"
        )
    slope, offset = np.polyfit(time, energy - energy[0], 1)
    residual = energy - energy[0] - offset - slope * time
    variance = float((residual**2).sum()) / (len(time) - 2)
    error = np.sqrt(variance / ((time - time.mean()) ** 2).sum() * inefficiency(residual))
    return Drift(float(slope * 1e6), float(error * 1e6), float(np.sqrt(variance) * 1e6))


def inefficiency(residual: np.ndarray) -> float:
    """Rows that carry the information of one independent row; at least 1."""
    power = float(residual @ residual)
    total = 1.0
    for lag in range(1, len(residual) // 2):
        correlation = float(residual[:-lag] @ residual[lag:]) / power if power > 0 else 0.0
        if correlation <= 0:
            break
        total += 2 * correlation
    return total
