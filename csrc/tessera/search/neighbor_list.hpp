// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/types.hpp"

namespace tessera {

/// Directed edges (receiver <- sender image) of one cutoff, sorted by (receiver, sender, shift).
///
///     edge vector v = position[receiver] - position[sender] - shift . cell          (receiver minus sender)
///
/// Receivers are owned rows; senders are owned or halo rows. Every image within the cutoff is an edge of its own,
/// self images included (receiver == sender, shift != 0).
struct NeighborList {
  double cutoff = 0;  ///< Å, what the list is complete for (skin included where there is one)
  std::int64_t num_receivers = 0;
  std::vector<std::int64_t> receiver;  ///< [num_edges]
  std::vector<std::int64_t> sender;    ///< [num_edges]
  std::vector<Shift> shift;            ///< [num_edges]

  [[nodiscard]] std::int64_t num_edges() const noexcept { return static_cast<std::int64_t>(receiver.size()); }
};

/// CSR by receiver and CSC by sender of a list's edges: [first, last) pairs, one a row.
struct EdgeIndex {
  std::vector<std::int64_t> receiver_range;  ///< [num_receivers, 2] into the edges
  std::vector<std::int64_t> sender_order;    ///< [num_edges] edges sorted by (sender, edge)
  std::vector<std::int64_t> sender_range;    ///< [num_rows, 2] into sender_order
};

/// @pre receivers are sorted; every receiver < num_receivers, every sender < num_rows.
[[nodiscard]] EdgeIndex index_edges(const std::vector<std::int64_t>& receiver, const std::vector<std::int64_t>& sender,
                                    std::int64_t num_receivers, std::int64_t num_rows);

}  // namespace tessera
