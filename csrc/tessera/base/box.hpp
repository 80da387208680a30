// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "tessera/base/types.hpp"

namespace tessera {

/// A parallelepiped, periodic in any subset of its axes.
///
/// An axis that is not periodic still needs a lattice vector (it fixes the fractional coordinate), but atoms
/// may lie outside it.
class Box {
 public:
  Box() = default;

  /// @throws Error(rank) if the cell's volume is not positive enough to invert (|det| < 1e-12 Å^3).
  Box(const Mat3& cell, const Vec3& origin, const std::array<bool, 3>& periodic);

  [[nodiscard]] const Mat3& cell() const noexcept { return cell_; }
  /// fractional = (position - origin) . inverse, 1/Å.
  [[nodiscard]] const Mat3& inverse() const noexcept { return inverse_; }
  [[nodiscard]] const Vec3& origin() const noexcept { return origin_; }
  [[nodiscard]] const std::array<bool, 3>& periodic() const noexcept { return periodic_; }
  [[nodiscard]] double volume() const noexcept { return volume_; }

  /// Distance between the two faces across axis k, Å.
  [[nodiscard]] double height(int axis) const noexcept { return heights_[axis]; }

  [[nodiscard]] Vec3 to_fractional(const Vec3& position) const;
  [[nodiscard]] Vec3 to_cartesian(const Vec3& fractional) const;

  /// shift . cell, Å.
  [[nodiscard]] Vec3 translation(const Shift& shift) const;

 private:
  Mat3 cell_{};
  Mat3 inverse_{};
  Vec3 origin_{};
  std::array<bool, 3> periodic_{};
  Vec3 heights_{};
  double volume_ = 0;
};

}  // namespace tessera
