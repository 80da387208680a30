// SPDX-License-Identifier: MIT
#include "tessera/partition/key_range.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "hard_systems.hpp"
#include "tessera/search/cell_search.hpp"

namespace tessera {
namespace {

constexpr CurveKind kKinds[] = {CurveKind::hilbert, CurveKind::morton};
constexpr int kShardCounts[] = {1, 2, 3, 8, 13};

struct Cut {
  Curve curve;
  Splitters splitters;
  std::vector<int> shard_of;  // [atoms]
};

Cut cut(const std::vector<Vec3>& positions, const Box& box, CurveKind kind, int num_shards)
{
  const auto comm = make_serial_communicator();
  const Curve curve(kind, box, agree_on_extent(positions, box, *comm));
  std::vector<std::int64_t> ids(positions.size());
  std::iota(ids.begin(), ids.end(), 1);
  const auto keys = curve.keys_of(positions);
  const auto splitters = cut_by_count(keys, ids, num_shards, *comm);
  std::vector<int> shard_of;
  for (std::size_t n = 0; n < ids.size(); ++n) shard_of.push_back(splitters.shard_of({keys[n], ids[n]}));
  return {curve, splitters, shard_of};
}

TEST(KeyRange, the_blocks_of_a_range_hold_its_keys_and_no_others)
{
  std::mt19937_64 random(1);
  for (const auto kind : kKinds) {
    for (int n = 0; n < 50; ++n) {
      Key lowest = random() % kKeyEnd, highest = random() % kKeyEnd;
      if (lowest > highest) std::swap(lowest, highest);
      Key next = lowest;
      for (const auto& block : blocks_of(kind, {lowest, highest}, kCurveLevels)) {
        ASSERT_EQ(block.first, next);
        const int rest = kCurveLevels - block.levels;
        const CurveCell first = decode_cell(kind, block.first);
        ASSERT_EQ((CurveCell{first[0] >> rest, first[1] >> rest, first[2] >> rest}), block.cell);
        next += Key{1} << (3 * rest);
      }
      ASSERT_EQ(next, highest + 1);
    }
  }
  EXPECT_EQ(blocks_of(CurveKind::hilbert, {0, kKeyEnd - 1}, 5).size(), 1U);
  EXPECT_TRUE(blocks_of(CurveKind::hilbert, {1, 0}, 5).empty());
}

TEST(KeyRange, coarse_blocks_stick_out_of_a_range_but_leave_no_key_out)
{
  constexpr int kLevels = 4;
  constexpr Key kBlock = kKeyEnd >> (3 * kLevels);
  for (const auto& [lowest, highest] : {std::pair{kBlock + 1, kBlock + 2}, std::pair{kBlock - 1, 9 * kBlock},
                                        std::pair{5 * kBlock - 7, 70 * kBlock + 3}}) {
    Key next = lowest - lowest % kBlock;
    for (const auto& block : blocks_of(CurveKind::hilbert, {lowest, highest}, kLevels)) {
      ASSERT_EQ(block.first, next);
      ASSERT_LE(block.levels, kLevels);
      next += kKeyEnd >> (3 * block.levels);
    }
    EXPECT_EQ(next, highest - highest % kBlock + kBlock);
  }
}

TEST(KeyRange, no_shard_with_a_neighbor_is_missed)
{
  for (const auto& system : testing::hard_systems()) {
    if (system.name.find("10000000_cells") != std::string::npos) continue;  // rounding of 1e-9: the caller adds it
    const auto edges =
        cell_search(system.positions, static_cast<std::int64_t>(system.positions.size()), system.box, system.cutoff);
    for (const auto kind : kKinds) {
      for (const int num_shards : kShardCounts) {
        const auto [curve, splitters, shard_of] = cut(system.positions, system.box, kind, num_shards);
        std::vector<std::vector<int>> near;
        for (int shard = 0; shard < num_shards; ++shard) {
          near.push_back(shards_within(shard, system.cutoff, splitters, curve));
          ASSERT_TRUE(std::is_sorted(near[shard].begin(), near[shard].end()));
        }
        for (std::int64_t e = 0; e < edges.num_edges(); ++e) {
          const auto& found = near[shard_of[edges.receiver[e]]];
          ASSERT_TRUE(std::binary_search(found.begin(), found.end(), shard_of[edges.sender[e]]))
              << system.name << ": " << edges.receiver[e] << " and " << edges.sender[e] << " of " << num_shards;
        }
        for (int a = 0; a < num_shards; ++a) {
          for (const int b : near[a]) {
            EXPECT_TRUE(std::binary_search(near[b].begin(), near[b].end(), a)) << system.name << ": " << a << ", " << b;
          }
        }
      }
    }
  }
}

TEST(KeyRange, aligned_hilbert_shards_have_exactly_the_27_around_them)
{
  // 8 x 8 x 8 lattice points in each of 4 x 4 x 4 cubes: every shard is one cube of edge 10 Å.
  std::vector<Vec3> positions;
  for (int n = 0; n < 32 * 32 * 32; ++n) {
    positions.push_back({(n % 32 + 0.5) * 1.25, (n / 32 % 32 + 0.5) * 1.25, (n / 1024 + 0.5) * 1.25});
  }
  const auto [curve, splitters, shard_of] = cut(positions, testing::cube(40), CurveKind::hilbert, 64);
  for (int shard = 0; shard < 64; ++shard) {
    EXPECT_EQ(shards_within(shard, 6.0, splitters, curve).size(), 27U) << "shard " << shard;
    EXPECT_EQ(shards_within(shard, 16.0, splitters, curve).size(), 64U) << "shard " << shard;
  }
}

TEST(KeyRange, a_shard_without_keys_has_nobody_around)
{
  const Curve curve(CurveKind::hilbert, testing::cube(10), {});
  const Splitters splitters{{{100, 0}, {100, 0}}};
  EXPECT_TRUE(shards_within(1, 5.0, splitters, curve).empty());
  EXPECT_EQ(shards_within(0, 5.0, splitters, curve), (std::vector<int>{0, 2}));
}

}  // namespace
}  // namespace tessera
