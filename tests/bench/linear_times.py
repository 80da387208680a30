# SPDX-License-Identifier: MIT
"""Time maps by degree at the paper's shapes with each kind of product, and how far they are from float64."""

from collections.abc import Callable

import torch
from graph_timer import time_ms

from tessera.model.layers import degree_linear, sum_by_degree
from tessera.model.split_products import SplitWeight
from tessera.model.tensor_algebra import degree_of_row

SEED = 7
#: Title, largest degree, inputs, outputs; a dense map has one row an atom.
SHAPES = [("degrees", 2, 256, 256), ("degrees", 2, 256, 1024), ("pair", 2, 256, 1024), ("dense", 0, 1536, 512)]
#: Title, whether products are of halves (tf32x3), whether the process multiplies in TF32.
PRODUCTS = [("FP32", False, False), ("TF32", False, True), ("tf32x3", True, False)]
#: tf32x3 may take this many times what TF32 takes.
LARGEST_RATIO = 1.5
HEADER = """
## Maps by degree, {atoms} atoms

A pass: the map and the gradient of its features, without bias, eager; an artifact multiplies with the scales of tf32x3
where the result is used. A pair: two maps side by side, multiplied by each other and summed over the rows of a degree,
as queries and keys are made. Rate: of the products of a pass, counted once. tf32x3 is to take at most {limit} times as
long as TF32. Error: root mean square against float64, over that of the values; the larger of result and gradient.

| map | products | ms | TFLOP/s | over TF32 | error | over FP32's error |
|---|---|---|---|---|---|---|
"""
Pass = Callable[[], tuple[torch.Tensor, torch.Tensor]]


class Map:
    """One map: random features, weights and incoming gradient on a device, float32."""

    def __init__(self, num_atoms: int, lmax: int, inputs: int, outputs: int, device: str = "cuda") -> None:
        generator = torch.Generator(device).manual_seed(SEED)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, device=device)

        num_rows = (lmax + 1) ** 2
        self.features, self.incoming = random(num_atoms, num_rows, inputs), random(num_atoms, num_rows, outputs)
        self.weight = random(lmax + 1, outputs, inputs) / inputs**0.5
        self.degree = torch.tensor(degree_of_row(lmax), device=device)
        self.flops = 4.0 * num_atoms * num_rows * inputs * outputs

    def passed(self, dtype: torch.dtype, *, is_split: bool) -> Pass:
        """Return the function that evaluates a pass: result, and gradient of the features."""
        features, weight, incoming = (x.to(dtype) for x in (self.features, self.weight, self.incoming))

        halves = SplitWeight(weight) if is_split else None

        def both() -> tuple[torch.Tensor, torch.Tensor]:
            leaf = features.detach().requires_grad_()
            found = self.mapped(leaf, weight, halves)
            return found.detach(), torch.autograd.grad(found, leaf, incoming)[0]

        return both

    def mapped(self, leaf: torch.Tensor, weight: torch.Tensor, halves: SplitWeight | None) -> torch.Tensor:
        """Map by degree, by `halves` if they are given."""
        return degree_linear(leaf, weight[self.degree], None) if halves is None else halves(leaf)


class Pair(Map):
    """Two maps side by side, of which the sums of products are taken."""

    def __init__(self, num_atoms: int, lmax: int, inputs: int, outputs: int, device: str = "cuda") -> None:
        super().__init__(num_atoms, lmax, inputs, outputs, device)
        self.lmax, hidden = lmax, outputs // 2
        self.incoming = self.incoming[:, : lmax + 1, :hidden].reshape(num_atoms, -1)
        self.bias = torch.zeros(hidden, device=device)

    def mapped(self, leaf: torch.Tensor, weight: torch.Tensor, halves: SplitWeight | None) -> torch.Tensor:
        """Sum the products by degree, by `halves` if they are given."""
        if halves is not None:
            return halves.sum_of_products(leaf, self.bias)
        first, second = degree_linear(leaf, weight[self.degree], None).chunk(2, dim=2)
        return sum_by_degree(first * second, self.lmax).flatten(1)


def in_tf32(call: Callable[[], object], *, is_tf32: bool) -> object:
    """Call with the precision of float32 products of the whole process."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = is_tf32
    try:
        return call()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def relative_error(found: tuple[torch.Tensor, ...], exact: tuple[torch.Tensor, ...]) -> float:
    """Larger of result's and gradient's errors."""
    return max(
        float(((ours - theirs).square().mean() / theirs.square().mean()).sqrt())
        for ours, theirs in zip(found, exact, strict=True)
    )


def lines_of(num_atoms: int) -> list[str]:
    """HEADER and the rows of the table; rows are printed as they come."""
    lines = HEADER.format(atoms=num_atoms, limit=LARGEST_RATIO).splitlines()
    for title, lmax, inputs, outputs in SHAPES:
        torch.compiler.reset()
        one = (Pair if title == "pair" else Map)(num_atoms, lmax, inputs, outputs)
        exact = one.passed(torch.float64, is_split=False)()
        times: dict[str, float] = {}
        errors: dict[str, float] = {}
        for name, is_split, is_tf32 in PRODUCTS:
            call = one.passed(torch.float32, is_split=is_split)
            errors[name] = relative_error(in_tf32(call, is_tf32=is_tf32), exact)
            times[name] = in_tf32(lambda call=call: time_ms(call), is_tf32=is_tf32)
            ratio = "" if "TF32" not in times else f"{times[name] / times['TF32']:.2f}"
            is_slow = name == "tf32x3" and times[name] > LARGEST_RATIO * times["TF32"]
            lines.append(f"| {title} {inputs} to {outputs} | {name} | {times[name]:.3f} "
                         f"| {one.flops / times[name] / 1e9:.1f} | {ratio}{' too slow' if is_slow else ''} "
                         f"| {errors[name]:.1e} | {errors[name] / errors['FP32']:.2f} |")  # fmt: skip
            print(lines[-1], flush=True)
    return lines
