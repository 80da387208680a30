// SPDX-License-Identifier: MIT
// Edge-degree embedding: the sum over edges of (harmonics) x (radial weights of the row's degree).
#include <ATen/Functions.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/model/operator_support.hpp"

namespace tessera::operators {
namespace {

template <typename Real>
struct OuterSum {
  const Real* harmonics;              // [E, rows]
  const Real* radial;                 // [E, degrees, channels]
  const Real* grad;                   // [N, rows, channels], backward only
  const std::int64_t* receiver_range;  // [N, 2]
  std::int64_t rows, degrees, channels;
};

template <typename Real>
struct Gradients {
  Real* harmonics;  // [E, rows]
  Real* radial;     // [E, degrees, channels]
};

template <typename Real>
TESSERA_KERNEL void forward_rows(const OuterSum<Real>& in, Real* __restrict__ out, std::int64_t first,
                                 std::int64_t last)
{
  const auto size = in.rows * in.channels;
  std::fill(out + first * size, out + last * size, Real(0));
  for (auto i = first; i < last; ++i) {
    for (auto e = in.receiver_range[2 * i]; e < in.receiver_range[2 * i + 1]; ++e) {
      for (std::int64_t degree = 0; degree < in.degrees; ++degree) {
        const Real* __restrict__ radial = in.radial + (e * in.degrees + degree) * in.channels;
        for (auto r = degree * degree; r < (degree + 1) * (degree + 1); ++r) {
          const Real harmonic = in.harmonics[e * in.rows + r];
          Real* __restrict__ sum = out + i * size + r * in.channels;
#pragma omp simd
          for (std::int64_t c = 0; c < in.channels; ++c) sum[c] += harmonic * radial[c];
        }
      }
    }
  }
}

template <typename Real>
TESSERA_KERNEL void backward_rows(const OuterSum<Real>& in, const Gradients<Real>& out, std::int64_t first,
                                  std::int64_t last)
{
  for (auto i = first; i < last; ++i) {
    for (auto e = in.receiver_range[2 * i]; e < in.receiver_range[2 * i + 1]; ++e) {
      for (std::int64_t degree = 0; degree < in.degrees; ++degree) {
        const auto offset = (e * in.degrees + degree) * in.channels;
        const Real* __restrict__ radial = in.radial + offset;
        Real* __restrict__ grad_radial = out.radial + offset;
        std::fill(grad_radial, grad_radial + in.channels, Real(0));
        for (auto r = degree * degree; r < (degree + 1) * (degree + 1); ++r) {
          const Real harmonic = in.harmonics[e * in.rows + r];
          const Real* __restrict__ grad = in.grad + (i * in.rows + r) * in.channels;
          Real sum = 0;
#pragma omp simd reduction(+ : sum)
          for (std::int64_t c = 0; c < in.channels; ++c) {
            grad_radial[c] += harmonic * grad[c];
            sum += grad[c] * radial[c];
          }
          out.harmonics[e * in.rows + r] = sum;
        }
      }
    }
  }
}

#define TESSERA_OUTER_SUM(Real)                                                                                   \
  TESSERA_MULTIVERSION void forward(const OuterSum<Real>& in, Real* out, std::int64_t first, std::int64_t last)   \
  {                                                                                                               \
    forward_rows(in, out, first, last);                                                                           \
  }                                                                                                               \
  TESSERA_MULTIVERSION void backward(const OuterSum<Real>& in, const Gradients<Real>& out, std::int64_t first,    \
                                     std::int64_t last)                                                           \
  {                                                                                                               \
    backward_rows(in, out, first, last);                                                                          \
  }
TESSERA_OUTER_SUM(float)
TESSERA_OUTER_SUM(double)
#undef TESSERA_OUTER_SUM

void check(const char* op, const at::Tensor& harmonics, const at::Tensor& radial, const at::Tensor& receiver,
           const at::Tensor& range)
{
  const auto type = require_floating(op, "harmonics", harmonics, {kAny, kAny});
  require(op, "radial", radial, type, {harmonics.size(0), kAny, kAny});
  require(op, "receiver", receiver, at::kLong, {harmonics.size(0)});
  require(op, "receiver_range", range, at::kLong, {kAny, 2});
  const auto degrees = radial.size(1);
  TESSERA_REQUIRE(harmonics.size(1) == degrees * degrees,
                  "tessera::{}: harmonics must have (lmax + 1)^2 = {} rows for the {} degrees of radial, found {}", op,
                  degrees * degrees, degrees, harmonics.size(1));
}

template <typename Real>
OuterSum<Real> arguments(const at::Tensor& harmonics, const at::Tensor& radial, const at::Tensor& range)
{
  return {harmonics.const_data_ptr<Real>(), radial.const_data_ptr<Real>(), nullptr,
          range.const_data_ptr<std::int64_t>(), harmonics.size(1), radial.size(1), radial.size(2)};
}

at::Tensor outer_sum(const at::Tensor& harmonics, const at::Tensor& radial, const at::Tensor& receiver,
                     const at::Tensor& range)
{
  check("outer_sum", harmonics, radial, receiver, range);
  auto out = at::empty({range.size(0), harmonics.size(1), radial.size(2)}, radial.options());
  dispatch(radial.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    const auto in = arguments<Real>(harmonics, radial, range);
    auto* data = out.mutable_data_ptr<Real>();
    for_rows(range.size(0), work_per_row(harmonics.size(0), range.size(0), in.rows * in.channels),
             [&](auto first, auto last) { forward(in, data, first, last); });
  });
  return out;
}

std::tuple<at::Tensor, at::Tensor> outer_sum_backward(const at::Tensor& grad, const at::Tensor& harmonics,
                                                      const at::Tensor& radial, const at::Tensor& receiver,
                                                      const at::Tensor& range)
{
  const char* op = "outer_sum_backward";
  check(op, harmonics, radial, receiver, range);
  require(op, "grad", grad, radial.scalar_type(), {range.size(0), harmonics.size(1), radial.size(2)});
  auto grad_harmonics = at::empty_like(harmonics);
  auto grad_radial = at::empty_like(radial);
  dispatch(radial.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    auto in = arguments<Real>(harmonics, radial, range);
    in.grad = grad.const_data_ptr<Real>();
    const Gradients<Real> out{grad_harmonics.mutable_data_ptr<Real>(), grad_radial.mutable_data_ptr<Real>()};
    for_rows(range.size(0), work_per_row(harmonics.size(0), range.size(0), 2 * in.rows * in.channels),
             [&](auto first, auto last) { backward(in, out, first, last); });
  });
  return {grad_harmonics, grad_radial};
}

}  // namespace

TORCH_LIBRARY_IMPL(tessera, CPU, m)
{
  m.impl("outer_sum", &Recorded<&outer_sum>::call);
  m.impl("outer_sum_backward", &Recorded<&outer_sum_backward>::call);
}

}  // namespace tessera::operators
