# SPDX-License-Identifier: MIT
"""Graphs: what padding, halo rows, element order and the number of atoms must not change."""

import dataclasses

import numpy as np
import pytest
import torch

from tessera.model import build_graph, energy_and_edge_gradients, forces_and_strain, with_vectors
from tessera.testing import pad_graph, random_atoms, random_model, send_through_halo, small_config

ROUNDING = 1e-12  # the same sums in the same order up to padding: float64 roundings of values of order 1 to 100


def system(attention="so2-first-order", count=9, **changes):
    model = random_model(small_config(attention, **changes))
    atoms = random_atoms(count)
    return model, build_graph(model, atoms.numbers, atoms.positions, atoms.cell, atoms.pbc, charge=1)


def results(model, graph):
    energy, gradients = energy_and_edge_gradients(model, graph)
    return energy, gradients, *forces_and_strain(graph, gradients)


@pytest.mark.parametrize(("rows", "edges", "halo"), [(1, 0, 0), (3, 5, 0), (2, 2, 2), (1, 40, 7)])
@pytest.mark.parametrize("score", ["QK", "QKdotS"])
def test_padding_changes_no_energy_and_no_gradient(rows, edges, halo, score):
    model, graph = system(score=score)
    padded = pad_graph(graph, model.cutoffs, rows, edges, halo)
    energy, gradients, forces, strain = results(model, graph)
    padded_energy, padded_gradients, padded_forces, padded_strain = results(model, padded)
    count = len(energy)
    torch.testing.assert_close(padded_energy[:count], energy, rtol=ROUNDING, atol=ROUNDING)
    assert not padded_energy[count:].any()
    for old, new in zip(gradients, padded_gradients, strict=True):
        torch.testing.assert_close(new[: len(old)], old, rtol=ROUNDING, atol=ROUNDING)
        assert not new[len(old) :].any()
    torch.testing.assert_close(padded_forces[:count], forces, rtol=ROUNDING, atol=ROUNDING)
    torch.testing.assert_close(padded_strain, strain, rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("attention", ["zero-order", "so2-first-order"])
def test_senders_read_through_halo_rows_give_the_same_forces(attention):
    model, graph = system(attention)
    copied = send_through_halo(graph)
    assert min(edges.num_halo for edges in copied.lists) > 0
    energy, gradients, forces, strain = results(model, graph)
    halo_energy, halo_gradients, halo_forces, halo_strain = results(model, copied)
    torch.testing.assert_close(halo_energy, energy, rtol=ROUNDING, atol=ROUNDING)
    for old, new in zip(gradients, halo_gradients, strict=True):
        torch.testing.assert_close(new, old, rtol=ROUNDING, atol=ROUNDING)
    torch.testing.assert_close(halo_forces, forces, rtol=ROUNDING, atol=ROUNDING)
    torch.testing.assert_close(halo_strain, strain, rtol=ROUNDING, atol=ROUNDING)


def test_padded_halo_graphs_give_the_same_energy():
    model, graph = system()
    copied = pad_graph(send_through_halo(graph), model.cutoffs, 2, 3, 4)
    torch.testing.assert_close(
        results(model, copied)[0].sum(), results(model, graph)[0].sum(), rtol=ROUNDING, atol=ROUNDING
    )


def test_edges_beyond_the_cutoff_are_not_seen():
    # The runtime's lists reach a skin further than the model.
    model, graph = system()
    atoms = random_atoms(9)
    wide = build_graph(dataclasses.replace(model.config, embedding_cutoff=4.6, elements=model.elements,
                                           stages=(dataclasses.replace(model.config.stages[0], cutoff=5.6),)),
                       atoms.numbers, atoms.positions, atoms.cell, atoms.pbc, charge=1)  # fmt: skip
    assert [len(edges.sender) for edges in wide.lists] > [len(edges.sender) for edges in graph.lists]
    energy, _, forces, strain = results(model, graph)
    wide_energy, _, wide_forces, wide_strain = results(model, wide)
    torch.testing.assert_close(wide_energy, energy, rtol=ROUNDING, atol=ROUNDING)
    torch.testing.assert_close(wide_forces, forces, rtol=ROUNDING, atol=10 * ROUNDING)
    torch.testing.assert_close(wide_strain, strain, rtol=ROUNDING, atol=10 * ROUNDING)


@pytest.mark.parametrize("normalizer", ["softmax", "softplus"])
def test_high_scores_of_inactive_edges_do_not_overflow(normalizer):
    model, graph = system(normalizer=normalizer)
    model = model.to(torch.float32)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query.out.weight.mul_(1e3)
    far = pad_graph(graph, model.cutoffs, 1, 3, 0)
    stretched = with_vectors(far, [edges.vector * 1.3 for edges in far.lists])
    energy, gradients, forces, _ = results(model, stretched)
    assert all(torch.isfinite(values).all() for values in (energy, forces, *gradients))


def test_a_model_of_fewer_elements_gives_the_same_energies():
    model = random_model(small_config(), elements=("H", "C", "O", "Cl"))
    model.reference_energies.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64))
    atoms = random_atoms(9, elements=("O", "H"))
    reduced = model.select_elements(["O", "H"])
    assert reduced.elements == ("O", "H")
    assert reduced.embedding.sender_table.shape[0] == 2
    assert reduced.reference_energies.tolist() == [3.0, 1.0]
    energies = [
        results(m, build_graph(m, atoms.numbers, atoms.positions, atoms.cell, atoms.pbc))[0] for m in (model, reduced)
    ]
    torch.testing.assert_close(energies[1], energies[0], rtol=ROUNDING, atol=ROUNDING)
    assert model.elements == ("H", "C", "O", "Cl")
    assert model.embedding.sender_table.shape[0] == 4


