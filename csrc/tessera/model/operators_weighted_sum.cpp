// SPDX-License-Identifier: MIT
// Attention-weighted sums of the senders' rows: A moments of each row, channel c weighted by head c mod H.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "tessera/model/edge_arguments.hpp"
#include "tessera/model/gpu_kernels.hpp"

namespace tessera::operators {
namespace {

/// Weights of one edge by channel: wide[a, c] = weights[a, c mod heads], so that the inner loops are contiguous.
template <typename Real>
TESSERA_KERNEL void widen(const WeightedSum<Real>& in, std::int64_t edge, Real* __restrict__ wide)
{
  for (std::int64_t a = 0; a < in.moments; ++a) {
    const Real* __restrict__ weights = in.weights + (edge * in.moments + a) * in.heads;
    for (std::int64_t c = 0; c < in.channels; c += in.heads) {
      const auto count = std::min(in.heads, in.channels - c);
      for (std::int64_t h = 0; h < count; ++h) wide[a * in.channels + c + h] = weights[h];
    }
  }
}

/// out[c] += x[c] * y[c]
template <typename Real>
TESSERA_KERNEL void multiply_add(Real* __restrict__ out, const Real* __restrict__ x, const Real* __restrict__ y,
                                 std::int64_t channels)
{
#pragma omp simd
  for (std::int64_t c = 0; c < channels; ++c) out[c] += x[c] * y[c];
}

template <typename Real>
TESSERA_KERNEL void forward_rows(const WeightedSum<Real>& in, Real* __restrict__ out, std::int64_t first,
                                 std::int64_t last)
{
  const auto size = in.rows * in.channels;
  std::vector<Real> wide(in.moments * in.channels);
  std::fill(out + first * in.moments * size, out + last * in.moments * size, Real(0));
  for (auto i = first; i < last; ++i) {
    for (auto e = in.edges.receiver_range[2 * i]; e < in.edges.receiver_range[2 * i + 1]; ++e) {
      widen(in, e, wide.data());
      const Real* value = in.values + in.edges.sender[e] * size;
      for (std::int64_t a = 0; a < in.moments; ++a) {
        Real* sum = out + (i * in.moments + a) * size;
        for (std::int64_t r = 0; r < in.rows; ++r) {
          multiply_add(sum + r * in.channels, wide.data() + a * in.channels, value + r * in.channels, in.channels);
        }
      }
    }
  }
}

/// grad_weights[e, a, h] = sum over rows r and channels c of head h of grad[i, a, r, c] values[j, r, c].
template <typename Real>
TESSERA_KERNEL void weight_rows(const WeightedSum<Real>& in, Real* __restrict__ out, std::int64_t first,
                                std::int64_t last)
{
  const auto size = in.rows * in.channels;
  std::vector<Real> product(in.channels);
  for (auto i = first; i < last; ++i) {
    for (auto e = in.edges.receiver_range[2 * i]; e < in.edges.receiver_range[2 * i + 1]; ++e) {
      const Real* value = in.values + in.edges.sender[e] * size;
      for (std::int64_t a = 0; a < in.moments; ++a) {
        const Real* grad = in.grad + (i * in.moments + a) * size;
        std::fill(product.begin(), product.end(), Real(0));
        for (std::int64_t r = 0; r < in.rows; ++r) {
          multiply_add(product.data(), grad + r * in.channels, value + r * in.channels, in.channels);
        }
        Real* __restrict__ sum = out + (e * in.moments + a) * in.heads;
        std::fill(sum, sum + in.heads, Real(0));
        for (std::int64_t c = 0; c < in.channels; c += in.heads) {
          const auto count = std::min(in.heads, in.channels - c);
          for (std::int64_t h = 0; h < count; ++h) sum[h] += product[c + h];
        }
      }
    }
  }
}

template <typename Real>
TESSERA_KERNEL void value_rows(const WeightedSum<Real>& in, Real* __restrict__ out, std::int64_t first,
                               std::int64_t last)
{
  const auto size = in.rows * in.channels;
  std::vector<Real> wide(in.moments * in.channels);
  std::fill(out + first * size, out + last * size, Real(0));
  for (auto j = first; j < last; ++j) {
    for (auto p = in.edges.sender_range[2 * j]; p < in.edges.sender_range[2 * j + 1]; ++p) {
      const auto e = in.edges.sender_order[p];
      widen(in, e, wide.data());
      const Real* grad = in.grad + in.edges.receiver[e] * in.moments * size;
      for (std::int64_t a = 0; a < in.moments; ++a) {
        for (std::int64_t r = 0; r < in.rows; ++r) {
          multiply_add(out + j * size + r * in.channels, wide.data() + a * in.channels,
                       grad + (a * in.rows + r) * in.channels, in.channels);
        }
      }
    }
  }
}

#define TESSERA_WEIGHTED_SUM(Real)                                                                                 \
  TESSERA_MULTIVERSION void forward(const WeightedSum<Real>& in, Real* out, std::int64_t first, std::int64_t last) \
  {                                                                                                                \
    forward_rows(in, out, first, last);                                                                            \
  }                                                                                                                \
  TESSERA_MULTIVERSION void weight_gradient(const WeightedSum<Real>& in, Real* out, std::int64_t first,            \
                                            std::int64_t last)                                                     \
  {                                                                                                                \
    weight_rows(in, out, first, last);                                                                             \
  }                                                                                                                \
  TESSERA_MULTIVERSION void value_gradient(const WeightedSum<Real>& in, Real* out, std::int64_t first,             \
                                           std::int64_t last)                                                      \
  {                                                                                                                \
    value_rows(in, out, first, last);                                                                              \
  }
TESSERA_WEIGHTED_SUM(float)
TESSERA_WEIGHTED_SUM(double)
#undef TESSERA_WEIGHTED_SUM

void check(const char* op, const at::Tensor& weights, const at::Tensor& values)
{
  const auto type = require_floating(op, "weights", weights, {kAny, kAny, kAny});
  require(op, "values", values, type, {kAny, kAny, kAny});
}

template <typename Real>
WeightedSum<Real> arguments(const EdgeArrays& edges, const at::Tensor& weights, const at::Tensor& values)
{
  return {edges,
          weights.const_data_ptr<Real>(),
          values.const_data_ptr<Real>(),
          nullptr,
          weights.size(1),
          weights.size(2),
          values.size(1),
          values.size(2)};
}

at::Tensor weighted_sum(const at::Tensor& weights, const at::Tensor& values, const at::Tensor& receiver,
                        const at::Tensor& sender, const at::Tensor& receiver_range, const at::Tensor& sender_order,
                        const at::Tensor& sender_range)
{
  check("weighted_sum", weights, values);
  const auto num_edges = weights.size(0), num_rows = receiver_range.size(0);
  const auto edges = edge_arrays("weighted_sum", receiver, sender, receiver_range, sender_order, sender_range,
                                 num_edges, num_rows, values.size(0));
  auto out = at::empty({num_rows, weights.size(1), values.size(1), values.size(2)}, values.options());
  dispatch(values.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    const auto in = arguments<Real>(edges, weights, values);
    auto* data = out.mutable_data_ptr<Real>();
    if (values.is_cuda()) return gpu::weighted_sum(in, data, stream_of(values));
    for_rows(num_rows, work_per_row(num_edges, num_rows, in.moments * in.rows * in.channels),
             [&](auto first, auto last) { forward(in, data, first, last); });
  });
  return out;
}

std::tuple<at::Tensor, at::Tensor> weighted_sum_backward(const at::Tensor& grad, const at::Tensor& weights,
                                                         const at::Tensor& values, const at::Tensor& receiver,
                                                         const at::Tensor& sender, const at::Tensor& receiver_range,
                                                         const at::Tensor& sender_order, const at::Tensor& sender_range)
{
  const char* op = "weighted_sum_backward";
  check(op, weights, values);
  const auto num_edges = weights.size(0), num_rows = receiver_range.size(0), num_senders = values.size(0);
  require(op, "grad", grad, values.scalar_type(), {num_rows, weights.size(1), values.size(1), values.size(2)});
  const auto edges =
      edge_arrays(op, receiver, sender, receiver_range, sender_order, sender_range, num_edges, num_rows, num_senders);
  auto grad_weights = at::empty_like(weights);
  auto grad_values = at::empty_like(values);
  dispatch(values.scalar_type(), [&](auto zero) {
    using Real = decltype(zero);
    auto in = arguments<Real>(edges, weights, values);
    in.grad = grad.const_data_ptr<Real>();
    auto* weight_data = grad_weights.mutable_data_ptr<Real>();
    auto* value_data = grad_values.mutable_data_ptr<Real>();
    if (values.is_cuda()) {
      gpu::weight_gradient(in, weight_data, stream_of(values));
      return gpu::value_gradient(in, value_data, stream_of(values));
    }
    const auto work = in.moments * in.rows * in.channels;
    for_rows(num_rows, work_per_row(num_edges, num_rows, work),
             [&](auto first, auto last) { weight_gradient(in, weight_data, first, last); });
    for_rows(num_senders, work_per_row(num_edges, num_senders, work),
             [&](auto first, auto last) { value_gradient(in, value_data, first, last); });
  });
  return {grad_weights, grad_values};
}

void add_kernels(torch::Library& m)
{
  m.impl("weighted_sum", &Recorded<&weighted_sum>::call);
  m.impl("weighted_sum_backward", &Recorded<&weighted_sum_backward>::call);
}

}  // namespace

TORCH_LIBRARY_IMPL(tessera, CPU, m) { add_kernels(m); }
TORCH_LIBRARY_IMPL(tessera, CUDA, m) { add_kernels(m); }

}  // namespace tessera::operators
