// SPDX-License-Identifier: MIT
#include "tessera/partition/shard_boxes.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera {
namespace {

constexpr std::array<bool, 3> kPeriodic{true, true, true};
constexpr std::array<bool, 3> kOpenX{false, true, true};
constexpr Vec3 kReach{0.1, 0.1, 0.1};

bool holds(const UnitBox& box, const Vec3& unit)
{
  for (int axis = 0; axis < 3; ++axis) {
    if (unit[axis] < box.low[axis] || unit[axis] > box.high[axis]) return false;
  }
  return true;
}

double volume_of(const std::vector<UnitBox>& boxes)
{
  double volume = 0;
  for (const UnitBox& box : boxes) {
    volume += (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]) * (box.high[2] - box.low[2]);
  }
  return volume;
}

/// A cube of 10^3 rows, after a sliver of 3 x 3 x 6 rows that sticks out of its corner.
std::vector<Vec3> cube_with_sliver()
{
  std::vector<Vec3> rows;
  for (int n = 0; n < 54; ++n) rows.push_back({0.01 * (n % 3), 0.01 * (n / 3 % 3), 0.34 + 0.01 * (n / 9)});
  for (int n = 0; n < 1000; ++n) rows.push_back({0.01 * (n % 10), 0.01 * (n / 10 % 10), 0.4 + 0.01 * (n / 100)});
  return rows;
}

TEST(ShardBoxes, two_far_apart_stretches_get_the_boxes_of_their_atoms)
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
  EXPECT_LE(bounding_boxes(rows, 8).size(), rows.size());
  EXPECT_TRUE(bounding_boxes({}, 8).empty());
}

TEST(ShardBoxes, a_sliver_beside_a_cube_gets_a_box_of_its_own)
{
  const auto boxes = bounding_boxes(cube_with_sliver(), 2);
  ASSERT_EQ(boxes.size(), 2U);
  EXPECT_EQ(boxes[0].low, (Vec3{0, 0, 0.34}));
  EXPECT_DOUBLE_EQ(boxes[0].high[0], 0.02);
  EXPECT_DOUBLE_EQ(boxes[1].low[2], 0.4);
  EXPECT_DOUBLE_EQ(boxes[1].high[0], 0.09);
}

TEST(ShardBoxes, more_boxes_enclose_less_and_all_rows_lie_in_one)
{
  const auto rows = cube_with_sliver();
  double last = 1;
  for (const int num_boxes : {1, 2, 4, 8}) {
    const auto boxes = bounding_boxes(rows, num_boxes);
    EXPECT_LE(static_cast<int>(boxes.size()), num_boxes);
    EXPECT_LT(volume_of(boxes), last);
    last = volume_of(boxes);
    for (const Vec3& row : rows) {
      EXPECT_TRUE(std::any_of(boxes.begin(), boxes.end(), [&](const UnitBox& box) { return holds(box, row); }));
    }
  }
}

TEST(ShardBoxes, rows_in_a_plane_are_divided_and_those_in_one_point_are_not)
{
  std::vector<Vec3> plane;
  for (int n = 0; n < 20; ++n) plane.push_back({n < 10 ? 0.01 * n : 0.9 + 0.01 * (n - 10), 0.5, 0.01 * (n % 10)});
  const auto boxes = bounding_boxes(plane, 2);
  ASSERT_EQ(boxes.size(), 2U);
  EXPECT_DOUBLE_EQ(boxes[0].high[0], 0.09);
  EXPECT_EQ(bounding_boxes(std::vector<Vec3>(5, {0.3, 0.3, 0.3}), 8).size(), 1U);
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
