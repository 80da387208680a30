// SPDX-License-Identifier: MIT
#include "tessera/comm/device_link.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "devices.hpp"
#include "failures.hpp"
#include "tessera/base/error.hpp"
#include "tessera/comm/communicator_link.hpp"
#include "tessera/comm/gpu_census.hpp"
#include "tessera/comm/nccl.hpp"
#include "tessera/comm/virtual.hpp"
#include "tessera/device/device_array.hpp"

namespace tessera {
namespace {

using testing::failure_of;
using SharedCommunicator = std::shared_ptr<Communicator>;
using Send = DeviceLink::Send;
using Receive = DeviceLink::Receive;

constexpr int kTag = 2;

/// Every rank sends each rank, itself too, two messages of lengths and contents that name both and the order.
void two_messages_between_each_pair_arrive_in_order(const SharedCommunicator& comm, DeviceLink& link)
{
  const Stream own(link.device());
  const StreamRef stream = own;
  const int num_ranks = comm->num_ranks(), rank = comm->rank();
  const auto message = [&](int from, int to, int number) {
    return std::vector<double>(1 + from + 2 * to + number, 100 * from + 10 * to + number);
  };
  std::vector<DeviceArray<double>> out, in;
  std::vector<Send> sends;
  std::vector<Receive> receives;
  for (int peer = 0; peer < num_ranks; ++peer) {
    for (int number = 0; number < 2; ++number) {
      const auto mine = message(rank, peer, number), theirs = message(peer, rank, number);
      out.emplace_back(link.device()).assign(mine, stream);
      in.emplace_back(link.device()).resize(static_cast<std::int64_t>(theirs.size()));
      sends.push_back({peer, out.back().data(), mine.size() * sizeof(double)});
      receives.push_back({peer, in.back().data(), theirs.size() * sizeof(double)});
    }
  }
  for (int round = 0; round < 3; ++round) {
    for (auto& array : in) array.assign(std::vector<double>(array.count(), -1), stream);
    link.exchange(sends, receives, stream);
    for (int peer = 0; peer < num_ranks; ++peer) {
      for (int number = 0; number < 2; ++number) {
        EXPECT_EQ(in[2 * peer + number].to_host(stream), message(peer, rank, number));
      }
    }
  }
  link.exchange({}, {}, stream);
}

TEST(DeviceLink, messages_between_ranks_on_the_host_arrive_in_order)
{
  for (const int num_ranks : {1, 2, 4}) {
    run_virtual_ranks(num_ranks, [](const SharedCommunicator& comm) {
      two_messages_between_each_pair_arrive_in_order(comm, *link_over(comm, kTag));
    });
  }
}

TEST(DeviceLink, messages_of_a_rank_to_itself_arrive_in_order)
{
  for (const StreamRef stream : streams_to_test()) {
    two_messages_between_each_pair_arrive_in_order(make_serial_communicator(), *link_to_self(stream.device));
  }
}

TEST(DeviceLink, messages_between_gpus_arrive_in_order)
{
  if (!has_nccl() || num_gpus() < 2) GTEST_SKIP() << "needs a build with NCCL and two GPUs, found " << num_gpus();
  run_virtual_ranks(num_gpus(), [](const SharedCommunicator& comm) {
    const NcclConnection nccl = connect_nccl(*comm, Device{comm->rank()});
    ASSERT_NE(nccl.link, nullptr) << nccl.obstacle;
    two_messages_between_each_pair_arrive_in_order(comm, *nccl.link);
  });
}

TEST(DeviceLink, a_stream_of_another_device_is_refused)
{
  const StreamRef elsewhere{Device{7}, nullptr};
  const auto over = link_over(make_serial_communicator(), kTag), self = link_to_self({});
  EXPECT_NE(failure_of([&] { over->exchange({}, {}, elsewhere); }).find("found some of GPU 7"), std::string::npos);
  EXPECT_NE(failure_of([&] { self->exchange({}, {}, elsewhere); }).find("found one of 7"), std::string::npos);
}

TEST(DeviceLink, messages_to_itself_that_do_not_match_are_refused)
{
  const auto self = link_to_self({});
  std::vector<double> a(2), b(2);
  const auto failure = [&](std::vector<Send> sends, std::vector<Receive> receives) {
    return failure_of([&] { self->exchange(sends, receives, {}); });
  };
  EXPECT_NE(failure({{0, a.data(), 16}}, {}).find("1 messages and receives 0"), std::string::npos);
  EXPECT_NE(failure({{0, a.data(), 16}}, {{0, b.data(), 8}}).find("sent 16 bytes, expected 8"), std::string::npos);
  EXPECT_NE(failure({{1, a.data(), 16}}, {{0, b.data(), 16}}).find("to rank 1"), std::string::npos);
}

TEST(GpuCensus, ranks_with_a_gpu_each_meet_no_obstacle)
{
  const std::vector<RankDevice> ranks{{"a", "00:1", true}, {"a", "00:2", true}, {"b", "00:1", true}};
  EXPECT_EQ(obstacle_to_nccl(ranks), "");
}

TEST(GpuCensus, each_obstacle_is_named_with_the_rank_that_has_it)
{
  const auto obstacle = [](const std::vector<RankDevice>& ranks) { return obstacle_to_nccl(ranks); };
  EXPECT_EQ(obstacle({{"a", "00:1", true}}), "one rank has nobody to exchange with");
  EXPECT_EQ(obstacle({{"a", "00:1", true}, {"b", "", true}}), "rank 1 on b computes on the host");
  EXPECT_EQ(obstacle({{"a", "00:1", false}, {"b", "00:1", true}}), "rank 0 on a runs a build without NCCL");
  EXPECT_EQ(obstacle({{"a", "00:1", true}, {"b", "00:1", true}, {"a", "00:1", true}}),
            "ranks 0 and 2 share GPU 00:1 of a, and NCCL takes one rank a GPU");
}

TEST(GpuCensus, every_rank_sees_what_each_says_of_itself)
{
  run_virtual_ranks(3, [](const SharedCommunicator& comm) {
    const std::string name = "host" + std::to_string(comm->rank());
    const auto ranks = gather_devices(*comm, {name, std::string(comm->rank(), 'x'), comm->rank() == 1});
    ASSERT_EQ(ranks.size(), 3U);
    for (int r = 0; r < 3; ++r) {
      EXPECT_EQ(ranks[r].host, "host" + std::to_string(r));
      EXPECT_EQ(ranks[r].bus_id, std::string(r, 'x'));
      EXPECT_EQ(ranks[r].has_nccl, r == 1);
    }
    EXPECT_NE(failure_of([&] { (void)gather_devices(*comm, {std::string(256, 'h'), "", true}); }).find("a host name"),
              std::string::npos);
  });
}

TEST(NcclConnection, ranks_on_the_host_get_none_and_the_same_reason)
{
  EXPECT_EQ(connect_nccl(*make_serial_communicator(), {}).obstacle, "one rank has nobody to exchange with");
  run_virtual_ranks(3, [](const SharedCommunicator& comm) {
    const NcclConnection nccl = connect_nccl(*comm, {});
    EXPECT_EQ(nccl.link, nullptr);
    EXPECT_TRUE(nccl.obstacle.starts_with("rank 0 on ")) << nccl.obstacle;
    EXPECT_TRUE(nccl.obstacle.ends_with(" computes on the host")) << nccl.obstacle;
  });
}

TEST(NcclConnection, two_ranks_on_one_gpu_get_none_and_both_are_named)
{
  if (num_gpus() == 0) GTEST_SKIP() << "needs a GPU";
  run_virtual_ranks(2, [](const SharedCommunicator& comm) {
    const NcclConnection nccl = connect_nccl(*comm, Device{0});
    EXPECT_EQ(nccl.link, nullptr);
    EXPECT_NE(nccl.obstacle.find(has_nccl() ? "ranks 0 and 1 share GPU" : "without NCCL"), std::string::npos)
        << nccl.obstacle;
  });
}

}  // namespace
}  // namespace tessera
