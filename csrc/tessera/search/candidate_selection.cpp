// SPDX-License-Identifier: MIT
#include "tessera/search/candidate_selection.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera {
namespace {

// Rows that are held against the boxes together first; consecutive rows are close in space.
constexpr std::int64_t kRowsPerRun = 32;

}  // namespace

bool are_near(const FractionBox& a, const FractionBox& b, const Vec3& margin, const std::array<bool, 3>& periodic)
{
  for (int k = 0; k < 3; ++k) {
    // The images s of b that touch: a.low - b.high - margin <= s <= a.high - b.low + margin.
    const double first = a.low[k] - b.high[k] - margin[k];
    const double last = a.high[k] - b.low[k] + margin[k];
    if (periodic[k] ? std::floor(last) < first : (first > 0 || last < 0)) return false;
  }
  return true;
}

Vec3 fraction_margin(double distance, const Box& box)
{
  return {distance / box.height(0), distance / box.height(1), distance / box.height(2)};
}

std::vector<std::int64_t> rows_near(std::span<const Vec3> fractions, std::span<const FractionBox> boxes,
                                    const Vec3& margin, const std::array<bool, 3>& periodic)
{
  std::vector<std::int64_t> rows;
  std::vector<FractionBox> close;
  const auto num_rows = static_cast<std::int64_t>(fractions.size());
  for (std::int64_t first = 0; first < num_rows; first += kRowsPerRun) {
    const std::int64_t last = std::min(num_rows, first + kRowsPerRun);
    const FractionBox run = bounding_box(fractions.subspan(first, last - first));
    close.clear();
    std::copy_if(boxes.begin(), boxes.end(), std::back_inserter(close),
                 [&](const FractionBox& box) { return are_near(run, box, margin, periodic); });
    if (close.empty()) continue;
    for (std::int64_t row = first; row < last; ++row) {
      const FractionBox point{fractions[row], fractions[row]};
      if (std::any_of(close.begin(), close.end(),
                      [&](const FractionBox& box) { return are_near(point, box, margin, periodic); })) {
        rows.push_back(row);
      }
    }
  }
  return rows;
}

Selection select_all(const CandidateContext& context)
{
  Selection selection(context.communicator.num_ranks());
  for (int rank = 0; rank < context.communicator.num_ranks(); ++rank) {
    if (rank == context.communicator.rank()) continue;
    selection[rank].resize(context.positions.size());
    std::iota(selection[rank].begin(), selection[rank].end(), 0);
  }
  return selection;
}

}  // namespace tessera
