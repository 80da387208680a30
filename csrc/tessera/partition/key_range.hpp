// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "tessera/partition/curve.hpp"
#include "tessera/partition/splitters.hpp"

namespace tessera {

/// A cube of the curve's grid: cell `cell` among 2^levels an axis.
struct KeyBlock {
  Key first = 0;  ///< its first key, at full resolution
  int levels = 0;
  CurveCell cell{};
};

/// The cubes that make up the keys [lowest, highest]; those of `max_levels` may stick out of it.
[[nodiscard]] std::vector<KeyBlock> blocks_of(CurveKind kind, const Splitters::KeyRange& range, int max_levels);

/// Shards whose stretch of the curve comes within `distance` (Å) of this shard's stretch, ascending.
///
/// Needs nothing but the splitters, which every rank has: the key-range filter of level 1 of the search. Conservative:
/// contains every shard with an atom within `distance` of an atom of this one, images included, as long as the atoms
/// lie in the cells of their keys; atoms that have moved since the cut, and rounding of positions many cells outside
/// the box, add the sum of both ends' drifts to `distance`.
/// (Atoms beyond the extent of an axis that is not periodic belong to its last cell: that only shortens distances.)
/// Symmetric: a is within reach of b exactly if b is of a.
/// Contains the shard itself (its images, or the pairs inside it); empty for a shard without keys.
[[nodiscard]] std::vector<int> shards_within(int shard, double distance, const Splitters& splitters,
                                             const Curve& curve);

}  // namespace tessera
