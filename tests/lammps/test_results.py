# SPDX-License-Identifier: MIT
"""Energy, forces, virial and their shares an atom: against ASE, against differences, against their own sums."""

import numpy as np
import pytest
from ase.stress import voigt_6_to_full_3x3_stress
from lammps_program import run_well
from water_systems import SYSTEMS, in_atom_order, write_data

from tessera import TesseraCalculator

ENERGY_RTOL = 1e-10  # same engine and edges; only the order of the sums differs
FORCE_ATOL = 1e-9  # eV/Å, float64: rounding of the model in another row order
FORCE_ATOL_FLOAT32 = 1e-5  # eV/Å, float32: the same
DIFFERENCE_ATOL = 1e-6  # eV/Å: fourth-order differences of a float64 energy with the step below
DIFFERENCE_STEP = 2e-4  # Å: short, since the exact softmax has small steps where a pair crosses a cutoff
STRAIN_RTOL = 1e-6  # of the largest component, likewise
STRAIN_STEP = 2e-5  # likewise
SUM_RTOL = 1e-10  # sums of float64 numbers of one step
STENCIL = {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}  # first derivative, error of order step^4
VOIGT = [(0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)]  # LAMMPS's order

START = """units metal
atom_style atomic
read_data box.data
pair_style tessera {options}
pair_coeff * * {model} {elements}
compute shares all pe/atom
compute stresses all stress/atom NULL pair
compute energy_sum all reduce sum c_shares
compute stress_sum all reduce sum c_stresses[*]
compute pressure all pressure NULL pair
thermo_style custom step pe vol c_energy_sum c_pressure[*] c_stress_sum[*]
"""
SHOW = """run 0 post no
print "energy: $(pe:%.17g)"
print "volume: $(vol:%.17g)"
print "energy_sum: $(c_energy_sum:%.17g)"
"""
SHOW += 'print "pressure: ' + " ".join(f"$(c_pressure[{k}]:%.17g)" for k in range(1, 7)) + '"\n'
SHOW += 'print "stress_sum: ' + " ".join(f"$(c_stress_sum[{k}]:%.17g)" for k in range(1, 7)) + '"\n'
DUMP = """dump all all custom 1 forces.dump id fx fy fz c_shares c_stresses[*]
dump_modify all sort id format float %.17g
"""
BAR_PER_EV_A3 = 1.6021765e6  # LAMMPS's own constant in units metal (nktv2p)


def start(model, *, options="skin 0.5", elements="H O"):
    return START.format(model=model, options=options, elements=elements)


def by_calculator(atoms, model):
    atoms = atoms.copy()
    atoms.calc = TesseraCalculator(model)
    return atoms


@pytest.fixture(params=SYSTEMS)
def atoms(request):
    return SYSTEMS[request.param]()


@pytest.mark.parametrize(("name", "dtype"), [("demo", "float64"), ("demo", "float32"), ("first", "float64")])
def test_lammps_agrees_with_ase(tmp_path, atoms, artifact, name, dtype):
    model = artifact(name, dtype)
    write_data(tmp_path / "box.data", atoms, ["H", "O"])
    done = run_well(start(model) + DUMP + SHOW, tmp_path)
    reference = by_calculator(atoms, model)
    assert done.values("energy").item() == pytest.approx(reference.get_potential_energy(), rel=ENERGY_RTOL)
    rows = in_atom_order(atoms, done.dump("forces.dump")[0])
    atol = FORCE_ATOL if dtype == "float64" else FORCE_ATOL_FLOAT32
    np.testing.assert_allclose(rows[:, 1:4], reference.get_forces(), rtol=0, atol=atol)
    np.testing.assert_allclose(rows[:, 4], reference.get_potential_energies(), rtol=0, atol=atol)
    stress = -done.values("pressure")[0] / BAR_PER_EV_A3
    expected = reference.get_stress(voigt=False)
    np.testing.assert_allclose(
        stress * atoms.get_volume(), [expected[k] * atoms.get_volume() for k in VOIGT], rtol=0, atol=10 * atol
    )
    shares = rows[:, 5:11] / BAR_PER_EV_A3
    expected = voigt_6_to_full_3x3_stress(reference.get_stresses()) * atoms.get_volume()
    np.testing.assert_allclose(shares, np.array([[one[k] for k in VOIGT] for one in expected]), rtol=0, atol=10 * atol)


