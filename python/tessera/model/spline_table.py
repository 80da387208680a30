# SPDX-License-Identifier: MIT
"""What takes the place of an edge network: the coefficients of its splines."""

from torch import Tensor, nn

from tessera.kernels.reference import SPLINE_ROWS


class SplineTable(nn.Module):
    """Uniform quintic B-splines on [0, cutoff], for each pair of elements (receiver, sender).

    Attributes:
        coefficients: [pairs * (intervals + 5), ...]; interval n of a pair needs its rows n to n + 5.
        cutoff: Å.
        intervals: their number.
    """

    def __init__(self, coefficients: Tensor, cutoff: float, intervals: int) -> None:
        super().__init__()
        self.register_buffer("coefficients", coefficients)
        self.cutoff, self.intervals = cutoff, intervals

    @property
    def rows_a_pair(self) -> int:
        """Rows of the table that a pair of elements has."""
        return self.intervals + SPLINE_ROWS - 1
