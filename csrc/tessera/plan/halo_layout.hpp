// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/plan/halo_plan.hpp"

namespace tessera {

/// Room for the rows that one pair of ranks exchanges, whatever their count in an epoch.
struct HaloRoom {
  int rank = 0;                       ///< the peer
  std::int64_t send_capacity = 0;     ///< rows that always travel to the peer in a forward exchange
  std::int64_t receive_capacity = 0;  ///< rows that always come from it
  std::int64_t first_send = 0;        ///< where the peer's rows start among all that are sent
  std::int64_t first_slot = 0;        ///< where its rows start among the halo slots
  bool operator==(const HaloRoom&) const = default;
};

/// Places of halo rows with head-room, so that arrays and messages keep their extents from epoch to epoch.
///
///     halo slots: [ rows of peer 0 | head-room | rows of peer 1 | head-room | ... ]
///
/// A capacity depends on nothing but the counts of one direction of one pair, in the order of epochs: it stays until
/// a count exceeds it, and becomes grown(count) then. The sender knows these counts as well as the receiver, so both
/// find the same capacity and need not talk about it. A peer without rows keeps its room; no capacity ever shrinks.
class HaloLayout {
 public:
  /// No room at all; fit() makes it.
  HaloLayout() = default;

  /// No head-room: the slots are the plan's halo rows.
  [[nodiscard]] static HaloLayout exact(const HaloPlan& plan);

  /// Makes room for a plan; all ranks call this once an epoch.
  /// @return whether a capacity or the set of peers has changed: extents that were captured in a graph are void then.
  bool fit(const HaloPlan& plan);

  /// The capacity for `count` rows where there was less: a tenth and 16 more; none for none.
  [[nodiscard]] static std::int64_t grown(std::int64_t count) noexcept;

  [[nodiscard]] std::span<const HaloRoom> rooms() const noexcept { return rooms_; }  ///< ascending rank
  [[nodiscard]] std::int64_t num_slots() const noexcept { return num_slots_; }
  [[nodiscard]] std::int64_t num_send() const noexcept { return num_send_; }  ///< rows of a forward exchange

  /// Slot of each halo row of a plan, [plan.num_halo], ascending.
  /// @throws Error(rank) if there is no room for the plan.
  [[nodiscard]] std::vector<std::int64_t> slots(const HaloPlan& plan) const;

  /// The room of one of a plan's peers. @throws Error(rank) if there is none, or too little.
  [[nodiscard]] const HaloRoom& room_of(const HaloPeer& peer) const;

  bool operator==(const HaloLayout&) const = default;

 private:
  void place();

  std::vector<HaloRoom> rooms_;
  std::int64_t num_slots_ = 0;
  std::int64_t num_send_ = 0;
};

}  // namespace tessera
