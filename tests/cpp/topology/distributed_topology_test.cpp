// SPDX-License-Identifier: MIT
// The whole way from a caller's atoms to pairs and halo plans on many ranks, against brute force on all atoms.
#include <gtest/gtest.h>

#include <set>

#include "topology/rank_topology.hpp"

namespace tessera {
namespace {

using testing::Edge;
using testing::EdgeSets;
using testing::HardSystem;
using testing::Layout;
using testing::RankTopology;
using Comm = std::shared_ptr<Communicator>;

// Both lists and the skin stay within the reach for which the systems are hard.
std::vector<double> cutoffs_of(const HardSystem& system) { return {0.5 * system.cutoff, 0.8 * system.cutoff}; }
double skin_of(const HardSystem& system) { return 0.2 * system.cutoff; }

EdgeSets brute_force_sets(const HardSystem& system)
{
  EdgeSets sets;
  for (const double cutoff : cutoffs_of(system)) {
    const auto list = brute_force_search(system.positions, static_cast<std::int64_t>(system.positions.size()),
                                         system.box, cutoff + skin_of(system));
    std::vector<Edge> edges;
    for (std::int64_t e = 0; e < list.num_edges(); ++e) {
      edges.emplace_back(list.receiver[e] + 1, list.sender[e] + 1, list.shift[e]);  // ids count from 1
    }
    sets.push_back(std::move(edges));
  }
  return sets;
}

RankTopology build(const HardSystem& system, const Layout& layout, const Comm& comm)
{
  return testing::build_rank(system, layout, cutoffs_of(system), skin_of(system), comm);
}

/// A list's pairs by ids, senders read through the list's own rows.
std::vector<Edge> edges_by_id(const RankTopology& rank, const TopologyList& list, const Comm& comm)
{
  const auto ids = testing::extended_ids(rank, list, comm);
  std::vector<Edge> edges;
  for (std::int64_t e = 0; e < list.pairs.num_edges(); ++e) {
    edges.emplace_back(ids[list.pairs.receiver[e]], ids.at(list.own_row(list.pairs.sender[e])), list.pairs.shift[e]);
  }
  return edges;
}

class DistributedTopology : public ::testing::TestWithParam<HardSystem> {};

TEST_P(DistributedTopology, the_union_of_the_ranks_edges_is_that_of_brute_force)
{
  const HardSystem& system = GetParam();
  const EdgeSets expected = brute_force_sets(system);
  for (const auto& [layout, name] : testing::all_layouts()) {
    SCOPED_TRACE(name);
    const EdgeSets found = testing::unite(layout.num_ranks, [&](const Comm& comm) {
      const RankTopology rank = build(system, layout, comm);
      EdgeSets sets;
      for (const TopologyList& list : rank.topology.lists) sets.push_back(edges_by_id(rank, list, comm));
      return sets;
    });
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t l = 0; l < expected.size(); ++l) {
      EXPECT_EQ(found[l], expected[l]) << "list " << l << ": " << testing::first_difference(found[l], expected[l]);
    }
  }
}

/// Halo rows: exactly the atoms of others that some pair reads, each once.
void expect_one_halo_row_an_atom(const RankTopology& rank, const TopologyList& list, const Comm& comm)
{
  const auto ids = testing::extended_ids(rank, list, comm);
  const auto first_halo = ids.begin() + static_cast<std::ptrdiff_t>(rank.positions.size());
  const std::set<std::int64_t> owned(ids.begin(), first_halo), halo(first_halo, ids.end());
  EXPECT_EQ(owned.size(), rank.positions.size());
  EXPECT_EQ(static_cast<std::int64_t>(halo.size()), list.plan->num_halo) << "an atom has two halo rows";
  std::set<std::int64_t> read;
  for (const std::int64_t row : list.pairs.sender) {
    const std::int64_t id = ids.at(list.own_row(row));
    if (!owned.contains(id)) read.insert(id);
  }
  EXPECT_EQ(halo, read) << "a halo row is not read by any pair, or an owned atom has one";
}

/// The narrower list counts its halo rows itself; positions and forces are held in the widest list's rows.
void expect_same_atoms_in_both_rows(const RankTopology& rank, const TopologyList& list, const Comm& comm)
{
  const auto own = testing::extended_ids(rank, list, comm);
  const auto wide = testing::extended_ids(rank, rank.topology.widest(), comm);
  std::set<std::int64_t> reached;
  ASSERT_EQ(list.halo_row.size(), static_cast<std::size_t>(rank.topology.num_halo()));
  for (std::int64_t row = 0; row < static_cast<std::int64_t>(wide.size()); ++row) {
    const bool is_halo = row >= rank.topology.num_owned;
    if (is_halo && list.halo_row[row - rank.topology.num_owned] < 0) continue;
    const std::int64_t own_row = list.own_row(row);
    EXPECT_EQ(own.at(own_row), wide[row]) << "row " << row;
    reached.insert(own_row);
  }
  EXPECT_EQ(reached.size(), own.size()) << "a row of the list is no row of the widest one";
}

TEST_P(DistributedTopology, an_atom_has_one_halo_row_and_every_list_finds_it)
{
  const HardSystem& system = GetParam();
  for (const int num_ranks : {2, 3, 8}) {
    SCOPED_TRACE(num_ranks);
    run_virtual_ranks(num_ranks, [&](const Comm& comm) {
      const RankTopology rank = build(system, {num_ranks}, comm);
      for (const TopologyList& list : rank.topology.lists) {
        list.plan->validate();
        expect_one_halo_row_an_atom(rank, list, comm);
        expect_same_atoms_in_both_rows(rank, list, comm);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(HardSystems, DistributedTopology, ::testing::ValuesIn(testing::hard_systems()),
                         [](const auto& info) { return info.param.name; });

TEST(DistributedTopologyHalo, an_atom_read_under_many_images_has_one_halo_row)
{
  // Two atoms in a cell of a third of the reach: each reads the other under dozens of images.
  const HardSystem system{"two_atoms", {{0.2, 0.3, 0.4}, {1.1, 1.3, 0.9}}, testing::cube(2), 6.0};
  run_virtual_ranks(2, [&](const Comm& comm) {
    const RankTopology rank = build(system, {2}, comm);
    EXPECT_EQ(rank.topology.num_halo(), 1);
    const auto& senders = rank.topology.widest().pairs.sender;
    EXPECT_GT(std::count(senders.begin(), senders.end(), 1), 50) << "row 1 is the halo atom";
  });
}

}  // namespace
}  // namespace tessera
