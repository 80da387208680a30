// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace tessera {

/// Cartesian vector in Å (positions, edge vectors) or eV/Å (forces).
using Vec3 = std::array<double, 3>;

/// Row-major 3 x 3 matrix; for a cell, row k is lattice vector k in Å.
using Mat3 = std::array<Vec3, 3>;

/// Integer lattice translation that belongs to an edge.
using Shift = std::array<std::int32_t, 3>;

inline Vec3 operator+(const Vec3& a, const Vec3& b) { return {a[0] + b[0], a[1] + b[1], a[2] + b[2]}; }
inline Vec3 operator-(const Vec3& a, const Vec3& b) { return {a[0] - b[0], a[1] - b[1], a[2] - b[2]}; }
inline Vec3 operator*(double s, const Vec3& a) { return {s * a[0], s * a[1], s * a[2]}; }
inline double dot(const Vec3& a, const Vec3& b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
inline Vec3 cross(const Vec3& a, const Vec3& b)
{
  return {a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]};
}

}  // namespace tessera
