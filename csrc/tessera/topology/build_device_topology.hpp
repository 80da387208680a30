// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/box.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/device/device_array.hpp"
#include "tessera/search/candidates.hpp"
#include "tessera/search/device_search.hpp"
#include "tessera/topology/device_topology.hpp"

namespace tessera {

/// build_topology() on a device: the same lists and plans as uploading what that finds, in ascending order bit for bit.
/// In scattered order both ends of the edges are: the senders of a receiver, and the receivers of a sender.
///
/// Positions go to the device; the number of edges and a byte for each candidate and list come back, for the halo
/// plans, which are made on the host while the device sorts. Work arrays grow to the largest epoch and stay.
class DeviceTopologyBuilder {
 public:
  explicit DeviceTopologyBuilder(StreamRef stream, SenderOrder order = SenderOrder::ascending);

  /// Refills `into`; all ranks call this. What the host holds of it is complete on return, its arrays are queued on
  /// the stream: work queued there later finds them, other streams wait for an event.
  /// @param positions owned, on the host, Å, anywhere.
  /// @param cutoffs ascending, Å, one for each list of `into`.
  /// @throws Error(rank) as DeviceSearch::find(), and if `into` is of another device or number of lists.
  void build(std::span<const Vec3> positions, const Candidates& candidates, const Box& box,
             std::span<const double> cutoffs, double skin, std::int64_t epoch, Communicator& communicator,
             DeviceTopology& into);

 private:
  struct ListWork {
    explicit ListWork(Device device) : place(device), halo_row(device) {}
    DeviceArray<std::int32_t> place;     // [wide edges + 1] where an edge goes in a narrower list
    DeviceArray<std::int32_t> halo_row;  // [candidates] this list's halo row of a used candidate
  };
  /// The candidates that a list reads, and its edges.
  struct Findings {
    std::vector<std::span<const std::uint8_t>> used;  // [lists][candidates] 1 or 0
    std::vector<std::int64_t> num_edges;              // [lists]
  };

  const Vec3* upload(std::span<const Vec3> positions, std::span<const Vec3> candidates);
  Findings mark(const Box& box, std::span<const double> cutoffs, double skin, std::int64_t num_candidates,
                const DeviceTopology& into);
  void fill(DeviceTopology& into, std::size_t l, std::span<const std::uint8_t> used_here);
  void number_edges(const DeviceList& list, std::int64_t num_owned);
  void index(DeviceList& list, std::int64_t num_owned, std::int64_t num_rows);

  StreamRef stream_;
  SenderOrder order_;
  DeviceSearch search_;
  DeviceArray<Vec3> staged_, extended_;                   // [owned + candidates]; page-locked, and on the device
  std::vector<ListWork> works_;                           // [lists]
  DeviceArray<std::uint8_t> is_kept_;                     // [wide edges + 1]
  DeviceArray<std::uint8_t> used_, used_here_;            // [lists, candidates]
  DeviceArray<std::int32_t> edges_here_;                  // [lists]
  DeviceArray<std::uint32_t> mapped_row_, row_of_place_;  // [owned] scattered numbers of receivers, and those sorted
  DeviceArray<std::int32_t> receiver_in_order_;           // [owned] receivers in scattered order
  DeviceArray<std::int32_t> degree_, base_;               // [owned + 1] of these: edges, and how many there are before
  DeviceArray<std::int32_t> first_place_;                 // [owned] by receiver: where its edges begin in that order
  DeviceArray<std::int32_t> edge_number_;                 // [edges] in the order of receivers
  DeviceArray<std::uint32_t> sender_of_number_;           // [edges] of these
  DeviceArray<std::uint32_t> sorted_sender_;              // [edges]
  DeviceArray<std::byte> scratch_;
};

}  // namespace tessera
