// SPDX-License-Identifier: MIT
#include "tessera/partition/curve.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "hard_systems.hpp"
#include "tessera/base/error.hpp"
#include "tessera/comm/virtual.hpp"

namespace tessera {
namespace {

constexpr CurveKind kKinds[] = {CurveKind::hilbert, CurveKind::morton};

std::uint32_t steps_between(const CurveCell& a, const CurveCell& b)
{
  std::uint32_t steps = 0;
  for (int k = 0; k < 3; ++k) steps += a[k] > b[k] ? a[k] - b[k] : b[k] - a[k];
  return steps;
}

TEST(Curve, every_cell_has_one_key_and_every_key_one_cell)
{
  for (const auto kind : kKinds) {
    for (const int levels : {1, 2, 4}) {
      std::set<CurveCell> cells;
      const Key num_keys = Key{1} << (3 * levels);
      for (Key key = 0; key < num_keys; ++key) {
        const CurveCell cell = decode_cell(kind, key, levels);
        ASSERT_LT(*std::max_element(cell.begin(), cell.end()), 1U << levels);
        ASSERT_EQ(encode_cell(kind, cell, levels), key);
        cells.insert(cell);
      }
      EXPECT_EQ(cells.size(), num_keys);
    }
  }
}

TEST(Curve, consecutive_hilbert_cells_share_a_face_at_every_scale)
{
  for (const int levels : {1, 2, 3, 5}) {
    CurveCell last = decode_cell(CurveKind::hilbert, 0, levels);
    for (Key key = 1; key < Key{1} << (3 * levels); ++key) {
      const CurveCell cell = decode_cell(CurveKind::hilbert, key, levels);
      ASSERT_EQ(steps_between(last, cell), 1U) << "key " << key << " of " << levels << " levels";
      last = cell;
    }
  }
  std::mt19937_64 random(1);
  for (int n = 0; n < 2000; ++n) {
    const Key key = random() % (kKeyEnd - 1);
    ASSERT_EQ(steps_between(decode_cell(CurveKind::hilbert, key), decode_cell(CurveKind::hilbert, key + 1)), 1U);
  }
}

TEST(Curve, morton_keys_interleave_the_bits_of_the_coordinates)
{
  EXPECT_EQ(encode_cell(CurveKind::morton, {1, 0, 0}), 1U);
  EXPECT_EQ(encode_cell(CurveKind::morton, {0, 1, 0}), 2U);
  EXPECT_EQ(encode_cell(CurveKind::morton, {0, 0, 1}), 4U);
  EXPECT_EQ(encode_cell(CurveKind::morton, {3, 0, 2}), 0b101001U);
}

TEST(Curve, the_first_bits_of_a_key_are_the_key_of_the_enclosing_cell)
{
  std::mt19937_64 random(2);
  for (const auto kind : kKinds) {
    for (int n = 0; n < 500; ++n) {
      const Key key = random() % kKeyEnd;
      const CurveCell cell = decode_cell(kind, key);
      for (int levels = 1; levels < kCurveLevels; ++levels) {
        const int rest = kCurveLevels - levels;
        const CurveCell enclosing{cell[0] >> rest, cell[1] >> rest, cell[2] >> rest};
        ASSERT_EQ(encode_cell(kind, enclosing, levels), key >> (3 * rest));
      }
    }
  }
}

TEST(Curve, an_atom_lies_in_the_cell_of_its_key)
{
  constexpr double kCellEdge = 1.0 / (1U << kCurveLevels);
  constexpr double kRounding = 1e-7;  // of fractional coordinates of atoms 1e7 cells away (hard_systems.hpp)
  for (const auto& system : testing::hard_systems()) {
    const auto extent = agree_on_extent(system.positions, system.box, *make_serial_communicator());
    for (const auto kind : kKinds) {
      const Curve curve(kind, system.box, extent);
      for (const Vec3& position : system.positions) {
        const Vec3 unit = curve.unit_position(position);
        const Vec3 corner = curve.corner_of(curve.key_of(position));
        for (int k = 0; k < 3; ++k) {
          ASSERT_GE(unit[k], corner[k]) << system.name;
          ASSERT_LE(unit[k], corner[k] + kCellEdge) << system.name;
          if (!system.box.periodic()[k]) continue;
          const double fraction = system.box.to_fractional(position)[k];
          ASSERT_NEAR(unit[k], fraction - std::floor(fraction), kRounding) << system.name;
          ASSERT_LT(unit[k], 1.0) << system.name;
        }
      }
    }
  }
}

TEST(Curve, an_atom_a_hair_below_the_lower_face_is_wrapped_inside)
{
  const Curve curve(CurveKind::hilbert, testing::cube(10), {});
  EXPECT_EQ(curve.key_of({-1e-18, 5, 5}), curve.key_of({0, 5, 5}));
  EXPECT_EQ(curve.key_of({10, 5, 5}), curve.key_of({0, 5, 5}));
  EXPECT_NE(curve.key_of({-1e-4, 5, 5}), curve.key_of({0, 5, 5}));
}

TEST(Curve, an_open_axis_is_scaled_to_the_atoms_of_all_ranks)
{
  const Box box = testing::cube(10, {true, true, false});
  run_virtual_ranks(3, [&](const std::shared_ptr<Communicator>& comm) {
    std::vector<Vec3> mine;
    if (comm->rank() == 0) mine = {{1, 1, -20}, {2, 2, 5}};
    if (comm->rank() == 2) mine = {{3, 3, 80}};
    const auto extent = agree_on_extent(mine, box, *comm);
    EXPECT_DOUBLE_EQ(extent.low[2], -2);
    EXPECT_DOUBLE_EQ(extent.high[2], 8);
    const Curve curve(CurveKind::hilbert, box, extent);
    EXPECT_DOUBLE_EQ(curve.unit_position({0, 0, 30})[2], 0.5);
    EXPECT_EQ(curve.key_of({1, 1, 500}), curve.key_of({1, 1, 80}));
    EXPECT_DOUBLE_EQ(curve.unit_reach(5)[2], 0.05);
    EXPECT_DOUBLE_EQ(curve.unit_reach(5)[0], 0.5);
  });
}

TEST(Curve, no_atoms_anywhere_leave_the_unit_extent)
{
  const auto extent = agree_on_extent({}, testing::cube(10), *make_serial_communicator());
  EXPECT_EQ(extent.low, (Vec3{0, 0, 0}));
  EXPECT_EQ(extent.high, (Vec3{1, 1, 1}));
}

TEST(Curve, a_position_that_is_not_finite_is_refused)
{
  const Curve curve(CurveKind::hilbert, testing::cube(10), {});
  EXPECT_THROW((void)curve.key_of({0, std::numeric_limits<double>::quiet_NaN(), 0}), Error);
  EXPECT_THROW((void)curve.key_of({0, 0, std::numeric_limits<double>::infinity()}), Error);
}

}  // namespace
}  // namespace tessera
