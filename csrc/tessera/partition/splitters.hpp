// SPDX-License-Identifier: MIT
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/partition/curve.hpp"

namespace tessera {

/// An atom's place in the order that is cut: along the curve, equal keys by id.
struct CurvePlace {
  Key key = 0;
  std::int64_t id = 0;
  friend auto operator<=>(const CurvePlace&, const CurvePlace&) = default;
};

/// Where the curve is cut, the same on all ranks.
struct Splitters {
  std::vector<CurvePlace> first;  ///< [num_shards - 1] lower bounds of shards 1, 2, ..., ascending

  [[nodiscard]] int num_shards() const noexcept { return static_cast<int>(first.size()) + 1; }
  [[nodiscard]] int shard_of(const CurvePlace& place) const;

  /// The keys that a shard's atoms can have: [lowest, highest], empty (lowest > highest) for one past the last atom.
  struct KeyRange {
    Key lowest = 0, highest = 0;
  };
  [[nodiscard]] KeyRange keys_of(int shard) const;
};

/// Cuts the atoms of all ranks into shards of equal count: floor(N/K) or ceil(N/K), the larger ones first.
///
/// Distributed search: all splitters at once, by 16-ary search over keys, then over the ids of one key where a cut
/// falls among equal keys. Each round is one all-reduce of 15 (K - 1) counts; rounds end when every splitter has
/// exactly its count below it. No atom leaves its rank, and the result does not depend on how the atoms are spread
/// over the ranks. With fewer atoms than shards the last shards are empty.
///
/// @param keys, ids [num_atoms] of this rank, any order; ids >= 0 and, over all ranks, each at most once.
/// @throws Error(rank) on a negative id, a key >= kKeyEnd, or spans of different lengths.
[[nodiscard]] Splitters cut_by_count(std::span<const Key> keys, std::span<const std::int64_t> ids, int num_shards,
                                     Communicator& communicator);

/// Cuts at equal weight: shard s ends at the first place with at least (s + 1) / K of the total weight before it, so
/// that each shard holds its share to within one atom's weight.
///
/// @param weights [num_atoms] > 0, for example 1 + the atom's edges.
/// @throws Error(rank) as cut_by_count(), and on a weight < 1.
[[nodiscard]] Splitters cut_by_weight(std::span<const Key> keys, std::span<const std::int64_t> ids,
                                      std::span<const std::int64_t> weights, int num_shards,
                                      Communicator& communicator);

}  // namespace tessera