def test_shares_of_the_atoms_add_up_to_the_global_values(tmp_path, atoms, demo):
    write_data(tmp_path / "box.data", atoms, ["H", "O"])
    done = run_well(start(demo) + SHOW, tmp_path)
    assert done.values("energy_sum").item() == pytest.approx(done.values("energy").item(), rel=SUM_RTOL)
    minus_pv = -done.values("pressure")[0] * done.values("volume").item()
    scale = np.abs(minus_pv).max()
    assert scale > 0
    np.testing.assert_allclose(done.values("stress_sum")[0], minus_pv, rtol=0, atol=SUM_RTOL * scale)


def test_forces_are_the_differences_of_the_energy(tmp_path, atoms, demo):
    write_data(tmp_path / "box.data", atoms, ["H", "O"])
    script = start(demo) + DUMP + SHOW + "undump all\n"
    moves = [(atom_id, axis) for atom_id in (1, 4) for axis in range(3)]
    for atom_id, axis in moves:
        script += f"group one id {atom_id}\n"
        for k in STENCIL:
            there = [0.0, 0.0, 0.0]
            there[axis] = k * DIFFERENCE_STEP
            back = [-x for x in there]
            script += f"displace_atoms one move {there[0]} {there[1]} {there[2]}\n{SHOW}"
            script += f"displace_atoms one move {back[0]} {back[1]} {back[2]}\n"
        script += "group one delete\n"
    done = run_well(script, tmp_path)
    energies = done.values("energy")[1:, 0].reshape(len(moves), len(STENCIL))
    differences = -energies @ np.array(list(STENCIL.values())) / DIFFERENCE_STEP
    forces = done.dump("forces.dump")[0][:, 1:4]
    found = [forces[atom_id - 1, axis] for atom_id, axis in moves]
    assert np.abs(found).max() > 0.01, "forces of a rattled liquid"
    np.testing.assert_allclose(found, differences, rtol=0, atol=DIFFERENCE_ATOL)


def change_box(cell) -> str:
    """Carry the atoms along to another cell in LAMMPS's orientation."""
    sides = " ".join(f"{axis} final 0.0 {cell[k, k]:.17g}" for k, axis in enumerate("xyz"))
    return (
        f"change_box all {sides} xy final {cell[1, 0]:.17g} xz final {cell[2, 0]:.17g} yz final {cell[2, 1]:.17g} "
        "remap units box\n"
    )


def test_the_virial_is_the_derivative_by_strain(tmp_path, atoms, demo):
    write_data(tmp_path / "box.data", atoms, ["H", "O"])
    cell = atoms.cell.array
    script = start(demo) + SHOW + "change_box all triclinic\n"
    for a, b in VOIGT:
        for k in STENCIL:
            strain = np.eye(3)
            strain[b, a] += k * STRAIN_STEP  # rows are vectors: r_a += strain r_b, which keeps LAMMPS's orientation
            script += change_box(cell @ strain) + SHOW + change_box(cell)
    done = run_well(script, tmp_path)
    energies = done.values("energy")[1:, 0].reshape(6, len(STENCIL))
    differences = -energies @ np.array(list(STENCIL.values())) / STRAIN_STEP
    virial = done.values("pressure")[0] * done.values("volume")[0] / BAR_PER_EV_A3
    scale = np.abs(virial).max()
    assert scale > 0.1, "eV: a rattled liquid is under stress"
    np.testing.assert_allclose(virial, differences, rtol=0, atol=STRAIN_RTOL * scale)


def test_permuted_types_and_two_types_of_one_element_change_nothing(tmp_path, demo):
    atoms = SYSTEMS["orthogonal"]()
    write_data(tmp_path / "box.data", atoms, ["H", "O"])
    expected = run_well(start(demo) + DUMP + SHOW, tmp_path)
    forces = expected.dump("forces.dump")[0]
    second = {"O": 1, "H": 2}
    cases = {
        "O H": (["O", "H"], [second[s] for s in atoms.symbols]),
        "H O O": (["H", "O", "O"], [1 if s == "H" else 2 + k % 2 for k, s in enumerate(atoms.symbols)]),
    }
    for elements, (types, type_of_atom) in cases.items():
        write_data(tmp_path / "box.data", atoms, types, type_of_atom=type_of_atom)
        done = run_well(start(demo, elements=elements) + DUMP + SHOW, tmp_path)
        assert done.values("energy").item() == pytest.approx(expected.values("energy").item(), rel=ENERGY_RTOL)
        np.testing.assert_allclose(done.dump("forces.dump")[0], forces, rtol=0, atol=FORCE_ATOL)


