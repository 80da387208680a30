// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "tessera/base/box.hpp"
#include "tessera/search/neighbor_list.hpp"

namespace tessera {

/// All edges with distance <= cutoff among `positions`, for receivers 0 .. num_receivers-1.
///
/// Exact level 3 of the search: no cap on neighbours, any subset of periodic axes, tilted cells, cells smaller
/// than the cutoff (as many images as needed), atoms anywhere (they are wrapped inside; the shift refers to the
/// positions as given). A pair at distance 0 with shift 0 and receiver != sender is an edge too (the caller decides
/// what coincident atoms mean); an atom is no neighbour of its own unshifted self.
/// Cost: O(atoms + edges), whatever the extent of a non-periodic axis.
[[nodiscard]] NeighborList cell_search(std::span<const Vec3> positions, std::int64_t num_receivers, const Box& box,
                                       double cutoff);

/// The same by testing all pairs and images: O(N^2), the oracle of the tests.
[[nodiscard]] NeighborList brute_force_search(std::span<const Vec3> positions, std::int64_t num_receivers,
                                              const Box& box, double cutoff);

}  // namespace tessera
