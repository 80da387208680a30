// SPDX-License-Identifier: MIT
#pragma once

// Vectors and the box for code that runs on a GPU too: nvcc calls no operators of std::array there. Every sum and
// product stands in the order of base/types.hpp, base/box.cpp and search/edge_vector.hpp, so that results are equal to
// the last bit (compiled without contraction, see compile_kernels() in CMakeLists.txt).
#include <cmath>
#include <cstdint>

#include "tessera/base/box.hpp"
#include "tessera/device/parallel.cuh"

namespace tessera::kernel {

struct Vector {
  double x[3];
};

struct Image {
  std::int32_t x[3];
};

/// The numbers of a Box.
struct Lattice {
  double cell[3][3];
  double inverse[3][3];
  double origin[3];
  bool periodic[3];
};

inline Lattice lattice_of(const Box& box)
{
  Lattice lattice{};
  for (int k = 0; k < 3; ++k) {
    for (int a = 0; a < 3; ++a) {
      lattice.cell[k][a] = box.cell()[k][a];
      lattice.inverse[k][a] = box.inverse()[k][a];
    }
    lattice.origin[k] = box.origin()[k];
    lattice.periodic[k] = box.periodic()[k];
  }
  return lattice;
}

/// The numbers of [rows] vectors or shifts: arrays of arrays are read and written by component in kernels.
inline const double* components(const Vec3* rows) { return reinterpret_cast<const double*>(rows); }
inline std::int32_t* components(Shift* rows) { return reinterpret_cast<std::int32_t*>(rows); }
inline const std::int32_t* components(const Shift* rows) { return reinterpret_cast<const std::int32_t*>(rows); }

TESSERA_HOST_DEVICE inline Vector vector_at(const double* rows, std::int64_t row)
{
  return {{rows[3 * row], rows[3 * row + 1], rows[3 * row + 2]}};
}

TESSERA_HOST_DEVICE inline Image image_at(const std::int32_t* rows, std::int64_t row)
{
  return {{rows[3 * row], rows[3 * row + 1], rows[3 * row + 2]}};
}

TESSERA_HOST_DEVICE inline Vector difference(const Vector& a, const Vector& b)
{
  return {{a.x[0] - b.x[0], a.x[1] - b.x[1], a.x[2] - b.x[2]}};
}

TESSERA_HOST_DEVICE inline double squared(const Vector& v)
{
  return v.x[0] * v.x[0] + v.x[1] * v.x[1] + v.x[2] * v.x[2];
}

/// As Box::translation().
TESSERA_HOST_DEVICE inline Vector translation(const Lattice& box, const Image& image)
{
  Vector r{{0, 0, 0}};
  for (int k = 0; k < 3; ++k) {
    const auto turns = static_cast<double>(image.x[k]);
    for (int a = 0; a < 3; ++a) r.x[a] = r.x[a] + turns * box.cell[k][a];
  }
  return r;
}

/// As Box::to_fractional().
TESSERA_HOST_DEVICE inline Vector to_fractional(const Lattice& box, const Vector& position)
{
  Vector r{}, f{};
  for (int a = 0; a < 3; ++a) r.x[a] = position.x[a] - box.origin[a];
  for (int k = 0; k < 3; ++k) {
    f.x[k] = r.x[0] * box.inverse[0][k] + r.x[1] * box.inverse[1][k] + r.x[2] * box.inverse[2][k];
  }
  return f;
}

/// Squared length of edge_vector(), Å^2.
TESSERA_HOST_DEVICE inline double edge_length_sq(const Lattice& box, const Vector& receiver, const Vector& sender,
                                                 const Image& shift)
{
  return squared(difference(difference(receiver, sender), translation(box, shift)));
}

}  // namespace tessera::kernel
