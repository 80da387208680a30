// SPDX-License-Identifier: MIT
#include "tessera/topology/topology.hpp"

#include "tessera/base/error.hpp"
#include "tessera/plan/build_halo_plan.hpp"
#include "tessera/search/edge_vector.hpp"

namespace tessera {

namespace {

/// Numbers the extended rows that appear among `senders`, in their order; -1 for the others.
std::vector<std::int64_t> number_used_rows(std::span<const std::int64_t> senders, std::int64_t num_owned,
                                           std::int64_t num_halo)
{
  std::vector<std::int64_t> number(num_halo, -1);
  for (const std::int64_t j : senders) {
    if (j >= num_owned) number[j - num_owned] = 0;
  }
  std::int64_t next = 0;
  for (std::int64_t& n : number) {
    if (n == 0) n = next++;
  }
  return number;
}

/// Asks the owners for the rows with a number; `owner_rank` ascends.
std::shared_ptr<const HaloPlan> plan_for(std::span<const std::int64_t> number, std::span<const std::int32_t> owner_rank,
                                         std::span<const std::int64_t> owner_row, std::int64_t epoch,
                                         std::int64_t num_owned, Communicator& communicator)
{
  std::vector<NeededRows> needed;
  for (std::size_t k = 0; k < number.size(); ++k) {
    if (number[k] < 0) continue;
    if (needed.empty() || needed.back().rank != owner_rank[k]) needed.push_back({owner_rank[k], {}});
    needed.back().rows.push_back(owner_row[k]);
  }
  return std::make_shared<const HaloPlan>(build_halo_plan(epoch, num_owned, needed, communicator));
}

/// Keeps the entries with a number.
template <typename Value>
std::vector<Value> keep_numbered(std::span<const Value> values, std::span<const std::int64_t> number)
{
  std::vector<Value> kept;
  for (std::size_t k = 0; k < number.size(); ++k) {
    if (number[k] >= 0) kept.push_back(values[k]);
  }
  return kept;
}

/// The pairs of `wide` whose distance is at most `reach`.
NeighborList narrow(const NeighborList& wide, std::span<const Vec3> positions, const Box& box, double reach)
{
  NeighborList kept;
  kept.cutoff = reach;
  kept.num_receivers = wide.num_receivers;
  for (std::int64_t e = 0; e < wide.num_edges(); ++e) {
    const Vec3 v = edge_vector(positions[wide.receiver[e]], positions[wide.sender[e]], wide.shift[e], box);
    if (dot(v, v) > reach * reach) continue;
    kept.receiver.push_back(wide.receiver[e]);
    kept.sender.push_back(wide.sender[e]);
    kept.shift.push_back(wide.shift[e]);
  }
  return kept;
}

}  // namespace

Topology build_topology(std::span<const Vec3> positions, const Candidates& candidates, const Box& box,
                        std::span<const double> cutoffs, double skin, std::int64_t epoch, const PairSearch& search,
                        Communicator& communicator)
{
  TESSERA_REQUIRE(!cutoffs.empty(), "a topology needs at least one cutoff");
  const auto num_owned = static_cast<std::int64_t>(positions.size());
  std::vector<Vec3> extended(positions.begin(), positions.end());
  extended.insert(extended.end(), candidates.positions.begin(), candidates.positions.end());

  NeighborList widest = search(extended, num_owned, box, cutoffs.back() + skin);
  const auto halo_of_candidate = number_used_rows(widest.sender, num_owned, candidates.count());
  for (std::int64_t& j : widest.sender) {
    if (j >= num_owned) j = num_owned + halo_of_candidate[j - num_owned];
  }
  const auto owner_rank = keep_numbered<std::int32_t>(candidates.rank, halo_of_candidate);
  const auto owner_row = keep_numbered<std::int64_t>(candidates.row, halo_of_candidate);
  auto halo_positions = keep_numbered<Vec3>(candidates.positions, halo_of_candidate);
  extended.resize(num_owned);
  extended.insert(extended.end(), halo_positions.begin(), halo_positions.end());

  Topology topology{epoch, num_owned, {}, candidates.count(), candidates.num_peers};
  for (const double cutoff : cutoffs) {
    const bool is_widest = cutoff == cutoffs.back();
    NeighborList pairs = is_widest ? std::move(widest) : narrow(widest, extended, box, cutoff + skin);
    auto number = number_used_rows(pairs.sender, num_owned, static_cast<std::int64_t>(owner_row.size()));
    auto plan = plan_for(number, owner_rank, owner_row, epoch, num_owned, communicator);
    topology.lists.push_back({cutoff, std::move(pairs), std::move(plan), std::move(number)});
  }
  return topology;
}

}  // namespace tessera
