// SPDX-License-Identifier: MIT
#include "tessera/plan/halo_exchange.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "failures.hpp"
#include "plan/halo_contract.hpp"
#include "tessera/comm/virtual.hpp"

namespace tessera {
namespace {

using contract::SharedCommunicator;
using testing::failure_of;

constexpr int kSerial = 0;  // stands for the serial communicator among the rank counts

class HaloContract : public ::testing::TestWithParam<int> {
 protected:
  static void on_all_ranks(const std::function<void(const SharedCommunicator&)>& body)
  {
    if (GetParam() == kSerial) {
      body(make_serial_communicator());
    } else {
      run_virtual_ranks(GetParam(), body);
    }
  }
};

TEST_P(HaloContract, halo_rows_carry_their_owners_name)
{
  on_all_ranks(contract::halo_rows_carry_their_owners_name<float>);
  on_all_ranks(contract::halo_rows_carry_their_owners_name<double>);
}
TEST_P(HaloContract, forward_then_reverse_of_ones_counts_the_copies)
{
  on_all_ranks(contract::forward_then_reverse_of_ones_counts_the_copies<float>);
  on_all_ranks(contract::forward_then_reverse_of_ones_counts_the_copies<double>);
}
TEST_P(HaloContract, reverse_is_the_transpose_of_forward)
{
  on_all_ranks(contract::reverse_is_the_transpose_of_forward<>);
}
TEST_P(HaloContract, exchanges_in_a_row_do_not_mix) { on_all_ranks(contract::exchanges_in_a_row_do_not_mix<>); }

INSTANTIATE_TEST_SUITE_P(SerialAndVirtual, HaloContract, ::testing::Values(kSerial, 1, 2, 3, 4, 8),
                         [](const auto& info) {
                           return info.param == kSerial ? std::string("serial")
                                                        : "virtual_" + std::to_string(info.param);
                         });

TEST(HaloExchangeOrder, starts_and_waits_out_of_order_are_refused)
{
  const auto plan = std::make_shared<HaloPlan>(HaloPlan{1, 2, 0, {}});
  HaloExchange exchange(plan, make_serial_communicator(), 0);
  std::vector<double> rows(2);
  EXPECT_NE(failure_of([&] { exchange.wait_forward(rows.data()); }).find("no exchange is in flight"),
            std::string::npos);
  EXPECT_NE(failure_of([&] { exchange.wait_reverse(rows.data()); }).find("no exchange is in flight"),
            std::string::npos);
  exchange.start_forward(rows.data(), 1, Scalar::float64);
  EXPECT_NE(failure_of([&] { exchange.start_forward(rows.data(), 1, Scalar::float64); }).find("is in flight"),
            std::string::npos);
  EXPECT_NE(failure_of([&] { exchange.start_reverse(rows.data(), 1, Scalar::float64); }).find("is in flight"),
            std::string::npos);
  EXPECT_NE(failure_of([&] { exchange.wait_reverse(rows.data()); }).find("a forward exchange is in flight"),
            std::string::npos);
  exchange.wait_forward(rows.data());
  exchange.start_reverse(rows.data(), 1, Scalar::float64);
  exchange.wait_reverse(rows.data());
}

TEST(HaloExchangeOrder, a_failed_peer_ends_the_wait_with_an_error)
{
  std::string seen;
  try {
    run_virtual_ranks(2, [&](const SharedCommunicator& comm) {
      const int other = 1 - comm->rank();
      const auto plan = std::make_shared<HaloPlan>(HaloPlan{1, 1, 1, {{other, {0}, 0, 1}}});
      HaloExchange exchange(plan, comm, 0);
      if (comm->rank() == 1) fail(Reach::rank, "an operator failed");
      std::vector<double> row(1);
      seen = failure_of([&] {
        exchange.start_forward(row.data(), 1, Scalar::float64);
        exchange.wait_forward(row.data());
      });
    });
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "an operator failed");
  }
  EXPECT_NE(seen.find("an operator failed"), std::string::npos) << seen;
}

TEST(HaloExchangeTraffic, messages_and_bytes_are_counted_where_they_are_sent_and_empty_ones_are_not)
{
  run_virtual_ranks(2, [](const SharedCommunicator& comm) {
    // Rank 0 sends two rows to rank 1 and gets none.
    const bool is_sender = comm->rank() == 0;
    const HaloPeer peer = is_sender ? HaloPeer{1, {0, 2}, 0, 0} : HaloPeer{0, {}, 0, 2};
    const auto plan = std::make_shared<HaloPlan>(HaloPlan{1, 3, is_sender ? 0 : 2, {peer}});
    HaloExchange exchange(plan, comm, 0);
    std::vector<float> owned(12), halo(8);
    exchange.start_forward(owned.data(), 4, Scalar::float32);
    exchange.wait_forward(halo.data());
    EXPECT_EQ(exchange.traffic().messages, is_sender ? 1 : 0);
    EXPECT_EQ(exchange.traffic().bytes, is_sender ? 2 * 4 * 4 : 0);
    exchange.start_reverse(halo.data(), 4, Scalar::float32);
    exchange.wait_reverse(owned.data());
    EXPECT_EQ(exchange.traffic().messages, 1);
    EXPECT_EQ(exchange.traffic().bytes, 2 * 4 * 4);
  });
}

TEST(HaloExchangeInput, a_plan_for_more_ranks_than_there_are_is_refused)
{
  const auto plan = std::make_shared<HaloPlan>(HaloPlan{1, 1, 1, {{1, {0}, 0, 1}}});
  EXPECT_THROW(HaloExchange(plan, make_serial_communicator(), 0), Error);
  EXPECT_THROW(HaloExchange(nullptr, make_serial_communicator(), 0), Error);
}

}  // namespace
}  // namespace tessera
