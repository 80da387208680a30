# SPDX-License-Identifier: MIT
"""The traced program: free extents, the exchanges of ARCHITECTURE.md, and refusals."""

import pytest
import torch
from torch.export import Dim

import tessera.ops
from exported import small_model
from tessera.model import E2Former
from tessera_export.errors import ExportError
from tessera_export.flat import InputSpec, input_specs, unflatten
from tessera_export.trace import check_extents_are_free, count_operator, example_inputs, export_step, trace_step


@pytest.fixture(scope="module")
def model() -> E2Former:
    return small_model("first")


@pytest.fixture(scope="module")
def module(model: E2Former) -> torch.fx.GraphModule:
    return trace_step(model, tessera.ops)


def test_example_extents_differ_from_each_other_and_from_every_width(model: E2Former) -> None:
    widths = {extent for tensor in model.state_dict().values() for extent in tensor.shape}
    extents: dict[str, int] = {}
    for spec, tensor in zip(input_specs(len(model.cutoffs)), example_inputs(model), strict=True):
        for name, extent in zip(spec.extents, tensor.shape, strict=True):
            if isinstance(name, str):
                assert extents.setdefault(name, extent) == extent, name
    assert len(set(extents.values())) == len(extents)
    assert not widths & set(extents.values())


def test_each_list_becomes_seven_inputs_in_the_order_of_the_contract() -> None:
    names = [spec.name for spec in input_specs(2)]
    assert len(names) == 5 + 7 * 2
    assert names[:6] == ["plan", "element", "weight", "charge", "multiplicity", "halo_element_0"]
    assert names[12:14] == ["halo_element_1", "edge_vector_1"]
    graph = unflatten([torch.full((2,), index) for index in range(len(names))])
    assert int(graph.multiplicity[0]) == 4
    assert int(graph.lists[1].vector[0]) == 5 + 7 + 1
    assert int(graph.lists[1].sender_range[0]) == len(names) - 1


def test_one_exchange_a_stage_goes_forward_and_one_comes_back(module: torch.fx.GraphModule) -> None:
    for name in ("halo_start", "halo_wait", "halo_reverse_start", "halo_reverse_wait"):
        assert count_operator(module, name) == 2, name


def test_every_extent_stays_free(model: E2Former, module: torch.fx.GraphModule) -> None:
    program = export_step(module, model)
    # N, and for both lists edges, halo rows, extended rows
    assert len({str(symbol) for symbol in program.range_constraints}) == 1 + 2 * 3


class FixesTheEdges(E2Former):
    def forward(self, graph, kernels):
        edges = graph.lists[0].vector.shape[0]
        return super().forward(graph, kernels) * float(edges // int(edges))


def test_a_model_that_fixes_an_extent_is_refused(model: E2Former) -> None:
    wrong = FixesTheEdges(model.config, model.elements).requires_grad_(requires_grad=False)
    with pytest.raises(ExportError, match="must stay free"):
        export_step(trace_step(wrong, tessera.ops), wrong)


@pytest.mark.parametrize(
    ("dims", "complaint"),
    [
        (({0: Dim("n", min=2)}, None), "input b, axis 0: expected a free extent, the trace fixed it to 7"),
        (({0: Dim("n", min=2)}, {0: Dim("n", min=2)}), "must be independent"),
        (({0: Dim("n", min=4)}, {0: Dim("m", min=2)}), "extent N: expected to be free from 2, needs 4"),
    ],
)
def test_fixed_tied_and_bounded_extents_are_told_apart(dims: tuple, complaint: str) -> None:
    class Sums(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a.sum() + b.sum()

    is_tied = dims[1] is not None and dims[0][0].__name__ == dims[1][0].__name__
    inputs = torch.zeros(7), torch.zeros(7 if is_tied or dims[1] is None else 9)
    program = torch.export.export(Sums(), inputs, dynamic_shapes=dims)
    specs = [InputSpec("a", torch.float32, ("N",)), InputSpec("b", torch.float32, ("E0",))]
    with pytest.raises(ExportError, match=complaint):
        check_extents_are_free(program, specs)
