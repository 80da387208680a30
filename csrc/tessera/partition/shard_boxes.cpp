// SPDX-License-Identifier: MIT
#include "tessera/partition/shard_boxes.hpp"

#include <algorithm>

namespace tessera {
namespace {

/// Covers the rounding of unit positions and of the reach.
constexpr double kRounding = 1e-9;

}  // namespace

std::vector<UnitBox> bounding_boxes(std::span<const Vec3> unit_positions, int num_boxes)
{
  const std::size_t num_rows = unit_positions.size();
  const std::size_t num_runs = std::min(num_rows, static_cast<std::size_t>(std::max(num_boxes, 1)));
  std::vector<UnitBox> boxes;
  for (std::size_t run = 0; run < num_runs; ++run) {
    const std::size_t first = run * num_rows / num_runs, last = (run + 1) * num_rows / num_runs;
    UnitBox box{unit_positions[first], unit_positions[first]};
    for (const Vec3& unit : unit_positions.subspan(first, last - first)) {
      for (int axis = 0; axis < 3; ++axis) {
        box.low[axis] = std::min(box.low[axis], unit[axis]);
        box.high[axis] = std::max(box.high[axis], unit[axis]);
      }
    }
    boxes.push_back(box);
  }
  return boxes;
}

bool are_within(const UnitBox& a, const UnitBox& b, const Vec3& unit_reach, const std::array<bool, 3>& periodic)
{
  for (int axis = 0; axis < 3; ++axis) {
    const auto gap = [&](double image) {
      return std::max(b.low[axis] + image - a.high[axis], a.low[axis] - b.high[axis] - image);
    };
    double nearest = gap(0);
    if (periodic[axis]) nearest = std::min({nearest, gap(-1), gap(1)});
    if (nearest > unit_reach[axis] * (1 + kRounding) + kRounding) return false;
  }
  return true;
}

bool are_within(std::span<const UnitBox> a, std::span<const UnitBox> b, const Vec3& unit_reach,
                const std::array<bool, 3>& periodic)
{
  return std::any_of(a.begin(), a.end(), [&](const UnitBox& one) {
    return std::any_of(b.begin(), b.end(),
                       [&](const UnitBox& other) { return are_within(one, other, unit_reach, periodic); });
  });
}

}  // namespace tessera
