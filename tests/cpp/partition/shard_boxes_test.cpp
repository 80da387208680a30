// SPDX-License-Identifier: MIT
#include "tessera/partition/shard_boxes.hpp"

#include <gtest/gtest.h>

namespace tessera {
namespace {

constexpr std::array<bool, 3> kPeriodic{true, true, true};
constexpr std::array<bool, 3> kOpenX{false, true, true};
constexpr Vec3 kReach{0.1, 0.1, 0.1};

TEST(ShardBoxes, each_run_of_rows_gets_the_box_of_its_atoms)
{
  const std::vector<Vec3> rows{{0.1, 0.1, 0.5}, {0.2, 0.05, 0.4}, {0.8, 0.9, 0.9}, {0.7, 0.8, 0.95}, {0.9, 0.8, 0.9}};
  const auto one = bounding_boxes(rows, 1);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].low, (Vec3{0.1, 0.05, 0.4}));
  EXPECT_EQ(one[0].high, (Vec3{0.9, 0.9, 0.95}));
  const auto two = bounding_boxes(rows, 2);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[0].high, (Vec3{0.2, 0.1, 0.5}));
  EXPECT_EQ(two[1].low, (Vec3{0.7, 0.8, 0.9}));
  EXPECT_EQ(bounding_boxes(rows, 8).size(), rows.size());
  EXPECT_TRUE(bounding_boxes({}, 8).empty());
}

TEST(ShardBoxes, boxes_are_within_reach_when_the_gap_along_every_axis_is)
{
  const UnitBox a{{0.2, 0.2, 0.2}, {0.4, 0.4, 0.4}};
  EXPECT_TRUE(are_within(a, {{0.5, 0.5, 0.5}, {0.6, 0.6, 0.6}}, kReach, kPeriodic));
  EXPECT_FALSE(are_within(a, {{0.5, 0.5, 0.51}, {0.6, 0.6, 0.6}}, kReach, kPeriodic));
  EXPECT_FALSE(are_within(a, {{0.0, 0.2, 0.2}, {0.09, 0.4, 0.4}}, kReach, kPeriodic));
  EXPECT_TRUE(are_within(a, {{0.3, 0.3, 0.3}, {0.3, 0.3, 0.3}}, {0, 0, 0}, kPeriodic));
}

TEST(ShardBoxes, images_count_along_periodic_axes_only)
{
  const UnitBox low{{0.02, 0.2, 0.2}, {0.3, 0.4, 0.4}}, high{{0.8, 0.2, 0.2}, {0.95, 0.4, 0.4}};
  EXPECT_TRUE(are_within(low, high, kReach, kPeriodic));
  EXPECT_TRUE(are_within(high, low, kReach, kPeriodic));
  EXPECT_FALSE(are_within(low, high, kReach, kOpenX));
  EXPECT_FALSE(are_within(high, low, kReach, kOpenX));
}

TEST(ShardBoxes, two_shards_are_within_reach_when_any_two_boxes_are)
{
  const std::vector<UnitBox> corner{{{0.2, 0.2, 0.2}, {0.3, 0.3, 0.3}}, {{0.3, 0.6, 0.6}, {0.4, 0.7, 0.7}}};
  const std::vector<UnitBox> beside_second{{{0.45, 0.6, 0.6}, {0.5, 0.7, 0.7}}};
  const std::vector<UnitBox> between{{{0.3, 0.44, 0.44}, {0.4, 0.46, 0.46}}};
  EXPECT_TRUE(are_within(corner, beside_second, kReach, kPeriodic));
  EXPECT_FALSE(are_within(corner, between, kReach, kPeriodic));
  EXPECT_FALSE(are_within(corner, {}, kReach, kPeriodic));
}

}  // namespace
}  // namespace tessera
