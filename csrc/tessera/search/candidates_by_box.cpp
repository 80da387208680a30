// SPDX-License-Identifier: MIT
// rank-box and multi-box: every rank tells all others a few bounding boxes of its atoms.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "tessera/base/error.hpp"
#include "tessera/search/candidate_selection.hpp"

namespace tessera {
namespace {

/// One rank's entry in the gather: a fixed number of boxes, so that all entries are equally long.
struct BoxRecord {
  std::int64_t is_used = 0;
  FractionBox box;
};

// Slabs in which the widest gap of a periodic axis is sought.
constexpr int kNumSlabs = 64;

/// Where an axis is best cut open: the middle of the widest gap between occupied slabs, 0 if every slab is occupied.
double widest_gap(std::span<const Vec3> fractions, int axis)
{
  std::array<bool, kNumSlabs> is_occupied{};
  for (const Vec3& fraction : fractions) {
    is_occupied[std::clamp(static_cast<int>(fraction[axis] * kNumSlabs), 0, kNumSlabs - 1)] = true;
  }
  int length = 0, widest = 0, end = 0;
  for (int slab = 0; slab < 2 * kNumSlabs; ++slab) {  // twice around, for the gap across the face
    length = is_occupied[slab % kNumSlabs] ? 0 : length + 1;
    if (length > widest) {
      widest = length;
      end = slab + 1;
    }
  }
  if (widest == 0 || widest >= kNumSlabs) return 0;
  const double middle = (end - 0.5 * widest) / kNumSlabs;
  return middle - std::floor(middle);
}

/// Images of the rows that stand together: since the cut some atoms have crossed a face of the cell, and a box around
/// both ends of an axis would hold all of it.
std::vector<Vec3> gather_images(std::span<const Vec3> fractions, const std::array<bool, 3>& periodic)
{
  std::vector<Vec3> gathered(fractions.begin(), fractions.end());
  for (int axis = 0; axis < 3; ++axis) {
    if (!periodic[axis]) continue;
    const double gap = widest_gap(fractions, axis);
    for (Vec3& fraction : gathered) {
      if (fraction[axis] < gap) fraction[axis] += 1;
    }
  }
  return gathered;
}

}  // namespace

Selection select_by_boxes(const CandidateContext& context, int boxes_per_rank)
{
  TESSERA_REQUIRE(boxes_per_rank >= 1, "boxes per rank: expected at least 1, found {}", boxes_per_rank);
  Communicator& communicator = context.communicator;
  const Vec3 slack = fraction_margin(context.wrapped.rounding, context.box);
  std::vector<BoxRecord> mine(boxes_per_rank);
  const auto boxes = bounding_boxes(gather_images(context.wrapped.fractions, context.box.periodic()), boxes_per_rank);
  for (std::size_t k = 0; k < boxes.size(); ++k) {
    mine[k] = {1, {boxes[k].low - slack, boxes[k].high + slack}};
  }
  const auto bytes = communicator.all_gather(std::as_bytes(std::span(mine)));
  std::vector<BoxRecord> all(bytes.size() / sizeof(BoxRecord));
  std::memcpy(all.data(), bytes.data(), bytes.size());

  const Vec3 margin = fraction_margin(context.query.reach + context.wrapped.rounding, context.box);
  Selection selection(communicator.num_ranks());
  for (int rank = 0; rank < communicator.num_ranks(); ++rank) {
    if (rank == communicator.rank()) continue;
    std::vector<FractionBox> theirs;
    for (int k = 0; k < boxes_per_rank; ++k) {
      const BoxRecord& record = all[static_cast<std::size_t>(rank) * boxes_per_rank + k];
      if (record.is_used != 0) theirs.push_back(record.box);
    }
    selection[rank] = rows_near(context.wrapped.fractions, theirs, margin, context.box.periodic());
  }
  return selection;
}

}  // namespace tessera
