// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/box.hpp"
#include "tessera/plan/halo_plan.hpp"
#include "tessera/search/neighbor_list.hpp"

namespace tessera {

/// One cutoff's pairs and halo, complete for the whole epoch.
struct TopologyList {
  double cutoff = 0;                        ///< Å, the model's; the list itself reaches cutoff + skin
  NeighborList pairs;                       ///< senders are extended rows of this list: owned, then halo of `plan`
  std::shared_ptr<const HaloPlan> plan;     ///< never null; without peers on one rank
  std::vector<std::int64_t> row_in_widest;  ///< [num_halo] halo row of the widest list that holds the same atom
};

/// Everything that holds for one epoch: immutable once built.
struct Topology {
  std::int64_t epoch = 0;
  std::int64_t num_owned = 0;
  std::vector<TopologyList> lists;  ///< cutoffs ascending, so the last is the widest

  [[nodiscard]] const TopologyList& widest() const { return lists.back(); }
};

/// Pairs of one rank that owns every atom: images are shifts on edges, so there is no halo.
///
/// One search at the largest cutoff + skin; the smaller lists are its subsets.
/// @param cutoffs ascending, Å.
[[nodiscard]] Topology build_topology(std::span<const Vec3> positions, const Box& box, std::span<const double> cutoffs,
                                      double skin, std::int64_t epoch);

/// The pairs of `wide` whose distance at `positions` (extended rows of `wide`) is at most `cutoff`.
[[nodiscard]] NeighborList narrow(const NeighborList& wide, std::span<const Vec3> positions, const Box& box,
                                  double cutoff);

}  // namespace tessera
