// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <span>
#include <vector>

#include "tessera/base/types.hpp"

namespace tessera {

/// A box along the axes of a curve's unit cube.
struct UnitBox {
  Vec3 low{}, high{};
};

/// Bounding boxes of a shard: its rows, in curve order, cut into at most `num_boxes` runs of equal length.
///
/// A curve-ordered run is compact, so a few boxes follow the outline of a shard that one box would overstate.
/// @param unit_positions [num_rows] Curve::unit_position() of the rows. No rows, no boxes.
[[nodiscard]] std::vector<UnitBox> bounding_boxes(std::span<const Vec3> unit_positions, int num_boxes);

/// Whether two boxes come within `unit_reach` along every axis, images along periodic axes included.
[[nodiscard]] bool are_within(const UnitBox& a, const UnitBox& b, const Vec3& unit_reach,
                              const std::array<bool, 3>& periodic);

/// Whether any box of one shard is within reach of any box of the other.
[[nodiscard]] bool are_within(std::span<const UnitBox> a, std::span<const UnitBox> b, const Vec3& unit_reach,
                              const std::array<bool, 3>& periodic);

}  // namespace tessera
