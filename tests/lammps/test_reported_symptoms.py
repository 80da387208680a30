# SPDX-License-Identifier: MIT
"""What users of other machine-learning pair styles reported in public, as tests of ours; sources name the reports."""

import re
import resource
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from lammps_program import Finished, run, run_well
from water_systems import in_atom_order, water, write_data

from exported import ROOT, load_model
from many_ranks import SYSTEMS, water_216
from tessera.model import build_graph, energy_and_edge_gradients

#: Sums in another order, in float64.
ENERGY_RTOL = 1e-10  # the reports ask for 1e-6 eV an atom
FORCE_ATOL = 1e-9  # eV/Å
FLOAT32_RTOL = 1e-6  # atom energies in float32, their sum in float64
KCAL_PER_EV = 23.060549  # LAMMPS's own conversion
UNITS_RTOL = 1e-6  # LAMMPS's constants of metal and real agree to 1e-7
MASSES = {"H": 1.008, "C": 12.011, "O": 15.999, "He": 4.0026}
TYPES = ["H", "C", "O"]
CHECKED = {"AOTI_RUNTIME_CHECK_INPUTS": "1"}  # compiled code compares extents, types and strides of its inputs

HEAD = """units {units}
atom_style atomic
atom_modify map yes
{layout}
read_data box.data
"""
MODEL = """pair_style tessera {options}
pair_coeff * * {model} {elements}
"""
SHOW = """thermo_modify format float %.15g
run 0
print "energy: $(pe:%.17g)"
print "pressure: $(pxx:%.17g) $(pyy:%.17g) $(pzz:%.17g) $(pxy:%.17g) $(pxz:%.17g) $(pyz:%.17g)"
write_dump all custom forces.dump id type proc fx fy fz modify sort id format float %.17g
"""


def script(model: Path, *, units="metal", layout="", options="", elements="H C O", after="") -> str:
    head = HEAD.format(units=units, layout=layout)
    return head + MODEL.format(options=options, model=model, elements=elements) + after + SHOW


def write_box(folder: Path, atoms: Atoms, types=TYPES) -> None:
    write_data(folder / "box.data", atoms, list(types), masses=MASSES)


def forces(done: Finished, atoms: Atoms) -> np.ndarray:
    return in_atom_order(atoms, done.dump("forces.dump")[0])[:, 3:]


def assert_same(done: Finished, expected: Finished) -> None:
    np.testing.assert_allclose(done.values("energy"), expected.values("energy"), rtol=ENERGY_RTOL)
    np.testing.assert_allclose(
        done.dump("forces.dump")[0][:, 3:], expected.dump("forces.dump")[0][:, 3:], rtol=0, atol=FORCE_ATOL
    )


@pytest.fixture
def first_order(artifact):
    return artifact("first", "float64")


@pytest.mark.parametrize(
    ("name", "ranks", "environment"),
    [("droplet in a large box", 8, {}), ("droplet in a large box", 3, CHECKED), ("5 atoms", 8, CHECKED)],
)
def test_a_rank_without_atoms_neither_hangs_nor_changes_a_result(tmp_path, first_order, name, ranks, environment):
    """deepmd-kit 5485, 5779; allegro 45. LAMMPS's bricks are slices here, so that most of them are empty."""
    with zipfile.ZipFile(first_order) as package:
        libraries = [package.read(entry) for entry in package.namelist() if entry.endswith(".so")]
    assert any(b"AOTI_RUNTIME_CHECK_INPUTS" in library for library in libraries), "the artifact can check its inputs"
    write_box(tmp_path, SYSTEMS[name]())
    slices = script(first_order, layout="processors * 1 1")
    expected = run_well(slices, tmp_path)
    done = run_well(slices, tmp_path, ranks=ranks, environment=environment)
    assert re.search(r"Nlocal: .* 0 min", done.text), "some rank of LAMMPS holds no atom"
    assert_same(done, expected)


