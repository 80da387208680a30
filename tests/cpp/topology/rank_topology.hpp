// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hard_systems.hpp"
#include "tessera/comm/virtual.hpp"
#include "tessera/partition/reshard.hpp"
#include "tessera/plan/halo_exchange.hpp"
#include "tessera/search/cell_search.hpp"
#include "tessera/topology/topology.hpp"

namespace tessera::testing {

/// An edge by the ids of its atoms: receiver, sender, shift; the same whatever the ranks and rows.
using Edge = std::tuple<std::int64_t, std::int64_t, Shift>;

/// How a test divides the work.
struct Layout {
  int num_ranks = 1;
  CurveKind kind = CurveKind::hilbert;
  PeerScheme scheme = PeerScheme::multi_box;
};

constexpr std::pair<PeerScheme, const char*> kSchemes[] = {{PeerScheme::multi_box, "multi-box"},
                                                           {PeerScheme::rank_box, "rank-box"},
                                                           {PeerScheme::key_range, "key-range"},
                                                           {PeerScheme::all_gather, "all-gather"},
                                                           {PeerScheme::spatial_bin, "spatial-bin"}};

/// Every scheme, curve and number of ranks, with its name.
inline std::vector<std::pair<Layout, std::string>> all_layouts()
{
  std::vector<std::pair<Layout, std::string>> layouts;
  for (const CurveKind kind : {CurveKind::hilbert, CurveKind::morton}) {
    for (const int num_ranks : {1, 2, 3, 4, 8}) {
      for (const auto& [scheme, name] : kSchemes) {
        layouts.push_back({{num_ranks, kind, scheme},
                           std::string(name) + " on " + std::to_string(num_ranks) + " ranks along " +
                               (kind == CurveKind::hilbert ? "hilbert" : "morton")});
      }
    }
  }
  return layouts;
}

/// What one rank of the engine holds after a rebuild.
struct RankTopology {
  ReshardPlan reshard;
  std::vector<Vec3> positions;  ///< owned
  Candidates candidates;
  Topology topology;
};

/// The caller's atoms of one rank: ids 1, 2, ... dealt in threes, so that no caller holds a stretch of any curve.
inline std::vector<std::int64_t> held_ids(std::size_t num_atoms, const Communicator& communicator)
{
  std::vector<std::int64_t> ids;
  for (std::int64_t n = 0; n < static_cast<std::int64_t>(num_atoms); ++n) {
    if ((n / 3) % communicator.num_ranks() == communicator.rank()) ids.push_back(n + 1);
  }
  return ids;
}

/// The values of the caller's atoms among values by id.
template <typename Value>
std::vector<Value> values_of(const std::vector<std::int64_t>& ids, const std::vector<Value>& by_id)
{
  std::vector<Value> values;
  for (const std::int64_t id : ids) values.push_back(by_id[id - 1]);
  return values;
}

/// Keys, splitters, reshard, candidates, pairs and plans, as the engine makes them; all ranks call this.
inline RankTopology build_rank(const HardSystem& system, const Layout& layout, const std::vector<double>& cutoffs,
                               double skin, const std::shared_ptr<Communicator>& comm, std::int64_t epoch = 1)
{
  const auto ids = held_ids(system.positions.size(), *comm);
  const auto held = values_of(ids, system.positions);
  const Curve curve(layout.kind, system.box, agree_on_extent(held, system.box, *comm));
  const auto keys = curve.keys_of(held);
  const Splitters splitters = cut_by_count(keys, ids, layout.num_ranks, *comm);
  ReshardPlan reshard = ReshardPlan::build(keys, ids, splitters, comm);
  auto positions = reshard.forward<Vec3>(held);
  const CandidateQuery query{layout.scheme, 8, cutoffs.back() + skin, &curve, &splitters, 0};
  Candidates candidates = find_candidates(query, positions, system.box, *comm);
  Topology topology = build_topology(positions, candidates, system.box, cutoffs, skin, epoch, cell_search, *comm);
  return {std::move(reshard), std::move(positions), std::move(candidates), std::move(topology)};
}

/// Values of owned rows followed by what the plan's exchange brings; all ranks call this.
template <typename Value>
std::vector<Value> extend_by(const std::shared_ptr<const HaloPlan>& plan, const std::vector<Value>& owned,
                             const std::shared_ptr<Communicator>& comm)
{
  static_assert(sizeof(Value) % sizeof(double) == 0);
  std::vector<Value> rows = owned;
  rows.resize(owned.size() + plan->num_halo);
  HaloExchange exchange(plan, comm, 50);
  exchange.start_forward(owned.data(), sizeof(Value) / sizeof(double), Scalar::float64);
  exchange.wait_forward(rows.data() + owned.size());
  return rows;
}

/// Ids of a list's own extended rows, carried by its own plan; all ranks call this.
inline std::vector<std::int64_t> extended_ids(const RankTopology& rank, const TopologyList& list,
                                              const std::shared_ptr<Communicator>& comm)
{
  const auto row_ids = rank.reshard.row_ids();
  const auto numbers = extend_by(list.plan, std::vector<double>(row_ids.begin(), row_ids.end()), comm);
  return {numbers.begin(), numbers.end()};
}

/// Edges of all ranks, one set a list, sorted.
using EdgeSets = std::vector<std::vector<Edge>>;

/// Runs `find` on every rank and unites what the ranks return; [lists].
inline EdgeSets unite(int num_ranks, const std::function<EdgeSets(const std::shared_ptr<Communicator>&)>& find)
{
  EdgeSets all;
  std::mutex mutex;
  run_virtual_ranks(num_ranks, [&](const std::shared_ptr<Communicator>& comm) {
    const EdgeSets mine = find(comm);
    const std::scoped_lock lock(mutex);
    all.resize(mine.size());
    for (std::size_t l = 0; l < mine.size(); ++l) all[l].insert(all[l].end(), mine[l].begin(), mine[l].end());
  });
  for (auto& edges : all) std::sort(edges.begin(), edges.end());
  return all;
}

/// The first edge that only one of two sorted sets holds, in words.
inline std::string first_difference(const std::vector<Edge>& found, const std::vector<Edge>& expected)
{
  std::vector<Edge> missing, extra;
  std::set_difference(expected.begin(), expected.end(), found.begin(), found.end(), std::back_inserter(missing));
  std::set_difference(found.begin(), found.end(), expected.begin(), expected.end(), std::back_inserter(extra));
  const auto name = [](const Edge& edge) {
    const auto& [i, j, s] = edge;
    return "atom " + std::to_string(i) + " <- atom " + std::to_string(j) + " shift " + std::to_string(s[0]) + " " +
           std::to_string(s[1]) + " " + std::to_string(s[2]);
  };
  std::string text = std::to_string(missing.size()) + " missing, " + std::to_string(extra.size()) + " extra";
  if (!missing.empty()) text += "; missing " + name(missing.front());
  if (!extra.empty()) text += "; extra " + name(extra.front());
  return text;
}

}  // namespace tessera::testing
