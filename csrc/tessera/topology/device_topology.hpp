// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/device/device_array.hpp"
#include "tessera/topology/topology.hpp"

namespace tessera {

/// One cutoff's pairs of an epoch where the model runs, refilled in place from one epoch to the next.
///
/// Rows are extended rows: owned 0 .. num_owned-1, then halo rows. Edges are sorted as in NeighborList.
struct DeviceList {
  explicit DeviceList(Device device);

  double cutoff = 0;  ///< Å, the model's; the pairs reach cutoff + skin
  std::int64_t num_edges = 0;
  std::shared_ptr<const HaloPlan> plan;         ///< as TopologyList
  DeviceArray<std::int32_t> receiver;           ///< [num_edges]
  DeviceArray<std::int32_t> sender;             ///< [num_edges] extended row of the widest list
  DeviceArray<std::int32_t> own_sender;         ///< [num_edges] this list's own extended row
  DeviceArray<Shift> shift;                     ///< [num_edges]
  DeviceArray<std::int32_t> sender_order;       ///< [num_edges] edges sorted by (own_sender, edge)
  DeviceArray<std::int32_t> first_of_receiver;  ///< [num_owned + 1] into the edges
  DeviceArray<std::int32_t> first_of_sender;    ///< [num_owned + num_halo + 1] into sender_order
  DeviceArray<std::int32_t> wide_row;           ///< [num_halo] extended row of the widest list of each halo row
};

/// A Topology's lists on a device.
struct DeviceTopology {
  /// @param num_lists one a cutoff, ascending.
  DeviceTopology(Device device, std::size_t num_lists);

  Device device;
  std::int64_t epoch = 0;
  std::int64_t num_owned = 0;
  std::int64_t num_candidates = 0;  ///< as Topology
  std::int64_t num_candidate_peers = 0;
  std::vector<DeviceList> lists;

  [[nodiscard]] const DeviceList& widest() const { return lists.back(); }

  /// Takes over what a search on the host has found; the copies are done when this returns.
  /// @throws Error(rank) for a list of 2^31 edges or more.
  void upload(const Topology& topology, StreamRef stream);
};

}  // namespace tessera
