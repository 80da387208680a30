// SPDX-License-Identifier: MIT
#include "tessera/engine/geometry.hpp"

#include <gtest/gtest.h>

#include "tessera/base/error.hpp"
#include "topology/rank_topology.hpp"

namespace tessera {
namespace {

using testing::Edge;
using testing::EdgeSets;
using testing::HardSystem;
using testing::Layout;
using testing::RankTopology;
using Comm = std::shared_ptr<Communicator>;

constexpr double kSkin = 0.9;  // Å

std::vector<double> cutoffs_of(const HardSystem& system) { return {0.5 * system.cutoff, 0.8 * system.cutoff}; }

/// Moves every atom by a random step a little shorter than `distance`.
std::vector<Vec3> moved_by(const std::vector<Vec3>& positions, double distance, unsigned seed)
{
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Vec3> moved;
  for (const Vec3& r : positions) {
    const Vec3 direction{normal(random), normal(random), normal(random)};
    moved.push_back(r + (0.999 * distance / std::sqrt(dot(direction, direction))) * direction);
  }
  return moved;
}

/// Order does not matter; distinct sets collide with probability 2^-64.
std::uint64_t hash_of(const std::vector<Edge>& edges)
{
  std::uint64_t sum = 0;
  for (const auto& [i, j, shift] : edges) {
    std::uint64_t hash = 0;
    for (const std::int64_t value : {i, j, std::int64_t{shift[0]}, std::int64_t{shift[1]}, std::int64_t{shift[2]}}) {
      hash += static_cast<std::uint64_t>(value) + 0x9E3779B97F4A7C15U;  // splitmix64 (Steele et al. 2014)
      hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9U;
      hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBU;
      hash ^= hash >> 31;
    }
    sum += hash;
  }
  return sum;
}

/// Edges within the bare cutoffs at `now`, from lists that were built at `then` with a skin.
EdgeSets active_edges(const HardSystem& then, const std::vector<Vec3>& now, double skin, const Layout& layout)
{
  return testing::unite(layout.num_ranks, [&](const Comm& comm) {
    const RankTopology rank = testing::build_rank(then, layout, cutoffs_of(then), skin, comm);
    const auto held = testing::values_of(testing::held_ids(now.size(), *comm), now);
    const auto positions = testing::extend_by(rank.topology.widest().plan, rank.reshard.forward<Vec3>(held), comm);
    const auto wide_ids = testing::extended_ids(rank, rank.topology.widest(), comm);
    EdgeSets sets;
    for (const TopologyList& list : rank.topology.lists) {
      const auto ids = testing::extended_ids(rank, list, comm);
      const ActiveEdges active = find_active_edges(list, positions, then.box);
      std::vector<Edge> edges;
      for (std::size_t e = 0; e < active.receiver.size(); ++e) {
        EXPECT_EQ(ids.at(active.sender[e]), wide_ids.at(active.row[e])) << "one atom in either numbering";
        // An active edge does not carry its shift; its vector tells it.
        const Vec3 offset = positions[active.receiver[e]] - positions[active.row[e]] - active.vectors[e];
        const Box at_zero(then.box.cell(), Vec3{}, then.box.periodic());
        const Vec3 turns = at_zero.to_fractional(offset);
        Shift shift{};
        for (int k = 0; k < 3; ++k) shift[k] = static_cast<std::int32_t>(std::lround(turns[k]));
        edges.emplace_back(ids[active.receiver[e]], ids[active.sender[e]], shift);
      }
      sets.push_back(std::move(edges));
    }
    return sets;
  });
}

/// What a fresh search without a skin makes active at these positions.
EdgeSets fresh_edges(const HardSystem& then, const std::vector<Vec3>& now, const Layout& layout)
{
  HardSystem fresh = then;
  fresh.positions = now;
  return active_edges(fresh, now, 0, layout);
}

class ActiveEdgesOf : public ::testing::TestWithParam<HardSystem> {};

TEST_P(ActiveEdgesOf, a_list_kept_within_its_skin_are_those_of_a_fresh_search)
{
  const HardSystem& system = GetParam();
  const auto now = moved_by(system.positions, kSkin / 2, 1);
  for (const auto& [layout, name] : testing::all_layouts()) {
    SCOPED_TRACE(name);
    const EdgeSets kept = active_edges(system, now, kSkin, layout);
    const EdgeSets fresh = fresh_edges(system, now, layout);
    ASSERT_EQ(kept.size(), fresh.size());
    for (std::size_t l = 0; l < fresh.size(); ++l) {
      EXPECT_EQ(hash_of(kept[l]), hash_of(fresh[l]))
          << "list " << l << ": " << testing::first_difference(kept[l], fresh[l]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HardSystems, ActiveEdgesOf, ::testing::ValuesIn(testing::hard_systems()),
                         [](const auto& info) { return info.param.name; });

TEST(ActiveEdges, a_list_kept_beyond_its_skin_misses_some_and_the_hash_tells)
{
  const HardSystem system = testing::scattered("liquid", 900, testing::cube(21), 5.0, 3);
  const auto now = moved_by(system.positions, 2 * kSkin, 1);
  const Layout layout{3};
  const EdgeSets kept = active_edges(system, now, kSkin, layout), fresh = fresh_edges(system, now, layout);
  EXPECT_LT(kept[1].size(), fresh[1].size());
  EXPECT_NE(hash_of(kept[1]), hash_of(fresh[1]));
}

TEST(ActiveEdges, beyond_the_cutoff_are_left_out_and_at_it_kept)
{
  const HardSystem system{"three_atoms", {{1, 1, 1}, {3.5, 1, 1}, {1, 1, 4}}, testing::cube(20), 5.0};
  const EdgeSets found = active_edges(system, system.positions, kSkin, {1});
  EXPECT_EQ(found[0], (std::vector<Edge>{{1, 2, Shift{}}, {2, 1, Shift{}}}));  // 2.5 Å is the first cutoff
  EXPECT_EQ(found[1].size(), 6U);                                              // all three pairs are within 4 Å
}

TEST(ActiveEdges, of_coincident_atoms_are_refused_with_the_distance)
{
  HardSystem system{"coincident", {{1, 1, 1}, {1, 1, 1.00005}}, testing::cube(10), 5.0};
  try {
    (void)active_edges(system, system.positions, kSkin, {1});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("remove overlapping atoms"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera
