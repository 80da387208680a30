// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "tessera/base/types.hpp"

namespace tessera {

/// Indices of a tensor's components as LAMMPS orders them: six of a symmetric one, nine of any.
inline constexpr std::array<std::array<int, 2>, 9> kTensorOrder{
    {{0, 0}, {1, 1}, {2, 2}, {0, 1}, {0, 2}, {1, 2}, {1, 0}, {2, 0}, {2, 1}}};

/// six += scale * (w + transpose of w) / 2, in LAMMPS's order.
inline void add_symmetric(double* six, double scale, const Mat3& w)
{
  for (int k = 0; k < 6; ++k) {
    const auto [a, b] = kTensorOrder[k];
    six[k] += scale * 0.5 * (w[a][b] + w[b][a]);
  }
}

/// nine += scale * w, in LAMMPS's order.
inline void add_all(double* nine, double scale, const Mat3& w)
{
  for (int k = 0; k < 9; ++k) nine[k] += scale * w[kTensorOrder[k][0]][kTensorOrder[k][1]];
}

}  // namespace tessera
