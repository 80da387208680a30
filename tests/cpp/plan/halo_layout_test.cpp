// SPDX-License-Identifier: MIT
#include "tessera/plan/halo_layout.hpp"

#include <gtest/gtest.h>

#include <map>

#include "plan/halo_contract.hpp"
#include "tessera/comm/virtual.hpp"

namespace tessera {
namespace {

constexpr int kEpochs = 12;
constexpr std::int64_t kOwned = 60;  // so that counts pass capacities of 16 and a tenth more, and stay below them

/// A plan with nothing but counts: to and from each peer.
HaloPlan plan_of(const std::map<int, std::pair<std::int64_t, std::int64_t>>& counts)
{
  HaloPlan plan{1, 1, 0, {}};
  for (const auto& [rank, count] : counts) {
    plan.peers.push_back({rank, std::vector<std::int64_t>(count.first, 0), plan.num_halo, count.second});
    plan.num_halo += count.second;
  }
  return plan;
}

/// Both capacities of this rank with each rank, 0 where there is no room.
std::vector<std::int64_t> capacities(const HaloLayout& layout, int num_ranks)
{
  std::vector<std::int64_t> all(2 * num_ranks, 0);
  for (const HaloRoom& room : layout.rooms()) {
    all[2 * room.rank] = room.send_capacity;
    all[2 * room.rank + 1] = room.receive_capacity;
  }
  return all;
}

TEST(HaloLayout, both_sides_of_a_pair_find_the_same_capacities_in_every_epoch)
{
  for (const int num_ranks : {1, 2, 3, 5}) {
    run_virtual_ranks(num_ranks, [&](const std::shared_ptr<Communicator>& comm) {
      HaloLayout layout;
      for (int epoch = 0; epoch < kEpochs; ++epoch) {
        const auto needed = contract::needed_in_epoch(epoch, comm->rank(), num_ranks, kOwned);
        const HaloPlan plan = build_halo_plan(epoch, kOwned, needed, *comm);
        const auto before = capacities(layout, num_ranks);
        const bool has_changed = layout.fit(plan);
        const auto mine = capacities(layout, num_ranks);
        EXPECT_EQ(has_changed, mine != before);
        const auto bytes = comm->all_gather(std::as_bytes(std::span(mine)));
        const auto* all = reinterpret_cast<const std::int64_t*>(bytes.data());
        for (int peer = 0; peer < num_ranks; ++peer) {
          const std::int64_t* theirs = all + 2 * num_ranks * peer;
          EXPECT_EQ(mine[2 * peer], theirs[2 * comm->rank() + 1]) << "what is sent and what is expected";
          EXPECT_EQ(mine[2 * peer + 1], theirs[2 * comm->rank()]);
        }
      }
      EXPECT_GT(layout.num_slots(), 0) << "nobody exchanged anything, the test means nothing";
    });
  }
}

TEST(HaloLayout, every_halo_row_has_a_slot_of_its_own_in_its_peers_room)
{
  HaloLayout layout;
  EXPECT_TRUE(layout.fit(plan_of({{0, {5, 40}}, {3, {7, 2}}})));
  const HaloPlan plan = plan_of({{0, {1, 3}}, {3, {7, 2}}});
  EXPECT_FALSE(layout.fit(plan));
  EXPECT_EQ(layout.num_slots(), HaloLayout::grown(40) + HaloLayout::grown(2));
  EXPECT_EQ(layout.num_send(), HaloLayout::grown(5) + HaloLayout::grown(7));
  const std::int64_t second = HaloLayout::grown(40);
  EXPECT_EQ(layout.slots(plan), (std::vector<std::int64_t>{0, 1, 2, second, second + 1}));
  EXPECT_EQ(layout.rooms()[1].first_send, HaloLayout::grown(5));
}

TEST(HaloLayout, a_capacity_stays_until_a_count_exceeds_it)
{
  HaloLayout layout;
  EXPECT_TRUE(layout.fit(plan_of({{2, {0, 100}}})));
  EXPECT_EQ(layout.num_slots(), 126);  // 100, a tenth and 16
  EXPECT_EQ(layout.num_send(), 0);     // nothing to send, no message
  EXPECT_FALSE(layout.fit(plan_of({{2, {0, 126}}})));
  EXPECT_FALSE(layout.fit(plan_of({})));
  EXPECT_FALSE(layout.fit(plan_of({{1, {0, 0}}, {2, {0, 3}}})));  // a peer without rows needs no room
  EXPECT_EQ(layout.num_slots(), 126);
  EXPECT_TRUE(layout.fit(plan_of({{2, {0, 127}}})));
  EXPECT_EQ(layout.num_slots(), 127 + 12 + 16);
  EXPECT_TRUE(layout.fit(plan_of({{1, {1, 0}}})));  // a new peer
  EXPECT_EQ(layout.rooms().size(), 2U);
  EXPECT_EQ(layout.rooms()[0].rank, 1);
}

TEST(HaloLayout, an_exact_layout_keeps_halo_rows_where_the_plan_has_them)
{
  const HaloPlan plan = plan_of({{0, {2, 3}}, {1, {4, 0}}, {5, {0, 2}}});
  const HaloLayout layout = HaloLayout::exact(plan);
  EXPECT_EQ(layout.num_slots(), plan.num_halo);
  EXPECT_EQ(layout.num_send(), 6);
  EXPECT_EQ(layout.slots(plan), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST(HaloLayout, a_plan_that_has_no_room_is_refused_with_both_counts)
{
  HaloLayout layout;
  layout.fit(plan_of({{2, {0, 1}}}));
  for (const HaloPlan& plan : {plan_of({{2, {0, 18}}}), plan_of({{1, {0, 18}}})}) {
    try {
      (void)layout.slots(plan);
      FAIL() << "expected an error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("18 rows from peer"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera
