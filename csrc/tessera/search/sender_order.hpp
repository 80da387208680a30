// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera {

/// In which order a receiver's edges stand. Rows that follow each other on the curve share most of their senders.
enum class SenderOrder {
  ascending,  ///< by the sender's row, as in NeighborList
  /// By the sender's row times a large odd number, modulo 2^32 (Fibonacci hashing): wherever a list is cut, the same
  /// part of each neighborhood lies before the cut, so that neighboring receivers, each going through its own list at
  /// the same pace, meet a sender at about the same time and find it in the cache.
  scattered
};

/// A one-to-one map of rows: SenderOrder::scattered is the order of its values.
struct ScatteredRows {
  static constexpr std::uint32_t kFactor = 0x9E3779B1;   // near 2^32 over the golden ratio
  static constexpr std::uint32_t kInverse = 0x0E8B2F51;  // kFactor * kInverse = 1 modulo 2^32
};

}  // namespace tessera
