// SPDX-License-Identifier: MIT
// An epoch's lists built on a device, against those that the host builds and uploads.
#include "tessera/topology/build_device_topology.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <tuple>

#include "devices.hpp"
#include "tessera/base/error.hpp"
#include "topology/rank_topology.hpp"

namespace tessera {
namespace {

using testing::HardSystem;
using Comm = std::shared_ptr<Communicator>;

constexpr std::int64_t kEpoch = 7;

/// Cutoffs and skin, as fractions of a system's reach.
struct Reaches {
  std::vector<double> cutoffs;
  double skin = 0;
};

const std::vector<Reaches>& all_reaches()
{
  static const std::vector<Reaches> reaches{{{0.8}, 0.2}, {{0.5, 0.8}, 0.2}, {{0.3, 0.55, 1.0}, 0.0}};
  return reaches;
}

std::vector<double> scaled(std::vector<double> values, double by)
{
  for (double& value : values) value *= by;
  return values;
}

/// One rank's share of a system, and what the host makes of it.
struct RankCase {
  std::vector<Vec3> positions;
  Candidates candidates;
  Box box;
  std::vector<double> cutoffs;
  double skin = 0;
  Topology topology;
};

/// All ranks call this.
RankCase make_case(const HardSystem& system, const Reaches& reaches, const Comm& comm)
{
  const auto cutoffs = scaled(reaches.cutoffs, system.cutoff);
  const double skin = reaches.skin * system.cutoff;
  auto rank = testing::build_rank(system, {comm->num_ranks()}, cutoffs, skin, comm, kEpoch);
  return {std::move(rank.positions), std::move(rank.candidates), system.box, cutoffs, skin, std::move(rank.topology)};
}

void expect_same_plan(const HaloPlan& found, const HaloPlan& expected)
{
  EXPECT_EQ(found.epoch, expected.epoch);
  EXPECT_EQ(found.num_owned, expected.num_owned);
  EXPECT_EQ(found.num_halo, expected.num_halo);
  ASSERT_EQ(found.peers.size(), expected.peers.size());
  for (std::size_t p = 0; p < expected.peers.size(); ++p) {
    EXPECT_EQ(found.peers[p].rank, expected.peers[p].rank);
    EXPECT_EQ(found.peers[p].send_rows, expected.peers[p].send_rows);
    EXPECT_EQ(found.peers[p].first_halo, expected.peers[p].first_halo);
    EXPECT_EQ(found.peers[p].num_receive, expected.peers[p].num_receive);
  }
}

void expect_same_list(const DeviceList& found, const DeviceList& expected, StreamRef stream)
{
  EXPECT_EQ(found.cutoff, expected.cutoff);
  EXPECT_EQ(found.num_edges, expected.num_edges);
  EXPECT_EQ(found.receiver.to_host(stream), expected.receiver.to_host(stream));
  EXPECT_EQ(found.sender.to_host(stream), expected.sender.to_host(stream));
  EXPECT_EQ(found.own_sender.to_host(stream), expected.own_sender.to_host(stream));
  EXPECT_EQ(found.shift.to_host(stream), expected.shift.to_host(stream));
  EXPECT_EQ(found.sender_order.to_host(stream), expected.sender_order.to_host(stream));
  EXPECT_EQ(found.first_of_receiver.to_host(stream), expected.first_of_receiver.to_host(stream));
  EXPECT_EQ(found.first_of_sender.to_host(stream), expected.first_of_sender.to_host(stream));
  EXPECT_EQ(found.wide_row.to_host(stream), expected.wide_row.to_host(stream));
  expect_same_plan(*found.plan, *expected.plan);
}

void expect_same_topology(const DeviceTopology& found, const DeviceTopology& expected, StreamRef stream)
{
  EXPECT_EQ(found.epoch, expected.epoch);
  EXPECT_EQ(found.num_owned, expected.num_owned);
  EXPECT_EQ(found.num_candidates, expected.num_candidates);
  EXPECT_EQ(found.num_candidate_peers, expected.num_candidate_peers);
  ASSERT_EQ(found.lists.size(), expected.lists.size());
  for (std::size_t l = 0; l < expected.lists.size(); ++l) {
    SCOPED_TRACE("list " + std::to_string(l));
    expect_same_list(found.lists[l], expected.lists[l], stream);
  }
}

void build(DeviceTopologyBuilder& builder, const RankCase& rank, Communicator& comm, DeviceTopology& into)
{
  builder.build(rank.positions, rank.candidates, rank.box, rank.cutoffs, rank.skin, kEpoch, comm, into);
}

/// One builder and one topology for all systems, so that each epoch refills what the last one has left.
void compare_systems(const Reaches& reaches, StreamRef stream, const Comm& comm)
{
  const std::size_t num_lists = reaches.cutoffs.size();
  DeviceTopologyBuilder builder(stream);
  DeviceTopology found(stream.device, num_lists);
  for (const HardSystem& system : testing::hard_systems()) {
    SCOPED_TRACE(system.name + ", rank " + std::to_string(comm->rank()) + " of " + std::to_string(comm->num_ranks()));
    const RankCase rank = make_case(system, reaches, comm);
    DeviceTopology expected(stream.device, num_lists);
    expected.upload(rank.topology, stream);
    build(builder, rank, *comm, found);
    expect_same_topology(found, expected, stream);
  }
}

TEST(DeviceTopologyBuilder, equals_the_upload_of_what_the_host_finds)
{
  for (const StreamRef stream : streams_to_test()) {
    for (const int num_ranks : {1, 2, 3, 4}) {
      for (const Reaches& reaches : all_reaches()) {
        SCOPED_TRACE(std::to_string(reaches.cutoffs.size()) + " lists");
        run_virtual_ranks(num_ranks, [&](const Comm& comm) { compare_systems(reaches, stream, comm); });
      }
    }
  }
}

std::uint32_t scattered(std::int32_t row) { return static_cast<std::uint32_t>(row) * ScatteredRows::kFactor; }

/// Edges of a list as (receiver, sender's own row, shift).
using Edge = std::tuple<std::int32_t, std::int32_t, Shift>;

std::vector<Edge> edges_of(const DeviceList& list, StreamRef stream)
{
  const auto receiver = list.receiver.to_host(stream), sender = list.own_sender.to_host(stream);
  const auto shift = list.shift.to_host(stream);
  std::vector<Edge> edges;
  for (std::size_t e = 0; e < receiver.size(); ++e) edges.emplace_back(receiver[e], sender[e], shift[e]);
  return edges;
}

/// The same edges, those of each receiver by scattered sender and those of each sender by scattered receiver. Numbers
/// of halo rows say nothing of the candidates by which their edges stand: `num_owned` rows are looked at.
void expect_scattered(const DeviceList& found, const DeviceList& ascending, std::int64_t num_owned, StreamRef stream)
{
  const auto edges = edges_of(found, stream);
  auto sorted = edges, expected = edges_of(ascending, stream);
  std::sort(sorted.begin(), sorted.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(sorted, expected);
  EXPECT_EQ(found.first_of_receiver.to_host(stream), ascending.first_of_receiver.to_host(stream));
  EXPECT_EQ(found.first_of_sender.to_host(stream), ascending.first_of_sender.to_host(stream));
  EXPECT_EQ(found.wide_row.to_host(stream), ascending.wide_row.to_host(stream));
  expect_same_plan(*found.plan, *ascending.plan);
  EXPECT_TRUE(std::is_sorted(edges.begin(), edges.end(),
                             [](const Edge& a, const Edge& b) { return std::get<0>(a) < std::get<0>(b); }));
  std::vector<Edge> owned;
  std::copy_if(edges.begin(), edges.end(), std::back_inserter(owned),
               [&](const Edge& edge) { return std::get<1>(edge) < num_owned; });
  EXPECT_TRUE(std::is_sorted(owned.begin(), owned.end(), [](const Edge& a, const Edge& b) {
    return std::tuple(std::get<0>(a), scattered(std::get<1>(a))) <
           std::tuple(std::get<0>(b), scattered(std::get<1>(b)));
  }));
  const auto order = found.sender_order.to_host(stream);
  auto numbers = order;
  std::sort(numbers.begin(), numbers.end());
  std::vector<std::int32_t> all(edges.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(numbers, all);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto key = [&](std::int32_t e) {
      return std::tuple(std::get<1>(edges[e]), scattered(std::get<0>(edges[e])), e);
    };
    return key(a) < key(b);
  }));
}

TEST(DeviceTopologyBuilder, scattered_lists_hold_the_same_edges_in_an_order_that_all_rows_share)
{
  for (const StreamRef stream : streams_to_test()) {
    for (const int num_ranks : {1, 3}) {
      run_virtual_ranks(num_ranks, [&](const Comm& comm) {
        DeviceTopologyBuilder builder(stream, SenderOrder::scattered), plain(stream);
        for (const HardSystem& system : testing::hard_systems()) {
          SCOPED_TRACE(system.name);
          const RankCase rank = make_case(system, {{0.5, 0.8}, 0.2}, comm);
          DeviceTopology found(stream.device, 2), ascending(stream.device, 2);
          build(builder, rank, *comm, found);
          build(plain, rank, *comm, ascending);
          for (std::size_t l = 0; l < 2; ++l) {
            expect_scattered(found.lists[l], ascending.lists[l], found.num_owned, stream);
          }
        }
      });
    }
  }
}

TEST(DeviceTopologyBuilder, the_narrow_list_of_a_rank_reads_fewer_halo_rows)
{
  // Otherwise the comparison above says nothing about own rows that differ from wide ones.
  const auto system = testing::scattered("water_density", 600, testing::cube(18), 5.0, 60);
  run_virtual_ranks(4, [&](const Comm& comm) {
    const RankCase rank = make_case(system, {{0.4, 0.8}, 0.2}, comm);
    DeviceTopologyBuilder builder{StreamRef{}};
    DeviceTopology found({}, 2), expected({}, 2);
    expected.upload(rank.topology, {});
    build(builder, rank, *comm, found);
    expect_same_topology(found, expected, {});
    EXPECT_GT(found.lists[0].plan->num_halo, 0);
    EXPECT_LT(found.lists[0].plan->num_halo, found.lists[1].plan->num_halo);
    EXPECT_NE(found.lists[0].sender.to_host({}), found.lists[0].own_sender.to_host({}));
  });
}

std::string refusal_of(DeviceTopology into, std::span<const double> cutoffs)
{
  const auto comm = make_serial_communicator();
  DeviceTopologyBuilder builder{StreamRef{}};
  try {
    builder.build({}, {}, testing::cube(9), cutoffs, 1.0, 1, *comm, into);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(DeviceTopologyBuilder, a_topology_of_other_lists_or_another_device_is_refused)
{
  const std::vector<double> cutoffs{3.0, 4.0};
  EXPECT_EQ(refusal_of({{}, 2}, cutoffs), "none");
  EXPECT_EQ(refusal_of({{}, 1}, cutoffs), "expected 2 lists, found 1");
  EXPECT_EQ(refusal_of({{}, 0}, {}), "a topology needs at least one cutoff");
  EXPECT_EQ(refusal_of({Device{0}, 2}, cutoffs), "expected a topology of device -1, found one of 0 (-1 is the host)");
}

}  // namespace
}  // namespace tessera
