// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/plan/halo_plan.hpp"

namespace tessera {

/// Rows of one owner that this rank reads, in the order in which they shall stand in its halo.
struct NeededRows {
  int rank = 0;                    ///< the owner; may be this rank
  std::vector<std::int64_t> rows;  ///< owned rows there
};

/// Tells every owner which of its rows are needed where, and returns the plan of this rank.
///
/// One all_to_all of row numbers; all ranks call this. Peers without traffic in either direction are left out.
/// @param needed ascending ranks, each at most once.
/// @throws Error(rank) if a rank asks for a row that its owner does not have (the owner throws, naming the asker).
[[nodiscard]] HaloPlan build_halo_plan(std::int64_t epoch, std::int64_t num_owned,
                                       const std::vector<NeededRows>& needed, Communicator& communicator);

}  // namespace tessera
