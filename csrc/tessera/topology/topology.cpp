// SPDX-License-Identifier: MIT
#include "tessera/topology/topology.hpp"

#include "tessera/base/error.hpp"
#include "tessera/search/cell_search.hpp"

namespace tessera {

NeighborList narrow(const NeighborList& wide, std::span<const Vec3> positions, const Box& box, double cutoff)
{
  NeighborList kept;
  kept.cutoff = cutoff;
  kept.num_receivers = wide.num_receivers;
  const double cutoff_sq = cutoff * cutoff;
  for (std::int64_t e = 0; e < wide.num_edges(); ++e) {
    const Vec3 v = positions[wide.receiver[e]] - positions[wide.sender[e]] - box.translation(wide.shift[e]);
    if (dot(v, v) > cutoff_sq) continue;
    kept.receiver.push_back(wide.receiver[e]);
    kept.sender.push_back(wide.sender[e]);
    kept.shift.push_back(wide.shift[e]);
  }
  return kept;
}

Topology build_topology(std::span<const Vec3> positions, const Box& box, std::span<const double> cutoffs, double skin,
                        std::int64_t epoch)
{
  TESSERA_REQUIRE(!cutoffs.empty(), "a topology needs at least one cutoff");
  const auto num_owned = static_cast<std::int64_t>(positions.size());
  auto plan = std::make_shared<HaloPlan>();
  plan->epoch = epoch;
  plan->num_owned = num_owned;

  const NeighborList widest = cell_search(positions, num_owned, box, cutoffs.back() + skin);
  Topology topology{epoch, num_owned, {}};
  for (const double cutoff : cutoffs) {
    const bool is_widest = cutoff == cutoffs.back();
    topology.lists.push_back({cutoff, is_widest ? widest : narrow(widest, positions, box, cutoff + skin), plan, {}});
  }
  return topology;
}

}  // namespace tessera
