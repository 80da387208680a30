# SPDX-License-Identifier: MIT
"""Time maps by degree at the paper's shapes with each kind of product, and how far they are from float64."""

from collections.abc import Callable

import torch
from graph_timer import time_ms

from tessera.model.layers import map_by_degree
from tessera.model.tensor_algebra import degree_of_row

SEED = 7
#: Title, rows an atom by largest degree (None: one row, a dense map), inputs, outputs.
SHAPES = [("degrees", 2, 256, 256), ("degrees", 2, 256, 1024), ("dense", 0, 1536, 512)]
#: Title, products of `map_by_degree`, whether the process multiplies in TF32.
PRODUCTS = [("FP32", None, False), ("TF32", None, True), ("tf32x3", "tf32x3", False)]
#: tf32x3 may take this many times what TF32 takes.
LARGEST_RATIO = 1.5
HEADER = """
## Maps by degree, {atoms} atoms

Forward; pass: forward and gradient of the features. Rate: of the forward products, counted once. Over TF32: of the
pass; tf32x3 is to take at most {limit} times as long. Error: root mean square against float64, over that of the values.

| map | products | forward ms | pass ms | TFLOP/s | over TF32 | error | error of FP32's |
|---|---|---|---|---|---|---|---|
"""


class Map:
    """One map: random features, weights and incoming gradient on the GPU, float32."""

    def __init__(self, num_atoms: int, lmax: int, inputs: int, outputs: int) -> None:
        generator = torch.Generator("cuda").manual_seed(SEED)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator, device="cuda")

        num_rows = (lmax + 1) ** 2
        self.features = random(num_atoms, num_rows, inputs)
        self.weight, self.bias = random(lmax + 1, outputs, inputs) / inputs**0.5, random(outputs)
        self.degree = torch.tensor(degree_of_row(lmax), device="cuda")
        self.incoming = random(num_atoms, num_rows, outputs)
        self.flops = 2.0 * num_atoms * num_rows * inputs * outputs

    def forward(self, products: str | None) -> torch.Tensor:
        return map_by_degree(self.features, self.weight, self.degree, self.bias, products)

    def both(self, products: str | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Result, and gradient of the features."""
        leaf = self.features.detach().requires_grad_()
        found = map_by_degree(leaf, self.weight, self.degree, self.bias, products)
        return found.detach(), torch.autograd.grad(found, leaf, self.incoming)[0]

    def exact(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Do the same in float64."""
        leaf = self.features.double().requires_grad_()
        found = map_by_degree(leaf, self.weight.double(), self.degree, self.bias.double(), None)
        return found.detach(), torch.autograd.grad(found, leaf, self.incoming.double())[0]


def in_tf32(call: Callable[[], object], *, is_tf32: bool) -> object:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = is_tf32
    try:
        return call()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def relative_error(found: tuple[torch.Tensor, ...], exact: tuple[torch.Tensor, ...]) -> float:
    """Largest of result's and gradient's errors."""
    return max(
        float(((ours - theirs).square().mean() / theirs.square().mean()).sqrt())
        for ours, theirs in zip(found, exact, strict=True)
    )


def lines_of(num_atoms: int) -> list[str]:
    """Rows of the table, below HEADER."""
    lines = HEADER.format(atoms=num_atoms, limit=LARGEST_RATIO).splitlines()
    for title, lmax, inputs, outputs in SHAPES:
        one = Map(num_atoms, lmax, inputs, outputs)
        exact = one.exact()
        passes: dict[str, float] = {}
        errors: dict[str, float] = {}
        for name, products, is_tf32 in PRODUCTS:

            def forward(one: Map = one, products: str | None = products) -> object:
                return one.forward(products)

            def both(one: Map = one, products: str | None = products) -> tuple[torch.Tensor, torch.Tensor]:
                return one.both(products)

            ms = in_tf32(lambda call=forward: time_ms(call), is_tf32=is_tf32)
            passes[name] = in_tf32(lambda call=both: time_ms(call), is_tf32=is_tf32)
            errors[name] = relative_error(in_tf32(both, is_tf32=is_tf32), exact)
            over = f"{passes[name] / passes['TF32']:.2f}" if "TF32" in passes else ""
            if name == "tf32x3" and passes[name] > LARGEST_RATIO * passes["TF32"]:
                over += f" (limit {LARGEST_RATIO})"
            lines.append(f"| {title} {inputs} to {outputs} | {name} | {ms:.3f} | {passes[name]:.3f} "
                         f"| {one.flops / ms / 1e9:.1f} | {over} | {errors[name]:.1e} "
                         f"| {errors[name] / errors['FP32']:.2f} |")  # fmt: skip
            print(lines[-1], flush=True)
    return lines