@contextmanager
def stack_limit(num_bytes: int):
    """Programs started meanwhile get a stack of this size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))


def test_a_hundred_thousand_atoms_fit_a_stack_of_eight_mebibytes(tmp_path, artifact):
    """pair_nequip 38, nequip 324: arrays on the stack sized by atoms and edges."""
    write_box(tmp_path, water_216())
    model = artifact("tiny", "float32")
    one = run_well(script(model), tmp_path).values("energy").item()
    large = script(model, after="replicate 6 6 5\nvelocity all create 300.0 8123 loop geom\n")
    large = large.replace("run 0\n", 'run 0\nprint "replicas: $(pe:%.17g) $(atoms)"\nfix all all nve\nrun 1\n')
    with stack_limit(8192 * 1024):
        done = run_well(large, tmp_path, ranks=2)
    energy, num_atoms = done.values("replicas")[0]
    assert num_atoms == 180 * 648
    assert energy == pytest.approx(180 * one, rel=FLOAT32_RTOL)
    assert np.isfinite(done.values("energy")).all()


def test_arrays_on_the_stack_sized_at_run_time_do_not_compile():
    options = re.search(r"add_compile_options\((.*?)\n[a-z]", (ROOT / "CMakeLists.txt").read_text(), re.DOTALL)
    assert {"-Wvla", "-Werror=vla"} <= set(re.findall(r"-W[\w=]+", options[1]))


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(("name", "side"), [("demo", 5.95), ("demo", 4.1), ("first", 4.1)])
def test_one_molecule_in_a_cell_below_the_cutoff_is_its_own_replica(tmp_path, artifact, name, side, ranks):
    """matgl 815: messages of periodic images were lost. The models see 6.0 and 4.5 Å."""
    atoms = molecule("H2O", cell=[side, side + 0.02, side - 0.03], pbc=True)
    atoms.rattle(0.1, seed=3)
    atoms.positions += 0.4
    write_box(tmp_path, atoms, ["H", "O"])
    model = artifact(name, "float64")
    cell = run_well(script(model, elements="H O"), tmp_path, ranks=ranks)
    replica = run_well(script(model, elements="H O", after="replicate 3 3 3\n"), tmp_path)
    energy, whole = cell.values("energy").item(), replica.values("energy").item()
    assert energy == pytest.approx(whole / 27, rel=ENERGY_RTOL)
    scale = np.abs(replica.values("pressure")).max()
    np.testing.assert_allclose(cell.values("pressure"), replica.values("pressure"), rtol=0, atol=1e-7 * scale)
    # With the exact maximum (`first`) copies of one atom tie in it, and rounding picks which of them carries its
    # derivative: only the mean over the copies (all move together) is a derivative of the energy.
    copies = replica.dump("forces.dump")[0][:, 3:].reshape(27, 3, 3).mean(0)  # replicate numbers them one by one
    expected = cell.dump("forces.dump")[0][:, 3:]
    assert np.abs(expected).max() > 0.01, "eV/Å: a molecule off its minimum"
    np.testing.assert_allclose(copies, expected, rtol=0, atol=FORCE_ATOL)


def water_beside_a_wall() -> tuple[Atoms, Atoms]:
    """Water, and the same with 50 atoms of He as a wall at x = 17 Å, 2-3 Å from the nearest water."""
    liquid = water((4, 4, 4), seed=6)
    liquid.positions[:, 0] += 1.0
    liquid.set_cell([60.0, 12.4, 12.4])
    grid = np.stack(np.meshgrid([17.0], np.arange(5) * 2.48, np.arange(10) * 1.24, indexing="ij"), -1).reshape(-1, 3)
    return liquid, liquid + Atoms("He50", positions=grid)


def test_a_wall_of_null_atoms_is_not_seen(tmp_path, first_order):
    """deepmd 4749: virtual types under hybrid/overlay. On 4 ranks one holds nothing but the wall, one no atom."""
    liquid, both = water_beside_a_wall()
    alone_types, types = ["H", "O"], ["H", "O", "He"]
    write_box(tmp_path, liquid, alone_types)
    alone = run_well(script(first_order, elements="H O"), tmp_path)
    write_box(tmp_path, both, types)
    wall = "pair_coeff 3 3 {0} 0.01 1.2\npair_coeff 1*2 3 {0} 0.02 2.5\n"
    nothing = "pair_coeff 1*2 1*2 0.0 1.0\n"
    head = HEAD.format(units="metal", layout="processors * 1 1")
    lj = run_well(head + "pair_style lj/cut 5.0\n" + wall.format("") + nothing + SHOW, tmp_path)
    wall_forces = forces(lj, both)[-50:]
    assert np.abs(wall_forces).max() > 1e-3, "eV/Å: the wall feels the water"
    mixed = "pair_style hybrid/overlay tessera lj/cut 5.0\n" + wall.format("lj/cut")
    mixed += f"pair_coeff * * tessera {first_order} H O NULL\n"
    for ranks, cuts in ((1, ""), (4, "balance 1.0 x 0.15 0.2583 0.5\n")):
        done = run_well(head + mixed + cuts + SHOW, tmp_path, ranks=ranks)
        energies = [one.values("energy").item() for one in (done, alone, lj)]
        assert energies[0] == pytest.approx(energies[1] + energies[2], rel=ENERGY_RTOL)
        found = forces(done, both)
        np.testing.assert_allclose(found[-50:], wall_forces, rtol=0, atol=1e-12)  # Lennard-Jones in another order
        expected = forces(alone, liquid) + forces(lj, both)[:-50]
        np.testing.assert_allclose(found[:-50], expected, rtol=0, atol=FORCE_ATOL)
        if ranks == 4:
            kinds = done.dump("forces.dump")[0][:, 1:3]
            held = [set(kinds[kinds[:, 1] == rank, 0]) for rank in range(ranks)]
            assert held[2:] == [{3.0}, set()], f"types that each rank holds: {held}"


RESIDENT = 'shell "grep VmRSS /proc/$PPID/status"\n'  # of rank 0: the shell's parent
DEPOSIT = """region sky sphere 60 60 60 20
velocity all create 300.0 8123 loop geom
timestep 0.00025
fix all all nve
fix rain all deposit 50 3 10 5471 region sky near 1.8 attempt 200
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_deposited_atoms_count_at_once_and_cost_no_memory(tmp_path, artifact, ranks):
    """deepmd 3015, mace 434: the number of atoms changes every ten steps; the last atom comes at step 491."""
    model = artifact("tiny", "float32")
    write_box(tmp_path, SYSTEMS["droplet in a large box"]())
    steps = "".join(f"run {length}\n{RESIDENT}" for length in (100, 100, 100, 100, 91))
    tail = SHOW.replace("run 0\n", 'print "atoms: $(atoms)"\n') + "write_data box.data\n"
    done = run_well(script(model, after=DEPOSIT).replace(SHOW, steps + tail), tmp_path, ranks=ranks)
    assert done.values("atoms").item() == 350
    assert sum(int(count) for count in re.findall(r"rebuilds \(.*?migration (\d+)", done.text)) == 50
    fresh = run_well(script(model), tmp_path)
    np.testing.assert_allclose(done.values("energy"), fresh.values("energy"), rtol=FLOAT32_RTOL)
    found, expected = (one.dump("forces.dump")[0][:, 3:] for one in (done, fresh))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)  # float32 forces of 0.05 eV/Å
    resident = [int(kib) for kib in re.findall(r"VmRSS:\s+(\d+) kB", done.text)]
    assert len(resident) == 5
    assert (resident[4] - resident[1]) / 1024 / 2.91 < 1.0, f"MiB for 100 steps, of {resident} KiB"


