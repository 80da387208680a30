// SPDX-License-Identifier: MIT
#include "tessera/engine/geometry.hpp"

#include <cmath>

#include "tessera/base/error.hpp"
#include "tessera/search/edge_vector.hpp"

namespace tessera {

namespace {

// The published model drops pairs closer than this; physical atoms never are, so it is an error here.
constexpr double kCoincident = 1e-4;  // Å

}  // namespace

ActiveEdges find_active_edges(const TopologyList& list, std::span<const Vec3> positions, const Box& box)
{
  const NeighborList& pairs = list.pairs;
  const double cutoff_sq = list.cutoff * list.cutoff;
  ActiveEdges active;
  active.receiver.reserve(pairs.receiver.size());
  active.sender.reserve(pairs.receiver.size());
  active.row.reserve(pairs.receiver.size());
  active.vectors.reserve(pairs.receiver.size());
  for (std::int64_t e = 0; e < pairs.num_edges(); ++e) {
    const std::int64_t i = pairs.receiver[e];
    const std::int64_t row = pairs.sender[e];
    const Vec3 v = edge_vector(positions[i], positions[row], pairs.shift[e], box);
    const double distance_sq = dot(v, v);
    if (distance_sq > cutoff_sq) continue;
    TESSERA_REQUIRE(
        distance_sq >= kCoincident * kCoincident,
        "two atoms at ({}, {}, {}) Å are {} Å apart; the model needs at least {} Å: remove overlapping atoms",
        positions[i][0], positions[i][1], positions[i][2], std::sqrt(distance_sq), kCoincident);
    active.receiver.push_back(i);
    active.sender.push_back(list.own_row(row));
    active.row.push_back(row);
    active.vectors.push_back(v);
  }
  return active;
}

}  // namespace tessera
