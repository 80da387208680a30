# SPDX-License-Identifier: MIT
"""Start structures for make_frames.py: clusters by chance, solutions and peptides by classical dynamics (OpenMM)."""

import io
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import openmm
from ase import Atoms
from openmm import app, unit
from pdbfixer import PDBFixer
from scipy.spatial.transform import Rotation

AMINO_ACIDS = ["ALA", "ARG", "ASN", "ASP", "CYS", "GLN", "GLU", "GLY", "HIS", "ILE",
               "LEU", "LYS", "MET", "PHE", "PRO", "SER", "THR", "TRP", "TYR", "VAL"]  # fmt: skip
KJ_PER_EV = 96.485332
CLASSICAL = {
    "O": (-0.834, 3.15075, 0.635968 / KJ_PER_EV),
    "H": (0.417, 1.0, 0.0),
    "K": (1.0, 3.0379, 0.8103691 / KJ_PER_EV),
    "Cl": (-1.0, 4.4777, 0.1489127 / KJ_PER_EV),
}
"""Charge (e), sigma (Å), epsilon (eV): TIP3P and the ions of Joung and Cheatham 2008 for it."""
CLOSEST = {"heavy": 2.2, "mixed": 1.35, "light": 1.3}
"""Å between molecules of a random cluster: two heavy atoms, one, none."""
STRETCHED_CHAIN = """
ACE CH3 2.000 2.090 0.000; ACE C 3.427 2.641 0.000; ACE O 4.391 1.877 0.000; ALA N 3.555 3.970 0.000;
ALA H 2.733 4.556 0.000; ALA CA 4.853 4.614 0.000; ALA C 4.713 6.129 0.000; ALA O 3.601 6.653 0.000;
ALA CB 5.661 4.221 -1.232; NME N 5.846 6.835 0.000; NME H 6.737 6.359 0.000; NME C 5.846 8.284 0.000"""
"""Capped alanine, Å, with a flat backbone: hydrogens and side chains are added by PDBFixer."""


class Start(NamedTuple):
    """A structure with `info["charge"]`, and charge (e), sigma (Å), epsilon (eV) of each atom, [N, 3]."""

    atoms: Atoms
    parameters: np.ndarray


class NoStructureError(Exception):
    """No structure could be built from what was drawn."""


def _turn(random: np.random.Generator) -> np.ndarray:
    return Rotation.random(random_state=int(random.integers(1 << 30))).as_matrix()


def _water(random: np.random.Generator, *, strained: bool) -> Atoms:
    lengths = random.uniform(0.72, 1.55, 2) if strained else np.clip(random.normal(0.97, 0.03, 2), 0.85, 1.1)
    angle = np.radians(random.normal(105, 14 if strained else 4))
    points = np.array([[0, 0, 0], [lengths[0], 0, 0], [lengths[1] * np.cos(angle), lengths[1] * np.sin(angle), 0]])
    return Atoms("OHH", points @ _turn(random).T)


def water_cluster(random: np.random.Generator, *, strained: bool = False) -> Start:
    """Draw 1 to 6 waters with no ion, K+, Cl-, both, or two of both; nothing overlaps."""
    while True:
        ions = [[], ["K"], ["Cl"], ["K", "Cl"], ["K", "Cl"], ["K", "K", "Cl", "Cl"]][random.integers(6)]
        parts = [_water(random, strained=strained) for _ in range(int(random.choice([1, 2, 2, 3, 4, 6])))]
        parts += [Atoms(ion) for ion in ions]
        size = random.uniform(2.2, 3.6) * len(parts) ** (1 / 3)
        for _ in range(300):
            cluster = Atoms()
            for part in parts:
                placed = part.copy()
                direction = random.standard_normal(3)
                placed.positions += direction / np.linalg.norm(direction) * random.random() ** (1 / 3) * size
                cluster += placed
            owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
            if _is_apart(cluster, owner):
                cluster.set_array("molecule", owner)
                cluster.info["charge"] = ions.count("K") - ions.count("Cl")
                return Start(cluster, np.array([CLASSICAL[symbol] for symbol in cluster.get_chemical_symbols()]))


def _is_apart(cluster: Atoms, owner: np.ndarray) -> bool:
    distance = cluster.get_all_distances()
    heavy = (cluster.numbers > 1).astype(int)
    least = np.array([CLOSEST["light"], CLOSEST["mixed"], CLOSEST["heavy"]])[heavy[:, None] + heavy]
    return bool(np.all((distance > least) | (owner[:, None] == owner)))


