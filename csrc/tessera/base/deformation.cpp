// SPDX-License-Identifier: MIT
#include "tessera/base/deformation.hpp"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

constexpr int kJacobiSweeps = 12;  // a symmetric 3 x 3 matrix converges to rounding in about 5

/// Smallest eigenvalue of a symmetric matrix by cyclic Jacobi rotations (Golub and Van Loan, section 8.5).
double smallest_eigenvalue(Mat3 m)
{
  for (int sweep = 0; sweep < kJacobiSweeps; ++sweep) {
    for (int p = 0; p < 2; ++p) {
      for (int q = p + 1; q < 3; ++q) {
        if (m[p][q] == 0) continue;
        const double tau = (m[q][q] - m[p][p]) / (2 * m[p][q]);
        const double t = (tau >= 0 ? 1 : -1) / (std::abs(tau) + std::sqrt(1 + tau * tau));
        const double c = 1 / std::sqrt(1 + t * t);
        const double s = t * c;
        for (int k = 0; k < 3; ++k) {
          const double a = m[k][p];
          const double b = m[k][q];
          m[k][p] = c * a - s * b;
          m[k][q] = s * a + c * b;
        }
        for (int k = 0; k < 3; ++k) {
          const double a = m[p][k];
          const double b = m[q][k];
          m[p][k] = c * a - s * b;
          m[q][k] = s * a + c * b;
        }
      }
    }
  }
  return std::min({m[0][0], m[1][1], m[2][2]});
}

/// Rows of the strain A - 1, where the map is v' = v . A.
Mat3 strain_of(const Box& from, const Box& to)
{
  Mat3 strain{};
  for (int a = 0; a < 3; ++a) {
    Vec3 unit{};
    unit[a] = 1;
    const Vec3 fraction = from.to_fractional(from.origin() + unit);
    for (int k = 0; k < 3; ++k) strain[a] = strain[a] + fraction[k] * (to.cell()[k] - from.cell()[k]);
  }
  return strain;
}

}  // namespace

Deformation::Deformation(const Box& reference, const Box& now) : from_(reference)
{
  Mat3 cell = reference.cell();
  Vec3 origin = reference.origin();
  const Vec3 drift = reference.to_fractional(now.origin());
  for (int k = 0; k < 3; ++k) {
    if (!reference.periodic()[k]) continue;
    cell[k] = now.cell()[k];
    if (now.origin() != reference.origin()) origin = origin + drift[k] * reference.cell()[k];
  }
  is_identity_ = cell == reference.cell() && origin == reference.origin();
  if (is_identity_) return;
  to_ = Box(cell, origin, reference.periodic());
  const Mat3 strain = strain_of(from_, to_);
  Mat3 change{};  // A . A^T - 1: from the strain, so that a small one keeps its digits
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < 3; ++b) change[a][b] = strain[a][b] + strain[b][a] + dot(strain[a], strain[b]);
  }
  smallest_stretch_ = std::sqrt(std::max(0.0, 1 + smallest_eigenvalue(change)));
}

Vec3 Deformation::carry(const Vec3& position) const
{
  return is_identity_ ? position : to_.to_cartesian(from_.to_fractional(position));
}

}  // namespace tessera
