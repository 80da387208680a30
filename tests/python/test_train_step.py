# SPDX-License-Identifier: MIT
"""The training step: its forces, its loss, its gradients, compiled and eager."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tessera.model import build_graph, energy_and_edge_gradients, forces_and_strain
from tessera.model.config import RepulsionRange
from tessera.testing import random_model, small_config
from tessera.train.edges import find_edges
from tessera.train.errors import TrainError
from tessera.train.frames import Frame
from tessera.train.loss import loss_and_gradients, loss_terms, penalty, predict
from tessera.train.packs import Counts, Extents, FrameSizes, make_pack
from tessera.train.settings import LossSettings
from tessera.train.step import check_agreement, eager_step, trace_step

# float64, energies and forces of order 1: sums in another order.
ROUNDING = 1e-11
# Central differences of step 1e-5 of a loss of order 1 lose 1e-10 to curvature and 1e-11 to rounding.
DIFFERENCE_STEP, DIFFERENCES = 1e-5, 1e-6
LOSS = LossSettings(energy_delta=0.3, forces_delta=0.5, stress_delta=0.2)  # residuals on both sides of each delta


def frame(size, *, periodic=True, charge=0, seed=1):
    random = np.random.default_rng(seed)
    # No two edges of the cell alike: images of one atom along them would tie for the largest score of the attention,
    # and rounding would decide which of them its derivative goes to.
    cell = np.diag((12.0 * size) ** (1 / 3) * np.array([1.0, 1.05, 0.95]))
    return Frame(
        "test", random.choice([1, 6, 8], size), random.random((size, 3)) @ cell,
        cell if periodic else np.eye(3), (periodic,) * 3, charge, 1, float(random.normal()),
        random.normal(size=(size, 3)), random.normal(size=(3, 3)) * 0.01 if periodic else None, None,
    )  # fmt: skip


FRAMES = (frame(6), frame(5, periodic=False, seed=2), frame(4, charge=1, seed=3))


@pytest.fixture(scope="module")
def model():
    return random_model(small_config(lmax=1, cutoffs=(3.0,), num_basis=6))


def pack_of(model, frames, counts=None, room=None, **options):
    edges = [find_edges(one, max(model.cutoffs)) for one in frames]
    return make_pack(model, frames, edges, counts or Counts.of(frames), room, **options)


def test_energies_and_forces_of_frames_side_by_side_are_those_of_each_alone():
    model = random_model(small_config())
    prediction = predict(model, pack_of(model, FRAMES), create_graph=True)
    start = 0
    for place, one in enumerate(FRAMES):
        graph = build_graph(model, one.numbers, one.positions, one.cell, one.periodic, one.charge)
        energy, gradients = energy_and_edge_gradients(model, graph)
        forces, strain = forces_and_strain(graph, gradients)
        own = prediction.forces[start : start + len(one.numbers)]
        start += len(one.numbers)
        assert float((prediction.energy[place] - energy.sum()).abs().detach()) < ROUNDING
        assert float((own - forces).abs().max().detach()) < ROUNDING
        assert float((prediction.virial[place] - strain).abs().max().detach()) < ROUNDING
    uncharged = predict(model, pack_of(model, [*FRAMES[:2], dataclasses.replace(FRAMES[2], charge=0)]),
                        create_graph=True)  # fmt: skip
    assert float((uncharged.energy[2] - prediction.energy[2]).abs().detach()) > 1e3 * ROUNDING


def test_padding_changes_neither_loss_nor_gradients(model):
    def room(needed):
        assert needed == Extents(17, 4, (len(bare.graph.lists[0].receiver),))
        return Extents(29, 9, (needed.edges[0] + 31,))

    bare = pack_of(model, FRAMES)
    padded = pack_of(model, FRAMES, room=room)
    assert padded.graph.element.shape == (29,)
    assert padded.labels.energy.shape == (9,)
    receiver = padded.graph.lists[0].receiver
    assert bool((receiver.diff() >= 0).all())
    assert set(receiver[-33:].tolist()) == set(range(15, 29))
    parameters = list(model.parameters())
    for found, expected in zip(
        loss_and_gradients(model, parameters, padded, LOSS), loss_and_gradients(model, parameters, bare, LOSS),
        strict=True,
    ):  # fmt: skip
        assert float((found - expected).abs().max()) < ROUNDING * max(1.0, float(expected.abs().max()))


def test_gradients_are_those_of_finite_differences(model):
    pack = pack_of(model, FRAMES[:2])
    parameters = list(model.parameters())
    weights = torch.tensor([LOSS.energy, LOSS.forces, LOSS.stress], dtype=torch.float64)

    def loss():
        return float(loss_and_gradients(model, parameters, pack, LOSS)[0] @ weights)

    gradients = loss_and_gradients(model, parameters, pack, LOSS)[1:]
    names = dict(model.named_parameters())
    for name in ("embedding.sender_table", "blocks.0.attention.gate.network.weight_mid", "head.layers.0.weight"):
        place = next(k for k, one in enumerate(parameters) if one is names[name])
        direction = torch.randn(names[name].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                names[name].add_(sign * DIFFERENCE_STEP * direction)
            values.append(loss())
            with torch.no_grad():
                names[name].add_(-sign * DIFFERENCE_STEP * direction)
        expected = (values[0] - values[1]) / (2 * DIFFERENCE_STEP)
        assert abs(float((gradients[place] * direction).sum()) - expected) < DIFFERENCES * max(1.0, abs(expected)), name


def test_shares_of_a_batch_add_up_to_the_batch(model):
    parameters = list(model.parameters())

    def total(parts):
        results = [loss_and_gradients(model, parameters, pack, LOSS) for pack in parts]
        return [sum(values) for values in zip(*results, strict=True)]

    counts = Counts.of(FRAMES)
    whole = total([pack_of(model, FRAMES)])
    shared = total([pack_of(model, FRAMES[::2], counts), pack_of(model, FRAMES[1::2], counts)])
    for found, expected in zip(shared, whole, strict=True):
        assert float((found - expected).detach().abs().max()) < ROUNDING * max(1.0, float(expected.abs().max()))


def test_an_elements_factor_multiplies_the_penalties_of_its_forces_alone(model):
    def force_term(**factors):
        pack = pack_of(model, FRAMES, element_forces=factors)
        return float(loss_terms(predict(model, pack, create_graph=False), pack, LOSS)[1].detach())

    parts = {name: force_term(**{one: float(one == name) for one in "HCO"}) for name in "HCO"}
    assert min(parts.values()) > 0.0
    assert force_term() == pytest.approx(sum(parts.values()), rel=1e-12)
    assert force_term(O=3.0) == pytest.approx(force_term() + 2.0 * parts["O"], rel=1e-12)


def test_the_huber_penalty_is_a_square_that_goes_on_as_its_tangent():
    residual = torch.tensor([-3.0, -0.5, 0.2, 1.0], dtype=torch.float64)
    assert penalty(residual, "squared", 0.5).tolist() == pytest.approx([9.0, 0.25, 0.04, 1.0])
    assert penalty(residual, "huber", 0.5).tolist() == pytest.approx([2.75, 0.25, 0.04, 0.75])


def test_missing_labels_weigh_nothing(model):
    bare = dataclasses.replace(FRAMES[1], energy=None)
    terms, *_ = loss_and_gradients(model, list(model.parameters()), pack_of(model, [bare]), LOSS)
    assert terms[0] == 0
    assert terms[1] > 0
    assert terms[2] == 0


def one_room(model, batches):
    """Extents for all of `batches`, as a compiled step has them."""
    sizes = FrameSizes(model, FRAMES, [find_edges(one, max(model.cutoffs)) for one in FRAMES])
    extents = sizes.hold(batches)
    return lambda _needed: extents


def test_the_extents_for_some_batches_are_the_largest_of_their_packs():
    model = random_model(small_config(cutoffs=(3.0, 4.0)))
    batches = [(0, 2), (1,), (2, 1)]
    needed = []

    def room(own):
        needed.append(own)
        return own

    for batch in batches:
        pack_of(model, [FRAMES[place] for place in batch], room=room)
    held = one_room(model, batches)(None)
    assert held.rows == max(one.rows for one in needed)
    assert held.frames == max(one.frames for one in needed)
    assert held.edges == tuple(max(counts) for counts in zip(*(one.edges for one in needed), strict=True))
    assert len(set(needed)) == 3, "batches of different extents"


def test_the_traced_step_equals_the_eager_one_for_all_batches_of_its_extents_and_any_weights(model):
    model = copy.deepcopy(model)
    parameters = list(model.parameters())
    lonely = frame(1, periodic=False)  # an atom without an edge
    room = one_room(model, [(0, 1)])
    traced = trace_step(model, parameters, LOSS, pack_of(model, FRAMES[:2], room=room))
    for frames in (FRAMES[:2], [lonely], FRAMES[2:]):
        pack = pack_of(model, frames, room=room)
        for found, expected in zip(
            traced(*parameters, *pack.flat()), loss_and_gradients(model, parameters, pack, LOSS), strict=True
        ):
            assert float((found - expected).detach().abs().max()) < ROUNDING * max(1.0, float(expected.abs().max()))
        with torch.no_grad():
            parameters[0].add_(0.1)


class OneDevice(TorchDispatchMode):
    """Collects operators that read or make tensors on other devices than `device`."""

    def __init__(self, device):
        super().__init__()
        self.device, self.others, self.seen = device, set(), 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = [one for one in tree_leaves((args, kwargs, result)) if isinstance(one, torch.Tensor)]
        self.others |= {str(function) for one in tensors if one.device.type != self.device}
        self.seen += 1
        return result


@pytest.mark.parametrize("attention", ["zero-order", "so2-first-order"])
def test_a_step_makes_and_reads_tensors_on_the_models_device_alone(attention):
    # `meta` stands for a GPU: tensors without values, which no operator mixes up with the host's.
    config = dataclasses.replace(small_config(attention, softmax="smooth"), repulsion=RepulsionRange())
    model = random_model(config).to("meta")
    pack = pack_of(model, FRAMES[:1]).to("meta")
    with OneDevice("meta") as watch:
        terms, *gradients = loss_and_gradients(model, list(model.parameters()), pack, LOSS)
        predict(model, pack, create_graph=False)
    assert watch.seen > 1000
    assert watch.others == set()
    assert {one.device.type for one in (terms, *gradients)} == {"meta"}


def test_a_compiled_step_that_disagrees_is_refused(model):
    pack = pack_of(model, FRAMES[:2])
    eager = eager_step(model, list(model.parameters()), LOSS)
    assert check_agreement(eager, eager, pack, torch.float64) == 0

    def wrong(pack):
        terms, *gradients = eager(pack)
        return (terms, *gradients[:-1], gradients[-1] * 1.01)

    with pytest.raises(TrainError, match="expected the compiled step to equal the eager one"):
        check_agreement(wrong, eager, pack, torch.float64)
