// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/box.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/plan/halo_plan.hpp"
#include "tessera/search/candidates.hpp"
#include "tessera/search/chunked_search.hpp"
#include "tessera/search/neighbor_list.hpp"

namespace tessera {

/// One cutoff's pairs and halo, complete for the whole epoch.
///
/// The widest list's halo holds every halo row of the narrower ones, so positions and forces travel by its plan alone.
struct TopologyList {
  double cutoff = 0;                     ///< Å, the model's; the pairs reach cutoff + skin
  NeighborList pairs;                    ///< senders are extended rows of the widest list
  std::shared_ptr<const HaloPlan> plan;  ///< features of this list; never null, without peers on one rank
  std::vector<std::int64_t> halo_row;    ///< [widest num_halo] this list's halo row, -1 where it does not read the atom

  /// This list's own extended row of an extended row of the widest list.
  [[nodiscard]] std::int64_t own_row(std::int64_t row) const
  {
    return row < plan->num_owned ? row : plan->num_owned + halo_row[row - plan->num_owned];
  }
};

/// Everything that holds for one epoch: immutable once built.
struct Topology {
  std::int64_t epoch = 0;
  std::int64_t num_owned = 0;
  std::vector<TopologyList> lists;  ///< cutoffs ascending, so the last is the widest
  std::int64_t num_candidates = 0;  ///< atoms that level 1 brought from other ranks
  std::int64_t num_candidate_peers = 0;

  [[nodiscard]] const TopologyList& widest() const { return lists.back(); }
  [[nodiscard]] std::int64_t num_halo() const { return widest().plan->num_halo; }
};

/// Pairs and halo plans of one rank, from its own atoms and the candidates of others; all ranks call this.
///
/// One exact search at the largest cutoff + skin; the narrower lists are its subsets. An atom that is needed under
/// several images has one halo row; images of owned atoms are edges whose sender is owned. Halo rows stand by
/// (owner, row there).
/// @param cutoffs ascending, Å.
/// @param search the exact search (level 3).
[[nodiscard]] Topology build_topology(std::span<const Vec3> positions, const Candidates& candidates, const Box& box,
                                      std::span<const double> cutoffs, double skin, std::int64_t epoch,
                                      const PairSearch& search, Communicator& communicator);

}  // namespace tessera
