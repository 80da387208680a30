// SPDX-License-Identifier: MIT
#include "tessera/partition/shard_boxes.hpp"

#include <algorithm>

namespace tessera {
namespace {

/// Covers the rounding of unit positions and of the reach.
constexpr double kRounding = 1e-9;

/// Thickness that counts for a flat box, as a part of the shard's longest side.
constexpr double kThinnest = 1e-6;

void grow(UnitBox& box, const Vec3& unit)
{
  for (int axis = 0; axis < 3; ++axis) {
    box.low[axis] = std::min(box.low[axis], unit[axis]);
    box.high[axis] = std::max(box.high[axis], unit[axis]);
  }
}

double longest_side(const UnitBox& box)
{
  double longest = 0;
  for (int axis = 0; axis < 3; ++axis) longest = std::max(longest, box.high[axis] - box.low[axis]);
  return longest;
}

/// A stretch of rows, its box, and where two boxes would enclose the least volume.
struct Run {
  std::span<const Vec3> rows;
  UnitBox box;
  std::size_t cut = 0;
  double saving = 0;  // volume that the cut saves
};

Run make_run(std::span<const Vec3> rows, double thinnest)
{
  const auto volume = [thinnest](const UnitBox& box) {
    double product = 1;
    for (int axis = 0; axis < 3; ++axis) product *= box.high[axis] - box.low[axis] + thinnest;
    return product;
  };
  Run run{rows, bounding_box(rows)};
  std::vector<double> volume_from(rows.size());  // of the rows from here to the end
  UnitBox rest{rows.back(), rows.back()};
  for (std::size_t row = rows.size(); row-- > 0;) {
    grow(rest, rows[row]);
    volume_from[row] = volume(rest);
  }
  UnitBox before{rows.front(), rows.front()};
  for (std::size_t row = 1; row < rows.size(); ++row) {
    grow(before, rows[row - 1]);
    const double saving = volume_from[0] - volume(before) - volume_from[row];
    if (saving > run.saving) {
      run.saving = saving;
      run.cut = row;
    }
  }
  return run;
}

}  // namespace

UnitBox bounding_box(std::span<const Vec3> unit_positions)
{
  UnitBox box{unit_positions.front(), unit_positions.front()};
  for (const Vec3& unit : unit_positions) grow(box, unit);
  return box;
}

std::vector<UnitBox> bounding_boxes(std::span<const Vec3> unit_positions, int num_boxes)
{
  if (unit_positions.empty()) return {};
  if (num_boxes <= 1) return {bounding_box(unit_positions)};
  const double thinnest = kThinnest * longest_side(bounding_box(unit_positions));
  std::vector<Run> runs{make_run(unit_positions, thinnest)};
  while (static_cast<int>(runs.size()) < num_boxes) {
    const auto widest =
        std::max_element(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.saving < b.saving; });
    if (widest->saving <= 0) break;
    const Run whole = *widest;
    *widest = make_run(whole.rows.first(whole.cut), thinnest);
    runs.insert(widest + 1, make_run(whole.rows.subspan(whole.cut), thinnest));
  }
  std::vector<UnitBox> boxes;
  for (const Run& run : runs) boxes.push_back(run.box);
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
