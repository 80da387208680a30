// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/partition/shard_boxes.hpp"
#include "tessera/search/candidates.hpp"
#include "tessera/search/wrapped_positions.hpp"

// The schemes behind find_candidates(): each says which of this rank's rows go to which rank.
namespace tessera {

/// [num_ranks] rows to send, ascending; empty for this rank itself.
using Selection = std::vector<std::vector<std::int64_t>>;

/// What every scheme works on.
struct CandidateContext {
  const CandidateQuery& query;
  std::span<const Vec3> positions;  ///< owned, as given
  const Box& box;
  WrappedPositions wrapped;  ///< of the owned positions
  Communicator& communicator;
};

/// A box in fractional coordinates; along periodic axes any image of it stands for all.
using FractionBox = UnitBox;

/// Whether boxes come within `margin` (fractional, an axis) of each other, images along periodic axes included.
[[nodiscard]] bool are_near(const FractionBox& a, const FractionBox& b, const Vec3& margin,
                            const std::array<bool, 3>& periodic);

/// Fractional margins that cover `distance` Å in any direction.
[[nodiscard]] Vec3 fraction_margin(double distance, const Box& box);

/// Rows that lie within `margin` of any of the boxes, ascending.
[[nodiscard]] std::vector<std::int64_t> rows_near(std::span<const Vec3> fractions, std::span<const FractionBox> boxes,
                                                  const Vec3& margin, const std::array<bool, 3>& periodic);

[[nodiscard]] Selection select_all(const CandidateContext& context);
[[nodiscard]] Selection select_by_boxes(const CandidateContext& context, int boxes_per_rank);
[[nodiscard]] Selection select_by_keys(const CandidateContext& context);
[[nodiscard]] Selection select_by_bins(const CandidateContext& context);

}  // namespace tessera
