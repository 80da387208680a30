// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/comm/device_link.hpp"
#include "tessera/device/device_array.hpp"
#include "tessera/plan/halo_direction.hpp"
#include "tessera/plan/halo_exchange.hpp"
#include "tessera/plan/halo_layout.hpp"

namespace tessera {

/// HaloExchange where the model computes: rows go from device to device over a link, in the order of streams.
///
/// It outlives epochs, each of which gives it a plan. Kernels and messages have the extents of the layout, not those
/// of the plan, and index arrays are refilled in place: a CUDA graph that holds exchanges remains right until
/// arrangement() changes. The host waits for nothing (over a link that waits itself, only for that).
///
///     forward:  owned --pack--> outgoing [for peer 0 | zeros | for peer 1 | ...] ==> incoming --copy--> halo
///     reverse:  halo --copy--> outgoing ==> incoming [of peer 0 | unread | of peer 1 | ...] --add--> owned
///
/// Reverse is the exact transpose of forward. Every owned row adds what came for it in the order (peer, row), as
/// HaloExchange does: no atomics, bitwise repeatable, and equal to HaloExchange to the last bit. Head-room travels too
/// and is read by nobody. With overlap, messages run on a stream of their own, between an event of the start and one
/// of the wait. At most one exchange is in flight.
///
/// @throws Error(rank) on a wait without its start, a start while another is in flight, buffers that would have to grow
/// while the stream is captured, or what the link has to say.
class DeviceHaloExchange {
 public:
  /// @param overlaps false: messages run on the stream of the computation, for comparison.
  explicit DeviceHaloExchange(std::shared_ptr<DeviceLink> link, bool overlaps = true);
  DeviceHaloExchange(const DeviceHaloExchange&) = delete;
  DeviceHaloExchange& operator=(const DeviceHaloExchange&) = delete;

  /// Takes over an epoch: `layout` must have room for `plan`, and the layouts of all ranks must fit each other.
  /// @param stream on which the index arrays are refilled, and on which exchanges start and end from now on.
  void set_plan(std::shared_ptr<const HaloPlan> plan, HaloLayout layout, StreamRef stream);

  /// @throws Error(rank) before the first set_plan().
  [[nodiscard]] const HaloPlan& plan() const;
  [[nodiscard]] const HaloLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] Device device() const noexcept { return link_->device(); }

  /// Changes whenever addresses or extents do that a captured exchange holds: graphs of another value are void. The
  /// caller's own arrays must have rows for every epoch in which it replays.
  [[nodiscard]] std::int64_t arrangement() const noexcept { return arrangement_; }

  /// Launches owned -> halo of `owned` [>= num_owned, channels] row-major.
  void start_forward(const void* owned, std::int64_t channels, Scalar scalar, StreamRef stream);
  /// Writes halo slots [layout.num_slots, channels]; slots that hold no row of the plan are zero.
  void wait_forward(void* halo, StreamRef stream);

  /// Launches halo -> owned of `halo` [layout.num_slots, channels]; slots that hold no row of the plan do not matter.
  void start_reverse(const void* halo, std::int64_t channels, Scalar scalar, StreamRef stream);
  /// Adds to `owned` [>= num_owned, channels]; the caller zeroes it if it wants the halo share alone.
  void wait_reverse(void* owned, StreamRef stream);

  /// Row length of the exchange in flight, 0 if none is.
  [[nodiscard]] std::int64_t channels_in_flight() const noexcept;

  /// Messages and bytes (head-room included) of the exchanges that were queued or captured; replays are not counted.
  [[nodiscard]] const HaloExchange::Traffic& traffic() const noexcept { return traffic_; }

 private:
  void start(HaloDirection direction, const void* rows, std::int64_t channels, Scalar scalar, StreamRef stream);
  void launch(bool is_forward, const std::byte* outgoing, StreamRef stream);
  void finish(HaloDirection direction, StreamRef stream);
  void check_stream(StreamRef stream) const;
  void make_room(StreamRef stream);
  [[nodiscard]] std::int64_t row_bytes() const noexcept;

  std::shared_ptr<DeviceLink> link_;
  bool overlaps_;
  std::shared_ptr<const HaloPlan> plan_;
  HaloLayout layout_;
  std::int64_t arrangement_ = 0;

  // With S = layout.num_send, whatever the plan:
  DeviceArray<std::int32_t> send_row_;    // [S] owned row of each row that is sent, -1 for head-room
  DeviceArray<std::int32_t> copied_row_;  // [S] owned rows that have copies, ascending, then -1
  DeviceArray<std::int32_t> first_copy_;  // [S + 1] where the copies of each copied row start
  DeviceArray<std::int32_t> copies_;      // [S] places among the rows that are sent, by (row, place)
  DeviceArray<std::byte> outgoing_, incoming_;

  Stream side_;
  Event packed_, arrived_;
  std::vector<DeviceLink::Send> sends_;
  std::vector<DeviceLink::Receive> receives_;

  HaloDirection direction_ = HaloDirection::none;
  std::int64_t channels_ = 0;
  Scalar scalar_ = Scalar::float64;
  HaloExchange::Traffic traffic_;
};

}  // namespace tessera
