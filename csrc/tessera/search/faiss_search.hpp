// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "tessera/base/box.hpp"
#include "tessera/search/neighbor_list.hpp"

namespace tessera {

/// The edges of cell_search() by FAISS: IndexFlatL2::range_search on the CPU, which has no limit on neighbours (the
/// k-nearest search of FAISS on GPUs stops at 2048).
///
/// FAISS works in float32: it is asked for a wider radius, and each pair is decided in double precision. Its cost is
/// receivers x candidates, so the receivers are searched in chunks. Needs -DTESSERA_FAISS=ON.
/// @throws Error(rank) as cell_search(), and if atoms of one chunk are further apart than float32 can hold.
[[nodiscard]] NeighborList faiss_search(std::span<const Vec3> positions, std::int64_t num_receivers, const Box& box,
                                        double cutoff);

}  // namespace tessera
