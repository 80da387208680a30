# SPDX-License-Identifier: MIT
"""Bounds of the extents of a GPU's artifact: as large as 32-bit indices hold, and known to the compiler."""

from dataclasses import replace

import pytest
import sympy
import torch
from torch._guards import detect_fake_mode
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import expr_fits_within_32bit
from torch._inductor.virtualized import V
from torch.export import ExportedProgram

import tessera.ops
from exported import small_model
from tessera.model import E2Former
from tessera_export.errors import ExportError
from tessera_export.flat import input_specs
from tessera_export.largest_step import MOST_NUMBERS, LargestStep, check_largest_step, largest_step
from tessera_export.memory import MemoryModel, Sizes, tensors_of
from tessera_export.pipeline import ExportOptions, bounded_step
from tessera_export.recompute import Choice
from tessera_export.trace import check_extents_are_free, export_step, trace_step

Traced = tuple[E2Former, torch.fx.GraphModule]


@pytest.fixture(scope="module", params=["first", "tiny"])
def traced(request: pytest.FixtureRequest) -> Traced:
    model = small_model(request.param)
    return model, trace_step(model, tessera.ops)


@pytest.fixture(scope="module")
def tiny() -> Traced:
    model = small_model("tiny")
    return model, trace_step(model, tessera.ops)


def largest_tensor(module: torch.fx.GraphModule, step: LargestStep) -> int:
    """Numbers of the largest tensor of a traced step."""
    extents = [1, step.rows, *step.halo_rows, *step.edges]
    nodes = list(module.graph.nodes)
    sizes = Sizes(nodes, len(step.edges))
    tensors = [value for node in nodes for value in tensors_of(node.meta.get("val"))]
    return max(int(sizes.numbers(value) @ extents) for value in tensors)


def one_more(step: LargestStep) -> list[LargestStep]:
    """The step with each of its extents one larger."""
    larger = [replace(step, rows=step.rows + 1)]
    for name in ("halo_rows", "edges"):
        counts = getattr(step, name)
        for index, count in enumerate(counts):
            larger.append(replace(step, **{name: (*counts[:index], count + 1, *counts[index + 1 :])}))
    return larger


def test_no_tensor_of_the_largest_step_outgrows_32_bits_and_one_of_any_larger_one_does(traced: Traced) -> None:
    model, module = traced
    step = largest_step(module, len(model.cutoffs))
    assert largest_tensor(module, step) <= MOST_NUMBERS
    for larger in one_more(step):
        assert largest_tensor(module, larger) > MOST_NUMBERS, larger
    assert all(halo_rows >= step.rows for halo_rows in step.halo_rows)


def sizes_beyond_32_bits(program: ExportedProgram) -> list[str]:
    """Sizes of tensors for which Inductor would take 64-bit indices on a GPU, as it decides in a compilation ahead."""
    nodes = list(program.graph.nodes)
    inputs = [node.meta["val"] for node in nodes if node.op == "placeholder"]
    shapes = detect_fake_mode(inputs).shape_env
    lowering = GraphLowering(program.graph_module, shape_env=shapes, aot_mode=True)
    beyond = set()
    with V.set_graph_handler(lowering), V.set_aot_compilation(True):
        for value in (value for node in nodes for value in tensors_of(node.meta.get("val"))):
            numbers = sympy.prod(size.node.expr if isinstance(size, torch.SymInt) else size for size in value.shape)
            if not expr_fits_within_32bit(sympy.sympify(numbers)):
                beyond.add(str(numbers))
    return sorted(beyond)


def test_the_compiler_takes_32_bits_up_to_the_largest_step(traced: Traced) -> None:
    model, module = traced
    step = largest_step(module, len(model.cutoffs))
    assert sizes_beyond_32_bits(export_step(module, model, step)) == []


def test_the_compiler_takes_64_bits_for_what_a_larger_bound_lets_outgrow_32(tiny: Traced) -> None:
    model, module = tiny
    step = largest_step(module, len(model.cutoffs))
    for larger in one_more(step):
        beyond = sizes_beyond_32_bits(export_step(module, model, larger))
        assert len(beyond) >= 1, larger
        assert all("*" in size for size in beyond)  # rows and edges themselves are few
    most = sizes_beyond_32_bits(export_step(module, model, step.raised(2**28, model.cutoffs)))
    assert len(most) > 5


def test_without_a_bound_the_compiler_takes_the_example_for_all_there_is(tiny: Traced) -> None:
    """Why there are bounds: any number of edges is allowed, and 32 bits are taken nevertheless."""
    model, module = tiny
    assert sizes_beyond_32_bits(export_step(module, model)) == []


def test_a_raised_step_takes_a_liquid_of_so_many_atoms_and_loses_nothing() -> None:
    step = LargestStep(1000, (800, 3000), (10, 10**7))
    raised = step.raised(2000, (2.0, 3.0))
    # 0.1 atoms/Å^3: 3.3510 and 11.3097 edges an atom; one row is padding
    assert raised == LargestStep(2001, (2001, 3000), (6706, 10**7))
    assert step.raised(1, (2.0, 3.0)) == step
    assert raised.to_dict() == {"rows": 2001, "halo_rows": [2001, 3000], "edges": [6706, 10**7]}
    assert raised.bounds() == {"N": 2001, "H0": 2001, "M0": 4002, "E0": 6706, "H1": 3000, "M1": 5001, "E1": 10**7}


def test_only_a_gpu_bounds_a_step_and_the_option_raises_the_bound(tiny: Traced) -> None:
    model, module = tiny
    choice = Choice(module, {}, MemoryModel(0.0, (0.0,), (0.0,), 0.0), model.cutoffs)
    step = largest_step(module, 1)
    assert bounded_step(choice, ExportOptions()) is None
    assert bounded_step(choice, ExportOptions(device="cuda")) == step
    raised = bounded_step(choice, ExportOptions(device="cuda", largest_step=2 * step.rows))
    assert raised == step.raised(2 * step.rows, model.cutoffs)
    assert raised.rows == 2 * step.rows + 1


@pytest.mark.parametrize(
    ("atoms", "device", "complaint"),
    [
        (1000, "cpu", "--largest-step 1000: expected --device cuda, found cpu"),
        (0, "cuda", "--largest-step 0: expected 1 to 2147483646 atoms"),
        (2**31 - 1, "cuda", "--largest-step 2147483647: expected 1 to 2147483646 atoms"),
    ],
)
def test_a_size_that_no_artifact_has_is_refused(atoms: int, device: str, complaint: str) -> None:
    with pytest.raises(ExportError, match=complaint):
        check_largest_step(atoms, device)
    check_largest_step(None, "cpu")
    check_largest_step(1, "cuda")


def test_a_bound_that_the_trace_does_not_have_is_noticed(tiny: Traced) -> None:
    model, module = tiny
    specs = input_specs(1)
    step = largest_step(module, 1)
    program = export_step(module, model, step)
    with pytest.raises(ExportError, match=f"extent N: expected to be free up to 5, the trace ends at {step.rows}"):
        check_extents_are_free(program, specs, step.bounds() | {"N": 5})
    with pytest.raises(ExportError, match="expected to be free up to int_oo, the trace ends at"):
        check_extents_are_free(program, specs)
