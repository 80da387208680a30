// SPDX-License-Identifier: MIT
// Embedding sums whose radial functions come from splines of the distance, so that no edge keeps a row of channels:
//     features[i, r, c] = sum_e scale[e] harmonics[e, r] radial[e, l(r), c],  radial = splines at edge e.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/model/head_rows.hpp"
#include "tessera/model/spline.hpp"

namespace tessera::operators {
namespace {

template <typename Real>
struct TableSum {
  const Real* harmonics;               // [E, rows]
  Spline<Real> spline;                 // of degrees * channels
  const Real* scale;                   // [E]
  const std::int64_t* receiver_range;  // [N, 2]
  const Real* grad;                    // [N, rows, channels], backward only
  std::int64_t degrees, channels;

  [[nodiscard]] std::int64_t rows() const { return degrees * degrees; }
};

template <typename Real>
struct TableGradients {
  Real *harmonics, *fraction, *scale;
};

template <typename Real>
TESSERA_KERNEL Real dot(const Real* __restrict__ x, const Real* __restrict__ y, std::int64_t count)
{
  Real sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t c = 0; c < count; ++c) sum += x[c] * y[c];
  return sum;
}

template <typename Real>
TESSERA_KERNEL void add(Real* __restrict__ out, Real scale, const Real* __restrict__ x, std::int64_t count)
{
#pragma omp simd
  for (std::int64_t c = 0; c < count; ++c) out[c] += scale * x[c];
}

template <typename Real>
TESSERA_KERNEL void forward_rows(const TableSum<Real>& in, Real* out, std::int64_t first, std::int64_t last)
{
  const auto channels = in.channels, size = in.rows() * channels, width = in.spline.width;
  std::vector<Real> radial(width);
  std::fill(out + first * size, out + last * size, Real(0));
  for (auto i = first; i < last; ++i) {
    for (auto e = in.receiver_range[2 * i]; e < in.receiver_range[2 * i + 1]; ++e) {
      mix_rows(spline_weights(in.spline.fraction[e]), in.spline.table + in.spline.row[e] * width, width, radial.data());
      for (std::int64_t l = 0; l < in.degrees; ++l) {
        for (auto r = l * l; r < (l + 1) * (l + 1); ++r) {
          add(out + i * size + r * channels, in.scale[e] * in.harmonics[e * in.rows() + r],
              radial.data() + l * channels, channels);
        }
      }
    }
  }
}

template <typename Real>
TESSERA_KERNEL void backward_rows(const TableSum<Real>& in, const TableGradients<Real>& out, std::int64_t first,
                                  std::int64_t last)
{
  const auto channels = in.channels, size = in.rows() * channels, width = in.spline.width;
  std::vector<Real> radial(width), slopes(width), along(channels);
  for (auto i = first; i < last; ++i) {
    for (auto e = in.receiver_range[2 * i]; e < in.receiver_range[2 * i + 1]; ++e) {
      const Real* table = in.spline.table + in.spline.row[e] * width;
      mix_rows(spline_weights(in.spline.fraction[e]), table, width, radial.data());
      mix_rows(spline_slopes(in.spline.fraction[e]), table, width, slopes.data());
      Real by_scale = 0, by_fraction = 0;
      for (std::int64_t l = 0; l < in.degrees; ++l) {
        const Real* function = radial.data() + l * channels;
        std::fill(along.begin(), along.end(), Real(0));
        for (auto r = l * l; r < (l + 1) * (l + 1); ++r) {
          const Real* grad = in.grad + i * size + r * channels;
          add(along.data(), in.harmonics[e * in.rows() + r], grad, channels);
          out.harmonics[e * in.rows() + r] = in.scale[e] * dot(function, grad, channels);
        }
        by_scale += dot(function, along.data(), channels);
        by_fraction += dot(slopes.data() + l * channels, along.data(), channels);
      }
      out.scale[e] = by_scale;
      out.fraction[e] = in.scale[e] * by_fraction;
    }
  }
}

#define TESSERA_TABLE_SUM(Real)                                                                                     \
  TESSERA_MULTIVERSION void forward(const TableSum<Real>& in, Real* out, std::int64_t first, std::int64_t last)     \
  {                                                                                                                 \
    forward_rows(in, out, first, last);                                                                             \
  }                                                                                                                 \
  TESSERA_MULTIVERSION void backward(const TableSum<Real>& in, const TableGradients<Real>& out, std::int64_t first, \
                                     std::int64_t last)                                                             \
  {                                                                                                                 \
    backward_rows(in, out, first, last);                                                                            \
  }
TESSERA_TABLE_SUM(float)
TESSERA_TABLE_SUM(double)
#undef TESSERA_TABLE_SUM

struct Call {
  const char* op;
  const at::Tensor &harmonics, &table, &row, &fraction, &scale, &receiver_range;
};

void check(const Call& call)
{
  const auto num_edges = call.scale.size(0);
  const auto type = require_floating(call.op, "table", call.table, {kAny, kAny, kAny});
  const auto degrees = call.table.size(1);
  require(call.op, "harmonics", call.harmonics, type, {num_edges, degrees * degrees});
  require(call.op, "row", call.row, at::kLong, {num_edges});
  require(call.op, "fraction", call.fraction, type, {num_edges});
  require(call.op, "scale", call.scale, type, {num_edges});
  require(call.op, "receiver_range", call.receiver_range, at::kLong, {kAny, 2});
}

template <typename Real>
TableSum<Real> arguments(const Call& call)
{
  const auto degrees = call.table.size(1), channels = call.table.size(2);
  return {call.harmonics.const_data_ptr<Real>(),
          {call.table.const_data_ptr<Real>(), call.row.const_data_ptr<std::int64_t>(),
           call.fraction.const_data_ptr<Real>(), degrees * channels},
          call.scale.const_data_ptr<Real>(),
          call.receiver_range.const_data_ptr<std::int64_t>(),
          nullptr,
          degrees,
          channels};
}

template <typename Real>
std::int64_t work(const TableSum<Real>& in, std::int64_t num_edges, std::int64_t num_rows)
{
  return work_per_row(num_edges, num_rows, in.channels * (in.rows() + kSplineRows * in.degrees));
}

at::Tensor table_sum(const at::Tensor& harmonics, const at::Tensor& table, const at::Tensor& row,
                     const at::Tensor& fraction, const at::Tensor& scale, const at::Tensor& receiver_range)
{
  const Call call{"table_sum", harmonics, table, row, fraction, scale, receiver_range};
  check(call);
  const auto num_rows = receiver_range.size(0);
  auto out = at::empty({num_rows, harmonics.size(1), table.size(2)}, table.options());
  dispatch(table.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    const auto in = arguments<Real>(call);
    auto* data = out.mutable_data_ptr<Real>();
    for_rows(num_rows, work(in, scale.size(0), num_rows),
             [&](auto first, auto last) { forward(in, data, first, last); });
  });
  return out;
}