def test_a_selected_element_that_the_model_lacks_is_refused():
    model = random_model(small_config())
    with pytest.raises(ValueError, match="expected elements among H, C, O, found Cl"):
        model.select_elements(["H", "Cl"])


@pytest.mark.parametrize(
    ("elements", "message"),
    [(["H", "Hx"], "found 'Hx'"), (["H", "O", "H"], "found H more than once"), ([], "found none")],
)
def test_element_lists_that_make_no_sense_are_refused(elements, message):
    with pytest.raises(ValueError, match=message):
        random_model(small_config(), elements=elements)


def test_atoms_of_an_unknown_element_are_refused():
    model = random_model(small_config())
    with pytest.raises(ValueError, match=r"expected elements among H, C, O, found N, Cl"):
        build_graph(model, [1, 7, 17], np.zeros((3, 3)))


def test_positions_of_another_shape_are_refused():
    model = random_model(small_config())
    with pytest.raises(ValueError, match=r"expected positions of shape \(2, 3\), found \(3, 3\)"):
        build_graph(model, [1, 1], np.zeros((3, 3)))


def test_ranges_list_the_edges_of_every_row():
    _, graph = system()
    edges = send_through_halo(graph).lists[0]
    assert torch.equal(edges.receiver, edges.receiver.sort().values)
    for row, (first, last) in enumerate(edges.receiver_range.tolist()):
        assert (edges.receiver[first:last] == row).all()
        assert last - first == int((edges.receiver == row).sum())
    for row, (first, last) in enumerate(edges.sender_range.tolist()):
        places = edges.sender_order[first:last]
        assert (edges.sender[places] == row).all()
        assert last - first == int((edges.sender == row).sum())
        assert torch.equal(places, places.sort().values)


def test_a_loss_on_forces_reaches_the_parameters():
    model, graph = system()
    parameter = model.blocks[0].attention.gate.network.weight_mid
    target = torch.ones(9, 3, dtype=torch.float64)

    def loss():
        _, gradients = energy_and_edge_gradients(model, graph, create_graph=True)
        return (forces_and_strain(graph, gradients)[0] - target).square().sum()

    (slope,) = torch.autograd.grad(loss(), parameter)
    place, step = (0, 1, 2), 1e-5
    values = []
    for side in (-1, 1):
        with torch.no_grad():
            parameter[place] += side * step
        values.append(float(loss().detach()))
        with torch.no_grad():
            parameter[place] -= side * step
    difference = (values[1] - values[0]) / (2 * step)
    # Second-order differences: 1e-10 times a third derivative of up to 1e3, relative to a slope of order 1.
    assert abs(float(slope[place]) - difference) < 1e-5 * max(1.0, abs(difference))
    assert abs(difference) > 1e-3
