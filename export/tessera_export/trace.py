# SPDX-License-Identifier: MIT
"""From a model to an exported program: forward and analytic backward pass in one graph of few operators.

Exporting a module that calls `torch.autograd.grad` fails in torch 2.11 to 2.14, so the step is first traced with
`make_fx` (which records the backward pass as plain operators) and the recorded graph is exported.
"""

from collections import Counter
from collections.abc import Mapping
from types import ModuleType

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._sympy.numbers import int_oo

from tessera.model import E2Former, energy_and_edge_gradients
from tessera_export.errors import ExportError
from tessera_export.flat import InputSpec, input_specs, unflatten
from tessera_export.largest_step import LargestStep
from tessera_export.simplify import simplify

#: Smallest extent that compiled code takes: smaller ones are specialised by the compiler, so the loader pads.
SMALLEST_EXTENT = 2


def trace_step(model: E2Former, kernels: ModuleType) -> torch.fx.GraphModule:
    """Record one step (energies and dE/d(edge vectors)) as a graph with symbolic extents.

    Args:
        model: its parameters must not require gradients; they become constants of the graph.
        kernels: `tessera.ops` for an artifact (the operators of ARCHITECTURE.md).

    Returns:
        A graph module over the positional inputs; outputs are atom_energy [N] (eV), then one edge_gradient [E, 3]
        (eV/Å) a list.
    """

    def step(*inputs: Tensor) -> tuple[Tensor, ...]:
        atom_energy, gradients = energy_and_edge_gradients(model, unflatten(inputs), kernels)
        return (atom_energy.detach(), *gradients)

    module = make_fx(step, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*example_inputs(model))
    simplify(module)
    return module


def export_step(module: torch.fx.GraphModule, model: E2Former, largest: LargestStep | None = None) -> ExportedProgram:
    """Turn the recorded graph into an exported program whose every extent of ARCHITECTURE.md is free.

    Args:
        module: as :func:`trace_step` returns it.
        model: that was traced.
        largest: upper bounds of the extents, None for any.

    Raises:
        ExportError: an extent was fixed, or tied to another one, or bounded more narrowly, somewhere in the model.
    """
    specs = input_specs(len(model.cutoffs))
    names = sorted({extent for spec in specs for extent in spec.extents if isinstance(extent, str)})
    bounds = {} if largest is None else largest.bounds()
    dims = {name: Dim(name, min=SMALLEST_EXTENT, max=bounds.get(name)) for name in names}
    shapes = tuple(
        {axis: dims[extent] for axis, extent in enumerate(spec.extents) if isinstance(extent, str)} for spec in specs
    )
    try:
        program = torch.export.export(
            _Positional(module), example_inputs(model), dynamic_shapes=(shapes,), strict=False
        )
    except (torch._dynamo.exc.UserError, ValueError) as error:  # noqa: SLF001
        raise ExportError(f"the model fixes an extent that must stay free: {error}") from error
    check_extents_are_free(program, specs, bounds)
    return program


class _Positional(nn.Module):
    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.module(*inputs)


def example_inputs(model: E2Former) -> tuple[Tensor, ...]:
    """Make inputs whose dynamic extents differ from each other and from every width of the model.

    Symbolic tracing gives equal sizes one symbol ("duck shaping"), which would tie, say, the halo of one list to
    the edges of another. The values are zeros: nothing in a step depends on values. All are on the model's device but
    the plan, which names host data.
    """
    specs = input_specs(len(model.cutoffs))
    extents = _distinct_extents(model, specs)
    device = model.reference_energies.device
    return tuple(
        torch.zeros(
            [extents[extent] if isinstance(extent, str) else extent for extent in spec.extents],
            dtype=spec.dtype,
            device="cpu" if spec.name == "plan" else device,
        )
        for spec in specs
    )


def _distinct_extents(model: E2Former, specs: list[InputSpec]) -> dict[str, int]:
    taken = {extent for tensor in model.state_dict().values() for extent in tensor.shape}
    widest = max(taken, default=1)
    extents: dict[str, int] = {}
    next_extent = widest + 1
    for name in sorted({extent for spec in specs for extent in spec.extents if isinstance(extent, str)}):
        if name.startswith("M"):  # N + H of its list, set below
            continue
        # Steps of different sizes keep the sums N + H apart from all others too.
        next_extent += 2 * len(extents) + 3
        extents[name] = next_extent
    for name in [key for key in extents if key.startswith("H")]:
        extents[f"M{name[1:]}"] = extents["N"] + extents[name]
    if len(set(extents.values())) != len(extents):
        raise AssertionError(f"example extents must differ from each other: {extents}")
    return extents


def check_extents_are_free(
    program: ExportedProgram, specs: list[InputSpec], bounds: Mapping[str, int] | None = None
) -> None:
    """Check that no guard of the trace fixed an extent, tied two of them, or bounded one otherwise than asked for.

    Args:
        program: the trace.
        specs: its inputs.
        bounds: the largest value of each extent by name; extents that are not named have none.

    Raises:
        ExportError: names the input, the axis, and what became of it.
    """
    symbol_of: dict[str, str] = {}
    for spec, name in zip(specs, program.graph_signature.user_inputs, strict=True):
        node = next(node for node in program.graph.nodes if node.name == name)
        for axis, extent in enumerate(spec.extents):
            found = node.meta["val"].shape[axis]
            if not isinstance(extent, str):
                continue
            if isinstance(found, int):
                raise ExportError(
                    f"input {spec.name}, axis {axis}: expected a free extent, the trace fixed it to {found}"
                )
            symbol = str(found)
            if symbol_of.setdefault(extent, symbol) != symbol:
                raise ExportError(f"input {spec.name}, axis {axis}: expected {symbol_of[extent]}, found {symbol}")
    shared = [symbol for symbol, count in Counter(symbol_of.values()).items() if count > 1]
    if shared:
        tied = {name: symbol for name, symbol in symbol_of.items() if symbol in shared}
        raise ExportError(f"extents that must be independent share a symbol: {tied}")
    _check_ranges(program, symbol_of, bounds or {})


def _check_ranges(program: ExportedProgram, symbol_of: Mapping[str, str], bounds: Mapping[str, int]) -> None:
    ranges = {str(symbol): found for symbol, found in program.range_constraints.items()}
    for extent, symbol in symbol_of.items():
        if symbol not in ranges:
            if extent in bounds:
                raise ExportError(f"extent {extent}: expected a bound of {bounds[extent]}, the trace has none")
            continue
        found = ranges[symbol]
        if found.lower > SMALLEST_EXTENT:
            raise ExportError(f"extent {extent}: expected to be free from {SMALLEST_EXTENT}, needs {found.lower}")
        if found.upper != bounds.get(extent, int_oo):
            raise ExportError(
                f"extent {extent}: expected to be free up to {bounds.get(extent, int_oo)}, the trace ends at "
                f"{found.upper}"
            )


def count_operator(module: torch.fx.GraphModule, name: str) -> int:
    """Count the calls of operator tessera::`name` in a graph."""
    packet = getattr(torch.ops.tessera, name)
    return sum(node.op == "call_function" and node.target is packet.default for node in module.graph.nodes)
