// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tessera/base/box.hpp"

namespace tessera {

/// One division of all atoms into shards.
struct Division {
  int num_shards = 0;
  std::vector<std::uint16_t> shard_of;  ///< [num_atoms]
};

/// What the shards of one division share within one cutoff; every array is [num_shards].
struct Contacts {
  std::vector<std::int64_t> edges;        ///< directed edges whose receiver the shard owns
  std::vector<std::int64_t> local_edges;  ///< those whose sender it owns too
  std::vector<std::int64_t> halo_rows;    ///< atoms of others that it reads, one row an atom whatever its images
  std::vector<std::int64_t> sent_rows;    ///< rows that it sends, counted once a reader
  std::vector<std::vector<int>> peers;    ///< shards that own its halo rows, ascending, itself excluded
};

/// Called now and then, from the calling thread, with the part done (0 to 1); may be empty.
using Progress = std::function<void(double)>;

/// Counts edges, halo rows and peers of several divisions and cutoffs in one pass over all pairs, storing none.
///
/// Memory: about 60 bytes an atom for the cells, and 2 for each division. Time: one distance for each pair of
/// neighboring cells, shared by the threads. Pairs exactly at a cutoff may fall on either side (positions are wrapped
/// first), which a count can bear.
///
/// @param cutoffs ascending, Å.
/// @return [divisions][cutoffs]
/// @throws Error(rank) if a division is of another number of atoms, or what `progress` throws.
[[nodiscard]] std::vector<std::vector<Contacts>> count_contacts(std::span<const Vec3> positions, const Box& box,
                                                                std::span<const Division> divisions,
                                                                std::span<const double> cutoffs, int num_threads,
                                                                const Progress& progress);

}  // namespace tessera
