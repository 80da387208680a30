// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>

namespace tessera {

// The padding of a model's inputs (ARCHITECTURE.md, The artifact), wherever they are filled.

/// Compiled code takes extents 0 and 1 for constants.
constexpr std::int64_t kLeastExtent = 2;

/// Length of padding edges, in cutoffs: no envelope reaches that far.
constexpr double kPaddingDistance = 1e3;

/// Extent of rows or edges of which `count` are real: at least one is padding.
[[nodiscard]] constexpr std::int64_t padded(std::int64_t count) { return std::max(kLeastExtent, count + 1); }

}  // namespace tessera
