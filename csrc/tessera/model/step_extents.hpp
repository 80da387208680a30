// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// Extents of the arrays of one rank's step, padding included (ARCHITECTURE.md, Inputs).
struct StepExtents {
  std::int64_t rows = 0;                ///< N
  std::vector<std::int64_t> halo_rows;  ///< H, one a list
  std::vector<std::int64_t> edges;      ///< E, one a list
};

/// Says which extent is beyond what an artifact was compiled for, and what to do; empty if none is.
///
/// Compiled code of a GPU counts in 32 bits where its bounds allow that, so that beyond them results would be wrong.
/// @param cutoffs Å, one a list.
/// @throws Error(rank) if there are not as many counts as cutoffs.
[[nodiscard]] std::string describe_excess(const StepExtents& found, const StepExtents& largest,
                                          std::span<const double> cutoffs);

}  // namespace tessera
