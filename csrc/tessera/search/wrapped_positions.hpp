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

constexpr double kFurthestImage = 5e8;  ///< cells; a shift is a difference of two wraps and must fit 32 bits

/// One position of wrap_positions(): its fractional coordinates, and its image along the periodic axes.
struct WrappedPosition {
  Vec3 fraction{};
  Shift wrap{};
};
/// @throws Error(rank) as wrap_positions(), naming `row`.
[[nodiscard]] WrappedPosition wrap_position(std::size_t row, const Vec3& position, const Box& box);

/// How far positions lie from the places that their rounding is measured by.
struct PositionExtent {
  double coordinate = 0;  ///< Å, the largest coordinate, from zero or from the box's origin
  Vec3 wrap{};            ///< the largest number of cells along each periodic axis
};
/// WrappedPositions::rounding of positions with this extent, Å.
[[nodiscard]] double bound_rounding(const PositionExtent& extent, const Box& box, double distance);

}  // namespace tessera
