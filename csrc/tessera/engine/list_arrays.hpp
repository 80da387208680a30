// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/device/device_array.hpp"
#include "tessera/topology/device_topology.hpp"

namespace tessera {

/// Where the halo rows of one list stand in arrays with head-room: halo row k in slot `slot[k]` of `num_slots`.
struct HaloSlots {
  std::vector<std::int32_t> slot;
  std::int64_t num_slots = 0;

  /// Without head-room: row k in slot k.
  [[nodiscard]] static HaloSlots identity(std::int64_t num_halo);
};

/// Extents of the model's arrays of one list (ARCHITECTURE.md, Inputs), padding included.
struct ListExtents {
  std::int64_t rows = 0;   ///< N, owned
  std::int64_t halo = 0;   ///< H
  std::int64_t edges = 0;  ///< E
  std::int64_t pairs = 0;  ///< room of the skin's list, of which the edges are taken
  bool operator==(const ListExtents&) const = default;
};

/// One list as the kernels see it: pointers to device memory and extents, no containers.
///
/// Counts that change from one epoch to the next are read from device memory, so that kernels in a captured graph see
/// those of the epoch in force.
struct ListView {
  ListExtents extents;
  double cutoff = 0;  ///< Å

  // of the epoch
  const std::int64_t* num_owned = nullptr;  ///< real rows
  const std::int64_t* num_pairs = nullptr;
  const std::int32_t *receiver = nullptr, *sender = nullptr, *own_sender = nullptr;  ///< as DeviceList
  const Shift* shift = nullptr;
  const std::int32_t *sender_order = nullptr, *first_of_receiver = nullptr, *first_of_sender = nullptr;
  const std::int32_t* slot = nullptr;       ///< [num_halo] of this list
  const std::int32_t* wide_slot = nullptr;  ///< [widest num_halo] of the widest list
  const std::int32_t* halo_row = nullptr;   ///< [H] halo row in each slot, -1 in an empty one
  const std::int32_t* target = nullptr;     ///< [H] the same atom's slot of the widest list, -1 in an empty one

  // of the step
  std::int32_t *keep = nullptr, *place = nullptr;                      ///< [pairs + 1] is an edge; edges before it
  std::int32_t *keep_by_sender = nullptr, *place_by_sender = nullptr;  ///< [pairs + 1] the same in sender order
  std::int64_t* status = nullptr;  ///< [2] edges found (may exceed E); 1 + a pair of coincident atoms, 0 if none

  // the model's inputs
  double* edge_vector = nullptr;           ///< [E, 3], Å
  std::int64_t* edge_receiver = nullptr;   ///< [E]
  std::int64_t* edge_sender = nullptr;     ///< [E]
  std::int64_t* receiver_range = nullptr;  ///< [N, 2]
  std::int64_t* edge_order = nullptr;      ///< [E] edges by sender
  std::int64_t* sender_range = nullptr;    ///< [N + H, 2]
  std::int64_t* halo_element = nullptr;    ///< [H]

  bool operator==(const ListView&) const = default;
};

/// The memory behind a ListView.
class ListArrays {
 public:
  explicit ListArrays(Device device);

  /// Refills what belongs to the epoch; the halo extent becomes that of `slots`, at least `least_halo`.
  /// @param wide the widest list's slots. @param halo_elements of the halo rows.
  void begin_epoch(const DeviceList& list, std::int64_t num_owned, const HaloSlots& slots, const HaloSlots& wide,
                   std::span<const std::int32_t> halo_elements, std::int64_t least_halo, StreamRef stream);

  /// Makes room for `rows` owned rows, `edges` edges and `pairs` pairs; arrays that have to grow lose their contents.
  void make_room(std::int64_t rows, std::int64_t edges, std::int64_t pairs);

  [[nodiscard]] ListView view(const DeviceList& list);

  [[nodiscard]] const ListExtents& extents() const noexcept { return extents_; }
  [[nodiscard]] DeviceArray<std::int64_t>& status() noexcept { return status_; }

 private:
  ListExtents extents_;
  DeviceArray<std::int64_t> counts_;  // num_owned, num_pairs
  DeviceArray<std::int32_t> slot_, wide_slot_, halo_row_, target_;
  DeviceArray<std::int64_t> halo_element_;
  DeviceArray<std::int32_t> keep_, place_, keep_by_sender_, place_by_sender_;
  DeviceArray<std::int64_t> status_;
  DeviceArray<double> edge_vector_;
  DeviceArray<std::int64_t> edge_receiver_, edge_sender_, receiver_range_, edge_order_, sender_range_;
};

}  // namespace tessera
