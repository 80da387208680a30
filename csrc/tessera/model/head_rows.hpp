// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/model/operator_support.hpp"

// Arithmetic on rows of heads: planes of [heads] numbers, in which a head is a lane of its own.
namespace tessera::operators {

/// 32 bytes of neighbouring lanes at any address; the compiler makes of them what the instruction set has.
template <typename Real>
struct PackOf {
  typedef Real type __attribute__((vector_size(32), aligned(sizeof(Real)), may_alias));
  static constexpr std::int64_t kLanes = 32 / sizeof(Real);
};

template <typename Real>
TESSERA_KERNEL const typename PackOf<Real>::type& pack_at(const Real* place)
{
  return *reinterpret_cast<const typename PackOf<Real>::type*>(place);
}

template <typename Real>
TESSERA_KERNEL typename PackOf<Real>::type& pack_at(Real* place)
{
  return *reinterpret_cast<typename PackOf<Real>::type*>(place);
}

/// out[h] = sum over planes of x[plane, h] y[plane, h], planes in ascending order.
template <typename Real>
TESSERA_KERNEL void dot_planes(const Real* x, const Real* y, std::int64_t planes, std::int64_t heads, Real* out)
{
  using Pack = typename PackOf<Real>::type;
  constexpr auto kLanes = PackOf<Real>::kLanes;
  std::int64_t h = 0;
  for (; h + kLanes <= heads; h += kLanes) {
    Pack even{}, odd{};
    std::int64_t plane = 0;
    for (; plane + 2 <= planes; plane += 2) {
      const auto at = plane * heads + h;
      even += pack_at(x + at) * pack_at(y + at);
      odd += pack_at(x + at + heads) * pack_at(y + at + heads);
    }
    if (plane < planes) even += pack_at(x + plane * heads + h) * pack_at(y + plane * heads + h);
    pack_at(out + h) = even + odd;
  }
  for (; h < heads; ++h) {
    Real total = 0;
    for (std::int64_t plane = 0; plane < planes; ++plane) total += x[plane * heads + h] * y[plane * heads + h];
    out[h] = total;
  }
}

/// out[plane, h] += scale[h] x[plane, h]
template <typename Real>
TESSERA_KERNEL void add_planes(const Real* scale, const Real* x, std::int64_t planes, std::int64_t heads, Real* out)
{
  constexpr auto kLanes = PackOf<Real>::kLanes;
  std::int64_t h = 0;
  for (; h + kLanes <= heads; h += kLanes) {
    const typename PackOf<Real>::type factor = pack_at(scale + h);
    for (std::int64_t plane = 0; plane < planes; ++plane) {
      const auto at = plane * heads + h;
      pack_at(out + at) += factor * pack_at(x + at);
    }
  }
  for (; h < heads; ++h) {
    for (std::int64_t plane = 0; plane < planes; ++plane) out[plane * heads + h] += scale[h] * x[plane * heads + h];
  }
}

/// out[c] = sum over six rows of weight[row] table[row, c]
template <typename Real, typename Weights>
TESSERA_KERNEL void mix_rows(const Weights& weights, const Real* __restrict__ table, std::int64_t width,
                             Real* __restrict__ out)
{
#pragma omp simd
  for (std::int64_t c = 0; c < width; ++c) {
    Real total = weights.value[0] * table[c];
    for (int row = 1; row < 6; ++row) total += weights.value[row] * table[row * width + c];
    out[c] = total;
  }
}

}  // namespace tessera::operators
