# SPDX-License-Identifier: MIT
"""Operations between edges and rows: shapes, derivatives, and the functions that models call.

N owned rows, M = N + H extended rows, E edges, A moment components, R = (lmax+1)^2 rows of harmonics, C channels, H
heads. All sums run in edge order or sender order on one thread a row: no atomics, so results repeat bit for bit for
any number of threads. Every function raises RuntimeError, naming operator, argument, expected and found, for arrays of
other shapes or types.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tessera.model.graph import EdgeList


def segment_sum(values: Tensor, edges: EdgeList) -> Tensor:
    """Sum the edges of each receiver: [E, ...] -> [N, ...]."""
    flat = values[:, None] if values.dim() == 1 else values.flatten(1)
    sums = torch.ops.tessera.segment_sum(flat.contiguous(), edges.receiver, edges.receiver_range)
    return sums.reshape(edges.num_owned, *values.shape[1:])


def segment_max(values: Tensor, active: Tensor, edges: EdgeList) -> Tensor:
    """Take the maximum over the active edges of each receiver: [E, F], bool [E] -> [N, F]; 0 where none is active.

    The derivative goes to the edges that attain the maximum, in equal shares (E2Former V2 specification, section 3.4).
    """
    return torch.ops.tessera.segment_max(values.contiguous(), active.contiguous(), edges.receiver_range)


def nearest_edges(distance: Tensor, active: Tensor, edges: EdgeList, count: int) -> Tensor:
    """Mark the `count` nearest active edges of each receiver: [E], bool [E] -> bool [E]; ties go to the first edge."""
    return torch.ops.tessera.nearest_edges(distance.contiguous(), active.contiguous(), edges.receiver_range, count)


def edge_dot(query: Tensor, key: Tensor, edges: EdgeList) -> Tensor:
    """Multiply receiver's query by sender's key, head by head: [N, H, D], [M, H, D] -> [E, H]."""
    return torch.ops.tessera.edge_dot(query.contiguous(), key.contiguous(), *_index(edges))


def weighted_sum(weights: Tensor, values: Tensor, edges: EdgeList) -> Tensor:
    """Sum the senders' values with one weight a moment and head: [E, A, H], [M, R, C] -> [N, A, R, C].

    Channel c belongs to head c mod H (E2Former V2 specification, section 3.5).
    """
    return torch.ops.tessera.weighted_sum(weights.contiguous(), values.contiguous(), *_index(edges))


def outer_sum(harmonics: Tensor, radial: Tensor, edges: EdgeList) -> Tensor:
    """Sum harmonics times radial functions of the same degree: [E, R], [E, L+1, C] -> [N, R, C]."""
    return torch.ops.tessera.outer_sum(
        harmonics.contiguous(), radial.contiguous(), edges.receiver, edges.receiver_range
    )


def harmonic_dot(harmonics: Tensor, features: Tensor, edges: EdgeList) -> Tensor:
    """Contract the receiver's features with an edge's harmonics, degree by degree: [E, R], [N, R, C] -> [E, L+1, C].

    The transpose of :func:`outer_sum` in its second argument.
    """
    return torch.ops.tessera.harmonic_dot(
        harmonics.contiguous(), features.contiguous(), edges.receiver, edges.receiver_range
    )


def _index(edges: EdgeList) -> tuple[Tensor, ...]:
    return edges.receiver, edges.sender, edges.receiver_range, edges.sender_order, edges.sender_range


@torch.library.register_fake("tessera::segment_sum")
def _(values: Tensor, receiver: Tensor, receiver_range: Tensor) -> Tensor:  # noqa: ARG001
    return values.new_empty((receiver_range.shape[0], values.shape[1]))


@torch.library.register_fake("tessera::segment_max")
def _(values: Tensor, active: Tensor, receiver_range: Tensor) -> Tensor:  # noqa: ARG001
    return values.new_empty((receiver_range.shape[0], values.shape[1]))


@torch.library.register_fake("tessera::segment_max_backward")
def _(grad: Tensor, values: Tensor, active: Tensor, maximum: Tensor, receiver_range: Tensor) -> Tensor:  # noqa: ARG001
    return values.new_empty(values.shape)


@torch.library.register_fake("tessera::nearest_edges")
def _(distance: Tensor, active: Tensor, receiver_range: Tensor, count: int) -> Tensor:  # noqa: ARG001
    return active.new_empty(active.shape)


@torch.library.register_fake("tessera::edge_dot")
def _(query: Tensor, key: Tensor, receiver: Tensor, *index: Tensor) -> Tensor:  # noqa: ARG001
    return query.new_empty((receiver.shape[0], query.shape[1]))


@torch.library.register_fake("tessera::weighted_sum")
def _(weights: Tensor, values: Tensor, *index: Tensor) -> Tensor:
    receiver_range = index[2]
    return values.new_empty((receiver_range.shape[0], weights.shape[1], values.shape[1], values.shape[2]))


@torch.library.register_fake("tessera::outer_sum")
def _(harmonics: Tensor, radial: Tensor, receiver: Tensor, receiver_range: Tensor) -> Tensor:  # noqa: ARG001
    return radial.new_empty((receiver_range.shape[0], harmonics.shape[1], radial.shape[2]))


@torch.library.register_fake("tessera::harmonic_dot")
def _(harmonics: Tensor, features: Tensor, receiver: Tensor, receiver_range: Tensor) -> Tensor:  # noqa: ARG001
    num_degrees = round(harmonics.shape[1] ** 0.5)  # (lmax+1)^2 rows, a constant of the model
    return features.new_empty((harmonics.shape[0], num_degrees, features.shape[2]))


def _fake_pair(grad: Tensor, first: Tensor, second: Tensor, *index: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    return first.new_empty(first.shape), second.new_empty(second.shape)


def _register_pair(name: str) -> None:
    """Make `<name>_backward(grad, first, second, *index)` the derivative of `<name>(first, second, *index)`."""
    backward_op: Callable[..., tuple[Tensor, Tensor]] = getattr(torch.ops.tessera, f"{name}_backward")
    torch.library.register_fake(f"tessera::{name}_backward", _fake_pair)

    def save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG001
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        index = ctx.saved_tensors[2:]
        return (*backward_op(grad.contiguous(), *ctx.saved_tensors), *(None for _ in index))

    torch.library.register_autograd(f"tessera::{name}", backward, setup_context=save)


for _name in ("edge_dot", "weighted_sum", "outer_sum", "harmonic_dot"):
    _register_pair(_name)


def _save_sum(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.save_for_backward(inputs[1])


def _sum_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (receiver,) = ctx.saved_tensors
    return grad.index_select(0, receiver), None, None


def _save_max(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _max_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    values, active, receiver_range, maximum = ctx.saved_tensors
    share = torch.ops.tessera.segment_max_backward(grad.contiguous(), values, active, maximum, receiver_range)
    return share, None, None


torch.library.register_autograd("tessera::segment_sum", _sum_backward, setup_context=_save_sum)
torch.library.register_autograd("tessera::segment_max", _max_backward, setup_context=_save_max)