def eager_energy(name: str, atoms: Atoms) -> float:
    model = load_model(name).double()
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc, 0, 1)
    return float(energy_and_edge_gradients(model, graph)[0].sum())


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("name", ["first", "demo"])
def test_atoms_without_neighbours_have_the_energy_of_the_eager_model(tmp_path, artifact, name, ranks):
    """nequip 426 and wrappers that return early without pairs: one atom, and two that are 30 Å apart."""
    model = artifact(name, "float64")
    elements = {"first": "H C O", "demo": "H NULL O"}[name]
    alone = Atoms("O", positions=[[20.0, 19.0, 18.0]], cell=[40.0] * 3, pbc=True)
    apart = Atoms("O2", positions=[[10.0, 20.0, 30.0], [40.0, 20.0, 30.0]], cell=[70.0] * 3, pbc=True)
    expected = eager_energy(name, alone)
    assert abs(expected) > 1e-3, "eV: an atom has an energy"
    for atoms in (alone, apart):
        write_box(tmp_path, atoms)
        done = run_well(script(model, elements=elements), tmp_path, ranks=ranks)
        assert done.values("energy").item() == pytest.approx(len(atoms) * expected, rel=ENERGY_RTOL)
        assert np.array_equal(done.values("pressure"), np.zeros((1, 6))), "at rest, so the virial alone"
        assert np.array_equal(forces(done, atoms), np.zeros((len(atoms), 3)))


