// SPDX-License-Identifier: MIT
#include "tessera/topology/cut_report.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tessera/base/error.hpp"
#include "tessera/partition/key_range.hpp"
#include "tessera/partition/shard_boxes.hpp"
#include "tessera/partition/splitters.hpp"

namespace tessera {
namespace {

/// Positions in the unit cube, in curve order, one stretch a shard.
struct CurveOrder {
  std::vector<std::int64_t> rows;  // of the structure
  std::vector<Vec3> unit;          // in the same order
};

CurveOrder order_along(const Curve& curve, std::span<const Vec3> positions, const std::vector<Key>& keys)
{
  CurveOrder order;
  order.rows.resize(positions.size());
  std::iota(order.rows.begin(), order.rows.end(), 0);
  std::sort(order.rows.begin(), order.rows.end(),
            [&](std::int64_t a, std::int64_t b) { return std::pair(keys[a], a) < std::pair(keys[b], b); });
  order.unit.reserve(positions.size());
  for (const std::int64_t row : order.rows) order.unit.push_back(curve.unit_position(positions[row]));
  return order;
}

/// Shards that each shard would ask, found from their boxes.
std::vector<int> count_near_boxes(const CurveOrder& order, const std::vector<std::int64_t>& owned, int boxes_per_shard,
                                  const Vec3& reach, const std::array<bool, 3>& periodic)
{
  std::vector<std::vector<UnitBox>> outline, boxes;
  std::span<const Vec3> rest(order.unit);
  for (const std::int64_t count : owned) {
    outline.push_back(bounding_boxes(rest.first(count), 1));
    boxes.push_back(bounding_boxes(rest.first(count), boxes_per_shard));
    rest = rest.subspan(count);
  }
  std::vector<int> num_near(owned.size(), 0);
  for (std::size_t a = 0; a < owned.size(); ++a) {
    for (std::size_t b = 0; b < owned.size(); ++b) {
      if (!are_within(outline[a], outline[b], reach, periodic)) continue;
      num_near[a] += are_within(boxes[a], boxes[b], reach, periodic);
    }
  }
  return num_near;
}

}  // namespace

std::vector<CutReport> report_cuts(std::span<const Vec3> positions, const Box& box, CurveKind kind,
                                   std::span<const int> shard_counts, std::span<const double> cutoffs,
                                   int boxes_per_shard, int num_threads, const Progress& progress)
{
  TESSERA_REQUIRE(!cutoffs.empty(), "expected at least one cutoff");
  const auto comm = make_serial_communicator();
  const Curve curve(kind, box, agree_on_extent(positions, box, *comm));
  const auto keys = curve.keys_of(positions);
  std::vector<std::int64_t> ids(positions.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto order = order_along(curve, positions, keys);
  std::vector<CutReport> reports;
  std::vector<Division> divisions;
  for (const int num_shards : shard_counts) {
    TESSERA_REQUIRE(num_shards >= 1 && num_shards <= std::numeric_limits<std::uint16_t>::max(),
                    "expected 1 to {} ranks, found {}", std::numeric_limits<std::uint16_t>::max(), num_shards);
    const auto splitters = cut_by_count(keys, ids, num_shards, *comm);
    CutReport report;
    report.num_shards = num_shards;
    report.owned.assign(num_shards, 0);
    Division division{num_shards, std::vector<std::uint16_t>(positions.size())};
    for (const std::int64_t row : order.rows) {
      const int shard = splitters.shard_of({keys[row], ids[row]});
      division.shard_of[row] = static_cast<std::uint16_t>(shard);
      ++report.owned[shard];
    }
    const Vec3 reach = curve.unit_reach(cutoffs.back());
    report.rank_box_candidates = count_near_boxes(order, report.owned, 1, reach, box.periodic());
    report.multi_box_candidates = count_near_boxes(order, report.owned, boxes_per_shard, reach, box.periodic());
    for (int shard = 0; shard < num_shards; ++shard) {
      const auto near = shards_within(shard, cutoffs.back(), splitters, curve);
      report.key_range_candidates.push_back(static_cast<int>(near.size()));
    }
    divisions.push_back(std::move(division));
    reports.push_back(std::move(report));
  }
  auto contacts = count_contacts(positions, box, divisions, cutoffs, num_threads, progress);
  for (std::size_t k = 0; k < reports.size(); ++k) reports[k].contacts = std::move(contacts[k]);
  return reports;
}

}  // namespace tessera
