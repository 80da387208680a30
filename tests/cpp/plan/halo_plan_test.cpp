// SPDX-License-Identifier: MIT
#include "tessera/plan/halo_plan.hpp"

#include <gtest/gtest.h>

#include "tessera/base/error.hpp"
#include "tessera/comm/virtual.hpp"
#include "tessera/plan/build_halo_plan.hpp"

namespace tessera {
namespace {

HaloPlan sound_plan() { return {7, 4, 5, {{0, {3, 0}, 0, 2}, {2, {}, 2, 3}, {5, {1}, 5, 0}}}; }

TEST(HaloPlan, a_sound_plan_passes) { EXPECT_NO_THROW(sound_plan().validate()); }

TEST(HaloPlan, each_way_to_break_a_plan_is_found)
{
  const std::vector<void (*)(HaloPlan&)> breaks{
      [](HaloPlan& plan) { plan.peers[0].send_rows[1] = 4; },  // the first halo row, not owned
      [](HaloPlan& plan) { plan.peers[0].send_rows[1] = -1; },
      [](HaloPlan& plan) { plan.peers[1].first_halo = 1; },  // overlap
      [](HaloPlan& plan) { plan.peers[1].first_halo = 3; },  // gap
      [](HaloPlan& plan) { plan.num_halo = 6; },             // rows that nobody fills
      [](HaloPlan& plan) { plan.peers[2].num_receive = -1; },
      [](HaloPlan& plan) { plan.peers[1].rank = 0; },  // one peer twice
      [](HaloPlan& plan) { std::swap(plan.peers[1].rank, plan.peers[2].rank); },
      [](HaloPlan& plan) { plan.peers[0].rank = -1; },
  };
  for (std::size_t k = 0; k < breaks.size(); ++k) {
    HaloPlan plan = sound_plan();
    breaks[k](plan);
    EXPECT_THROW(plan.validate(), Error) << "break number " << k;
  }
}

TEST(BuildHaloPlan, both_sides_of_a_request_agree_on_a_small_case_written_by_hand)
{
  run_virtual_ranks(3, [](const std::shared_ptr<Communicator>& comm) {
    // 0 needs rows 2, 0 of 1;  1 needs row 1 of itself;  2 needs row 0 of 1 and nothing of 0.
    std::vector<NeededRows> needed;
    if (comm->rank() == 0) needed = {{1, {2, 0}}};
    if (comm->rank() == 1) needed = {{1, {1}}};
    if (comm->rank() == 2) needed = {{0, {}}, {1, {0}}};
    const HaloPlan plan = build_halo_plan(9, 3, needed, *comm);
    EXPECT_EQ(plan.epoch, 9);
    EXPECT_EQ(plan.num_owned, 3);
    if (comm->rank() == 1) {
      ASSERT_EQ(plan.peers.size(), 3U);
      EXPECT_EQ(plan.peers[0].send_rows, (std::vector<std::int64_t>{2, 0}));
      EXPECT_EQ(plan.peers[1].send_rows, (std::vector<std::int64_t>{1}));
      EXPECT_EQ(plan.peers[2].send_rows, (std::vector<std::int64_t>{0}));
      EXPECT_EQ(plan.num_halo, 1);
      EXPECT_EQ(plan.peers[1].num_receive, 1);
    } else {
      ASSERT_EQ(plan.peers.size(), 1U);
      EXPECT_EQ(plan.peers[0].rank, 1);
      EXPECT_TRUE(plan.peers[0].send_rows.empty());
      EXPECT_EQ(plan.num_halo, comm->rank() == 0 ? 2 : 1);
    }
  });
}

TEST(BuildHaloPlan, a_request_for_a_row_that_nobody_owns_ends_the_run_naming_the_asker)
{
  try {
    run_virtual_ranks(2, [](const std::shared_ptr<Communicator>& comm) {
      std::vector<NeededRows> needed;
      if (comm->rank() == 1) needed = {{0, {3}}};
      (void)build_halo_plan(1, 3, needed, *comm);
    });
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("row 3 for peer 1 is not one of 3 owned"), std::string::npos)
        << error.what();
  }
}

TEST(BuildHaloPlan, needed_rows_out_of_rank_order_are_refused)
{
  const auto comm = make_serial_communicator();
  EXPECT_THROW((void)build_halo_plan(1, 3, {{0, {1}}, {0, {2}}}, *comm), Error);
  EXPECT_THROW((void)build_halo_plan(1, 3, {{1, {1}}}, *comm), Error);
  EXPECT_THROW((void)build_halo_plan(1, 3, {{-1, {1}}}, *comm), Error);
}

}  // namespace
}  // namespace tessera
