// SPDX-License-Identifier: MIT
// Reductions over the edges of each receiver: one thread writes one receiver, in edge order.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/model/gpu_kernels.hpp"
#include "tessera/model/operator_support.hpp"

namespace tessera::operators {
namespace {

template <typename Real>
TESSERA_KERNEL void sum_rows(const Segments<Real>& in, Real* __restrict__ out, std::int64_t first, std::int64_t last)
{
  for (auto i = first; i < last; ++i) {
    Real* row = out + i * in.width;
    std::fill(row, row + in.width, Real(0));
    for (auto e = in.range[2 * i]; e < in.range[2 * i + 1]; ++e) {
      const Real* __restrict__ value = in.values + e * in.width;
#pragma omp simd
      for (std::int64_t c = 0; c < in.width; ++c) row[c] += value[c];
    }
  }
}

template <typename Real>
TESSERA_KERNEL void max_rows(const Segments<Real>& in, Real* __restrict__ out, std::int64_t first, std::int64_t last)
{
  for (auto i = first; i < last; ++i) {
    Real* row = out + i * in.width;
    std::fill(row, row + in.width, Real(0));
    bool is_empty = true;
    for (auto e = in.range[2 * i]; e < in.range[2 * i + 1]; ++e) {
      if (!in.active[e]) continue;
      const Real* __restrict__ value = in.values + e * in.width;
      if (std::exchange(is_empty, false)) {
        std::copy(value, value + in.width, row);
        continue;
      }
#pragma omp simd
      for (std::int64_t c = 0; c < in.width; ++c) row[c] = value[c] > row[c] ? value[c] : row[c];
    }
  }
}

/// Each of the k edges that reach the maximum gets 1/k of the gradient.
template <typename Real>
TESSERA_KERNEL void max_rows_backward(const MaxGradient<Real>& g, Real* __restrict__ out, std::int64_t first,
                                      std::int64_t last)
{
  const auto width = g.in.width;
  std::vector<Real> share(width);
  for (auto i = first; i < last; ++i) {
    const Real* maximum = g.maximum + i * width;
    const auto begin = g.in.range[2 * i], end = g.in.range[2 * i + 1];
    std::fill(share.begin(), share.end(), Real(0));
    for (auto e = begin; e < end; ++e) {
      const Real* value = g.in.values + e * width;
      if (!g.in.active[e]) continue;
      for (std::int64_t c = 0; c < width; ++c) share[c] += value[c] == maximum[c] ? Real(1) : Real(0);
    }
    for (std::int64_t c = 0; c < width; ++c) share[c] = share[c] > 0 ? g.grad[i * width + c] / share[c] : Real(0);
    for (auto e = begin; e < end; ++e) {
      const Real* value = g.in.values + e * width;
      for (std::int64_t c = 0; c < width; ++c) {
        out[e * width + c] = g.in.active[e] && value[c] == maximum[c] ? share[c] : Real(0);
      }
    }
  }
}

TESSERA_MULTIVERSION void sum(const Segments<float>& in, float* out, std::int64_t first, std::int64_t last)
{
  sum_rows(in, out, first, last);
}
TESSERA_MULTIVERSION void sum(const Segments<double>& in, double* out, std::int64_t first, std::int64_t last)
{
  sum_rows(in, out, first, last);
}
TESSERA_MULTIVERSION void max(const Segments<float>& in, float* out, std::int64_t first, std::int64_t last)
{
  max_rows(in, out, first, last);
}
TESSERA_MULTIVERSION void max(const Segments<double>& in, double* out, std::int64_t first, std::int64_t last)
{
  max_rows(in, out, first, last);
}
TESSERA_MULTIVERSION void max_backward(const MaxGradient<float>& g, float* out, std::int64_t first, std::int64_t last)
{
  max_rows_backward(g, out, first, last);
}
TESSERA_MULTIVERSION void max_backward(const MaxGradient<double>& g, double* out, std::int64_t first, std::int64_t last)
{
  max_rows_backward(g, out, first, last);
}

template <typename Real>
Segments<Real> segments(const at::Tensor& values, const bool* active, const at::Tensor& range)
{
  return {values.const_data_ptr<Real>(), active, range.const_data_ptr<std::int64_t>(), values.size(1), range.size(0)};
}

at::Tensor segment_sum(const at::Tensor& values, const at::Tensor& receiver, const at::Tensor& range)
{
  const auto type = require_floating("segment_sum", "values", values, {kAny, kAny});
  require("segment_sum", "receiver", receiver, at::kLong, {values.size(0)});
  require("segment_sum", "receiver_range", range, at::kLong, {kAny, 2});
  auto out = at::empty({range.size(0), values.size(1)}, values.options());
  dispatch(type, [&](auto zero) {
    using Real = decltype(zero);
    const auto in = segments<Real>(values, nullptr, range);
    auto* data = out.mutable_data_ptr<Real>();
    if (values.is_cuda()) return gpu::sum(in, data, stream_of(values));
    for_rows(range.size(0), work_per_row(values.size(0), range.size(0), in.width),
             [&](auto first, auto last) { sum(in, data, first, last); });
  });
  return out;
}

at::Tensor segment_max(const at::Tensor& values, const at::Tensor& active, const at::Tensor& range)
{
  const auto type = require_floating("segment_max", "values", values, {kAny, kAny});
  require("segment_max", "active", active, at::kBool, {values.size(0)});
  require("segment_max", "receiver_range", range, at::kLong, {kAny, 2});
  auto out = at::empty({range.size(0), values.size(1)}, values.options());
  dispatch(type, [&](auto zero) {
    using Real = decltype(zero);
    const auto in = segments<Real>(values, active.const_data_ptr<bool>(), range);
    auto* data = out.mutable_data_ptr<Real>();
    if (values.is_cuda()) return gpu::max(in, data, stream_of(values));
    for_rows(range.size(0), work_per_row(values.size(0), range.size(0), in.width),
             [&](auto first, auto last) { max(in, data, first, last); });
  });
  return out;
}

at::Tensor segment_max_backward(const at::Tensor& grad, const at::Tensor& values, const at::Tensor& active,
                                const at::Tensor& maximum, const at::Tensor& range)
{
  const char* op = "segment_max_backward";
  const auto type = require_floating(op, "values", values, {kAny, kAny});
  require(op, "active", active, at::kBool, {values.size(0)});
  require(op, "receiver_range", range, at::kLong, {kAny, 2});
  require(op, "maximum", maximum, type, {range.size(0), values.size(1)});
  require(op, "grad", grad, type, {range.size(0), values.size(1)});
  auto out = at::zeros_like(values);
  dispatch(type, [&](auto zero) {
    using Real = decltype(zero);
    const MaxGradient<Real> g{segments<Real>(values, active.const_data_ptr<bool>(), range),
                              maximum.const_data_ptr<Real>(), grad.const_data_ptr<Real>()};
    auto* data = out.mutable_data_ptr<Real>();
    if (values.is_cuda()) return gpu::max_backward(g, data, stream_of(values));
    for_rows(range.size(0), work_per_row(values.size(0), range.size(0), 2 * g.in.width),
             [&](auto first, auto last) { max_backward(g, data, first, last); });
  });
  return out;
}

template <typename Real>
void nearest_rows(const NearestEdges<Real>& in, bool* keep, std::int64_t first, std::int64_t last)
{
  std::vector<std::pair<Real, std::int64_t>> candidates;
  for (auto i = first; i < last; ++i) {
    candidates.clear();
    for (auto e = in.range[2 * i]; e < in.range[2 * i + 1]; ++e) {
      if (in.active[e]) candidates.emplace_back(in.distance[e], e);
    }
    const auto kept = std::min<std::int64_t>(in.count, static_cast<std::int64_t>(candidates.size()));
    std::nth_element(candidates.begin(), candidates.begin() + kept, candidates.end());
    for (std::int64_t k = 0; k < kept; ++k) keep[candidates[k].second] = true;
  }
}

/// Marks the `count` nearest active edges of each receiver; of equally distant ones the first in edge order.
at::Tensor nearest_edges(const at::Tensor& distance, const at::Tensor& active, const at::Tensor& range,
                         std::int64_t count)
{
  const auto type = require_floating("nearest_edges", "distance", distance, {kAny});
  require("nearest_edges", "active", active, at::kBool, {distance.size(0)});
  require("nearest_edges", "receiver_range", range, at::kLong, {kAny, 2});
  TESSERA_REQUIRE(count > 0, "tessera::nearest_edges: count must be at least 1, found {}", count);
  auto out = at::zeros_like(active);
  dispatch(type, [&](auto zero) {
    using Real = decltype(zero);
    const NearestEdges<Real> in{distance.const_data_ptr<Real>(), active.const_data_ptr<bool>(),
                                range.const_data_ptr<std::int64_t>(), count, range.size(0)};
    auto* keep = out.mutable_data_ptr<bool>();
    if (distance.is_cuda()) return gpu::nearest_edges(in, keep, stream_of(distance));
    for_rows(range.size(0), work_per_row(distance.size(0), range.size(0), 8),
             [&](auto first, auto last) { nearest_rows(in, keep, first, last); });
  });
  return out;
}

void add_kernels(torch::Library& m)
{
  m.impl("segment_sum", &Recorded<&segment_sum>::call);
  m.impl("segment_max", &Recorded<&segment_max>::call);
  m.impl("segment_max_backward", &Recorded<&segment_max_backward>::call);
  m.impl("nearest_edges", &Recorded<&nearest_edges>::call);
}

}  // namespace

TORCH_LIBRARY_IMPL(tessera, CPU, m) { add_kernels(m); }
TORCH_LIBRARY_IMPL(tessera, CUDA, m) { add_kernels(m); }

}  // namespace tessera::operators
