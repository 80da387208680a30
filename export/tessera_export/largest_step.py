# SPDX-License-Identifier: MIT
"""The largest step of an artifact for a GPU: bounds of its extents, so that no generated kernel's index overflows.

For each kernel that it generates, Inductor decides whether 32 bits index all that the kernel touches
(`torch._inductor.utils.expr_fits_within_32bit`, alike in torch 2.12 to 2.14). Extents with upper bounds are decided by
these; extents without, by the sizes of the example, and nothing looks again when the artifact runs: above 2^31 numbers
results would be wrong without a word. So the extents have bounds, by default the largest for which every tensor of the
traced step has fewer than 2^31 numbers, and the engine refuses more. Kernels that meet larger bounds take 64 bits.

What Triton operators allocate inside is no tensor of the traced step: their kernels count edges with 32 bits, more of
which no artifact takes, and index with 64 bits whatever the bounds; for what Inductor makes of their results it looks
at the bounds itself.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from torch import fx

from tessera_export.errors import ExportError
from tessera_export.memory import Extents, Sizes, tensors_of

#: Numbers that 32-bit indices hold, as Inductor counts them.
MOST_NUMBERS = 2**31 - 1
#: Rows and positions in lists are 32-bit numbers of the engine itself.
MOST_ATOMS = 2**31 - 1
#: Edges are counted in 32 bits by the fused kernels, whatever they index.
MOST_EDGES = 2**31 - 1
#: Rows that the engine adds, at least, for padding edges to join.
PADDING_ROWS = 1


@dataclass(frozen=True)
class LargestStep:
    """Upper bounds of the extents of one step (passport key `largest_step`), padding and head-room included."""

    rows: int
    halo_rows: tuple[int, ...]
    edges: tuple[int, ...]

    def bounds(self) -> dict[str, int]:
        """Give the bound of each extent by its name in `flat.input_specs`."""
        found = {"N": self.rows}
        for index, (halo_rows, edges) in enumerate(zip(self.halo_rows, self.edges, strict=True)):
            found |= {f"H{index}": halo_rows, f"M{index}": self.rows + halo_rows, f"E{index}": edges}
        return found

    def raised(self, atoms: int, cutoffs: Iterable[float]) -> "LargestStep":
        """Take in a step of `atoms` atoms of a liquid of water's density, and as many halo rows; cutoffs in Å."""
        liquid = Extents.liquid(atoms + PADDING_ROWS, tuple(cutoffs))
        return LargestStep(
            max(self.rows, atoms + PADDING_ROWS),
            tuple(max(halo_rows, atoms + PADDING_ROWS) for halo_rows in self.halo_rows),
            tuple(
                min(MOST_EDGES, max(found, math.ceil(wanted)))
                for found, wanted in zip(self.edges, liquid.edges, strict=True)
            ),
        )

    def to_dict(self) -> dict[str, object]:
        """Give the passport's spelling."""
        return {"rows": self.rows, "halo_rows": list(self.halo_rows), "edges": list(self.edges)}

    def __str__(self) -> str:
        """Say it in words."""
        return f"up to {self.rows} rows, {_joined(self.halo_rows)} halo rows and {_joined(self.edges)} edges"


def _joined(counts: Iterable[int]) -> str:
    return " + ".join(str(count) for count in counts)


def largest_step(module: fx.GraphModule, num_lists: int) -> LargestStep:
    """Find the largest extents for which no tensor of a traced step has more than MOST_NUMBERS numbers.

    Rows come first, with as many halo rows of each list where a tensor holds both, then halo rows, then edges: each
    takes what those before it leave.

    Args:
        module: as `trace.trace_step` returns it.
        num_lists: of the model.

    Raises:
        ExportError: a tensor's size is not linear in the extents.
    """
    nodes = list(module.graph.nodes)
    sizes = Sizes(nodes, num_lists)
    found = {tuple(sizes.numbers(value)) for node in nodes for value in tensors_of(node.meta.get("val"))}
    numbers = np.array(sorted(found))
    constant, coefficients = numbers[:, 0], numbers[:, 1:]
    bounds = np.zeros(1 + 2 * num_lists)
    for group in (slice(0, 1), slice(1, 1 + num_lists), slice(1 + num_lists, None)):
        left = MOST_NUMBERS - constant - coefficients @ bounds
        shares = coefficients[:, group.start :].sum(1)
        bounds[group] = [_least(left, shares, column) for column in coefficients.T[group]]
    rows, *others = (int(bound) for bound in bounds)
    return LargestStep(rows, tuple(others[:num_lists]), tuple(others[num_lists:]))


def _least(left: np.ndarray, shares: np.ndarray, column: np.ndarray) -> float:
    """Divide what is left of each tensor that an extent is part of; the least is what the extent may be."""
    is_part = column > 0
    return min(MOST_NUMBERS, (left[is_part] // shares[is_part]).min(initial=MOST_NUMBERS))


def check_largest_step(atoms: int | None, device: str) -> None:
    """Refuse a size that no artifact can be compiled for.

    Raises:
        ExportError: names the option.
    """
    if atoms is None:
        return
    if device != "cuda":
        raise ExportError(
            f"--largest-step {atoms}: expected --device cuda, found {device}, where steps have no largest size; leave "
            "--largest-step out"
        )
    if not 1 <= atoms < MOST_ATOMS:
        raise ExportError(f"--largest-step {atoms}: expected 1 to {MOST_ATOMS - 1} atoms a GPU; change it")
