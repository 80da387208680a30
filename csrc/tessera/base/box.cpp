// SPDX-License-Identifier: MIT
#include "tessera/base/box.hpp"

#include <cmath>

#include "tessera/base/error.hpp"

namespace tessera {

Box::Box(const Mat3& cell, const Vec3& origin, const std::array<bool, 3>& periodic)
    : cell_(cell), origin_(origin), periodic_(periodic)
{
  const std::array<Vec3, 3> normals{cross(cell[1], cell[2]), cross(cell[2], cell[0]), cross(cell[0], cell[1])};
  const double determinant = dot(cell[0], normals[0]);
  volume_ = std::abs(determinant);
  TESSERA_REQUIRE(volume_ > 1e-12, "the cell has volume {} Å^3: its three vectors must not lie in one plane", volume_);
  for (int k = 0; k < 3; ++k) {
    heights_[k] = volume_ / std::sqrt(dot(normals[k], normals[k]));
    for (int a = 0; a < 3; ++a) inverse_[a][k] = normals[k][a] / determinant;
  }
}

Vec3 Box::to_fractional(const Vec3& position) const
{
  const Vec3 r = position - origin_;
  Vec3 f{};
  for (int k = 0; k < 3; ++k) f[k] = r[0] * inverse_[0][k] + r[1] * inverse_[1][k] + r[2] * inverse_[2][k];
  return f;
}

Vec3 Box::to_cartesian(const Vec3& fractional) const
{
  Vec3 r = origin_;
  for (int k = 0; k < 3; ++k) r = r + fractional[k] * cell_[k];
  return r;
}

Vec3 Box::translation(const Shift& shift) const
{
  Vec3 r{};
  for (int k = 0; k < 3; ++k) r = r + static_cast<double>(shift[k]) * cell_[k];
  return r;
}

}  // namespace tessera