def squeezed(cluster: Atoms, random: np.random.Generator) -> Iterator[Atoms]:
    """Yield copies in which one atom's molecule comes ever closer to an atom of another one, down to 0.6 Å.

    The pair of elements is drawn first, so that rare ones (K..Cl, H..H) are as common as O..O.
    """
    owner = cluster.arrays["molecule"]
    if owner.max() == 0:
        return
    pairs = [(i, j) for i in range(len(cluster)) for j in range(len(cluster)) if owner[i] < owner[j]]
    kinds = sorted({tuple(sorted((cluster.numbers[i], cluster.numbers[j]))) for i, j in pairs})
    kind = kinds[random.integers(len(kinds))]
    pairs = [(i, j) for i, j in pairs if tuple(sorted((cluster.numbers[i], cluster.numbers[j]))) == kind]
    i, j = pairs[random.integers(len(pairs))]
    vector = cluster.positions[j] - cluster.positions[i]
    length = np.linalg.norm(vector)
    for distance in random.uniform(0.6, min(length, 3.2), 4):
        copy = cluster.copy()
        copy.positions[owner == owner[j]] += vector * (distance / length - 1.0)
        yield copy


def _partner(other: Start, random: np.random.Generator) -> Start:
    """Draw a water, an ion or `other`."""
    name = str(random.choice(["water", "water", "water", "other", "other", "K", "Cl"]))
    if name == "other":
        return other
    atoms = _water(random, strained=False) if name == "water" else Atoms(name)
    atoms.info["charge"] = {"K": 1, "Cl": -1}.get(name, 0)
    return Start(atoms, np.array([CLASSICAL[symbol] for symbol in atoms.get_chemical_symbols()]))


def touched(residue: Start, other: Start, random: np.random.Generator) -> Iterator[Start]:
    """Yield copies of a residue with a water, an ion or `other` near any of its atoms, from outside, down to 0.75 Å.

    Hydrogens of carbon are met, too: in a liquid nothing comes to them, unless a model lets it.
    """
    partner = _partner(other, random)
    center, met = int(random.integers(len(residue.atoms))), int(random.integers(len(partner.atoms)))
    points, place = residue.atoms.positions, residue.atoms.positions[center]
    outward = place - points[np.linalg.norm(points - place, axis=1) < 2.2].mean(0)
    outward /= np.linalg.norm(outward) + 1e-9
    owner = np.repeat([0, 1], [len(points), len(partner.atoms)])
    for _ in range(100):
        direction = outward + 0.5 * random.standard_normal(3)
        direction /= np.linalg.norm(direction)
        turned = (partner.atoms.positions - partner.atoms.positions[met]) @ _turn(random).T
        cluster = residue.atoms + Atoms(partner.atoms.numbers, turned + place + 3.0 * direction)
        if _is_apart(cluster, owner):
            break
    else:
        return
    parameters = np.vstack([residue.parameters, partner.parameters])
    for distance in random.uniform(0.75, 3.0, 4):
        copy = cluster.copy()
        copy.positions[owner == 1] += (distance - 3.0) * direction
        copy.info["charge"] = residue.atoms.info["charge"] + partner.atoms.info["charge"]
        yield Start(copy, parameters)


