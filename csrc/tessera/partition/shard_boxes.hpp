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

/// @pre there is a row.
[[nodiscard]] UnitBox bounding_box(std::span<const Vec3> unit_positions);

/// Bounding boxes of a shard: its rows, in curve order, cut into at most `num_boxes` stretches that enclose little
/// volume.
///
/// A shard of an equal-count cut is mostly a cube of the curve with a sliver of the cube before it or after it; one
/// box of both overstates it. Each cut falls where it saves the most volume, so a sliver gets a box of its own; equally
/// long stretches would mix the two.
/// @param unit_positions [num_rows] Curve::unit_position() of the rows, or other coordinates. No rows, no boxes.
[[nodiscard]] std::vector<UnitBox> bounding_boxes(std::span<const Vec3> unit_positions, int num_boxes);

/// Whether two boxes come within `unit_reach` along every axis, images along periodic axes included.
[[nodiscard]] bool are_within(const UnitBox& a, const UnitBox& b, const Vec3& unit_reach,
                              const std::array<bool, 3>& periodic);

/// Whether any box of one shard is within reach of any box of the other.
[[nodiscard]] bool are_within(std::span<const UnitBox> a, std::span<const UnitBox> b, const Vec3& unit_reach,
                              const std::array<bool, 3>& periodic);

}  // namespace tessera