def test_units_real_are_units_metal_converted(tmp_path, first_order):
    """allegro and fairchem assume metal. The whole of the 216 waters, on two ranks."""
    atoms = water_216()
    write_box(tmp_path, atoms)
    metal, real = (run_well(script(first_order, units=units), tmp_path, ranks=2) for units in ("metal", "real"))
    energy = metal.values("energy").item()
    assert real.values("energy").item() == pytest.approx(KCAL_PER_EV * energy, rel=UNITS_RTOL)
    found, expected = forces(real, atoms) / KCAL_PER_EV, forces(metal, atoms)
    np.testing.assert_allclose(found, expected, rtol=0, atol=UNITS_RTOL * np.abs(expected).max())


def test_units_lj_are_refused_on_every_rank_at_once(tmp_path, first_order):
    write_box(tmp_path, water_216())
    done = run(script(first_order, units="lj"), tmp_path, ranks=2)
    assert done.code != 0
    assert "expected units metal (eV, ps) or real (kcal/mol, fs), found units lj" in done.text


def water_with_carbon() -> Atoms:
    """The models here know no salt; C in the place of some atoms tells types apart as well."""
    atoms = water((3, 2, 2), seed=8)
    for k in (0, 9, 21):
        atoms.symbols[k] = "C"
    return atoms


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_types_in_another_order_or_twice_are_the_same_chemistry(tmp_path, first_order, ranks):
    """mace 215, allegro 4: elements were taken from the order of types."""
    atoms = water_with_carbon()
    write_box(tmp_path, atoms)
    expected = run_well(script(first_order), tmp_path)
    spread = {"H": (2, 2), "O": (1, 4), "C": (3, 3)}  # of H, O: two types of LAMMPS for O
    kinds = [spread[symbol][k % 2] for k, symbol in enumerate(atoms.symbols)]
    write_data(tmp_path / "box.data", atoms, ["O", "H", "C", "O"], masses=MASSES, type_of_atom=kinds)
    assert len(set(kinds)) == 4
    done = run_well(script(first_order, elements="O H C O"), tmp_path, ranks=ranks)
    assert_same(done, expected)
    swapped = run_well(script(first_order, elements="O H O C"), tmp_path)
    assert abs(swapped.values("energy").item() - expected.values("energy").item()) > 1.0, "eV: types do matter"


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ("H C Xx", "or NULL for atom type 3, found 'Xx'"),
        ("H C", "each of the 3 atom types, found 2"),
        ("H c O", "atom type 2, found 'c'; did you mean 'C'?"),
    ],
)
def test_a_wrong_list_of_elements_ends_all_ranks_with_those_of_the_model(tmp_path, first_order, elements, message):
    """mace 215: fewer species than the model, and names it does not know; on two ranks, since one must not wait."""
    write_box(tmp_path, water_with_carbon())
    done = run(script(first_order, elements=elements), tmp_path, ranks=2)
    text = " ".join(done.text.split())
    assert done.code != 0
    assert message in text
    assert "H, C, O" in text, "the elements of the model"


