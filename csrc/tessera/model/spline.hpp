// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

// Uniform quintic B-splines: an interval needs six coefficients; fraction t runs from 0 to 1 in it. The weights are the
// six basis splines that overlap it, which add up to 1; the slopes are their derivatives by t.
namespace tessera::operators {

inline constexpr int kSplineRows = 6;

template <typename Real>
struct SplineWeights {
  Real value[kSplineRows];
};

template <typename Real>
inline __attribute__((always_inline)) SplineWeights<Real> spline_weights(Real t)
{
  const Real s = Real(1) - t, scale = Real(1) / Real(120);
  const auto outer = [](Real x) { return x * x * x * x * x; };
  const auto next = [](Real x) { return 26 + x * (-50 + x * (20 + x * (20 + x * (-20 + x * 5)))); };
  const auto middle = [](Real x) { return 66 + x * x * (-60 + x * x * (30 - x * 10)); };
  return {scale * outer(s), scale * next(t), scale * middle(t), scale * middle(s), scale * next(s), scale * outer(t)};
}

template <typename Real>
inline __attribute__((always_inline)) SplineWeights<Real> spline_slopes(Real t)
{
  const Real s = Real(1) - t, scale = Real(1) / Real(120);
  const auto outer = [](Real x) { return 5 * x * x * x * x; };
  const auto next = [](Real x) { return -50 + x * (40 + x * (60 + x * (-80 + x * 25))); };
  const auto middle = [](Real x) { return x * (-120 + x * x * (120 - x * 50)); };
  return {-scale * outer(s),  scale * next(t),  scale * middle(t),
          -scale * middle(s), -scale * next(s), scale * outer(t)};
}

/// Uniform B-splines of `width` functions, and where each edge stands on them.
template <typename Real>
struct Spline {
  const Real* table;        // [T, width]
  const std::int64_t* row;  // [E], first of six rows
  const Real* fraction;     // [E]
  std::int64_t width;
};

}  // namespace tessera::operators
