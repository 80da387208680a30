// SPDX-License-Identifier: MIT
#include "tessera/search/cell_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "hard_systems.hpp"
#include "tessera/base/error.hpp"
#include "tessera/search/edge_vector.hpp"

namespace tessera {
namespace {

using testing::cube;
using testing::HardSystem;
using Edge = std::tuple<std::int64_t, std::int64_t, Shift>;

std::vector<Edge> edges_of(const NeighborList& list)
{
  std::vector<Edge> edges;
  for (std::int64_t e = 0; e < list.num_edges(); ++e)
    edges.emplace_back(list.receiver[e], list.sender[e], list.shift[e]);
  return edges;
}

std::int64_t num_atoms(const HardSystem& system) { return static_cast<std::int64_t>(system.positions.size()); }

NeighborList search_all(const HardSystem& system)
{
  return cell_search(system.positions, num_atoms(system), system.box, system.cutoff);
}

class CellSearch : public ::testing::TestWithParam<HardSystem> {};

TEST_P(CellSearch, finds_the_edges_of_brute_force_in_the_same_order)
{
  const auto& system = GetParam();
  const auto expected = brute_force_search(system.positions, num_atoms(system), system.box, system.cutoff);
  EXPECT_EQ(edges_of(search_all(system)), edges_of(expected));
}

TEST_P(CellSearch, finds_the_edges_of_the_first_receivers_alone)
{
  const auto& system = GetParam();
  const auto num_receivers = num_atoms(system) / 3;
  const auto list = cell_search(system.positions, num_receivers, system.box, system.cutoff);
  auto expected = edges_of(search_all(system));
  std::erase_if(expected, [&](const Edge& edge) { return std::get<0>(edge) >= num_receivers; });
  EXPECT_EQ(edges_of(list), expected);
  EXPECT_EQ(list.num_receivers, num_receivers);
}

TEST_P(CellSearch, gives_every_edge_its_reverse_with_the_opposite_vector)
{
  const auto& system = GetParam();
  const auto edges = edges_of(search_all(system));
  const std::set<Edge> known(edges.begin(), edges.end());
  EXPECT_EQ(known.size(), edges.size()) << "an edge occurs twice";
  for (const auto& [i, j, s] : edges) {
    const Shift back{-s[0], -s[1], -s[2]};
    EXPECT_TRUE(known.contains({j, i, back})) << i << " <- " << j;
    const Vec3 v = edge_vector(system.positions[i], system.positions[j], s, system.box);
    const Vec3 w = edge_vector(system.positions[j], system.positions[i], back, system.box);
    EXPECT_EQ(v, -1.0 * w);
    EXPECT_LE(dot(v, v), system.cutoff * system.cutoff);
  }
}

TEST_P(CellSearch, does_not_depend_on_the_order_of_atoms)
{
  const auto& system = GetParam();
  std::vector<std::int64_t> order(system.positions.size());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
  HardSystem shuffled = system;
  for (std::size_t n = 0; n < order.size(); ++n) shuffled.positions[n] = system.positions[order[n]];
  auto edges = edges_of(search_all(shuffled));
  for (auto& [i, j, s] : edges) {
    i = order[i];
    j = order[j];
  }
  std::sort(edges.begin(), edges.end());
  EXPECT_EQ(edges, edges_of(search_all(system)));
}

INSTANTIATE_TEST_SUITE_P(HardSystems, CellSearch, ::testing::ValuesIn(testing::hard_systems()),
                         [](const auto& info) { return info.param.name; });

// An oracle of the oracle: explicit images of positions that are known to lie inside the cell.
TEST(BruteForceSearch, agrees_with_seven_explicit_images_an_axis)
{
  const Box box({Vec3{6, 0, 0}, Vec3{1.5, 5, 0}, Vec3{-2, 1, 5.5}}, {0, 0, 0}, testing::kPeriodic);
  const auto positions = testing::scatter_atoms(12, box, 21);
  const double cutoff = 5.0;
  std::vector<Edge> expected;
  for (std::int64_t i = 0; i < 12; ++i) {
    for (std::int64_t j = 0; j < 12; ++j) {
      for (std::int32_t x = -3; x <= 3; ++x) {
        for (std::int32_t y = -3; y <= 3; ++y) {
          for (std::int32_t z = -3; z <= 3; ++z) {
            Vec3 v = positions[i] - positions[j];
            for (int a = 0; a < 3; ++a) v[a] -= x * box.cell()[0][a] + y * box.cell()[1][a] + z * box.cell()[2][a];
            const bool is_self = i == j && x == 0 && y == 0 && z == 0;
            if (!is_self && dot(v, v) <= cutoff * cutoff) expected.emplace_back(i, j, Shift{x, y, z});
          }
        }
      }
    }
  }
  EXPECT_EQ(edges_of(brute_force_search(positions, 12, box, cutoff)), expected);
}

TEST(CellSearchOfALattice, counts_the_shells_of_a_simple_cubic_crystal_with_the_cutoff_on_the_shell)
{
  const auto crystal = testing::atoms_on_faces(6, 2.0);
  const auto neighbors_within = [&](double cutoff) {
    return cell_search(crystal.positions, num_atoms(crystal), crystal.box, cutoff).num_edges() / num_atoms(crystal);
  };
  EXPECT_EQ(neighbors_within(2.0), 6);
  EXPECT_EQ(neighbors_within(std::nextafter(2.0, 0.0)), 0);
  EXPECT_EQ(neighbors_within(4.0), 6 + 12 + 8 + 6);
  EXPECT_EQ(neighbors_within(std::nextafter(4.0, 0.0)), 6 + 12 + 8);
}

TEST(CellSearchOfALattice, one_atom_in_a_small_cell_sees_its_own_images)
{
  const auto list = cell_search(std::vector<Vec3>{{0.3, 0.4, 0.5}}, 1, cube(2), 4.0);
  EXPECT_EQ(list.num_edges(), 6 + 12 + 8 + 6);
  for (std::int64_t e = 0; e < list.num_edges(); ++e) EXPECT_NE(list.shift[e], Shift{});
}

TEST(CellSearchInput, a_position_that_is_not_finite_is_refused_by_row)
{
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    try {
      (void)cell_search(std::vector<Vec3>{{0, 0, 0}, {0, bad, 0}}, 2, cube(9), 3.0);
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("row 1 is not finite"), std::string::npos) << error.what();
    }
  }
}

TEST(CellSearchInput, a_cutoff_or_receiver_count_without_meaning_is_refused)
{
  const std::vector<Vec3> positions{{0, 0, 0}, {1, 0, 0}};
  EXPECT_THROW((void)cell_search(positions, 2, cube(9), 0.0), Error);
  EXPECT_THROW((void)cell_search(positions, 2, cube(9), -1.0), Error);
  EXPECT_THROW((void)cell_search(positions, 2, cube(9), std::numeric_limits<double>::infinity()), Error);
  EXPECT_THROW((void)cell_search(positions, 3, cube(9), 2.0), Error);
  EXPECT_THROW((void)cell_search(positions, -1, cube(9), 2.0), Error);
  EXPECT_THROW((void)cell_search(std::vector<Vec3>{{1e11, 0, 0}}, 1, cube(9), 2.0), Error);
}

}  // namespace
}  // namespace tessera