STRAIN_STEP = 1e-4
PRESSURE_ATOL = 5.0  # bar, as the report asks for, or 0.5 %; differences of second order, exact softmax at the cutoffs
BAR_PER_EV_A3 = 1.6021765e6  # LAMMPS's own constant in units metal (nktv2p)
SIX = [("x", ""), ("y", ""), ("z", ""), ("", "xy"), ("", "xz"), ("", "yz")]

DYNAMICS = """compute virial all pressure NULL virial
velocity all create 300.0 8123 loop all
timestep 0.00025
fix all all nve
thermo {every}
thermo_style custom step pe press c_virial[*]
thermo_modify format float %.17g
run 10
print "volume: $(vol:%.17g)"
"""
AFTER = 'run 0 post no\nprint "strained: $(pe:%.17g)"\n'


def strained_energies() -> str:
    """Energies at both signs of each component of strain; a tilt is strained by its share of the other side."""
    lines = "change_box all triclinic\n"
    for axis, tilt in SIX:
        for sign in (1, -1):
            step = sign * STRAIN_STEP
            if axis:
                there, back = f"{axis} scale {1 + step!r}", f"{axis} scale $(1/{1 + step!r}:%.17g)"
            else:
                length = "ly" if tilt == "xy" else "lz"
                there, back = (f"{tilt} delta $({k}*{length}:%.17g)" for k in (step, -step))
            lines += f"change_box all {there} remap\n{AFTER}change_box all {back} remap\n"
    return lines


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_pressure_of_a_step_does_not_depend_on_how_often_it_is_shown(tmp_path, artifact, ranks):
    """matgl 825, deepmd 5983: wrong sign, zero, or that of an older step. Shown every 1 and 10 steps, mid-run."""
    atoms = water((2, 2, 2), seed=5)
    write_box(tmp_path, atoms, ["H", "O"])
    head = script(artifact("demo", "float64"), elements="H O").replace(SHOW, "")
    virials = []
    for every in (1, 10):
        tail = strained_energies() if every == 10 else ""
        done = run_well(head + DYNAMICS.format(every=every) + tail, tmp_path, ranks=ranks)
        rows = re.findall(r"^ +10 +(.*)$", done.text.split("Loop time")[0], re.MULTILINE)
        virials.append(np.array([float(word) for word in rows[-1].split()])[2:])
    scale = np.abs(virials[0]).max()
    np.testing.assert_allclose(virials[1], virials[0], rtol=0, atol=1e-9 * scale)
    energies = done.values("strained")[:, 0].reshape(6, 2)
    slopes = -(energies[:, 0] - energies[:, 1]) / (2 * STRAIN_STEP) / done.values("volume").item() * BAR_PER_EV_A3
    assert scale > 1000, "bar: a rattled liquid is under stress"
    np.testing.assert_allclose(virials[1], slopes, rtol=0.005, atol=PRESSURE_ATOL)


RAMP = """velocity all create 300.0 8123 loop all
timestep 0.0005
fix all all npt temp 300 500 0.05 iso 0 0 0.5
"""


def test_memory_stays_flat_through_a_heating_ramp(tmp_path, artifact):
    """mace 174, deepmd 4567: memory crept up with the number of edges."""
    write_box(tmp_path, water((2, 2, 2), seed=5), ["H", "O"])
    steps = f"run 500 post no\n{RESIDENT}" * 5 + f"run 500\n{RESIDENT}"
    ramp = script(artifact("tiny", "float64"), elements="H O", after=RAMP).replace(SHOW, steps)
    done = run_well(ramp, tmp_path)
    resident = [int(kib) for kib in re.findall(r"VmRSS:\s+(\d+) kB", done.text)]
    assert len(resident) == 6
    rebuilds = int(re.search(r"steps on \d+ rank\(s\), (\d+) rebuilds", done.text)[1])
    assert rebuilds >= 3, "else there is nothing to keep flat"
    assert resident[-1] / resident[1] < 1.02, f"of {resident} KiB"
