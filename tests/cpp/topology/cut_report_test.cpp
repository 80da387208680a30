// SPDX-License-Identifier: MIT
#include "tessera/topology/cut_report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>

#include "hard_systems.hpp"
#include "tessera/base/error.hpp"
#include "tessera/partition/splitters.hpp"
#include "tessera/search/cell_search.hpp"

namespace tessera {
namespace {

std::vector<NeighborList> all_edges(const testing::HardSystem& system, const std::vector<double>& cutoffs)
{
  std::vector<NeighborList> lists;
  for (const double cutoff : cutoffs) {
    lists.push_back(
        brute_force_search(system.positions, static_cast<std::int64_t>(system.positions.size()), system.box, cutoff));
  }
  return lists;
}

/// Counts the same from a list of all edges.
Contacts count_edge_by_edge(const NeighborList& list, const Division& division)
{
  const std::vector<std::int64_t> zeros(division.num_shards, 0);
  Contacts contacts{zeros, zeros, zeros, zeros, std::vector<std::vector<int>>(division.num_shards)};
  std::set<std::pair<int, std::int64_t>> halo;
  for (std::int64_t e = 0; e < list.num_edges(); ++e) {
    const int mine = division.shard_of[list.receiver[e]];
    ++contacts.edges[mine];
    if (division.shard_of[list.sender[e]] == mine)
      ++contacts.local_edges[mine];
    else
      halo.emplace(mine, list.sender[e]);
  }
  std::set<std::pair<int, int>> pairs;
  for (const auto& [reader, atom] : halo) {
    ++contacts.halo_rows[reader];
    ++contacts.sent_rows[division.shard_of[atom]];
    pairs.emplace(reader, division.shard_of[atom]);
  }
  for (const auto& [reader, owner] : pairs) contacts.peers[reader].push_back(owner);
  return contacts;
}

void expect_equal(const Contacts& found, const Contacts& expected, const std::string& name)
{
  EXPECT_EQ(found.edges, expected.edges) << name;
  EXPECT_EQ(found.local_edges, expected.local_edges) << name;
  EXPECT_EQ(found.halo_rows, expected.halo_rows) << name;
  EXPECT_EQ(found.sent_rows, expected.sent_rows) << name;
  EXPECT_EQ(found.peers, expected.peers) << name;
}

/// No lattice spacing of the hard systems is this part of their cutoff: no pair lies exactly at it.
constexpr double kShorter = 0.57;

/// Systems without pairs exactly at a cutoff, which wrapping may put on either side.
std::vector<testing::HardSystem> systems()
{
  auto all = testing::hard_systems();
  std::erase_if(all, [](const auto& system) { return system.name.find("atoms_on_faces") == 0; });
  all.push_back(testing::scattered("two_thousand_atoms", 2000, testing::cube(27), 5.0, 31));
  return all;
}

TEST(ContactCount, counts_agree_with_a_list_of_all_edges)
{
  std::mt19937_64 random(1);
  for (const auto& system : systems()) {
    const std::vector<double> cutoffs{kShorter * system.cutoff, system.cutoff};
    const auto edges = all_edges(system, cutoffs);
    std::vector<Division> divisions;
    for (const int num_shards : {1, 2, 7}) {
      Division division{num_shards, {}};
      for (std::size_t n = 0; n < system.positions.size(); ++n) {
        division.shard_of.push_back(static_cast<std::uint16_t>(random() % num_shards));
      }
      divisions.push_back(division);
    }
    for (const int num_threads : {1, 3}) {
      const auto found = count_contacts(system.positions, system.box, divisions, cutoffs, num_threads, {});
      for (std::size_t d = 0; d < divisions.size(); ++d) {
        for (std::size_t list = 0; list < cutoffs.size(); ++list) {
          expect_equal(found[d][list], count_edge_by_edge(edges[list], divisions[d]),
                       system.name + ", " + std::to_string(divisions[d].num_shards));
        }
      }
    }
  }
}

TEST(ContactCount, many_chunks_on_several_threads_lose_no_atom)
{
  const auto system = testing::scattered("gas", 20000, testing::cube(200), 5.0, 32);
  Division division{4, {}};
  for (int n = 0; n < 20000; ++n) division.shard_of.push_back(n % 4);
  const std::vector<double> cutoffs{5.0};
  const auto one = count_contacts(system.positions, system.box, std::span(&division, 1), cutoffs, 1, {});
  const auto three = count_contacts(system.positions, system.box, std::span(&division, 1), cutoffs, 3, {});
  expect_equal(three[0][0], one[0][0], system.name);
  const auto edges = cell_search(system.positions, 20000, system.box, 5.0).num_edges();
  EXPECT_EQ(std::accumulate(one[0][0].edges.begin(), one[0][0].edges.end(), std::int64_t{0}), edges);
}

TEST(ContactCount, a_progress_call_that_throws_ends_the_count)
{
  const auto system = testing::scattered("water", 40000, testing::cube(74), 12.0, 33);  // a second of work
  const Division division{1, std::vector<std::uint16_t>(40000, 0)};
  const std::vector<double> cutoffs{12.0};
  int num_calls = 0;
  const auto refuse = [&](double) {
    ++num_calls;
    throw std::runtime_error("interrupted");
  };
  EXPECT_THROW((void)count_contacts(system.positions, system.box, std::span(&division, 1), cutoffs, 2, refuse),
               std::runtime_error);
  EXPECT_EQ(num_calls, 1);  // at the first call, not at the end of the work
}

TEST(ContactCount, bad_input_is_refused)
{
  const std::vector<Vec3> positions(3);
  const Division division{2, {0, 1}};
  const std::vector<double> good{2.0}, descending{2.0, 1.0};
  const auto box = testing::cube(10);
  EXPECT_THROW((void)count_contacts(positions, box, std::span(&division, 1), good, 1, {}), Error);
  EXPECT_THROW((void)count_contacts(positions, box, {}, descending, 1, {}), Error);
  EXPECT_THROW((void)count_contacts(positions, box, {}, {}, 1, {}), Error);
}

TEST(CutReport, shards_are_those_of_the_cut_and_no_filter_misses_a_peer)
{
  const std::vector<int> shard_counts{1, 2, 5, 8};
  for (const auto& system : systems()) {
    const std::vector<double> cutoffs{kShorter * system.cutoff, system.cutoff};
    const auto edges = all_edges(system, cutoffs);
    for (const auto kind : {CurveKind::hilbert, CurveKind::morton}) {
      const auto reports = report_cuts(system.positions, system.box, kind, shard_counts, cutoffs, 8, 2, {});
      const auto comm = make_serial_communicator();
      const Curve curve(kind, system.box, agree_on_extent(system.positions, system.box, *comm));
      const auto keys = curve.keys_of(system.positions);
      std::vector<std::int64_t> ids(keys.size());
      std::iota(ids.begin(), ids.end(), 0);
      ASSERT_EQ(reports.size(), shard_counts.size());
      for (const auto& report : reports) {
        const auto splitters = cut_by_count(keys, ids, report.num_shards, *comm);
        Division division{report.num_shards, {}};
        std::vector<std::int64_t> owned(report.num_shards, 0);
        for (std::size_t n = 0; n < keys.size(); ++n) {
          division.shard_of.push_back(static_cast<std::uint16_t>(splitters.shard_of({keys[n], ids[n]})));
          ++owned[division.shard_of.back()];
        }
        EXPECT_EQ(report.owned, owned) << system.name;
        for (std::size_t list = 0; list < cutoffs.size(); ++list) {
          expect_equal(report.contacts[list], count_edge_by_edge(edges[list], division), system.name);
        }
        for (int shard = 0; shard < report.num_shards; ++shard) {
          if (owned[shard] == 0) continue;
          const int num_peers = static_cast<int>(report.contacts.back().peers[shard].size()) + 1;
          EXPECT_GE(report.rank_box_candidates[shard], num_peers) << system.name;
          EXPECT_GE(report.multi_box_candidates[shard], num_peers) << system.name;
          EXPECT_LE(report.multi_box_candidates[shard], report.rank_box_candidates[shard]) << system.name;
          EXPECT_GE(report.key_range_candidates[shard], num_peers) << system.name;
        }
      }
    }
  }
}

TEST(CutReport, a_number_of_ranks_out_of_range_is_refused)
{
  const std::vector<Vec3> positions(3);
  const std::vector<double> cutoffs{2.0};
  for (const int num_shards : {0, 65536}) {
    try {
      (void)report_cuts(positions, testing::cube(10), CurveKind::hilbert, std::span(&num_shards, 1), cutoffs, 8, 1, {});
      ADD_FAILURE() << num_shards << " ranks were taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), "expected 1 to 65535 ranks, found " + std::to_string(num_shards));
    }
  }
}

}  // namespace
}  // namespace tessera
