// SPDX-License-Identifier: MIT
#include "tessera/engine/geometry.hpp"

#include <cmath>

#include "tessera/base/error.hpp"

namespace tessera {

namespace {

// The published model drops pairs closer than this; physical atoms never are, so it is an error here.
constexpr double kCoincident = 1e-4;  // Å

}  // namespace

ActiveEdges find_active_edges(const TopologyList& list, std::int64_t num_owned, std::span<const Vec3> positions,
                              std::span<const std::int64_t> ids, const Box& box)
{
  const NeighborList& pairs = list.pairs;
  const double cutoff_sq = list.cutoff * list.cutoff;
  ActiveEdges active;
  active.receiver.reserve(pairs.receiver.size());
  active.sender.reserve(pairs.receiver.size());
  active.vectors.reserve(pairs.receiver.size());
  for (std::int64_t e = 0; e < pairs.num_edges(); ++e) {
    const std::int64_t i = pairs.receiver[e];
    const std::int64_t j = pairs.sender[e];
    const std::int64_t row = j < num_owned || list.row_in_widest.empty() ? j : num_owned + list.row_in_widest[j - num_owned];
    const Vec3 v = positions[i] - positions[row] - box.translation(pairs.shift[e]);
    const double distance_sq = dot(v, v);
    if (distance_sq > cutoff_sq) continue;
    TESSERA_REQUIRE(distance_sq >= kCoincident * kCoincident,
                    "atoms {} and {} are {} Å apart; the model needs at least {} Å: remove overlapping atoms", ids[i],
                    ids[row], std::sqrt(distance_sq), kCoincident);
    active.receiver.push_back(i);
    active.sender.push_back(j);
    active.vectors.push_back(v);
  }
  return active;
}

}  // namespace tessera
