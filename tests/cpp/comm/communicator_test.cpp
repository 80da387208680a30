// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <functional>

#include "comm/communicator_contract.hpp"
#include "tessera/comm/virtual.hpp"

namespace tessera {
namespace {

constexpr int kSerial = 0;  // stands for the serial communicator among the rank counts

class Contract : public ::testing::TestWithParam<int> {
 protected:
  static void on_all_ranks(const std::function<void(Communicator&)>& body)
  {
    if (GetParam() == kSerial) {
      body(*make_serial_communicator());
    } else {
      run_virtual_ranks(GetParam(), [&](const std::shared_ptr<Communicator>& comm) { body(*comm); });
    }
  }
};

TEST_P(Contract, ranks_of_one_host_are_numbered) { on_all_ranks(contract::ranks_of_one_host_are_numbered); }
TEST_P(Contract, reductions_combine_every_rank) { on_all_ranks(contract::reductions_combine_every_rank); }
TEST_P(Contract, gathered_records_stand_in_rank_order) { on_all_ranks(contract::gathered_records_stand_in_rank_order); }
TEST_P(Contract, all_to_all_delivers_uneven_and_empty_parts)
{
  on_all_ranks(contract::all_to_all_delivers_uneven_and_empty_parts);
}
TEST_P(Contract, messages_of_one_tag_keep_their_order) { on_all_ranks(contract::messages_of_one_tag_keep_their_order); }
TEST_P(Contract, long_and_empty_messages_arrive_whole) { on_all_ranks(contract::long_and_empty_messages_arrive_whole); }
TEST_P(Contract, many_collectives_in_a_row_do_not_mix) { on_all_ranks(contract::many_collectives_in_a_row_do_not_mix); }
TEST_P(Contract, ranks_that_do_not_exist_are_refused)
{
  on_all_ranks(contract::ranks_and_tags_that_do_not_exist_are_refused);
}
TEST_P(Contract, a_message_of_another_length_is_refused)
{
  on_all_ranks(contract::a_message_of_another_length_is_refused);
}
TEST_P(Contract, a_barrier_waits_for_all)
{
  std::vector<int> notes(std::max(1, GetParam()), 0);
  on_all_ranks([&](Communicator& comm) { contract::a_barrier_waits_for_all(comm, notes); });
}

INSTANTIATE_TEST_SUITE_P(SerialAndVirtual, Contract, ::testing::Values(kSerial, 1, 2, 3, 5, 8), [](const auto& info) {
  return info.param == kSerial ? std::string("serial") : "virtual_" + std::to_string(info.param);
});

/// Runs `body` on virtual ranks and returns the text of the error that ends it.
std::string failure_of(int num_ranks, const std::function<void(Communicator&)>& body)
{
  try {
    run_virtual_ranks(num_ranks, [&](const std::shared_ptr<Communicator>& comm) { body(*comm); });
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(VirtualRanks, a_rank_that_throws_wakes_those_that_wait_in_any_call)
{
  std::atomic<int> num_woken = 0;
  const auto text = failure_of(4, [&](Communicator& comm) {
    if (comm.rank() == 2) throw std::runtime_error("no memory on the third rank");
    std::vector<std::byte> data(8);
    std::vector<std::int64_t> value(1);
    try {
      if (comm.rank() == 0) comm.barrier();
      if (comm.rank() == 1) comm.receive(data, 3, 1)->wait();
      if (comm.rank() == 3) comm.all_reduce(std::span<std::int64_t>(value), Reduction::sum);
    } catch (const Error& error) {
      EXPECT_EQ(error.reach(), Reach::rank);
      EXPECT_NE(std::string(error.what()).find("no memory on the third rank"), std::string::npos) << error.what();
      ++num_woken;
      throw;
    }
  });
  EXPECT_EQ(text, "no memory on the third rank");
  EXPECT_EQ(num_woken, 3);
}

TEST(VirtualRanks, waiting_for_a_rank_that_has_left_is_an_error_that_names_both)
{
  const auto in_receive = failure_of(2, [](Communicator& comm) {
    std::vector<std::byte> data(8);
    if (comm.rank() == 0) comm.receive(data, 1, 1)->wait();
  });
  EXPECT_EQ(in_receive.find("the run was aborted: rank 0 waits in receive for rank 1"), 0U) << in_receive;
  const auto in_barrier = failure_of(3, [](Communicator& comm) {
    if (comm.rank() != 1) comm.barrier();
  });
  EXPECT_NE(in_barrier.find("waits in barrier for rank 1"), std::string::npos) << in_barrier;
}

TEST(VirtualRanks, a_message_sent_before_its_sender_left_still_arrives)
{
  run_virtual_ranks(2, [](const std::shared_ptr<Communicator>& comm) {
    std::vector<std::int64_t> value{comm->rank() == 0 ? 42 : 0};
    if (comm->rank() == 0) comm->send(std::as_bytes(std::span(value)), 1, 0)->wait();
    if (comm->rank() == 1) comm->receive(std::as_writable_bytes(std::span(value)), 0, 0)->wait();
    EXPECT_EQ(value[0], 42);
  });
}

TEST(VirtualRanks, the_reason_of_the_rank_that_failed_wins_over_the_echo_of_the_others)
{
  for (int failing = 0; failing < 3; ++failing) {
    std::string text;
    try {
      run_virtual_ranks(3, [&](const std::shared_ptr<Communicator>& communicator) {
        if (communicator->rank() == failing) fail(Reach::rank, "its own reason");
        fail(Reach::collective, "some rank failed");
      });
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_EQ(text, "its own reason");
  }
}

TEST(VirtualRanks, collective_calls_that_differ_between_ranks_are_an_error)
{
  const auto text = failure_of(2, [](Communicator& comm) {
    std::vector<double> value(1);
    if (comm.rank() == 0) comm.barrier();
    if (comm.rank() == 1) comm.all_reduce(std::span<double>(value), Reduction::sum);
  });
  EXPECT_NE(text.find("collective calls differ"), std::string::npos) << text;
  const auto lengths = failure_of(2, [](Communicator& comm) {
    std::vector<double> values(1 + comm.rank());
    comm.all_reduce(std::span<double>(values), Reduction::sum);
  });
  EXPECT_NE(lengths.find("gave 16"), std::string::npos) << lengths;
  EXPECT_NE(lengths.find("gave 8"), std::string::npos) << lengths;
}

TEST(VirtualRanks, a_world_without_ranks_is_refused) { EXPECT_THROW(VirtualWorld(0), Error); }

TEST(SerialRank, waiting_for_a_message_never_sent_is_an_error_and_no_hang)
{
  const auto comm = make_serial_communicator();
  std::vector<std::byte> data(1);
  EXPECT_THROW(comm->receive(data, 0, 9)->wait(), Error);
}

TEST(SerialRank, every_call_after_an_abort_fails_with_its_reason)
{
  const auto comm = make_serial_communicator();
  comm->abort("stopped by the test");
  try {
    comm->barrier();
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("stopped by the test"), std::string::npos);
  }
}

}  // namespace
}  // namespace tessera
