// SPDX-License-Identifier: MIT
#include "tessera/model/step_extents.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// Atoms/Å^3 for which the exporter counts the edges of --largest-step: water.
constexpr double kWaterDensity = 0.1;

/// The size for which an artifact must be exported to take so many edges within `cutoff` Å.
std::int64_t atoms_with_edges(std::int64_t edges, double cutoff)
{
  const double edges_of_atom = kWaterDensity * 4 / 3 * std::numbers::pi * cutoff * cutoff * cutoff;
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(edges) / edges_of_atom));
}

std::string describe(std::int64_t found, std::int64_t largest, const std::string& what, std::int64_t atoms)
{
  return format(
      "expected at most {} {} on a rank, which is what the model was compiled for, found {}; use more ranks, each with "
      "a GPU, or export the model again with tessera-export --largest-step {}",
      largest, what, found, atoms);
}

}  // namespace

std::string describe_excess(const StepExtents& found, const StepExtents& largest, std::span<const double> cutoffs)
{
  const auto num_lists = cutoffs.size();
  for (const auto* extents : {&found, &largest}) {
    TESSERA_REQUIRE(extents->halo_rows.size() == num_lists && extents->edges.size() == num_lists,
                    "extents of a model of {} lists: expected as many counts of halo rows and edges, found {} and {}",
                    num_lists, extents->halo_rows.size(), extents->edges.size());
  }
  if (found.rows > largest.rows) return describe(found.rows - 1, largest.rows - 1, "atoms", found.rows - 1);
  for (std::size_t l = 0; l < num_lists; ++l) {
    const auto within = [&](const char* what) { return format("{} within {} Å", what, cutoffs[l]); };
    if (found.halo_rows[l] > largest.halo_rows[l]) {
      return describe(found.halo_rows[l], largest.halo_rows[l], within("rows of other ranks"), found.halo_rows[l]);
    }
    if (found.edges[l] > largest.edges[l]) {
      return describe(found.edges[l], largest.edges[l], within("edges"), atoms_with_edges(found.edges[l], cutoffs[l]));
    }
  }
  return {};
}

}  // namespace tessera
