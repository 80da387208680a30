// SPDX-License-Identifier: MIT
#include "tessera/model/exchange_set.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "tessera/base/error.hpp"
#include "tessera/comm/communicator_link.hpp"

namespace tessera {
namespace {

/// A rank that copies its own rows `rows` into its halo.
std::unique_ptr<ExchangeSet> self_exchange(const std::vector<std::int64_t>& rows, std::int64_t num_owned)
{
  auto plan = std::make_shared<HaloPlan>();
  plan->num_owned = num_owned;
  plan->num_halo = static_cast<std::int64_t>(rows.size());
  plan->peers.push_back({0, rows, 0, plan->num_halo});
  std::vector<std::unique_ptr<HaloExchange>> exchanges;
  exchanges.push_back(
      std::make_unique<HaloExchange>(std::move(plan), std::shared_ptr(make_serial_communicator()), /*tag=*/0));
  return std::make_unique<ExchangeSet>(std::move(exchanges));
}

TEST(ExchangeSet, is_found_by_its_handle_while_it_lives)
{
  auto set = self_exchange({1}, 2);
  const auto handle = set->handle();
  EXPECT_NE(handle, 0);  // 0 stands for no exchange
  EXPECT_EQ(&ExchangeSet::find(handle), set.get());
  set.reset();
  EXPECT_THROW((void)ExchangeSet::find(handle), Error);
}

TEST(ExchangeSet, handles_of_the_dead_are_not_used_again)
{
  const auto first = self_exchange({0}, 1)->handle();
  const auto second = self_exchange({0}, 1)->handle();
  EXPECT_GT(second, first);
}

TEST(ExchangeSet, a_list_that_it_lacks_is_refused_with_the_number_it_has)
{
  auto set = self_exchange({0}, 1);
  EXPECT_EQ(set->exchange(0).plan().num_halo, 1);
  for (const std::int64_t list : {-1, 1}) {
    try {
      (void)set->exchange(list);
      FAIL() << "list " << list << " was given";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("has 1 lists"), std::string::npos) << error.what();
      EXPECT_EQ(error.reach(), Reach::rank);
    }
  }
}

TEST(ExchangeSet, exchanges_on_the_device_are_one_a_list_or_none)
{
  const auto plan = std::make_shared<HaloPlan>(HaloPlan{1, 2, 1, {{0, {1}, 0, 1}}});
  const auto staged = [&](int count) {
    std::vector<std::unique_ptr<HaloExchange>> exchanges;
    const std::shared_ptr<Communicator> communicator = make_serial_communicator();
    for (int tag = 0; tag < count; ++tag) exchanges.push_back(std::make_unique<HaloExchange>(plan, communicator, tag));
    return exchanges;
  };
  const auto first = std::make_shared<DeviceHaloExchange>(link_to_self({}));
  const auto second = std::make_shared<DeviceHaloExchange>(link_to_self({}));
  ExchangeSet both(staged(2), {first, second});
  EXPECT_EQ(both.device_exchange(0), first.get());
  EXPECT_EQ(both.device_exchange(1), second.get());
  EXPECT_THROW((void)both.device_exchange(2), Error);
  EXPECT_EQ(ExchangeSet(staged(2)).device_exchange(1), nullptr);
  EXPECT_THROW((void)ExchangeSet(staged(2)).device_exchange(2), Error);
  EXPECT_THROW(ExchangeSet(staged(2), {first}), Error);
  EXPECT_THROW(ExchangeSet(staged(1), {nullptr}), Error);
}

TEST(ExchangeSet, ranks_as_threads_register_and_find_their_own)
{
  constexpr int kRanks = 8, kEpochs = 200;
  std::vector<int> wrong(kRanks, 0);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&wrong, rank] {
      for (int epoch = 0; epoch < kEpochs; ++epoch) {
        const auto set = self_exchange({rank}, kRanks);
        const auto& found = ExchangeSet::find(set->handle()).exchange(0).plan().peers.front().send_rows;
        if (found.front() != rank) ++wrong[rank];
      }
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(wrong, std::vector<int>(kRanks, 0));
}

}  // namespace
}  // namespace tessera
