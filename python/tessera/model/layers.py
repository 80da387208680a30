# SPDX-License-Identifier: MIT
"""Layers on features of harmonic degrees; N atoms, R = (lmax+1)^2 rows, C channels."""

import math

import torch
from torch import Tensor, nn

from tessera.model.split_products import SplitWeight, split_weight
from tessera.model.tensor_algebra import degree_of_row

NORM_EPSILON = 1e-5


def sum_by_degree(values: Tensor, lmax: int) -> Tensor:
    """Sum the rows of each degree: [N, R, C] -> [N, L+1, C]."""
    return torch.stack([values[:, degree**2 : (degree + 1) ** 2].sum(1) for degree in range(lmax + 1)], dim=1)


def uniform_parameter(*shape: int, fan_in: int) -> nn.Parameter:
    """Return a parameter drawn uniformly with variance 1/(3 fan_in), as torch initialises its linear layers."""
    bound = 1.0 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(*shape).uniform_(-bound, bound))


class DegreeLinear(nn.Module):
    """Linear map with one weight a degree and a bias on the scalar row (E2Former V2 specification, SO3Linear).

    Attributes:
        halves: where set, the map is made of these (:mod:`tessera.model.split_products`).
    """

    def __init__(self, lmax: int, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.halves: SplitWeight | None = None
        self.weight = uniform_parameter(lmax + 1, outputs, inputs, fan_in=inputs)
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.register_buffer("degree", torch.tensor(degree_of_row(lmax)), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """[N, R, inputs] -> [N, R, outputs]."""
        if self.halves is None:
            return degree_linear(features, self.weight[self.degree], self.bias)
        product = self.halves(features)
        return product if self.bias is None else product + scalar_row(self.bias, features.shape[1])

    def set_split(self, *, is_split: bool) -> None:
        """Multiply in halves, or as precise as the process is set."""
        self.halves = split_weight(self.weight, is_split=is_split)


def linear(features: Tensor, weight: Tensor, bias: Tensor, halves: SplitWeight | None) -> Tensor:
    """[N, inputs] -> [N, outputs]; by `halves`, those of `weight`, if they are given."""
    if halves is None:
        return nn.functional.linear(features, weight, bias)
    return halves(features[:, None])[:, 0] + bias


def degree_linear(features: Tensor, row_weight: Tensor, bias: Tensor | None) -> Tensor:
    """Apply one weight a row, [R, outputs, inputs], and a bias [outputs] on row 0: [N, R, inputs] -> [N, R, outputs].

    One batched product over rows serves all degrees.
    """
    product = torch.bmm(features.transpose(0, 1), row_weight.transpose(1, 2)).transpose(0, 1)
    if bias is None:
        return product
    return product + scalar_row(bias, row_weight.shape[0])


def scalar_row(values: Tensor, num_rows: int) -> Tensor:
    """Place [C] in row 0 of an otherwise zero [R, C], or [N, C] in row 0 of [N, R, C]."""
    return nn.functional.pad(values.unsqueeze(-2), (0, 0, 0, num_rows - 1))


class DegreeNorm(nn.Module):
    """rms_norm_sh: one root mean square an atom, every degree weighing the same (specification, section 3.1)."""

    def __init__(self, lmax: int, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(lmax + 1, channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        degrees = degree_of_row(lmax)
        balance = torch.tensor([1.0 / ((2 * l + 1) * (lmax + 1)) for l in degrees], dtype=torch.float64)
        self.register_buffer("degree", torch.tensor(degrees), persistent=False)
        self.register_buffer("balance", balance, persistent=False)

    def forward(self, features: Tensor, shift: Tensor | None = None) -> Tensor:
        """Normalise [N, R, C]; `shift` [C] or [N, C] is added to the scalar row of the result."""
        num_rows = features.shape[1]
        mean = features[:, :1].mean(-1, keepdim=True)
        centered = features - nn.functional.pad(mean, (0, 0, 0, num_rows - 1))
        balance = self.balance.to(features.dtype)[:, None]
        power = (centered * centered * balance).sum((1, 2), keepdim=True) * (1.0 / features.shape[2])
        bias = self.bias if shift is None else self.bias + shift
        return centered * torch.rsqrt(power + NORM_EPSILON) * self.weight[self.degree] + scalar_row(bias, num_rows)


class ScalarProjection(nn.Module):
    """Equivariant features to scalars through products of two linear maps (specification, section 3.2).

    The published output is head by head; here it comes in planes, scalar d of all heads side by side.
    """

    def __init__(self, lmax: int, channels: int, hidden: int, num_heads: int, head_scalars: int) -> None:
        super().__init__()
        self.lmax, self.planes = lmax, (head_scalars, num_heads)
        self.halves: SplitWeight | None = None
        self.mix_halves: SplitWeight | None = None
        self.out_halves: SplitWeight | None = None
        self.weight = uniform_parameter(lmax + 1, hidden, channels, fan_in=channels)
        self.partner_weight = uniform_parameter(lmax + 1, hidden, channels, fan_in=channels)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.mix = nn.Linear((lmax + 1) * hidden, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, num_heads * head_scalars)
        self.register_buffer("degree", torch.tensor(degree_of_row(lmax)), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """[N, R, channels] -> [N, D, H]."""
        return self.of_products(self.products(features))

    def of_products(self, products: Tensor) -> Tensor:
        """[N, (L+1) hidden] -> [N, D, H]."""
        mixed = linear(products, self.mix.weight, self.mix.bias, self.mix_halves)
        hidden = nn.functional.silu(self.norm(mixed))
        return linear(hidden, *self._out(), self.out_halves).unflatten(1, self.planes)

    def products(self, features: Tensor) -> Tensor:
        """Multiply the two maps row by row and sum each degree: [N, R, channels] -> [N, (L+1) hidden].

        Their derivative needs both maps, 2 (L+1)^2 hidden numbers an atom: most of what a stage with a table keeps.
        """
        if self.halves is not None:
            return self.halves.sum_of_products(features, self.bias)
        bias = nn.functional.pad(self.bias, (0, self.bias.shape[0]))
        first, second = degree_linear(features, self._both()[self.degree], bias).chunk(2, dim=-1)
        return sum_by_degree(first * second, self.lmax).flatten(1)

    def _both(self) -> Tensor:
        return torch.cat([self.weight, self.partner_weight], dim=1)

    def _out(self) -> tuple[Tensor, Tensor]:
        return _by_plane(self.out.weight, self.planes), _by_plane(self.out.bias, self.planes)

    def set_split(self, *, is_split: bool) -> None:
        """Multiply in halves, or as precise as the process is set."""
        self.halves = split_weight(self._both(), is_split=is_split)
        self.mix_halves = split_weight(self.mix.weight, is_split=is_split)
        self.out_halves = split_weight(self._out()[0], is_split=is_split)


def _by_plane(values: Tensor, planes: tuple[int, int]) -> Tensor:
    """Reorder the first extent from (head, scalar) to (scalar, head)."""
    return values.unflatten(0, planes[::-1]).transpose(0, 1).reshape(values.shape)


class EdgeNetwork(nn.Module):
    """One or more edge networks (RadialProfile) on the same edges (specification, sections 2 and 3.3).

    The input of the published network is [radial basis | receiver's row of a table | sender's row]. Its first linear
    layer is split, so that the halves that depend on elements alone are tabulated and no such row exists per edge.
    K networks run at once.
    """

    def __init__(
        self, num_networks: int, num_basis: int, table_width: int, hidden: int, outputs: int, *, layer_norm: bool = True
    ) -> None:
        super().__init__()
        self.num_basis, self.table_width = num_basis, table_width
        inputs = num_basis + 2 * table_width
        self.weight_in = uniform_parameter(num_networks, hidden, inputs, fan_in=inputs)
        self.bias_in = nn.Parameter(torch.zeros(num_networks, hidden))
        self.weight_mid = uniform_parameter(num_networks, hidden, hidden, fan_in=hidden)
        self.bias_mid = nn.Parameter(torch.zeros(num_networks, hidden))
        self.weight_out = uniform_parameter(num_networks, outputs, hidden, fan_in=hidden)
        self.bias_out = nn.Parameter(torch.zeros(num_networks, outputs))
        self.norm_in = StackedNorm(num_networks, hidden) if layer_norm else None
        self.norm_mid = StackedNorm(num_networks, hidden) if layer_norm else None

    def forward(
        self, basis: Tensor, receiver_table: Tensor, sender_table: Tensor, receiver_element: Tensor,
        sender_element: Tensor,
    ) -> Tensor:  # fmt: skip
        """Evaluate all networks.

        Args:
            basis: radial basis, [E, B].
            receiver_table: [elements, W].
            sender_table: [elements, W].
            receiver_element: int64 [E].
            sender_element: int64 [E].

        Returns:
            [K, E, outputs].
        """
        radial, receiver, sender = self.weight_in.split([self.num_basis, self.table_width, self.table_width], dim=2)
        num_networks, hidden, _ = self.weight_in.shape
        flat = num_networks * hidden
        by_receiver = receiver_table @ receiver.reshape(flat, -1).T + self.bias_in.reshape(flat)
        by_sender = sender_table @ sender.reshape(flat, -1).T
        # index_select: the derivative of [] sorts all edges, and a GPU then adds those of an element one by one.
        first = basis @ radial.reshape(flat, -1).T + by_receiver.index_select(0, receiver_element)
        first = first + by_sender.index_select(0, sender_element)
        x = self._activate(first.view(-1, num_networks, hidden), self.norm_in)
        x = self._activate(_stacked_linear(x, self.weight_mid, self.bias_mid).transpose(0, 1), self.norm_mid)
        return _stacked_linear(x, self.weight_out, self.bias_out)

    @staticmethod
    def _activate(x: Tensor, norm: "StackedNorm | None") -> Tensor:
        return nn.functional.silu(x if norm is None else norm(x))


def _stacked_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[E, K, inputs] -> [K, E, outputs], network by network."""
    if weight.shape[0] == 1:
        return nn.functional.linear(x[:, 0], weight[0], bias[0])[None]
    return torch.baddbmm(bias[:, None], x.transpose(0, 1), weight.transpose(1, 2))


class StackedNorm(nn.Module):
    """Layer normalization of K networks at once, each with its own gain and bias."""

    def __init__(self, num_networks: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_networks, width))
        self.bias = nn.Parameter(torch.zeros(num_networks, width))

    def forward(self, x: Tensor) -> Tensor:
        """[E, K, width] -> [E, K, width]."""
        return nn.functional.layer_norm(x, x.shape[-1:], eps=NORM_EPSILON) * self.weight + self.bias
