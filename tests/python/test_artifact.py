# SPDX-License-Identifier: MIT
"""The artifact loader: padding, operators inside compiled code, and what it refuses."""

import getpass
import hashlib
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
import tiny_artifact
import torch
from small_graph import NUM_OWNED, small_list

from tessera import _C, ops
from tessera.kernels import reference
from tessera.ops import edges as edges_module
from tessera.ops import halo
from tessera_export import package

#: float64 throughout; the compiled code fuses and reorders a few hundred terms.
TOLERANCE = 1e-12


@pytest.fixture(scope="module")
def path() -> Path:
    """Compile once for as long as nothing that decides the outcome has changed."""
    digest = hashlib.sha256(torch.__version__.encode())
    for source in (tiny_artifact, package, halo, edges_module):
        digest.update(Path(source.__file__).read_bytes())
    default = Path(tempfile.gettempdir()) / f"tessera-test-artifacts-{getpass.getuser()}"
    folder = Path(os.environ.get("TESSERA_TEST_ARTIFACTS") or default)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"operators-{digest.hexdigest()[:16]}.pt2"
    if not path.exists():
        tiny_artifact.write(path)
    return path


def as_arrays(edges):
    return tuple(t.numpy() for t in (edges.halo_element, edges.vector, edges.receiver, edges.sender))


def elements(count):
    return torch.arange(count) % 2


def expected(edges, charge=0, multiplicity=1):
    """Energies and gradients of the same model in plain torch, unpadded."""
    count = edges.num_owned
    index = (edges.receiver, edges.sender, edges.receiver_range, edges.sender_order, edges.sender_range)
    scalars = (torch.tensor([charge]), torch.tensor([multiplicity]))
    inputs = (
        torch.zeros(1),
        elements(count),
        torch.ones(count).double(),
        *scalars,
        edges.halo_element,
        edges.vector,
        *index,
    )
    energy, gradient = tiny_artifact.step(reference, inputs, edges.halo_rows)
    return energy.numpy(), gradient.numpy()


def run(artifact, edges, device=None, **options):
    """Run with halo rows copied by a self exchange, where there are any: staged, or on a device."""
    plan = _C.SelfExchange([edges.halo_rows.numpy()], edges.num_owned, device=device)
    return artifact.run(elements(edges.num_owned).numpy(), [as_arrays(edges)], plan=plan.handle, **options)


@pytest.mark.parametrize("sizes", [(13, 5, 60), (40, 0, 300), (6, 3, 0), (6, 1, 1), (301, 77, 6000)])
def test_compiled_code_gives_the_energies_and_gradients_of_the_reference(path, sizes):
    edges = small_list(*sizes)
    energy, (gradient,) = run(_C.Artifact(str(path)), edges, charge=2, multiplicity=3)
    expected_energy, expected_gradient = expected(edges, 2, 3)
    np.testing.assert_allclose(energy, expected_energy, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("sizes", [(13, 5, 60), (40, 0, 300), (301, 77, 6000)])
def test_halo_rows_that_stay_on_the_device_give_the_same_to_the_last_bit(path, sizes):
    artifact, edges = _C.Artifact(str(path)), small_list(*sizes)
    energy, (gradient,) = run(artifact, edges)
    energy_on_device, (gradient_on_device,) = run(artifact, edges, device=-1)
    assert np.array_equal(energy, energy_on_device)
    assert np.array_equal(gradient, gradient_on_device)


def test_a_rank_without_atoms_has_no_energy_and_no_gradients(path):
    nothing = np.zeros(0, dtype=np.int64)
    energy, (gradient,) = _C.Artifact(str(path)).run(nothing, [(nothing, np.zeros((0, 3)), nothing, nothing)])
    assert energy.shape == (0,)
    assert gradient.shape == (0, 3)


def test_one_artifact_takes_systems_of_any_size_in_any_order(path):
    artifact = _C.Artifact(str(path))
    first = run(artifact, small_list())
    run(artifact, small_list(301, 77, 6000))
    run(artifact, small_list(6, 3, 0))
    again = run(artifact, small_list())
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1][0], again[1][0])


@pytest.fixture
def thread_count():
    """Leave torch's number of threads as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("thread_count")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_compiled_code_repeats_bit_for_bit_on_the_threads_it_is_given(path, count):
    edges = small_list(301, 77, 6000)
    torch.set_num_threads(4 - count)
    first, second = (run(_C.Artifact(str(path), num_threads=count), edges) for _ in range(2))
    assert torch.get_num_threads() == count
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1][0], second[1][0])


@pytest.mark.usefixtures("thread_count")
def test_the_number_of_threads_changes_roundings_at_most(path):
    """The operators do not depend on it; compiled loops do where a thread's share ends within a vector."""
    edges = small_list(301, 77, 6000)
    one, two = (run(_C.Artifact(str(path), num_threads=count), edges) for count in (1, 2))
    np.testing.assert_allclose(one[0], two[0], rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(one[1][0], two[1][0], rtol=TOLERANCE, atol=TOLERANCE)


def test_ranks_as_threads_may_load_and_run_artifacts_at_once(path):
    edges, found = small_list(), [None] * 4

    def rank(number):
        found[number] = run(_C.Artifact(str(path)), edges)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(energy, found[0][0]) for energy, _ in found)


def test_the_text_of_a_failing_operator_reaches_the_caller(path):
    with pytest.raises(_C.TesseraError, match=r"the model failed: no living exchange set has handle 987654"):
        _C.Artifact(str(path)).run(elements(NUM_OWNED).numpy(), [as_arrays(small_list())], plan=987654)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a: (np.full_like(a[0], 2), *a[1:]), r"element indices in \[0, 2\), found 2"),
        (
            lambda a: (a[0], a[1][:-1], *a[2:]),
            "60 receivers must have as many senders and edge vectors, found 60 and 59",
        ),
        (lambda a: (*a[:2], a[2][::-1].copy(), a[3]), "expected ascending receivers below 13"),
        (lambda a: (*a[:3], a[3] + 5), "expected ascending receivers below 13 and senders below 18"),
    ],
)
def test_lists_that_do_not_fit_are_refused(path, change, text):
    with pytest.raises(_C.TesseraError, match=text):
        _C.Artifact(str(path)).run(elements(NUM_OWNED).numpy(), [change(as_arrays(small_list()))])


def test_another_number_of_lists_is_refused(path):
    with pytest.raises(_C.TesseraError, match="expected 1 lists, one a cutoff, found 2"):
        _C.Artifact(str(path)).run(elements(NUM_OWNED).numpy(), [as_arrays(small_list())] * 2)


def test_the_operators_alone_can_run_the_same_step():
    edges = small_list()
    plan = _C.SelfExchange([edges.halo_rows.numpy()], edges.num_owned)
    index = (edges.receiver, edges.sender, edges.receiver_range, edges.sender_order, edges.sender_range)
    inputs = (torch.tensor([plan.handle]), elements(NUM_OWNED), torch.ones(NUM_OWNED).double())
    inputs += (torch.tensor([0]), torch.tensor([1]), edges.halo_element, edges.vector, *index)
    energy, gradient = tiny_artifact.step(ops, inputs)
    expected_energy, expected_gradient = expected(edges)
    np.testing.assert_allclose(energy.numpy(), expected_energy, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(gradient.numpy(), expected_gradient, rtol=TOLERANCE, atol=TOLERANCE)
