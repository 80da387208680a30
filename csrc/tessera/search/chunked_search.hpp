// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tessera/base/box.hpp"
#include "tessera/search/neighbor_list.hpp"

namespace tessera {

/// An exact search of pairs (level 3), with the contract of cell_search().
using PairSearch = std::function<NeighborList(std::span<const Vec3> positions, std::int64_t num_receivers,
                                              const Box& box, double cutoff)>;

/// One piece of the queries: some receivers, and every atom that may be a sender of one of them.
struct QueryChunk {
  std::vector<std::int64_t> receivers;
  std::vector<std::int64_t> others;  ///< candidates that are not receivers of this chunk, ascending
};

/// Level 2 of the search: divides the receivers into chunks of at most `max_receivers`.
///
/// Recursive bisection at the median of the longest side (Å); the senders are thinned out on the way down, so that a
/// chunk sees only what lies within the cutoff of its bounding box. Conservative, images included.
[[nodiscard]] std::vector<QueryChunk> bisect_queries(std::span<const Vec3> positions, std::int64_t num_receivers,
                                                     const Box& box, double cutoff, std::int64_t max_receivers);

/// The edges of `search`, found chunk by chunk: bounds the memory of a search that is not O(atoms).
///
/// Equal to search(positions, num_receivers, box, cutoff) bit for bit.
[[nodiscard]] NeighborList chunked_search(std::span<const Vec3> positions, std::int64_t num_receivers, const Box& box,
                                          double cutoff, std::int64_t max_receivers, const PairSearch& search);

}  // namespace tessera
