# SPDX-License-Identifier: MIT
"""Halo exchanges: shapes, derivatives, and the functions that models call.

Forward copies owned rows to the peers' halo rows, reverse adds halo rows to their owners; each is split in a start and
a wait, tied by a ticket, so that local work can run between them. The derivative of the pair is the pair of the
transposed plan: the gradient of the ticket is the ticket of the reverse exchange.
"""

from typing import Any

import torch
from torch import Tensor

from tessera.model.graph import EdgeList


def halo_start(payload: Tensor, plan: Tensor, edges: EdgeList, list_index: int) -> Tensor:
    """Launch the exchange of `payload` for one list and return its ticket.

    Args:
        payload: what the peers read of each owned row, [N, P], float32 or float64.
        plan: handle of the registered exchanges, int64 [1]; 0 stands for no exchange (one rank without halo rows).
        edges: the list; its halo elements say how many halo rows there are.
        list_index: which exchange of the plan.

    Returns:
        Ticket for :func:`halo_wait`, [2], dtype of the payload.

    Raises:
        RuntimeError: no living exchange set has this handle, or its plan has more rows than the arrays.
    """
    return torch.ops.tessera.halo_start(payload.contiguous(), plan, edges.halo_element, list_index)


def halo_wait(payload: Tensor, ticket: Tensor, plan: Tensor, edges: EdgeList, list_index: int) -> Tensor:
    """Wait for the exchange and return the extended rows, [N + H, P]: `payload`, then the halo rows.

    Padding halo rows, and all of them under plan 0, are zero.

    Raises:
        RuntimeError: the ticket belongs to a payload of another row length, or its exchange was not started.
    """
    return torch.ops.tessera.halo_wait(payload.contiguous(), ticket, plan, edges.halo_element, list_index)


@torch.library.register_fake("tessera::halo_start")
def _(payload: Tensor, plan: Tensor, halo: Tensor, list_index: int) -> Tensor:  # noqa: ARG001
    return payload.new_empty(2)


@torch.library.register_fake("tessera::halo_wait")
def _(payload: Tensor, ticket: Tensor, plan: Tensor, halo: Tensor, list_index: int) -> Tensor:  # noqa: ARG001
    return payload.new_empty((payload.shape[0] + halo.shape[0], payload.shape[1]))


@torch.library.register_fake("tessera::halo_reverse_start")
def _(grad_extended: Tensor, plan: Tensor, halo: Tensor, list_index: int) -> Tensor:  # noqa: ARG001
    return grad_extended.new_empty(2)


@torch.library.register_fake("tessera::halo_reverse_wait")
def _(ticket: Tensor, plan: Tensor, owned: Tensor, channels: int, list_index: int) -> Tensor:  # noqa: ARG001
    return ticket.new_empty((owned.shape[0], channels))


def _save_start(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    payload, plan, _, ctx.list_index = inputs
    ctx.shape = payload.shape
    ctx.save_for_backward(plan)


def _start_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    (plan,) = ctx.saved_tensors
    num_owned, channels = ctx.shape
    owned = grad.new_empty((num_owned, 0))  # sizes the output; holding the payload itself would cost its memory
    share = torch.ops.tessera.halo_reverse_wait(grad.contiguous(), plan, owned, channels, ctx.list_index)
    return share, None, None, None


def _save_wait(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    payload, _, plan, halo, ctx.list_index = inputs
    ctx.num_owned = payload.shape[0]
    ctx.save_for_backward(plan, halo)


def _wait_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    plan, halo = ctx.saved_tensors
    grad = grad.contiguous()
    ticket = torch.ops.tessera.halo_reverse_start(grad, plan, halo, ctx.list_index)
    return grad[: ctx.num_owned], ticket, None, None, None


torch.library.register_autograd("tessera::halo_start", _start_backward, setup_context=_save_start)
torch.library.register_autograd("tessera::halo_wait", _wait_backward, setup_context=_save_wait)
