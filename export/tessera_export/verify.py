# SPDX-License-Identifier: MIT
"""Compare a compiled artifact with the eager model before anyone may use it.

The compiler has silently produced wrong energies, and right energies with wrong forces, for graphs of this kind, so
nothing is written without this. The artifact is loaded as the engine loads it (C++ loader, C++ operators); the
reference is the eager model on the CPU with the plain torch kernels, which share no code with the operators.
"""

import copy
import logging
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tessera.kernels import reference
from tessera.model import E2Former, Graph, energy_and_edge_gradients, forces_and_strain
from tessera.model.elements import ATOMIC_NUMBERS
from tessera_export.compiled import CompiledModel
from tessera_export.errors import VerificationError
from tessera_export.matmul import RoundedProducts, matmul_precision
from tessera_export.systems import System, images_as_halo, verification_systems

logger = logging.getLogger(__name__)

#: float64 artifact against float64 eager, relative to the largest value (at least 1 eV or eV/Å). Both sum the same
#: terms in another order; observed 1e-14 to 1e-13, while a wrong operator or weight shows at 1e-6 and more.
FLOAT64_RELATIVE = 1e-10
#: float32 artifact: its error against float64 eager may be this many times the error of float32 eager. Rounding
#: errors of two orders of summation differ by about 2; a wrong kernel is off by orders of magnitude.
FLOAT32_ERROR_RATIO = 10.0
#: Floor of the float32 bound where eager happens to be nearly exact (one atom, no edge), relative: 40 ulp.
FLOAT32_RELATIVE = 5e-6
#: The same with TF32 products: 4 units in the last place of their factors (10 bits of mantissa). Observed on a GPU with
#: random weights: forces off by 1.6e-3 eV/Å of 1.5. That the program is right is known from the run without TF32.
TF32_RELATIVE = 4.0 * 2.0**-10


@dataclass(frozen=True)
class Results:
    """What one system gives: eV, eV/Å, eV/Å, eV (dE/dstrain, [3, 3])."""

    energies: Tensor
    edge_gradients: Tensor
    forces: Tensor
    strain_derivative: Tensor

    @classmethod
    def collect(cls, model: E2Former, graph: Graph, atom_energy: Tensor, gradients: list[Tensor]) -> "Results":
        """Derive forces and strain derivative; reference energies are taken off, they would hide the network."""
        forces, strain = forces_and_strain(graph, gradients)
        network = atom_energy - model.reference_energies[graph.element]
        return cls(network, torch.cat(gradients), forces, strain)


def verify(
    path: Path, model: E2Former, charges: tuple[int, int], matmul: str = "highest", tolerance: float = 0.0
) -> float:
    """Run `path` and the eager model on all verification systems.

    With TF32 the eager model's products are rounded likewise, so its error against float64 is that of TF32.

    Args:
        path: the artifact, compiled from `model`.
        model: in the artifact's network dtype, on the CPU.
        charges: smallest and largest total charge that the artifact takes, e.
        matmul: precision of float32 products of the run, "highest" or "tf32".
        tolerance: what the artifact may differ by on purpose, relative to the largest value (at least 1 eV or eV/Å).

    Returns:
        The largest ratio of a difference to its bound; below 1.

    Raises:
        VerificationError: names the system, the quantity, the difference and the bound; or the file does not run.
    """
    try:
        with matmul_precision(matmul):
            return _largest_ratio(CompiledModel(path), model, charges, matmul, tolerance)
    except RuntimeError as error:
        raise VerificationError(f"the compiled program does not run, nothing was written: {error}") from error


def _largest_ratio(
    compiled: CompiledModel, model: E2Former, charges: tuple[int, int], matmul: str, tolerance: float
) -> float:
    is_tf32 = matmul == "tf32"
    numbers = [ATOMIC_NUMBERS[symbol] for symbol in model.elements]
    exact = copy.deepcopy(model).double()
    worst = 0.0
    for system in verification_systems(numbers, max(model.cutoffs), charges):
        graph = system.graph(model)
        bound_by = _eager(exact, graph)
        with RoundedProducts() if is_tf32 else nullcontext():
            eager = bound_by if model.dtype == torch.float64 else _eager(model, graph)
        for label, found in _compiled_results(compiled, model, graph, system):
            floor = TF32_RELATIVE if is_tf32 else FLOAT32_RELATIVE
            name = f"{system.name}, {label}, matmul {matmul}"
            worst = max(worst, compare(name, found, eager, bound_by, floor, tolerance))
    return worst


def _eager(model: E2Former, graph: Graph) -> Results:
    return Results.collect(model, graph, *energy_and_edge_gradients(model, graph, reference))


def _compiled_results(
    compiled: CompiledModel, model: E2Former, graph: Graph, system: System
) -> list[tuple[str, Results]]:
    """Run the artifact as one rank alone, and with every periodic image in a halo row."""
    results = [("no halo", Results.collect(model, graph, *compiled.run(graph)))]
    if any(system.pbc):
        split = images_as_halo(graph, system.positions)
        results.append(("images as halo rows", Results.collect(model, split, *compiled.run(split))))
    return results


def compare(
    label: str,
    found: Results,
    eager: Results,
    exact: Results,
    float32_floor: float = FLOAT32_RELATIVE,
    tolerance: float = 0.0,
) -> float:
    """Compare the artifact's results with the eager ones of the same dtype and of float64.

    Args:
        label: what ran, for messages.
        found: of the artifact.
        eager: of the eager model with the artifact's rounding; `exact` itself for a float64 artifact.
        exact: of the eager model in float64.
        float32_floor: relative difference that is allowed however exact `eager` happens to be.
        tolerance: relative difference that is allowed beyond rounding.

    Returns:
        The largest ratio of a difference to its bound.

    Raises:
        VerificationError: a difference exceeds its bound, or is not a number.
    """
    worst = 0.0
    for quantity, reference_value in vars(exact).items():
        value = getattr(found, quantity)
        scale = max(1.0, _largest(reference_value))
        noise = _largest(getattr(eager, quantity) - reference_value)
        is_double = eager is exact
        bound = FLOAT64_RELATIVE * scale if is_double else FLOAT32_ERROR_RATIO * noise + float32_floor * scale
        bound += tolerance * scale
        difference = _largest(value - reference_value)
        logger.debug("%s: %s differs by %.1e, bound %.1e", label, quantity, difference, bound)
        if not difference <= bound:
            raise VerificationError(
                f"the compiled program is wrong, nothing was written. {label}: {quantity.replace('_', ' ')} expected "
                f"within {bound:.1e} of the eager model (largest value {scale:.3g}), found a difference of "
                f"{difference:.1e}. Try another torch version, and report this with the torch version "
                f"{torch.__version__}"
            )
        worst = max(worst, difference / bound)
    return worst


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0