class ClassicalRun:
    """A topology under AMBER14 and flexible TIP3P water."""

    def __init__(self, topology: app.Topology, positions: unit.Quantity, *, is_periodic: bool, seed: int) -> None:
        field = force_field()
        box = topology.getPeriodicBoxVectors()
        method = app.PME if is_periodic else app.NoCutoff
        reach = 0.9 if not is_periodic else min(0.9, 0.41 * min(box[k][k]._value for k in range(3)))  # noqa: SLF001
        try:
            system = field.createSystem(
                topology, nonbondedMethod=method, nonbondedCutoff=reach, constraints=None, rigidWater=False
            )
        except ValueError as error:
            raise NoStructureError(f"no parameters: {str(error)[:120]}") from error
        self.is_periodic = is_periodic
        self.numbers = np.array([atom.element.atomic_number for atom in topology.atoms()])
        force = next(one for one in system.getForces() if isinstance(one, openmm.NonbondedForce))
        values = [force.getParticleParameters(k) for k in range(force.getNumParticles())]
        self.parameters = np.array([[one._value for one in row] for row in values]) * [1, 10, 1 / KJ_PER_EV]  # noqa: SLF001
        self.pressure = openmm.MonteCarloBarostat(1 * unit.bar, 300 * unit.kelvin, 10 if is_periodic else 0)
        if is_periodic:
            system.addForce(self.pressure)
        self.integrator = openmm.LangevinMiddleIntegrator(300, 5, 0.0005)
        self.integrator.setRandomNumberSeed(seed)
        platform, settings = ("CPU", {"Threads": "1"}) if is_periodic else ("Reference", {})
        self.context = openmm.Context(system, self.integrator, openmm.Platform.getPlatformByName(platform), settings)
        self.context.setPositions(positions)
        openmm.LocalEnergyMinimizer.minimize(self.context, 50, 300)

    def start(self, temperature: float) -> Start:
        """Let it settle: 1 ps at 300 K and 1 bar, 1 ps at `temperature`, in cells scaled by a little."""
        self.context.setVelocitiesToTemperature(300)
        self.integrator.step(2000)
        if self.is_periodic:
            self.pressure.setFrequency(0)
            self.context.reinitialize(preserveState=True)
        self.integrator.setTemperature(temperature)
        self.context.setVelocitiesToTemperature(temperature)
        self.integrator.step(2000)
        state = self.context.getState(getPositions=True)
        atoms = Atoms(self.numbers, state.getPositions(asNumpy=True)._value * 10, pbc=self.is_periodic)  # noqa: SLF001
        if self.is_periodic:
            atoms.cell = 10 * np.array([list(vector._value) for vector in state.getPeriodicBoxVectors()])  # noqa: SLF001
        if not np.isfinite(atoms.positions).all():
            raise NoStructureError("the classical run blew up")
        atoms.info["charge"] = round(self.parameters[:, 0].sum())
        return Start(atoms, self.parameters)


@cache
def force_field() -> app.ForceField:
    """Return AMBER14 with TIP3P."""
    return app.ForceField("amber14-all.xml", "amber14/tip3p.xml")


def _dissolve(model: app.Modeller, edge: float, molar: float) -> None:
    model.addSolvent(
        force_field(), model="tip3p", boxSize=openmm.Vec3(edge, edge, edge) * unit.nanometer, positiveIon="K+",
        negativeIon="Cl-", neutralize=True, ionicStrength=molar * unit.molar,
    )  # fmt: skip


def solution(random: np.random.Generator, waters: int, temperature: float) -> Start:
    """Return about so many waters, half of the time with 1 to 3 mol/L of KCl."""
    model = app.Modeller(app.Topology(), [] * unit.nanometer)
    _dissolve(model, (waters * 0.0299) ** (1 / 3), float(random.choice([0.0, 0.0, 1.0, 3.0])))
    return ClassicalRun(model.topology, model.positions, is_periodic=True, seed=_seed(random)).start(temperature)


def _seed(random: np.random.Generator) -> int:
    return int(random.integers(1, 1 << 30))


def _chain(length: int) -> str:
    """PDB text of a capped, stretched chain of alanines: each residue is the one before, moved by one rigid motion."""
    table = [line.split() for line in STRETCHED_CHAIN.replace("\n", " ").split(";")]
    point = {f"{residue} {name}": np.array(values, float) for residue, name, *values in table}
    before = np.array([point[key] for key in ("ACE C", "ACE O", "ALA N", "ALA H", "ALA CA")])
    after = np.array([point[key] for key in ("ALA C", "ALA O", "NME N", "NME H", "NME C")])
    turn, _ = Rotation.align_vectors(after - after.mean(0), before - before.mean(0))
    rows = []
    for key, start in point.items():
        residue, name = key.split()
        copies = range(length) if residue == "ALA" else [length - 1 if residue == "NME" else 0]
        for copy in copies:
            place = start
            for _ in range(copy):
                place = turn.apply(place - before.mean(0)) + after.mean(0)
            rows.append(({"ACE": 1, "ALA": 2 + copy, "NME": length + 2}[residue], residue, name, place))
    rows.sort(key=lambda row: row[0])
    lines = [
        f"ATOM  {serial:5d}  {name:<3s} {residue} A{number:4d}    {x:8.3f}{y:8.3f}{z:8.3f}  1.00  0.00{name[0]:>12}"
        for serial, (number, residue, name, (x, y, z)) in enumerate(rows, 1)
    ]
    return "\n".join([*lines, "TER", "END", ""])


