# SPDX-License-Identifier: MIT
"""Shares of the atoms (energy, stress, centroid stress) and the heat flux, on one rank and more."""

import numpy as np
import pytest
from lammps_program import run_well
from water_systems import SYSTEMS, in_atom_order, write_data

from exported import load_model
from tessera.model import build_graph, energy_and_edge_gradients

SUM_RTOL = 1e-8  # sums of float64 numbers in another order
SAME_RTOL = 1e-8  # another number of ranks, likewise; relative to the largest share
ORACLE_RTOL = 1e-6  # LAMMPS's conversion factor has eight digits
VOIGT = [0, 1, 2, 3, 4, 5]  # xx yy zz xy xz yz, the first six of LAMMPS's nine; the others are yx zx zy
TRANSPOSED = [0, 1, 2, 6, 7, 8]
BAR_PER_EV_A3 = 1.6021765e6  # LAMMPS's own constant in units metal (nktv2p)
VELOCITY = np.array([3.0, -2.0, 1.0])  # Å/ps

START = """units metal
atom_style atomic
read_data box.data
{pair}
velocity all set 3.0 -2.0 1.0
compute energies all pe/atom
compute stresses all stress/atom NULL {part}
compute nine all centroid/stress/atom NULL {part}
compute pressure all pressure NULL {part}
compute energy_sum all reduce sum c_energies
compute six_sum all reduce sum c_stresses[*]
compute nine_sum all reduce sum c_nine[*]
compute kinetics all ke/atom
compute flux all heat/flux kinetics energies nine
thermo_style custom step pe ke vol c_energy_sum c_pressure[*] c_six_sum[*] c_nine_sum[*] c_flux[*]
dump all all custom 1 forces.dump id c_energies c_stresses[*] c_nine[*]
dump_modify all sort id format float %.17g
run 0 post no
print "pe: $(pe:%.17g)"
print "ke: $(ke:%.17g)"
print "volume: $(vol:%.17g)"
print "energy_sum: $(c_energy_sum:%.17g)"
"""
for name, count in (("pressure", 6), ("six_sum", 6), ("nine_sum", 9), ("flux", 3)):
    START += f'print "{name}: ' + " ".join(f"$(c_{name}[{k}]:%.17g)" for k in range(1, count + 1)) + '"\n'


def tessera(model) -> str:
    return f"pair_style tessera skin 0.5\npair_coeff * * {model} H O"


def close(found, expected, rtol):
    expected = np.asarray(expected)
    scale = np.abs(expected).max()
    assert scale > 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * scale)


@pytest.fixture(params=["orthogonal", "triclinic"])
def box(request, tmp_path):
    write_data(tmp_path / "box.data", SYSTEMS[request.param](), ["H", "O"])
    (tmp_path / "name").write_text(request.param)
    return tmp_path


def test_shares_add_up_and_are_those_of_one_rank(box, demo):
    rows = {}
    for ranks in (1, 2, 4):
        done = run_well(START.format(pair=tessera(demo), part="virial"), box, ranks=ranks)
        minus_pv = -done.values("pressure")[0] * done.values("volume").item()
        assert done.values("energy_sum").item() == pytest.approx(done.values("pe").item(), rel=SUM_RTOL)
        close(done.values("six_sum")[0], minus_pv, SUM_RTOL)
        nine = done.values("nine_sum")[0]
        close(nine[VOIGT], minus_pv, SUM_RTOL)
        close(nine[TRANSPOSED], minus_pv, SUM_RTOL)
        rows[ranks] = done.dump("forces.dump")[0][:, 1:]
    for ranks in (2, 4):
        for columns in (slice(0, 1), slice(1, 7), slice(7, 16)):
            close(rows[ranks][:, columns], rows[1][:, columns], SAME_RTOL)
    centroid = rows[1][:, 7:]
    close(0.5 * (centroid[:, VOIGT] + centroid[:, TRANSPOSED]), rows[1][:, 1:7], SUM_RTOL)
    assert np.abs(centroid[:, 3:6] - centroid[:, 6:]).max() > 1e-3 * np.abs(centroid).max(), (
        "an atom's is not symmetric"
    )


def test_a_box_that_moves_as_one_carries_its_enthalpy(box, demo):
    """All atoms at one velocity v: the heat flux (LAMMPS leaves out 1/volume) is (E + kinetic) v + virial v."""
    fluxes = []
    for ranks in (1, 2, 4):
        done = run_well(START.format(pair=tessera(demo), part="virial"), box, ranks=ranks)
        energy = done.values("pe").item() + done.values("ke").item()
        xx, yy, zz, xy, xz, yz = done.values("pressure")[0] * done.values("volume").item() / BAR_PER_EV_A3
        virial = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        close(done.values("flux")[0], energy * VELOCITY + virial @ VELOCITY, SUM_RTOL)
        assert np.abs(virial @ VELOCITY).max() > 0.1, "eV Å/ps: the second term is seen"
        fluxes.append(done.values("flux")[0])
    close(fluxes[1:], np.broadcast_to(fluxes[0], (2, 3)), SAME_RTOL)


def test_components_have_the_sign_and_order_of_another_pair_style(box, demo):
    """lj/cut as the oracle: sums of its nine relate to its pressure as those of tessera do, and a hybrid adds both."""
    lj = "pair_style lj/cut 5.0\npair_coeff * * 0.01 1.0"
    both = f"pair_style hybrid/overlay tessera lj/cut 5.0\npair_coeff * * tessera {demo} H O\n\
pair_coeff * * lj/cut 0.01 1.0"
    runs = {name: run_well(START.format(pair=pair, part="pair"), box)
            for name, pair in (("tessera", tessera(demo)), ("lj", lj), ("both", both))}  # fmt: skip
    for done in runs.values():
        close(done.values("nine_sum")[0][VOIGT], -done.values("pressure")[0] * done.values("volume").item(), SUM_RTOL)
    rows = {name: done.dump("forces.dump")[0][:, 1:] for name, done in runs.items()}
    close(rows["both"], rows["tessera"] + rows["lj"], SUM_RTOL)


def test_the_centroid_stress_is_made_of_halves_of_edges(box, demo):
    """Against the eager model: v (receiver minus sender) times dE/dv of each edge, half to either end."""
    done = run_well(START.format(pair=tessera(demo), part="pair"), box)
    atoms = SYSTEMS[box.joinpath("name").read_text()]()
    model = load_model("demo").double()
    graph = build_graph(model, atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc, 0, 1)
    stress = np.zeros((len(atoms), 3, 3))
    for edges, gradient in zip(graph.lists, energy_and_edge_gradients(model, graph)[1], strict=True):
        halves = 0.5 * edges.vector[:, :, None] * gradient[:, None, :]
        for ends in (edges.receiver, edges.owned_sender()):
            np.add.at(stress, ends.numpy(), halves.detach().numpy())
    order = [(0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]
    expected = np.array([[one[ab] for ab in order] for one in stress])
    close(in_atom_order(atoms, done.dump("forces.dump")[0])[:, 8:] / BAR_PER_EV_A3, expected, ORACLE_RTOL)
