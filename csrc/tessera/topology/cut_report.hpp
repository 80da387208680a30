// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "tessera/partition/curve.hpp"
#include "tessera/topology/contact_count.hpp"

namespace tessera {

/// What the cut of a structure into one number of shards would give each of them.
struct CutReport {
  int num_shards = 0;
  std::vector<std::int64_t> owned;  ///< [num_shards] atoms
  std::vector<Contacts> contacts;   ///< [cutoffs] counted pair by pair
  /// Shards that each filter of the search would ask, itself included, at the largest cutoff: [num_shards]. At least
  /// the true peers (which exclude the shard itself).
  std::vector<int> rank_box_candidates;   ///< one bounding box a shard
  std::vector<int> multi_box_candidates;  ///< several boxes a shard
  std::vector<int> key_range_candidates;  ///< the splitters alone
};

/// Simulates the equal-count cut along a curve in one process, without running anything.
///
/// @param shard_counts each 1 to 65535; `cutoffs` ascending, Å; `boxes_per_shard` of the multi-box filter.
/// @throws Error(rank) on parameters out of range or positions that are not finite.
[[nodiscard]] std::vector<CutReport> report_cuts(std::span<const Vec3> positions, const Box& box, CurveKind kind,
                                                 std::span<const int> shard_counts, std::span<const double> cutoffs,
                                                 int boxes_per_shard, int num_threads, const Progress& progress);

}  // namespace tessera
