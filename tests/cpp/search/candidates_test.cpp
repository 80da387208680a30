// SPDX-License-Identifier: MIT
#include "tessera/search/candidates.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <tuple>

#include "search/sharded_system.hpp"
#include "tessera/base/error.hpp"
#include "tessera/comm/virtual.hpp"
#include "tessera/search/cell_search.hpp"

namespace tessera {
namespace {

using testing::HardSystem;
using testing::ShardedSystem;
using Edge = std::tuple<std::int64_t, std::int64_t, Shift>;  // atoms of the whole system

constexpr PeerScheme kSchemes[] = {PeerScheme::multi_box, PeerScheme::rank_box, PeerScheme::key_range,
                                   PeerScheme::all_gather, PeerScheme::spatial_bin};
const char* const kSchemeNames[] = {"multi-box", "rank-box", "key-range", "all-gather", "spatial-bin"};

constexpr std::int64_t kLargestBruteForce = 500;  // atoms; beyond, cell_search, which its own test holds against it

std::vector<Edge> whole_edges(const HardSystem& system)
{
  const auto num_atoms = static_cast<std::int64_t>(system.positions.size());
  const bool is_small = num_atoms <= kLargestBruteForce;
  const auto list =
      (is_small ? brute_force_search : cell_search)(system.positions, num_atoms, system.box, system.cutoff);
  std::vector<Edge> edges;
  for (std::int64_t e = 0; e < list.num_edges(); ++e)
    edges.emplace_back(list.receiver[e], list.sender[e], list.shift[e]);
  return edges;
}

struct Found {
  std::vector<Edge> edges;               ///< of all ranks, sorted
  std::vector<std::int64_t> candidates;  ///< per rank
  std::vector<std::int64_t> peers;       ///< per rank
};

/// Searches `now` on the shards of a cut, each rank its own receivers.
Found search_shards(const HardSystem& now, const ShardedSystem& sharded, PeerScheme scheme, double drift = 0)
{
  const int num_ranks = sharded.splitters.num_shards();
  Found found;
  found.candidates.resize(num_ranks);
  found.peers.resize(num_ranks);
  std::mutex mutex;
  run_virtual_ranks(num_ranks, [&](const std::shared_ptr<Communicator>& comm) {
    const int me = comm->rank();
    std::vector<Vec3> positions = sharded.positions_of(me, now.positions);
    const auto num_owned = static_cast<std::int64_t>(positions.size());
    CandidateQuery query;
    query.scheme = scheme;
    query.reach = now.cutoff;
    query.curve = &sharded.curve;
    query.splitters = &sharded.splitters;
    query.drift = drift;
    const Candidates candidates = find_candidates(query, positions, now.box, *comm);

    std::vector<std::int64_t> atom_of = sharded.atoms[me];
    for (std::int64_t k = 0; k < candidates.count(); ++k) {
      EXPECT_NE(candidates.rank[k], me);
      const bool is_ascending = k == 0 || std::tie(candidates.rank[k - 1], candidates.row[k - 1]) <
                                              std::tie(candidates.rank[k], candidates.row[k]);
      EXPECT_TRUE(is_ascending) << "candidate " << k << " is out of order or there twice";
      atom_of.push_back(sharded.atoms[candidates.rank[k]][candidates.row[k]]);
      EXPECT_EQ(candidates.positions[k], now.positions[atom_of.back()]);
    }
    positions.insert(positions.end(), candidates.positions.begin(), candidates.positions.end());
    const std::set<std::int32_t> distinct(candidates.rank.begin(), candidates.rank.end());
    EXPECT_EQ(candidates.num_peers, static_cast<std::int64_t>(distinct.size()));
    const auto list = cell_search(positions, num_owned, now.box, now.cutoff);
    const std::scoped_lock lock(mutex);
    found.candidates[me] = candidates.count();
    found.peers[me] = candidates.num_peers;
    for (std::int64_t e = 0; e < list.num_edges(); ++e) {
      found.edges.emplace_back(atom_of[list.receiver[e]], atom_of[list.sender[e]], list.shift[e]);
    }
  });
  std::sort(found.edges.begin(), found.edges.end());
  return found;
}

class EveryScheme : public ::testing::TestWithParam<HardSystem> {};

TEST_P(EveryScheme, finds_the_edges_of_brute_force_on_any_number_of_ranks_and_either_curve)
{
  const auto expected = whole_edges(GetParam());
  for (const CurveKind kind : {CurveKind::hilbert, CurveKind::morton}) {
    for (const int num_ranks : {1, 2, 3, 4, 8}) {
      const auto sharded = testing::cut_system(GetParam(), num_ranks, kind);
      for (int k = 0; k < 5; ++k) {
        SCOPED_TRACE(std::string(kSchemeNames[k]) + " on " + std::to_string(num_ranks) + " ranks");
        EXPECT_EQ(search_shards(GetParam(), sharded, kSchemes[k]).edges, expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HardSystems, EveryScheme, ::testing::ValuesIn(testing::hard_systems()),
                         [](const auto& info) { return info.param.name; });

/// A liquid big enough for 8 shards that are larger than the reach.
HardSystem liquid() { return testing::scattered("liquid", 4000, testing::cube(34), 4.0, 31); }

TEST(Candidates, the_closer_a_scheme_follows_the_shards_the_fewer_candidates_travel)
{
  // 16 ranks: Hilbert shards of a cube that are no boxes themselves.
  const auto sharded = testing::cut_system(liquid(), 16, CurveKind::hilbert);
  const auto total = [&](PeerScheme scheme) {
    const auto found = search_shards(liquid(), sharded, scheme).candidates;
    return std::accumulate(found.begin(), found.end(), std::int64_t{0});
  };
  const auto all = total(PeerScheme::all_gather);
  EXPECT_EQ(all, 15 * 4000);
  EXPECT_LT(total(PeerScheme::rank_box), all);
  EXPECT_LT(total(PeerScheme::multi_box), 0.9 * static_cast<double>(total(PeerScheme::rank_box)));
  EXPECT_LT(total(PeerScheme::key_range), 0.9 * static_cast<double>(total(PeerScheme::rank_box)));
  EXPECT_LT(total(PeerScheme::spatial_bin), all);
}

/// Whether some image of `atom` comes within `reach` of the bounding box of `others`, along every axis of a cube.
bool is_near_box(const Vec3& atom, const std::vector<Vec3>& others, double reach, double edge)
{
  for (int a = 0; a < 3; ++a) {
    double low = others[0][a], high = others[0][a];
    for (const Vec3& r : others) {
      low = std::min(low, r[a]);
      high = std::max(high, r[a]);
    }
    const auto is_within = [&](double x) { return x >= low - reach && x <= high + reach; };
    if (!is_within(atom[a]) && !is_within(atom[a] - edge) && !is_within(atom[a] + edge)) return false;
  }
  return true;
}

TEST(Candidates, of_rank_box_are_the_atoms_within_reach_of_the_bounding_box_and_no_others)
{
  const HardSystem system = liquid();
  const auto sharded = testing::cut_system(system, 8, CurveKind::hilbert);
  const auto found = search_shards(system, sharded, PeerScheme::rank_box);
  for (int me = 0; me < 8; ++me) {
    const auto mine = sharded.positions_of(me, system.positions);
    std::int64_t expected = 0;
    for (int other = 0; other < 8; ++other) {
      if (other == me) continue;
      for (const Vec3& r : sharded.positions_of(other, system.positions)) {
        expected += is_near_box(r, mine, system.cutoff, 34) ? 1 : 0;
      }
    }
    EXPECT_EQ(found.candidates[me], expected) << "rank " << me;
  }
}

TEST(Candidates, a_shard_without_atoms_has_none)
{
  const HardSystem system = testing::scattered("three_atoms", 3, testing::cube(9), 5.0, 12);
  const auto sharded = testing::cut_system(system, 5, CurveKind::hilbert);
  for (const PeerScheme scheme : kSchemes) {
    if (scheme == PeerScheme::all_gather || scheme == PeerScheme::key_range) continue;  // they do not look at atoms
    const auto found = search_shards(system, sharded, scheme);
    for (int rank = 0; rank < 5; ++rank) {
      if (!sharded.atoms[rank].empty()) continue;
      EXPECT_EQ(found.candidates[rank], 0) << "rank " << rank;
    }
  }
}

TEST(Candidates, a_droplet_divided_in_two_far_apart_parts_has_no_candidates_between_them)
{
  HardSystem system{"two_droplets", {}, testing::cube(100), 4.0};
  for (const Vec3& r : testing::scatter_atoms(60, testing::cube(8), 3)) {
    system.positions.push_back(r + Vec3{20, 20, 20});
    system.positions.push_back(r + Vec3{70, 70, 70});
  }
  const auto sharded = testing::cut_system(system, 2, CurveKind::hilbert);
  for (const PeerScheme scheme : kSchemes) {
    if (scheme == PeerScheme::all_gather || scheme == PeerScheme::key_range) continue;  // they do not look at atoms
    const auto found = search_shards(system, sharded, scheme);
    EXPECT_EQ(found.candidates, (std::vector<std::int64_t>{0, 0}));
    EXPECT_EQ(found.peers, (std::vector<std::int64_t>{0, 0}));
  }
}

/// Moves every atom by exactly `distance` in a random direction.
HardSystem drifted(HardSystem system, double distance)
{
  std::mt19937_64 random(12);
  std::normal_distribution<double> normal;
  for (Vec3& r : system.positions) {
    const Vec3 direction{normal(random), normal(random), normal(random)};
    r = r + (distance / std::sqrt(dot(direction, direction))) * direction;
  }
  return system;
}

TEST(Candidates, atoms_that_cross_a_face_of_the_cell_do_not_widen_a_shard_to_the_whole_axis)
{
  const auto sharded = testing::cut_system(liquid(), 16, CurveKind::hilbert);
  const HardSystem now = drifted(liquid(), 0.5);
  const auto total = [&](const HardSystem& system, PeerScheme scheme) {
    const auto found = search_shards(system, sharded, scheme).candidates;
    return static_cast<double>(std::accumulate(found.begin(), found.end(), std::int64_t{0}));
  };
  for (const PeerScheme scheme : {PeerScheme::multi_box, PeerScheme::rank_box}) {
    EXPECT_LT(total(now, scheme), 1.2 * total(liquid(), scheme));  // as much as shards grow by 0.5 Å each way
  }
  EXPECT_EQ(search_shards(now, sharded, PeerScheme::multi_box).edges, whole_edges(now));
}

TEST(KeyRange, atoms_that_have_drifted_since_the_cut_are_still_found)
{
  constexpr double kDrift = 1.5;  // Å
  for (const auto& system : testing::hard_systems()) {
    SCOPED_TRACE(system.name);
    const auto sharded = testing::cut_system(system, 4, CurveKind::hilbert);
    const HardSystem now = drifted(system, kDrift);
    EXPECT_EQ(search_shards(now, sharded, PeerScheme::key_range, kDrift).edges, whole_edges(now));
  }
}

TEST(KeyRange, shards_that_drift_towards_each_other_become_peers)
{
  // 64 shards are cubes of about 8.5 Å; those two apart are out of reach (2 Å) at the cut, and within it after both
  // moved.
  constexpr double kDrift = 3.5;  // Å
  HardSystem now = liquid();
  now.cutoff = 2;
  const auto sharded = testing::cut_system(now, 64, CurveKind::hilbert);
  const auto at_rest = search_shards(now, sharded, PeerScheme::key_range);
  for (Vec3& r : now.positions) r[0] += r[0] < 17 ? kDrift : -kDrift;
  const auto moved = search_shards(now, sharded, PeerScheme::key_range, kDrift);
  EXPECT_EQ(moved.edges, whole_edges(now));
  EXPECT_GT(*std::max_element(moved.peers.begin(), moved.peers.end()),
            *std::max_element(at_rest.peers.begin(), at_rest.peers.end()));
}

TEST(KeyRange, a_cell_that_deforms_with_its_atoms_since_the_cut_is_allowed_for)
{
  const HardSystem system = liquid();
  const auto sharded = testing::cut_system(system, 16, CurveKind::hilbert);
  HardSystem now = system;
  now.box = Box({Vec3{28, 0, 0}, Vec3{8, 25, 0}, Vec3{-6, 10, 30}}, {1, 2, 3}, testing::kPeriodic);
  for (Vec3& r : now.positions) r = now.box.to_cartesian(system.box.to_fractional(r));
  EXPECT_EQ(search_shards(now, sharded, PeerScheme::key_range).edges, whole_edges(now));
}

TEST(CandidatesInput, a_reach_a_drift_or_a_box_count_without_meaning_is_refused)
{
  const auto comm = make_serial_communicator();
  const std::vector<Vec3> positions{{1, 1, 1}};
  const auto refuses = [&](auto change) {
    CandidateQuery query;
    query.reach = 3;
    change(query);
    EXPECT_THROW((void)find_candidates(query, positions, testing::cube(9), *comm), Error);
  };
  refuses([](CandidateQuery& query) { query.reach = 0; });
  refuses([](CandidateQuery& query) { query.drift = -1; });
  refuses([](CandidateQuery& query) { query.boxes_per_rank = 0; });
  refuses([](CandidateQuery& query) { query.scheme = PeerScheme::key_range; });  // without a cut
}

TEST(CandidatesInput, scheme_names_are_read_and_unknown_ones_are_answered_with_the_choices)
{
  for (int k = 0; k < 5; ++k) EXPECT_EQ(parse_peer_scheme(kSchemeNames[k]), kSchemes[k]);
  try {
    (void)parse_peer_scheme("multi_box");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.reach(), Reach::collective);
    EXPECT_NE(std::string(error.what()).find("found 'multi_box'"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
