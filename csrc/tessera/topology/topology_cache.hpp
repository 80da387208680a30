// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/box.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera {

/// Why a topology was built anew, for the report at the end of a run.
enum class RebuildCause { none, first, forced, displacement, interval, migration, recut };

constexpr int kNumRebuildCauses = 7;

/// Decides, on all ranks alike, whether the current topology still holds.
///
/// A pair list built at cutoff + skin stays complete while no atom has moved skin/2 or more since (Verlet 1967).
/// A deforming cell lowers that allowance: positions are compared after the reference positions are carried along
/// with the cell, and the cell's own deformation eats from the skin. The vote is one all-reduce, which also carries
/// each rank's status, so that a rank that fails does not leave the others waiting.
class TopologyCache {
 public:
  /// @param largest_cutoff Å; `skin` Å >= 0; `interval` steps between forced rebuilds, 0 = none.
  TopologyCache(double largest_cutoff, double skin, std::int64_t interval);

  /// @pre  all ranks call this; positions are in the order given to remember().
  /// @post the same answer on every rank; no member changes.
  /// @param local_cause what this rank alone knows (migration, forced), none otherwise.
  /// @throws Error(collective) if any rank passes ok = false.
  [[nodiscard]] RebuildCause vote(std::span<const Vec3> positions, const Box& box, RebuildCause local_cause, bool ok,
                                  Communicator& communicator) const;

  /// Starts a new epoch at these positions.
  void remember(std::span<const Vec3> positions, const Box& box);
  /// Counts one step of use of the current epoch.
  void tick() { ++age_; }

  [[nodiscard]] std::int64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] double skin() const noexcept { return skin_; }

 private:
  [[nodiscard]] bool has_outgrown_skin(std::span<const Vec3> positions, const Box& box) const;

  double largest_cutoff_;
  double skin_;
  std::int64_t interval_;
  std::int64_t epoch_ = 0;
  std::int64_t age_ = 0;
  std::vector<Vec3> reference_;
  Box reference_box_;
};

}  // namespace tessera
