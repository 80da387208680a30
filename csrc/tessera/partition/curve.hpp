// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/box.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera {

enum class CurveKind { hilbert, morton };

/// Place on the curve: 63 bits, three a level, coarsest first.
using Key = std::uint64_t;

/// A cell of the grid with 2^levels cells an axis.
using CurveCell = std::array<std::uint32_t, 3>;

constexpr int kCurveLevels = 21;
constexpr Key kKeyEnd = Key{1} << (3 * kCurveLevels);  ///< one past the last key

/// Place of a cell on the curve of that many levels.
///
/// Hilbert: consecutive cells share a face (Hamilton, "Compact Hilbert indices", Dalhousie CS-2006-07, algorithm 2).
/// Morton: the bits of the coordinates interleaved. Both nest: the first 3 l bits of a key are the key of the
/// enclosing cell among 2^l an axis, so that an aligned run of 8^m keys is a cube.
/// @pre every coordinate < 2^levels, levels <= kCurveLevels.
[[nodiscard]] Key encode_cell(CurveKind kind, const CurveCell& cell, int levels = kCurveLevels);

/// The inverse of encode_cell().
[[nodiscard]] CurveCell decode_cell(CurveKind kind, Key key, int levels = kCurveLevels);

/// Smallest and largest fractional coordinates of all atoms; only axes that are not periodic use them.
struct CurveExtent {
  Vec3 low{0, 0, 0};
  Vec3 high{1, 1, 1};
};

/// The extent of all ranks' atoms, the same on all ranks; [0, 1] if there are none. One all-reduce.
[[nodiscard]] CurveExtent agree_on_extent(std::span<const Vec3> positions, const Box& box, Communicator& communicator);

/// A curve laid through a box: maps positions to keys.
///
/// Periodic axes are wrapped into [0, 1); the others are scaled to the extent, beyond which an atom belongs to the
/// outermost cell. Equal coordinates give equal keys on all ranks.
class Curve {
 public:
  Curve(CurveKind kind, const Box& box, const CurveExtent& extent);

  /// Place in the unit cube: [0, 1) along periodic axes; along the others 0 and 1 are the extent's ends, and an atom
  /// that has left the extent lies outside.
  /// @throws Error(rank) if a coordinate is not finite.
  [[nodiscard]] Vec3 unit_position(const Vec3& position) const;

  [[nodiscard]] Key key_of(const Vec3& position) const;
  [[nodiscard]] std::vector<Key> keys_of(std::span<const Vec3> positions) const;

  /// Lower corner of the key's cell in the unit cube; a cell's edge there is 2^-kCurveLevels.
  [[nodiscard]] Vec3 corner_of(Key key) const;

  /// Length in the unit cube, along each axis, that covers `distance` (Å) in space in any direction.
  [[nodiscard]] Vec3 unit_reach(double distance) const;

  [[nodiscard]] CurveKind kind() const noexcept { return kind_; }
  [[nodiscard]] const Box& box() const noexcept { return box_; }

 private:
  CurveKind kind_;
  Box box_;
  Vec3 low_{};
  Vec3 width_{};  // in fractional coordinates; 1 along periodic axes
};

}  // namespace tessera
