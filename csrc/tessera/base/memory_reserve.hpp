// SPDX-License-Identifier: MIT
#pragma once

namespace tessera {

/// Memory kept aside so that a refusal can be put into words.
///
/// Where memory runs out, the text that says so needs some too: torch's, the caller's, and copies of it on the way out.
/// While one of these lives, the first `operator new` that finds nothing frees 256 KiB and tries again; from then on a
/// request that finds nothing ends as it would have ended without the reserve. Requests larger than what it holds are
/// refused as before, and leave it to the words. It hooks the process's new-handler and restores the earlier one.
///
/// Any number may live at a time; they share one reserve. Threads may allocate meanwhile.
class MemoryReserve {
 public:
  /// Fills the reserve, as far as memory goes. @post never throws: without a reserve all goes on.
  MemoryReserve() noexcept;
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  /// Fills it again after it was used; cheap while it is full.
  void refill() noexcept;
  /// Whether nothing of it has been used.
  [[nodiscard]] static bool is_full() noexcept;
};

}  // namespace tessera