def test_swapped_elements_change_the_energy(tmp_path, demo):
    atoms = SYSTEMS["orthogonal"]()
    write_data(tmp_path / "box.data", atoms, ["H", "O"])
    right = run_well(start(demo) + SHOW, tmp_path).values("energy").item()
    wrong = run_well(start(demo, elements="O H") + SHOW, tmp_path).values("energy").item()
    assert abs(right - wrong) > 1.0


def with_null_atoms(folder, atoms):
    """The same box with five more atoms of a third type, one of them 0.6 Å from an oxygen."""
    more = atoms + type(atoms)("He5", positions=np.random.default_rng(5).uniform(0, 5, (5, 3)))
    more.positions[-5] = atoms.positions[0] + [0.6, 0, 0]
    masses = {"H": 1.008, "O": 15.999, "He": 4.0026}
    write_data(folder / "box.data", more, ["H", "O", "He"], masses=masses)
    return more


def test_atoms_of_a_null_type_are_not_seen(tmp_path, demo):
    atoms = SYSTEMS["orthogonal"]()
    write_data(tmp_path / "box.data", atoms, ["H", "O"])
    expected = run_well(start(demo) + DUMP + SHOW, tmp_path)
    reference = in_atom_order(atoms, expected.dump("forces.dump")[0])
    more = with_null_atoms(tmp_path, atoms)
    done = run_well(start(demo, elements="H O NULL") + DUMP + SHOW, tmp_path)
    assert done.values("energy").item() == pytest.approx(expected.values("energy").item(), rel=ENERGY_RTOL)
    rows = in_atom_order(more, done.dump("forces.dump")[0])
    assert not rows[-5:, 1:].any(), "force, energy and stress of atoms that Tessera does not see"
    np.testing.assert_allclose(rows[:-5, 1:4], reference[:, 1:4], rtol=0, atol=FORCE_ATOL)


@pytest.mark.parametrize("style", ["hybrid", "hybrid/overlay"])
def test_a_hybrid_is_the_sum_of_its_parts(tmp_path, demo, style):
    """In `hybrid` each pair of types has one style, so Tessera must leave the pairs with NULL to the other."""
    with_null_atoms(tmp_path, SYSTEMS["orthogonal"]())
    head, tail = START.split("pair_style", 1)[0], START.split("{elements}\n", 1)[1] + SHOW
    mixed = "pair_coeff 3 3 {0} 0.01 2.5\npair_coeff 1*2 3 {0} 0.01 0.5\n"
    nothing = "pair_coeff 1*2 1*2 {0} 0.0 1.0\n"
    only_lj = run_well(head + "pair_style lj/cut 5.0\n" + (mixed + nothing).format("") + tail, tmp_path)
    only_tessera = run_well(start(demo, elements="H O NULL") + SHOW, tmp_path)
    both = f"pair_style {style} tessera skin 0.5 lj/cut 5.0\n" + mixed.format("lj/cut")
    if style == "hybrid/overlay":
        both += nothing.format("lj/cut")
    done = run_well(head + both + f"pair_coeff * * tessera {demo} H O NULL\n" + tail, tmp_path)
    for name in ("energy", "pressure"):
        parts = only_lj.values(name) + only_tessera.values(name)
        np.testing.assert_allclose(done.values(name), parts, rtol=SUM_RTOL)
    assert abs(only_lj.values("energy").item()) > 1e-6


def test_the_charge_reaches_the_model(tmp_path, demo):
    atoms = SYSTEMS["multi_image"]()
    write_data(tmp_path / "box.data", atoms, ["H", "O"])
    energies = []
    for charge in (0, 1):
        done = run_well(start(demo, options=f"charge {charge}") + SHOW, tmp_path)
        energies.append(done.values("energy").item())
        atoms.calc = TesseraCalculator(demo, charge=charge)
        assert energies[-1] == pytest.approx(atoms.get_potential_energy(), rel=ENERGY_RTOL)
    assert abs(energies[1] - energies[0]) > 1e-3