def _capped(residues: list[str]) -> PDBFixer:
    fixer = PDBFixer(pdbfile=io.StringIO(_chain(len(residues))))
    changes = [f"ALA-{place}-{name}" for place, name in enumerate(residues, 2) if name != "ALA"]
    if changes:
        fixer.applyMutations(changes, "A")
    fixer.findMissingResidues()
    fixer.missingResidues = {}
    fixer.findNonstandardResidues()
    fixer.findMissingAtoms()
    fixer.addMissingAtoms(seed=1)
    fixer.addMissingHydrogens(7.0)
    return fixer


def peptide(
    random: np.random.Generator, length: int, in_water: bool, temperature: float = 300.0, residue: str | None = None
) -> Start:
    """Return ACE-X..-NME of random residues (or `residue` alone), in a box of water with counter-ions or in vacuum."""
    residues = [residue] if residue else [str(random.choice(AMINO_ACIDS)) for _ in range(length)]
    fixer = _capped(residues)
    return _settled(app.Modeller(fixer.topology, fixer.positions), random, temperature, in_water=in_water)


def _settled(model: app.Modeller, random: np.random.Generator, temperature: float, *, in_water: bool) -> Start:
    points = np.array(model.positions.value_in_unit(unit.nanometer))
    points = (points - points.mean(0)) @ _turn(random).T
    if in_water:
        # A short run in vacuum folds the chain a little, so that a small box holds it.
        run = ClassicalRun(model.topology, points * unit.nanometer, is_periodic=False, seed=_seed(random))
        points = run.start(300.0).atoms.positions / 10
        points -= points.mean(0)
        model = app.Modeller(model.topology, points * unit.nanometer)
        edge = max(1.4, float(np.ptp(points, axis=0).max()) + 0.45)
        _dissolve(model, edge, float(random.choice([0.0, 0.0, 0.8])))
        run = ClassicalRun(model.topology, model.positions, is_periodic=True, seed=_seed(random))
    else:
        run = ClassicalRun(model.topology, points * unit.nanometer, is_periodic=False, seed=_seed(random))
    return run.start(temperature)


def disulfide(random: np.random.Generator, in_water: bool, temperature: float) -> Start:
    """Return two capped cysteines joined by S-S."""
    fixer = _capped(["CYS"])
    points = np.array(fixer.positions.value_in_unit(unit.nanometer))
    names = [atom.name for atom in fixer.topology.atoms()]
    sulfur, axis = points[names.index("SG")], points[names.index("HG")] - points[names.index("SG")]
    axis /= np.linalg.norm(axis)
    middle = sulfur + 0.1025 * axis
    first = np.cross(axis, [0.3, 0.5, 0.8])
    first /= np.linalg.norm(first)

    def copy(angle: float) -> np.ndarray:
        """Turn the molecule by half a turn about a line across the bond, so that both sulfurs face each other."""
        across = Rotation.from_rotvec(angle * axis).apply(first)
        return Rotation.from_rotvec(np.pi * across).apply(points - middle) + middle

    def clearance(angle: float) -> float:
        apart = np.linalg.norm(copy(angle)[:, None] - points, axis=2)
        return float(np.delete(np.delete(apart, names.index("HG"), 0), names.index("HG"), 1).ravel().min())

    other = copy(max(np.linspace(0, 2 * np.pi, 36, endpoint=False), key=clearance))
    model = app.Modeller(fixer.topology, points * unit.nanometer)
    model.add(fixer.topology, other * unit.nanometer)
    model.delete([atom for atom in model.topology.atoms() if atom.name == "HG"])
    model.topology.addBond(*[atom for atom in model.topology.atoms() if atom.name == "SG"])
    return _settled(model, random, temperature, in_water=in_water)


@cache
def predictor(path: Path) -> Callable[[Atoms], tuple[None, np.ndarray]]:
    """Return a function from atoms to (None, forces in eV/Å) of a model in the public layout."""
    from tessera.checkpoint import load_checkpoint  # noqa: PLC0415  (the other kinds need no Tessera)
    from tessera.model import build_graph, energy_and_edge_gradients, forces_and_strain  # noqa: PLC0415

    model = load_checkpoint(path)

    def predict(atoms: Atoms) -> tuple[None, np.ndarray]:
        graph = build_graph(
            model, atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc, int(atoms.info["charge"])
        )
        _, gradients = energy_and_edge_gradients(model, graph)
        return None, forces_and_strain(graph, gradients)[0].numpy()

    return predict
