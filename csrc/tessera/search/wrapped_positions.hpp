// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <vector>

#include "tessera/base/box.hpp"

namespace tessera {

/// Positions brought into the box along its periodic axes, and how far rounding may have moved them.
struct WrappedPositions {
  std::vector<Vec3> fractions;  ///< fractional; in [0, 1] along periodic axes, unbounded along the others
  std::vector<Shift> wraps;     ///< position = wrapped position + wrap . cell
  double rounding = 0;          ///< Å: bounds the error of any distance between wrapped positions within `distance`
};

/// @param distance Å, the largest separation that will be asked for.
/// @throws Error(rank) naming the row if a coordinate is not finite or lies more than 5e8 cells outside the box.
[[nodiscard]] WrappedPositions wrap_positions(std::span<const Vec3> positions, const Box& box, double distance);

}  // namespace tessera
