// SPDX-License-Identifier: MIT
#include "tessera/base/box.hpp"

#include <gtest/gtest.h>

#include "hard_systems.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

constexpr double kRounding = 1e-12;  // a few operations on numbers of order 10

const Box& tilted()
{
  static const Box box({Vec3{13, 0, 0}, Vec3{5, 12, 0}, Vec3{-4, 3, 11}}, {-3, 2, 40}, {true, false, true});
  return box;
}

TEST(Box, fractional_coordinates_and_back_are_the_identity)
{
  for (const Vec3& r : testing::scatter_atoms(20, testing::cube(50), 1)) {
    const Vec3 back = tilted().to_cartesian(tilted().to_fractional(r));
    for (int a = 0; a < 3; ++a) EXPECT_NEAR(back[a], r[a], kRounding * 50);
  }
}

TEST(Box, the_corner_opposite_the_origin_has_fractional_coordinates_of_one)
{
  const Vec3 corner = tilted().origin() + tilted().cell()[0] + tilted().cell()[1] + tilted().cell()[2];
  for (const double fraction : tilted().to_fractional(corner)) EXPECT_NEAR(fraction, 1, kRounding);
}

TEST(Box, volume_and_heights_are_those_of_the_parallelepiped)
{
  EXPECT_NEAR(tilted().volume(), 13.0 * 12 * 11, kRounding * 2000);
  EXPECT_NEAR(tilted().height(2), 11, kRounding * 11);
  const Vec3 normal = cross(tilted().cell()[1], tilted().cell()[2]);
  EXPECT_NEAR(tilted().height(0), std::abs(dot(tilted().cell()[0], normal)) / std::sqrt(dot(normal, normal)),
              kRounding * 13);
}

TEST(Box, the_translation_of_a_shift_is_its_sum_of_lattice_vectors)
{
  EXPECT_EQ(tilted().translation({2, -1, 3}), (Vec3{26 - 5 - 12, -12 + 9, 33}));
}

TEST(Box, a_left_handed_cell_has_a_positive_volume)
{
  const Box box({Vec3{0, 3, 0}, Vec3{2, 0, 0}, Vec3{0, 0, 4}}, {0, 0, 0}, testing::kPeriodic);
  EXPECT_NEAR(box.volume(), 24, kRounding * 24);
  EXPECT_NEAR(box.to_fractional({1, 0, 0})[1], 0.5, kRounding);
}

TEST(Box, a_flat_cell_is_refused)
{
  EXPECT_THROW(Box({Vec3{1, 0, 0}, Vec3{2, 0, 0}, Vec3{0, 0, 1}}, {0, 0, 0}, testing::kPeriodic), Error);
  EXPECT_THROW(Box(Mat3{}, {0, 0, 0}, testing::kPeriodic), Error);
}

}  // namespace
}  // namespace tessera
