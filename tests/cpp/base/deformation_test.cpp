// SPDX-License-Identifier: MIT
#include "tessera/base/deformation.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "hard_systems.hpp"

namespace tessera {
namespace {

using testing::cube;

constexpr double kRounding = 1e-13;  // of numbers near 1
constexpr double kSampling = 2e-3;   // 20,000 directions come this close (relative) to the softest one

double length(const Vec3& v) { return std::sqrt(dot(v, v)); }

Box box_of(const Mat3& cell) { return Box(cell, {0, 0, 0}, testing::kPeriodic); }

TEST(Deformation, an_unchanged_box_carries_positions_exactly)
{
  const Box box({Vec3{13, 0, 0}, Vec3{5, 12, 0}, Vec3{-4, 3, 11}}, {-3, 2, 40}, testing::kPeriodic);
  const Deformation none(box, box);
  EXPECT_EQ(none.smallest_stretch(), 1);
  for (const Vec3& r : testing::scatter_atoms(20, box, 2)) EXPECT_EQ(none.carry(r), r);
}

TEST(Deformation, simple_shear_has_its_known_smallest_stretch)
{
  for (const double shear : {1e-6, 0.1, 1.0}) {
    const Box sheared = box_of({Vec3{10, 0, 0}, Vec3{10 * shear, 10, 0}, Vec3{0, 0, 10}});
    const double expected = std::sqrt(1 + shear * shear / 4) - shear / 2;
    EXPECT_NEAR(Deformation(cube(10), sheared).smallest_stretch(), expected, kRounding) << shear;
  }
}

TEST(Deformation, a_rotated_cell_is_not_stretched)
{
  const double c = std::cos(0.7), s = std::sin(0.7);
  const Box rotated = box_of({Vec3{10 * c, 10 * s, 0}, Vec3{-10 * s, 10 * c, 0}, Vec3{0, 0, 10}});
  EXPECT_NEAR(Deformation(cube(10), rotated).smallest_stretch(), 1, kRounding);
}

TEST(Deformation, no_direction_shrinks_by_more_than_the_smallest_stretch)
{
  const Box from = box_of({Vec3{9, 0, 0}, Vec3{2, 11, 0}, Vec3{-3, 4, 10}});
  const Box to = box_of({Vec3{8, 1, 0}, Vec3{5, 10, 2}, Vec3{-1, 6, 9}});
  const Deformation deformation(from, to);
  const Vec3 origin = deformation.carry({0, 0, 0});
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  double softest = 10;
  for (int n = 0; n < 20000; ++n) {
    const Vec3 direction{normal(random), normal(random), normal(random)};
    softest = std::min(softest, length(deformation.carry(direction) - origin) / length(direction));
  }
  EXPECT_GE(softest, deformation.smallest_stretch() - kRounding);
  EXPECT_LE(softest, deformation.smallest_stretch() * (1 + kSampling));
}

TEST(Deformation, positions_follow_the_cell_and_its_origin)
{
  const Box from = cube(10);
  const Box to({Vec3{20, 0, 0}, Vec3{0, 10, 0}, Vec3{0, 5, 10}}, {1, 2, 3}, testing::kPeriodic);
  const Vec3 carried = Deformation(from, to).carry({5, 5, 5});
  const Vec3 expected{1 + 10, 2 + 5 + 2.5, 3 + 5};
  for (int a = 0; a < 3; ++a) EXPECT_NEAR(carried[a], expected[a], 10 * kRounding);
}

TEST(Deformation, positions_follow_an_origin_that_moves_alone)
{
  const Box moved({Vec3{10, 0, 0}, Vec3{0, 10, 0}, Vec3{0, 0, 10}}, {0.5, 0, -2}, testing::kPeriodic);
  const Vec3 carried = Deformation(cube(10), moved).carry({1, 1, 1});
  EXPECT_NEAR(carried[0], 1.5, 10 * kRounding);
  EXPECT_NEAR(carried[2], -1, 10 * kRounding);
}

TEST(Deformation, an_open_axis_takes_no_part)
{
  const Box from = cube(10, {true, true, false});
  const Box to({Vec3{10, 0, 0}, Vec3{0, 10, 0}, Vec3{0, 0, 3}}, {0, 0, 4}, {true, true, false});
  EXPECT_EQ(Deformation(from, to).smallest_stretch(), 1);
  EXPECT_EQ(Deformation(from, to).carry({1, 2, 30}), (Vec3{1, 2, 30}));
}

}  // namespace
}  // namespace tessera
