// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/plan/halo_plan.hpp"

namespace tessera {

enum class Scalar { float32, float64 };

/// Carries out a plan: forward copies owned rows to the peers' halo rows, reverse adds halo rows to their owners.
///
/// Reverse is the exact transpose of forward. Each has a start, which packs and launches, and a wait. At most one
/// exchange is in flight; forward and reverse never overlap. Buffers are pooled and only grow. The order of summation
/// in reverse is fixed (peer, row), so results repeat bit for bit.
///
/// @throws Error(rank) on a wait without its start, a start while another is in flight, or a peer's failure.
class HaloExchange {
 public:
  /// @param overlaps false: a start returns only when the messages have arrived, for comparison.
  HaloExchange(std::shared_ptr<const HaloPlan> plan, std::shared_ptr<Communicator> communicator, int tag,
               bool overlaps = true);
  ~HaloExchange();
  HaloExchange(const HaloExchange&) = delete;
  HaloExchange& operator=(const HaloExchange&) = delete;

  [[nodiscard]] const HaloPlan& plan() const noexcept { return *plan_; }

  /// Launches owned -> halo of `owned` [>= num_owned, channels] row-major.
  void start_forward(const void* owned, std::int64_t channels, Scalar scalar);
  /// Writes halo rows [num_halo, channels].
  void wait_forward(void* halo);

  /// Launches halo -> owned of `halo` [>= num_halo, channels].
  void start_reverse(const void* halo, std::int64_t channels, Scalar scalar);
  /// Adds to `owned` [>= num_owned, channels]; the caller zeroes it if it wants the halo share alone.
  void wait_reverse(void* owned);

  /// Row length of the exchange in flight, 0 if none is.
  [[nodiscard]] std::int64_t channels_in_flight() const noexcept;

  /// What this rank has sent so far (empty messages are not sent), and how long it has waited.
  struct Traffic {
    std::int64_t messages = 0;
    std::int64_t bytes = 0;
    double wait_seconds = 0;
  };
  [[nodiscard]] const Traffic& traffic() const noexcept { return traffic_; }

 private:
  struct Flight;
  void begin(bool is_forward, std::int64_t channels, Scalar scalar);
  void launch(bool is_forward);
  void finish(bool is_forward);
  void await_messages();

  std::shared_ptr<const HaloPlan> plan_;
  std::shared_ptr<Communicator> communicator_;
  int tag_;
  bool overlaps_;
  std::unique_ptr<Flight> flight_;
  Traffic traffic_;
};

}  // namespace tessera
