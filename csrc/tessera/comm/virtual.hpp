// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>

#include "tessera/comm/communicator.hpp"

namespace tessera {

/// Ranks as threads of one process, joined by shared memory; how most tests of many ranks run.
///
/// Sums run in rank order, so results repeat bit for bit. A rank that leaves (its communicator is destroyed) while
/// another waits for it, and collective calls that differ between ranks, are errors instead of hangs.
class VirtualWorld {
 public:
  explicit VirtualWorld(int num_ranks);
  ~VirtualWorld();
  VirtualWorld(const VirtualWorld&) = delete;
  VirtualWorld& operator=(const VirtualWorld&) = delete;

  [[nodiscard]] int num_ranks() const noexcept;

  /// The communicator of one rank, for the thread that plays it; it may outlive the world. Call once a rank.
  [[nodiscard]] std::unique_ptr<Communicator> communicator(int rank);

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

/// Runs `body` on `num_ranks` threads, one a rank, and waits for all.
///
/// A rank that throws aborts the others, unless it throws a collective error, which all throw. Rethrows what the first
/// failing rank threw, and a collective error only if no rank had a reason of its own.
void run_virtual_ranks(int num_ranks, const std::function<void(const std::shared_ptr<Communicator>&)>& body);

}  // namespace tessera
