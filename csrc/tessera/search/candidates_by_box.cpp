// SPDX-License-Identifier: MIT
// rank-box and multi-box: every rank tells all others a few bounding boxes of its atoms.
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

}  // namespace

Selection select_by_boxes(const CandidateContext& context, int boxes_per_rank)
{
  TESSERA_REQUIRE(boxes_per_rank >= 1, "boxes per rank: expected at least 1, found {}", boxes_per_rank);
  Communicator& communicator = context.communicator;
  const Vec3 slack = fraction_margin(context.wrapped.rounding, context.box);
  std::vector<BoxRecord> mine(boxes_per_rank);
  const auto boxes = bounding_boxes_of_runs(context.wrapped.fractions, boxes_per_rank);
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
