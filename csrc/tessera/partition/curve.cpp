// SPDX-License-Identifier: MIT
#include "tessera/partition/curve.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

constexpr std::uint32_t kCellsPerAxis = 1U << kCurveLevels;

/// One state of the Hilbert curve: how the eight octants of a cube are visited, and the state inside each.
struct HilbertState {
  std::array<std::uint8_t, 8> digit_of_octant{};
  std::array<std::uint8_t, 8> octant_of_digit{};
  std::array<std::uint8_t, 8> next_of_digit{};
};

constexpr unsigned rotate_left(unsigned bits, int count)
{
  count %= 3;
  return ((bits << count) | (bits >> (3 - count))) & 7U;
}

constexpr unsigned gray_code(unsigned i) { return i ^ (i >> 1); }

/// Corner where the curve enters sub-cube i, before rotation (Hamilton, theorem 2.10).
constexpr unsigned entry_of(unsigned i) { return i == 0 ? 0 : gray_code(2 * ((i - 1) / 2)); }

/// Axis along which it leaves sub-cube i, before rotation (Hamilton, lemma 2.8).
constexpr int direction_of(unsigned i)
{
  if (i == 0) return 0;
  unsigned trailing = i % 2 == 0 ? i - 1 : i;
  int ones = 0;
  for (; trailing & 1U; trailing >>= 1) ++ones;
  return ones % 3;
}

/// States are numbered 3 * entry + direction; the curve starts in 0.
constexpr std::array<HilbertState, 24> make_hilbert_states()
{
  std::array<HilbertState, 24> states{};
  for (unsigned entry = 0; entry < 8; ++entry) {
    for (int direction = 0; direction < 3; ++direction) {
      HilbertState& state = states[3 * entry + direction];
      for (unsigned digit = 0; digit < 8; ++digit) {
        const unsigned octant = rotate_left(gray_code(digit), direction + 1) ^ entry;
        const unsigned next_entry = entry ^ rotate_left(entry_of(digit), direction + 1);
        const int next_direction = (direction + direction_of(digit) + 1) % 3;
        state.octant_of_digit[digit] = static_cast<std::uint8_t>(octant);
        state.digit_of_octant[octant] = static_cast<std::uint8_t>(digit);
        state.next_of_digit[digit] = static_cast<std::uint8_t>(3 * next_entry + next_direction);
      }
    }
  }
  return states;
}

constexpr auto kHilbertStates = make_hilbert_states();

}  // namespace

Key encode_cell(CurveKind kind, const CurveCell& cell, int levels)
{
  Key key = 0;
  unsigned state = 0;
  for (int level = levels - 1; level >= 0; --level) {
    const unsigned octant =
        ((cell[0] >> level) & 1U) | (((cell[1] >> level) & 1U) << 1) | (((cell[2] >> level) & 1U) << 2);
    unsigned digit = octant;
    if (kind == CurveKind::hilbert) {
      digit = kHilbertStates[state].digit_of_octant[octant];
      state = kHilbertStates[state].next_of_digit[digit];
    }
    key = (key << 3) | digit;
  }
  return key;
}

CurveCell decode_cell(CurveKind kind, Key key, int levels)
{
  CurveCell cell{};
  unsigned state = 0;
  for (int level = levels - 1; level >= 0; --level) {
    const unsigned digit = (key >> (3 * level)) & 7U;
    unsigned octant = digit;
    if (kind == CurveKind::hilbert) {
      octant = kHilbertStates[state].octant_of_digit[digit];
      state = kHilbertStates[state].next_of_digit[digit];
    }
    for (int axis = 0; axis < 3; ++axis) cell[axis] = (cell[axis] << 1) | ((octant >> axis) & 1U);
  }
  return cell;
}

CurveExtent agree_on_extent(std::span<const Vec3> positions, const Box& box, Communicator& communicator)
{
  std::array<double, 6> bounds;  // low, then minus high, so that one minimum serves both
  bounds.fill(std::numeric_limits<double>::max());
  for (const Vec3& position : positions) {
    const Vec3 fraction = box.to_fractional(position);
    for (int axis = 0; axis < 3; ++axis) {
      bounds[axis] = std::min(bounds[axis], fraction[axis]);
      bounds[3 + axis] = std::min(bounds[3 + axis], -fraction[axis]);
    }
  }
  communicator.all_reduce(std::span<double>(bounds), Reduction::min);
  CurveExtent extent;
  for (int axis = 0; axis < 3; ++axis) {
    if (bounds[axis] > -bounds[3 + axis]) continue;  // no atoms anywhere
    extent.low[axis] = bounds[axis];
    extent.high[axis] = -bounds[3 + axis];
  }
  return extent;
}

Curve::Curve(CurveKind kind, const Box& box, const CurveExtent& extent) : kind_(kind), box_(box)
{
  for (int axis = 0; axis < 3; ++axis) {
    const bool is_periodic = box.periodic()[axis];
    low_[axis] = is_periodic ? 0.0 : extent.low[axis];
    width_[axis] = is_periodic ? 1.0 : extent.high[axis] - extent.low[axis];
    TESSERA_REQUIRE(width_[axis] >= 0, "extent of axis {}: expected low <= high, found {} and {}", axis,
                    extent.low[axis], extent.high[axis]);
    if (width_[axis] == 0) width_[axis] = 1;  // all atoms in one plane: any width gives them one cell
  }
}

Vec3 Curve::unit_position(const Vec3& position) const
{
  Vec3 unit = box_.to_fractional(position);
  for (int axis = 0; axis < 3; ++axis) {
    TESSERA_REQUIRE(std::isfinite(unit[axis]), "an atom has the position ({}, {}, {}) Å, which is not finite",
                    position[0], position[1], position[2]);
    if (box_.periodic()[axis]) {
      unit[axis] -= std::floor(unit[axis]);
      if (unit[axis] >= 1) unit[axis] = 0;  // -1e-17 - floor(-1e-17) rounds to 1
    } else {
      unit[axis] = (unit[axis] - low_[axis]) / width_[axis];
    }
  }
  return unit;
}

Key Curve::key_of(const Vec3& position) const
{
  const Vec3 unit = unit_position(position);
  CurveCell cell{};
  for (int axis = 0; axis < 3; ++axis) {
    const double place = std::clamp(unit[axis] * kCellsPerAxis, 0.0, static_cast<double>(kCellsPerAxis - 1));
    cell[axis] = static_cast<std::uint32_t>(place);
  }
  return encode_cell(kind_, cell);
}

std::vector<Key> Curve::keys_of(std::span<const Vec3> positions) const
{
  std::vector<Key> keys;
  keys.reserve(positions.size());
  for (const Vec3& position : positions) keys.push_back(key_of(position));
  return keys;
}

Vec3 Curve::corner_of(Key key) const
{
  const CurveCell cell = decode_cell(kind_, key);
  return {cell[0] / double{kCellsPerAxis}, cell[1] / double{kCellsPerAxis}, cell[2] / double{kCellsPerAxis}};
}

Vec3 Curve::unit_reach(double distance) const
{
  Vec3 reach{};
  for (int axis = 0; axis < 3; ++axis) reach[axis] = distance / (box_.height(axis) * width_[axis]);
  return reach;
}

}  // namespace tessera
