// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/base/box.hpp"
#include "tessera/device/device_array.hpp"
#include "tessera/search/device_grid.hpp"
#include "tessera/search/sender_order.hpp"

namespace tessera {

/// Where a search puts its edges: sorted and numbered as in NeighborList.
struct EdgeArrays {
  DeviceArray<std::int32_t>& receiver;           ///< [num_edges]
  DeviceArray<std::int32_t>& sender;             ///< [num_edges]
  DeviceArray<Shift>& shift;                     ///< [num_edges]
  DeviceArray<std::int32_t>& first_of_receiver;  ///< [num_receivers + 1] into the edges
};

/// Edges of one rank are numbered with 32 bits.
/// @throws Error(rank) for 2^31 - 1 edges or more.
void require_countable_edges(std::int64_t num_edges, double reach);

/// cell_search() on a device: the same edges, in ascending order the same bit for bit.
///
/// An item of work is a receiver and one neighbouring cell under one image: it counts its partners, a scan says where
/// they go, a second pass writes them, and each edge then finds its place among those of its receiver by counting how
/// many come before it. Work arrays grow to the largest search and stay.
class DeviceSearch {
 public:
  explicit DeviceSearch(StreamRef stream, SenderOrder order = SenderOrder::ascending);

  /// Fills `edges`, queued on the stream, and returns their number; waits for the stream twice.
  /// @param positions [num_positions] on the device, Å, anywhere; receivers are rows 0 .. num_receivers-1.
  /// @throws Error(rank) as cell_search(), and as require_countable_edges().
  std::int64_t find(const Vec3* positions, std::int64_t num_positions, std::int64_t num_receivers, const Box& box,
                    double cutoff, EdgeArrays edges);

 private:
  const std::int32_t* list_receivers(const kernel::Grid& grid, std::int64_t num_receivers);
  std::int64_t total(std::int64_t num_items);

  StreamRef stream_;
  SenderOrder order_;
  DeviceGrid grid_;
  DeviceArray<std::int32_t> is_receiver_, slot_;  // [atoms] in the order of cells
  DeviceArray<std::int32_t> receiver_place_;      // [receivers] where they stand in the order of cells
  DeviceArray<std::int32_t> count_;               // [receivers, neighborhoods] + a 0
  DeviceArray<std::int64_t> first_;               // the same: edges before
  DeviceArray<std::uint64_t> partner_;            // [edges] by receiver alone
  DeviceArray<std::int64_t> total_here_;          // [1] page-locked
  DeviceArray<std::byte> scratch_;
};

}  // namespace tessera
