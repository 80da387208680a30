// SPDX-License-Identifier: MIT
// key-range: the splitters, which every rank has, say where each rank's atoms were at the last cut.
#include <algorithm>
#include <cmath>

#include "tessera/base/deformation.hpp"
#include "tessera/base/error.hpp"
#include "tessera/partition/key_range.hpp"
#include "tessera/search/candidate_selection.hpp"

namespace tessera {
namespace {

// Finest cubes that outline a stretch of the curve, as a part of the distance: finer ones cost more than they save.
constexpr double kFinestPart = 0.25;

/// The cubes of a shard's stretch in the unit cube of the curve.
std::vector<FractionBox> outline_of(int shard, const Splitters& splitters, const Curve& curve, int levels)
{
  std::vector<FractionBox> boxes;
  for (const KeyBlock& block : blocks_of(curve.kind(), splitters.keys_of(shard), levels)) {
    const double edge = std::ldexp(1.0, -block.levels);
    FractionBox box;
    for (int k = 0; k < 3; ++k) {
      box.low[k] = block.cell[k] * edge;
      box.high[k] = box.low[k] + edge;
    }
    boxes.push_back(box);
  }
  return boxes;
}

}  // namespace

/// The curve lies in the box of the cut. Atoms are carried back into it along with the cell, where a distance d of
/// today is at most d / smallest stretch. What drift adds: the peers' atoms have left their cubes by at most that, and
/// the two shards of a pair by twice that.
Selection select_by_keys(const CandidateContext& context)
{
  const CandidateQuery& query = context.query;
  TESSERA_REQUIRE(query.curve != nullptr && query.splitters != nullptr,
                  "the peer scheme key-range needs the curve and the splitters of the last cut");
  Communicator& communicator = context.communicator;
  TESSERA_REQUIRE(query.splitters->num_shards() == communicator.num_ranks(), "{} shards on {} ranks",
                  query.splitters->num_shards(), communicator.num_ranks());
  const Curve& curve = *query.curve;
  TESSERA_REQUIRE(curve.box().periodic() == context.box.periodic(),
                  "the periodic axes have changed since the last cut: cut anew");
  const Deformation since_cut(curve.box(), context.box);
  const Deformation back_to_cut(context.box, curve.box());
  TESSERA_REQUIRE(since_cut.smallest_stretch() > 0, "the cell has collapsed since the last cut: cut anew");

  std::vector<Vec3> units;
  for (const Vec3& r : context.positions) units.push_back(curve.unit_position(back_to_cut.carry(r)));
  double rounding = context.wrapped.rounding;  // the largest of all ranks', so that peers agree on being peers
  communicator.all_reduce(std::span<double>(&rounding, 1), Reduction::max);
  const double distance = (query.reach + query.drift + 2 * rounding) / since_cut.smallest_stretch();
  const double of_shards = (query.reach + 2 * query.drift + 2 * rounding) / since_cut.smallest_stretch();

  const Vec3 margin = curve.unit_reach(distance);
  const double finest = kFinestPart * std::min({margin[0], margin[1], margin[2]});
  const int levels = std::clamp(static_cast<int>(std::ceil(-std::log2(finest))), 1, kCurveLevels);
  Selection selection(communicator.num_ranks());
  for (const int rank : shards_within(communicator.rank(), of_shards, *query.splitters, curve)) {
    if (rank == communicator.rank()) continue;
    const auto theirs = outline_of(rank, *query.splitters, curve, levels);
    selection[rank] = rows_near(units, theirs, margin, curve.box().periodic());
  }
  return selection;
}

}  // namespace tessera
