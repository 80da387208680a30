// SPDX-License-Identifier: MIT
#include "tessera/partition/key_range.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

/// Finest cells, as a part of the reach: what a shard's outline is rounded up to.
constexpr double kFinestPart = 1.0 / 64;
/// Covers the rounding of fractional coordinates.
constexpr double kRounding = 1e-9;

/// Finds the shards whose cells come near a given cell, from the root of the octree down.
class ShardFinder {
 public:
  ShardFinder(const Splitters& splitters, const Curve& curve, const Vec3& reach, int max_levels)
      : splitters_(splitters), curve_(curve), reach_(reach), max_levels_(max_levels), is_found_(splitters.num_shards())
  {
  }

  void look_around(const KeyBlock& center) { descend({}, center); }
  [[nodiscard]] bool has(int shard) const { return is_found_[shard]; }

 private:
  void descend(const KeyBlock& block, const KeyBlock& center)
  {
    const Key size = Key{1} << (3 * (kCurveLevels - block.levels));
    const int low = splitters_.shard_of({block.first, 0});
    const int high = splitters_.shard_of({block.first + size - 1, std::numeric_limits<std::int64_t>::max()});
    const auto is_known = [&](auto begin) {
      return std::find(begin + low, begin + high + 1, false) == begin + high + 1;
    };
    if (is_known(is_found_.begin()) || !are_near(block, center)) return;
    if (low == high || block.levels == max_levels_) {
      std::fill(is_found_.begin() + low, is_found_.begin() + high + 1, true);
      return;
    }
    for (Key digit = 0; digit < 8; ++digit) {
      KeyBlock child{block.first + digit * (size / 8), block.levels + 1, {}};
      child.cell = decode_cell(curve_.kind(), child.first >> (3 * (kCurveLevels - child.levels)), child.levels);
      descend(child, center);
    }
  }

  /// Whether two cells come within reach along every axis. The gaps are sums of powers of two, so they are exact, and
  /// the answer does not depend on the order of the cells.
  [[nodiscard]] bool are_near(const KeyBlock& a, const KeyBlock& b) const
  {
    const double edge_a = std::ldexp(1.0, -a.levels), edge_b = std::ldexp(1.0, -b.levels);
    for (int axis = 0; axis < 3; ++axis) {
      const double low_a = a.cell[axis] * edge_a, low_b = b.cell[axis] * edge_b;
      const auto gap = [&](double image) {
        return std::max(low_b + image - (low_a + edge_a), low_a - (low_b + image + edge_b));
      };
      double nearest = gap(0);
      if (curve_.box().periodic()[axis]) nearest = std::min({nearest, gap(-1), gap(1)});
      if (nearest > reach_[axis]) return false;
    }
    return true;
  }

  const Splitters& splitters_;
  const Curve& curve_;
  Vec3 reach_;
  int max_levels_;
  std::vector<bool> is_found_;
};

}  // namespace

std::vector<KeyBlock> blocks_of(CurveKind kind, const Splitters::KeyRange& range, int max_levels)
{
  std::vector<KeyBlock> blocks;
  if (range.lowest > range.highest) return blocks;
  const Key finest = Key{1} << (3 * (kCurveLevels - max_levels));
  Key next = range.lowest - range.lowest % finest;
  while (next <= range.highest) {
    Key size = finest;
    int levels = max_levels;
    while (levels > 0 && next % (8 * size) == 0 && range.highest - next >= 8 * size - 1) {
      size *= 8;
      --levels;
    }
    blocks.push_back({next, levels, decode_cell(kind, next >> (3 * (kCurveLevels - levels)), levels)});
    next += size;
  }
  return blocks;
}

std::vector<int> shards_within(int shard, double distance, const Splitters& splitters, const Curve& curve)
{
  const auto range = splitters.keys_of(shard);
  Vec3 reach = curve.unit_reach(distance);
  double shortest = 1;
  for (double& length : reach) {
    length = length * (1 + kRounding) + kRounding;
    shortest = std::min(shortest, length);
  }
  const int max_levels = std::clamp(static_cast<int>(std::ceil(-std::log2(shortest * kFinestPart))), 1, kCurveLevels);
  ShardFinder finder(splitters, curve, reach, max_levels);
  for (const KeyBlock& block : blocks_of(curve.kind(), range, max_levels)) finder.look_around(block);
  std::vector<int> found;
  for (int other = 0; other < splitters.num_shards(); ++other) {
    const auto keys = splitters.keys_of(other);
    if (finder.has(other) && keys.lowest <= keys.highest) found.push_back(other);
  }
  return found;
}

}  // namespace tessera
