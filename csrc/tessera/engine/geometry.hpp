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
  std::vector<std::int64_t> sender;   ///< extended rows of the list
  std::vector<Vec3> vectors;          ///< Å, receiver minus sender image
};

/// Keeps what the model can see and computes its vectors, so that the result does not depend on the skin.
///
/// @param positions [num_owned + halo rows of the widest list], Å.
/// @throws Error(rank) if two atoms are closer than 1e-4 Å, naming their ids.
[[nodiscard]] ActiveEdges find_active_edges(const TopologyList& list, std::int64_t num_owned,
                                            std::span<const Vec3> positions, std::span<const std::int64_t> ids,
                                            const Box& box);

}  // namespace tessera