/// Gradients of harmonics, fraction and scale.
std::tuple<at::Tensor, at::Tensor, at::Tensor> table_sum_backward(const at::Tensor& grad, const at::Tensor& harmonics,
                                                                  const at::Tensor& table, const at::Tensor& row,
                                                                  const at::Tensor& fraction, const at::Tensor& scale,
                                                                  const at::Tensor& receiver_range)
{
  const Call call{"table_sum_backward", harmonics, table, row, fraction, scale, receiver_range};
  check(call);
  const auto num_rows = receiver_range.size(0);
  require(call.op, "grad", grad, table.scalar_type(), {num_rows, harmonics.size(1), table.size(2)});
  auto by_harmonics = at::empty_like(harmonics), by_fraction = at::empty_like(fraction);
  auto by_scale = at::empty_like(scale);
  dispatch(table.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    auto in = arguments<Real>(call);
    in.grad = grad.const_data_ptr<Real>();
    const TableGradients<Real> out{by_harmonics.mutable_data_ptr<Real>(), by_fraction.mutable_data_ptr<Real>(),
                                   by_scale.mutable_data_ptr<Real>()};
    for_rows(num_rows, 3 * work(in, scale.size(0), num_rows),
             [&](auto first, auto last) { backward(in, out, first, last); });
  });
  return {by_harmonics, by_fraction, by_scale};
}

}  // namespace

TORCH_LIBRARY_IMPL(tessera, CPU, m)
{
  m.impl("table_sum", &Recorded<&table_sum>::call);
  m.impl("table_sum_backward", &Recorded<&table_sum_backward>::call);
}

}  // namespace tessera::operators
