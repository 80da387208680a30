// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// What one rank sends to and receives from one peer, in rows.
struct HaloPeer {
  int rank = 0;
  std::vector<std::int64_t> send_rows;  ///< owned rows to copy, in the peer's receive order
  std::int64_t first_halo = 0;          ///< where this peer's rows start among the halo rows
  std::int64_t num_receive = 0;
};

/// Who sends which rows where, for one cutoff and one epoch; moves nothing.
///
///     extended rows: [ owned 0 .. num_owned-1 | halo of peer 0 | halo of peer 1 | ... ]
struct HaloPlan {
  std::int64_t epoch = 0;
  std::int64_t num_owned = 0;
  std::int64_t num_halo = 0;
  std::vector<HaloPeer> peers;  ///< ascending rank; a rank may be its own peer

  /// @throws Error(rank) if a send row is not owned or the receive ranges do not tile [0, num_halo).
  void validate() const;
};

}  // namespace tessera
