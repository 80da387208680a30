// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/box.hpp"
#include "tessera/topology/topology.hpp"

namespace tessera {

/// The edges of one list that are within the bare cutoff at this step, in list order.
struct ActiveEdges {
  std::vector<std::int64_t> receiver;
  std::vector<std::int64_t> sender;  ///< the list's own extended rows, as the model counts them
  std::vector<std::int64_t> row;     ///< the same senders as extended rows of the widest list, as positions stand
  std::vector<Vec3> vectors;         ///< Å, receiver minus sender image
};

/// Keeps what the model can see and computes its vectors, so that the result does not depend on the skin.
///
/// @param positions [num_owned + halo rows of the widest list], Å.
/// @throws Error(rank) if two atoms are closer than 1e-4 Å.
[[nodiscard]] ActiveEdges find_active_edges(const TopologyList& list, std::span<const Vec3> positions, const Box& box);

}  // namespace tessera
