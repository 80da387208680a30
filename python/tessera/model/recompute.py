# SPDX-License-Identifier: MIT
"""Parts of the network whose insides the backward pass computes anew instead of keeping (activation checkpointing).

An attention stage keeps several kilobytes an edge between its forward and its backward pass. A recomputed one keeps its
inputs alone: a few numbers an edge, and rows. The same operations run on the same numbers, so energies stay the same to
the last bit; gradients of what several parts read are added in another order, and stay the same but for rounding.
A gradient can be taken once: training, which differentiates twice, does without.
"""

import dataclasses
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Function = Callable[..., tuple[Tensor, ...]]


class Recomputation:
    """One part of the network: a function, and perhaps a second one that takes the outputs of the first.

    Two functions, because an exchange runs between them (see :class:`tessera.model.attention.Attention`): what belongs
    to the first is differentiated after the second's derivative is known, so that the reverse exchange hides behind it.
    The derivative of the second function needs the outputs of the first, so the first is computed anew before it.

    Args:
        kernels: their `recompute_after` keeps the copy of an input from existing before the gradient does; a compiler
            would otherwise find that two computations are equal, and keep the first one's numbers after all.
        times: 1: the first function, evaluated for the second one's derivative, keeps what its own derivative needs.
            2: it does not, and is evaluated a second time for that; the insides of both are never held together.
    """

    def __init__(self, kernels: ModuleType, times: int = 1) -> None:
        self._kernels = kernels
        self._is_kept = times == 1
        self._first: Function | None = None
        self._inputs: tuple[Tensor, ...] = ()
        self._recomputed: tuple[tuple[Tensor, ...], tuple[Tensor, ...]] | None = None

    def first(self, function: Function, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Give `function(*inputs)` and keep `inputs` alone.

        Args:
            function: returns a tuple of tensors; reads nothing that needs a gradient but its arguments.
            inputs: all tensors that differ between two runs of a program, whether they need gradients or not.
        """
        self._first, self._inputs = function, inputs
        return _First.apply(self, *inputs)

    def second(self, function: Callable[..., Tensor], outputs: Sequence[Tensor], *inputs: Tensor) -> Tensor:
        """Give `function(*outputs, *inputs)`, `outputs` being those of :meth:`first`, which are not kept.

        Args:
            function: returns one tensor, each part of which depends on `outputs`.
            outputs: of the first function.
            inputs: kept, and not copied in the backward pass.
        """
        return _Second.apply(self, function, len(outputs), *outputs, *inputs)

    def outputs_of_first(self, gradient: Tensor) -> tuple[Tensor, ...]:
        """Evaluate the first function again, after `gradient`; the outputs carry no derivative."""
        if self._is_kept:
            self._recomputed = self.recompute(gradient)
            return tuple(output.detach() for output in self._recomputed[1])
        with torch.no_grad():
            return self._first(*self._copies(gradient))

    def recompute(self, gradient: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return inputs and differentiable outputs of the first function, evaluated again or as they were kept."""
        if self._recomputed is not None:
            recomputed, self._recomputed = self._recomputed, None
            return recomputed
        leaves = _leaves(self._copies(gradient), self._inputs)
        with torch.enable_grad():
            return leaves, self._first(*leaves)

    def _copies(self, gradient: Tensor) -> list[Tensor]:
        with torch.no_grad():
            return [self._kernels.recompute_after(tensor, gradient) for tensor in self._inputs]


class _First(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, owner: Recomputation, *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.owner = owner
        return owner._first(*inputs)  # noqa: SLF001

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        leaves, outputs = ctx.owner.recompute(gradients[0])
        return None, *_gradients(outputs, leaves, gradients)


class _Second(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, owner: Recomputation, function: Callable[..., Tensor], count: int, *inputs: Tensor) -> Tensor:
        ctx.owner, ctx.function = owner, function
        ctx.kept = inputs[count:]
        return function(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        outputs = [output.requires_grad_() for output in ctx.owner.outputs_of_first(gradient)]
        leaves = (*outputs, *_leaves(ctx.kept, ctx.kept))
        with torch.enable_grad():
            result = ctx.function(*leaves)
        return None, None, None, *_gradients((result,), leaves, (gradient,))


def _leaves(values: Sequence[Tensor], like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """`values` as leaves that need a gradient where those of `like` do."""
    return tuple(
        value.detach().requires_grad_(original.requires_grad) for value, original in zip(values, like, strict=True)
    )


def _gradients(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], gradients: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """Gradient of each leaf, None where it needs none or nothing depends on it."""
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(torch.autograd.grad(outputs, wanted, gradients, allow_unused=True))
    return tuple(next(found) if leaf.requires_grad else None for leaf in leaves)


def tensor_fields(value: Any) -> dict[str, Tensor]:
    """Return the fields of a dataclass that are tensors, by name."""
    found = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {name: field for name, field in found.items() if isinstance(field, Tensor)}
