// SPDX-License-Identifier: MIT
#include "tessera/topology/device_topology.hpp"

#include "tessera/base/error.hpp"
#include "tessera/search/device_search.hpp"

namespace tessera {

namespace {

std::vector<std::int32_t> narrowed(const std::vector<std::int64_t>& values) { return {values.begin(), values.end()}; }

/// Where each row's run begins, and the end: from [first, last) pairs.
std::vector<std::int32_t> firsts(const std::vector<std::int64_t>& range, std::int64_t num_edges)
{
  std::vector<std::int32_t> first;
  first.reserve(range.size() / 2 + 1);
  for (std::size_t k = 0; k < range.size(); k += 2) first.push_back(static_cast<std::int32_t>(range[k]));
  first.push_back(static_cast<std::int32_t>(num_edges));
  return first;
}

/// The widest list's extended row of each halo row of `list`.
std::vector<std::int32_t> wide_rows(const TopologyList& list)
{
  std::vector<std::int32_t> rows(list.plan->num_halo);
  for (std::size_t k = 0; k < list.halo_row.size(); ++k) {
    if (list.halo_row[k] >= 0) rows[list.halo_row[k]] = static_cast<std::int32_t>(list.plan->num_owned + k);
  }
  return rows;
}

void upload_list(const TopologyList& from, DeviceList& to, StreamRef stream)
{
  const NeighborList& pairs = from.pairs;
  require_countable_edges(pairs.num_edges(), pairs.cutoff);
  const std::int64_t num_owned = from.plan->num_owned, num_halo = from.plan->num_halo;
  std::vector<std::int64_t> own(pairs.sender.size());
  for (std::size_t e = 0; e < own.size(); ++e) own[e] = from.own_row(pairs.sender[e]);
  const EdgeIndex index = index_edges(pairs.receiver, own, num_owned, num_owned + num_halo);
  to.cutoff = from.cutoff;
  to.num_edges = pairs.num_edges();
  to.plan = from.plan;
  to.receiver.assign(narrowed(pairs.receiver), stream);
  to.sender.assign(narrowed(pairs.sender), stream);
  to.own_sender.assign(narrowed(own), stream);
  to.shift.assign(pairs.shift, stream);
  to.sender_order.assign(narrowed(index.sender_order), stream);
  to.first_of_receiver.assign(firsts(index.receiver_range, to.num_edges), stream);
  to.first_of_sender.assign(firsts(index.sender_range, to.num_edges), stream);
  to.wide_row.assign(wide_rows(from), stream);
}

}  // namespace

DeviceList::DeviceList(Device device)
    : receiver(device),
      sender(device),
      own_sender(device),
      shift(device),
      sender_order(device),
      first_of_receiver(device),
      first_of_sender(device),
      wide_row(device)
{
}

DeviceTopology::DeviceTopology(Device on, std::size_t num_lists) : device(on)
{
  for (std::size_t l = 0; l < num_lists; ++l) lists.emplace_back(on);
}

void DeviceTopology::upload(const Topology& topology, StreamRef stream)
{
  TESSERA_REQUIRE(topology.lists.size() == lists.size(), "expected {} lists, found {}", lists.size(),
                  topology.lists.size());
  epoch = topology.epoch;
  num_owned = topology.num_owned;
  num_candidates = topology.num_candidates;
  num_candidate_peers = topology.num_candidate_peers;
  for (std::size_t l = 0; l < lists.size(); ++l) upload_list(topology.lists[l], lists[l], stream);
  synchronize(stream);
}

}  // namespace tessera
