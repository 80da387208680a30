# SPDX-License-Identifier: MIT
"""Real spherical harmonics and the constant couplings of the first-order message."""

import math

import torch
from torch import Tensor

SQRT3, SQRT5, SQRT15 = math.sqrt(3.0), math.sqrt(5.0), math.sqrt(15.0)


def degree_of_row(lmax: int) -> list[int]:
    """Return the degree l of each of the (lmax+1)^2 rows."""
    return [degree for degree in range(lmax + 1) for _ in range(2 * degree + 1)]


def harmonics(vector: Tensor, lmax: int) -> Tensor:
    """Evaluate the real harmonics as polynomials of a vector, y being the polar axis.

    On unit vectors they are component normalised, |Y_l|^2 = 2l+1; otherwise degree l scales with |v|^l (E2Former V2
    specification, section 1).

    Args:
        vector: [E, 3].
        lmax: 1 or 2.

    Returns:
        [E, (lmax+1)^2].
    """
    x, y, z = vector.unbind(-1)
    rows = [torch.ones_like(x), SQRT3 * x, SQRT3 * y, SQRT3 * z]
    if lmax == 2:
        rows += [
            SQRT15 * x * z,
            SQRT15 * x * y,
            SQRT5 * (y * y - 0.5 * (x * x + z * z)),
            SQRT15 * y * z,
            0.5 * SQRT15 * (z * z - x * x),
        ]
    return torch.stack(rows, dim=-1)


def quadrupole_basis() -> Tensor:
    """Return the orthonormal symmetric traceless matrices B_m, float64 [5, 3, 3] (specification, section 1)."""
    basis = torch.zeros(5, 3, 3, dtype=torch.float64)
    for place, (row, column) in {0: (0, 2), 1: (0, 1), 3: (1, 2)}.items():
        basis[place, row, column] = basis[place, column, row] = math.sqrt(0.5)
    basis[2] = torch.diag(torch.tensor([-1.0, 2.0, -1.0], dtype=torch.float64)) / math.sqrt(6.0)
    basis[4] = torch.diag(torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)) / math.sqrt(2.0)
    return basis


def couplings(lmax: int) -> list[list[tuple[int, Tensor]]]:
    """Return the paths (l1 x 1 -> l3) of the first-order message (specification, section 3.5b).

    Entry l3 lists (l1, table) by ascending l1; table is float64 [2*l3+1, 3, 2*l1+1] and gives
    T[m3] = sum_(a,m1) table[m3, a, m1] n_a V[m1]. Each output component has unit sum of squares.
    """
    basis = quadrupole_basis()
    epsilon = torch.zeros(3, 3, 3, dtype=torch.float64)
    for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        epsilon[a, b, c], epsilon[a, c, b] = 1.0, -1.0
    identity = torch.eye(3, dtype=torch.float64)
    to_scalar = [(1, identity[None] / SQRT3)]
    # (V x n)_i = epsilon_ibc V_b n_c
    to_vector = [(0, identity[:, :, None]), (1, torch.einsum("ibc->icb", epsilon) / math.sqrt(2.0))]
    if lmax == 1:
        return [to_scalar, to_vector]
    to_vector.append((2, math.sqrt(0.6) * torch.einsum("mia->iam", basis)))
    # X_ab = epsilon_acd S_cb n_d, then B_m : (X + X^T) / sqrt(6)
    twist = torch.einsum("acd,kcb->dkab", epsilon, basis)
    twist = torch.einsum("mab,dkab->mdk", basis, twist + twist.transpose(-1, -2)) / math.sqrt(6.0)
    to_quadrupole = [(1, torch.einsum("mba->mab", basis)), (2, twist)]
    return [to_scalar, to_vector, to_quadrupole]


def moment_coupling(lmax: int) -> tuple[Tensor, list[int]]:
    """Return all couplings as one matrix over moments, and the number of paths into each degree.

    Returns:
        float64 [sum_l3 (2*l3+1) * paths, 3 * (lmax+1)^2] with rows (l3, m3, path) and columns (axis, row), already
        divided by sqrt(paths), and the list of path counts by l3.
    """
    num_rows = (lmax + 1) ** 2
    matrix, counts = [], []
    for degree, paths in enumerate(couplings(lmax)):
        counts.append(len(paths))
        for order in range(2 * degree + 1):
            for source, table in paths:
                row = torch.zeros(3, num_rows, dtype=torch.float64)
                row[:, source**2 : (source + 1) ** 2] = table[order] / math.sqrt(len(paths))
                matrix.append(row.reshape(-1))
    return torch.stack(matrix), counts
