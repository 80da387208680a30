# SPDX-License-Identifier: MIT
"""ASE calculator on the engine that LAMMPS uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, CalculatorSetupError, PropertyNotImplementedError, all_changes
from ase.geometry import complete_cell
from ase.stress import full_3x3_to_voigt_6_stress

from tessera import _C


class TesseraCalculator(Calculator):
    """Energy (eV), forces (eV/Å), stress (eV/Å³, ASE's sign: dE/dstrain / volume) of a compiled artifact.

    The topology is reused between calls until an atom has moved half the skin, as in LAMMPS. Cells may be periodic in
    any subset of axes, tilted, and smaller than the cutoff.

    Args:
        path: the artifact that `tessera-export` wrote.
        charge: total charge, e. Default: `atoms.info["charge"]` if it is there, else 0.
        multiplicity: spin multiplicity. Default: `atoms.info["spin"]` if it is there, else 1.
        skin: extra search distance, Å.
        threads: threads of the compiled model; 0 leaves OMP_NUM_THREADS in force.

    Raises:
        RuntimeError: the file is missing, no artifact, or was made for another device, torch or format.
        CalculatorSetupError: an element that the model does not know, or a charge that is not an integer.
    """

    implemented_properties: ClassVar[list[str]] = ["energy", "free_energy", "forces", "stress", "energies", "stresses"]

    def __init__(
        self,
        path: str | Path,
        *,
        charge: int | None = None,
        multiplicity: int | None = None,
        skin: float = 1.0,
        threads: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._engine = _C.Engine(str(path), skin=float(skin), threads=int(threads))
        self._charge = charge
        self._multiplicity = multiplicity
        self.passport: dict[str, Any] = json.loads(self._engine.passport_json)

    def check_state(self, atoms: Atoms, tol: float = 1e-15) -> list[str]:
        """Return what changed since the last calculation; charge and spin in `atoms.info` count, too."""
        changes = super().check_state(atoms, tol)
        if self.atoms is not None and _state_of(atoms) != _state_of(self.atoms):
            changes.append("info")
        return changes

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: list[str] | None = None,
        system_changes: list[str] = all_changes,
    ) -> None:
        """Run the engine on `atoms` and fill `results`."""
        super().calculate(atoms, properties, system_changes)
        properties = properties or ["energy"]
        atoms = self.atoms
        has_volume = atoms.cell.rank == 3
        asks_stress = {"stress", "stresses"} & set(properties)
        if asks_stress and not has_volume:
            msg = (
                f"stress needs a cell with three vectors, found {atoms.cell.rank}: set atoms.cell, "
                "or ask for forces only"
            )
            raise PropertyNotImplementedError(msg)
        result = self._engine.compute(
            positions=atoms.positions,
            elements=self._element_indices(atoms),
            ids=np.arange(1, len(atoms) + 1),
            cell=complete_cell(atoms.cell).tolist(),
            periodic=self._periodic_axes(atoms),
            is_reordered=bool({"numbers", "pbc"} & set(system_changes)),
            wants_atom_virial="stresses" in properties,
            charge=self._integer("charge", self._charge, atoms.info.get("charge", 0)),
            multiplicity=self._integer("multiplicity", self._multiplicity, atoms.info.get("spin", 1)),
        )
        self.results = {name: result[name] for name in ("energy", "forces", "energies")}
        self.results["free_energy"] = result["energy"]
        if has_volume:
            volume = atoms.get_volume()
            self.results["stress"] = full_3x3_to_voigt_6_stress(-np.array(result["virial"]) / volume)
            if "virials" in result:
                self.results["stresses"] = full_3x3_to_voigt_6_stress(-result["virials"] / volume)

    def _element_indices(self, atoms: Atoms) -> np.ndarray:
        known = {symbol: k for k, symbol in enumerate(self.passport["elements"])}
        unknown = sorted(set(atoms.symbols) - set(known))
        if unknown:
            msg = (
                f"the model knows {' '.join(known)}; found {' '.join(unknown)}. "
                "Export a model that has these elements (tessera-export --elements ...)"
            )
            raise CalculatorSetupError(msg)
        return np.array([known[symbol] for symbol in atoms.symbols], dtype=np.int32)

    @staticmethod
    def _periodic_axes(atoms: Atoms) -> list[bool]:
        for axis, (vector, periodic) in enumerate(zip(atoms.cell, atoms.pbc, strict=True)):
            if periodic and not np.any(vector):
                msg = (
                    f"axis {axis} is periodic but its cell vector is zero: set atoms.cell or atoms.pbc[{axis}] = False"
                )
                raise CalculatorSetupError(msg)
        return [bool(periodic) for periodic in atoms.pbc]

    @staticmethod
    def _integer(name: str, chosen: float | None, default: float) -> int:
        value = default if chosen is None else chosen
        if value != int(value):
            msg = f"{name} must be an integer, found {value}"
            raise CalculatorSetupError(msg)
        return int(value)


def _state_of(atoms: Atoms) -> tuple[Any, Any]:
    return atoms.info.get("charge"), atoms.info.get("spin")
